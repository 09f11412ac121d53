//! Secrets in texts: each occurrence of a registered value becomes `<NAME:xxxxxxxx>`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use hmac::{Hmac, KeyInit as _, Mac as _};
use ptc_protocol::hex;
use sha2::Sha256;

use super::spellings::spellings;

/// Shortest value that is masked, in characters: shorter ones would blot out ordinary words.
pub(super) const MIN_CHARACTERS: usize = 8;
/// Shortest line of a value of several lines that is masked by itself, in characters.
const MIN_LINE_CHARACTERS: usize = 16;
/// Variables whose values are no secrets.
const OPEN_NAMES: [&str; 8] = [
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TMPDIR", "PWD",
];
const KEY_BYTES: usize = 32;
const BLOCK_BYTES: usize = 64;

/// Why the key for masking could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refused.
    #[error("cannot read or create the key file {path}: {source}")]
    Io {
        /// The key's path.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not a key of ours.
    #[error(
        "the key file {path} is not to be trusted: it {fault}; remove it, and a new one is made"
    )]
    Untrusted {
        /// The key's path.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
}

/// Replaces secrets by their names. Cheap to clone; all clones share what is registered.
#[derive(Clone)]
pub struct Masker(Arc<Inner>);

struct Inner {
    key: [u8; KEY_BYTES],
    secrets: RwLock<Secrets>,
}

#[derive(Default)]
struct Secrets {
    /// Values that are no secrets, whatever the name.
    open: HashSet<String>,
    /// Values already registered.
    known: HashSet<String>,
    /// Spellings to look for, by first byte; empty while there are none.
    spellings: Vec<Vec<Spelling>>,
}

struct Spelling {
    text: String,
    replacement: Arc<str>,
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masker(..)")
    }
}

impl Masker {
    /// A masker with the key of the state folder, which is made where it is missing
    /// (0600, 32 random bytes). `environment` tells the values of `HOME`, `PATH` and
    /// the like, which stay readable.
    pub fn open(
        state_root: &Path,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, KeyError> {
        Ok(Self::with_key(
            load_key(&state_root.join("key"))?,
            environment,
        ))
    }

    /// A masker with a given key.
    pub fn with_key(key: [u8; KEY_BYTES], environment: &BTreeMap<String, String>) -> Self {
        let masker = Self(Arc::new(Inner {
            key,
            secrets: RwLock::default(),
        }));
        masker.set_environment(environment);
        masker
    }

    /// Puts the open values of another environment in place of the first one's.
    pub fn set_environment(&self, environment: &BTreeMap<String, String>) {
        let open = OPEN_NAMES.iter().filter_map(|name| environment.get(*name));
        self.write().open = open.cloned().collect();
    }

    /// Registers a value under the name that replaces it. Values under 8 characters, the
    /// variables that are no secrets and their values are left alone. A value
    /// registered twice keeps its first name.
    pub fn register(&self, name: &str, value: &str) {
        if OPEN_NAMES.contains(&name) || value.chars().count() < MIN_CHARACTERS {
            return;
        }
        let mut secrets = self.write();
        if secrets.open.contains(value) || !secrets.known.insert(value.to_owned()) {
            return;
        }
        let replacement: Arc<str> = format!("<{}:{}>", label(name), self.tag(value)).into();
        let lines = value.lines().map(str::trim);
        let lines = lines.filter(|line| line.chars().count() >= MIN_LINE_CHARACTERS);
        for text in std::iter::once(value).chain(lines) {
            for text in spellings(text) {
                secrets.add(text, &replacement);
            }
        }
    }

    /// The text with every registered value replaced, whether written as it is or escaped
    /// as in JSON. Where values overlap, the whole stretch goes and takes the longest one's name.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let secrets = self.0.secrets.read();
        let secrets = secrets.unwrap_or_else(PoisonError::into_inner);
        let stretches = secrets.stretches(text);
        if stretches.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = String::with_capacity(text.len());
        let mut done = 0;
        for stretch in stretches {
            masked.push_str(text.get(done..stretch.start).unwrap_or_default());
            masked.push_str(stretch.replacement);
            done = stretch.end;
        }
        masked.push_str(text.get(done..).unwrap_or_default());
        Cow::Owned(masked)
    }

    /// How many bytes of `text` can be masked apart from what follows it: up to where a registered value may have
    /// begun that goes on behind its end.
    pub fn settled(&self, text: &str) -> usize {
        let secrets = self.0.secrets.read();
        let secrets = secrets.unwrap_or_else(PoisonError::into_inner);
        let begun = secrets.spellings.iter().flatten();
        let begun = begun.map(|spelling| begun_at_end(spelling.text.as_bytes(), text.as_bytes()));
        // A beginning of a spelling starts on a character border, as the spelling does.
        let settled = text.len() - begun.max().unwrap_or(0);
        let stretches = secrets.stretches(text);
        let across = |stretch: &&Stretch<'_>| stretch.start < settled && settled < stretch.end;
        stretches
            .iter()
            .find(across)
            .map_or(settled, |found| found.start)
    }

    /// 64 hex digits of an HMAC-SHA256 of `bytes`, apart for each `purpose`: equal
    /// values have equal hashes, and nobody without the key can try values out.
    pub fn keyed_hash(&self, purpose: &str, bytes: &[u8]) -> String {
        self.hmac(&[purpose.as_bytes(), b"\0", bytes])
    }

    /// The 8 hex digits that tell one value of a name from another.
    fn tag(&self, value: &str) -> String {
        let mut hash = self.hmac(&[value.as_bytes()]);
        hash.truncate(8);
        hash
    }

    fn hmac(&self, parts: &[&[u8]]) -> String {
        // HMAC pads a shorter key with zeros to a block of its hash, so this is the plain keyed HMAC.
        let mut block = [0; BLOCK_BYTES];
        for (to, from) in block.iter_mut().zip(self.0.key) {
            *to = from;
        }
        let mut mac = Hmac::<Sha256>::new(&block.into());
        for part in parts {
            mac.update(part);
        }
        hex(&mac.finalize().into_bytes())
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Secrets> {
        self.0
            .secrets
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a text that is replaced.
struct Stretch<'s> {
    start: usize,
    end: usize,
    /// Length of the value that names it.
    longest: usize,
    replacement: &'s str,
}

impl Secrets {
    fn add(&mut self, text: String, replacement: &Arc<str>) {
        let Some(first) = text.bytes().next() else {
            return;
        };
        self.spellings.resize_with(256, Vec::new);
        let Some(list) = self.spellings.get_mut(usize::from(first)) else {
            return;
        };
        let key = |text: &str| (std::cmp::Reverse(text.len()), text.to_owned());
        let wanted = key(&text);
        let Err(place) = list.binary_search_by(|known| key(&known.text).cmp(&wanted)) else {
            return;
        };
        let replacement = Arc::clone(replacement);
        list.insert(place, Spelling { text, replacement });
    }

    /// The stretches of a text that secrets cover, in order and apart from each other.
    fn stretches(&self, text: &str) -> Vec<Stretch<'_>> {
        let mut stretches: Vec<Stretch<'_>> = Vec::new();
        if self.spellings.is_empty() {
            return stretches;
        }
        let bytes = text.as_bytes();
        for (start, first) in bytes.iter().enumerate() {
            let candidates = self.spellings.get(usize::from(*first));
            let candidates = candidates.map(Vec::as_slice).unwrap_or_default();
            if candidates.is_empty() {
                continue;
            }
            let rest = bytes.get(start..).unwrap_or_default();
            // They are sorted, so the first that fits is the longest from here.
            let found = candidates
                .iter()
                .find(|spelling| rest.starts_with(spelling.text.as_bytes()));
            let Some(found) = found else {
                continue;
            };
            let length = found.text.len();
            let end = start + length;
            match stretches.last_mut() {
                Some(last) if start < last.end => {
                    last.end = last.end.max(end);
                    if length > last.longest {
                        last.longest = length;
                        last.replacement = &found.replacement;
                    }
                }
                _ => stretches.push(Stretch {
                    start,
                    end,
                    longest: length,
                    replacement: &found.replacement,
                }),
            }
        }
        stretches
    }
}

/// The length of the longest beginning of `secret` that `text` ends with, all of it left out.
fn begun_at_end(secret: &[u8], text: &[u8]) -> usize {
    let most = secret.len().saturating_sub(1).min(text.len());
    let end = text.get(text.len() - most..).unwrap_or_default();
    // For each length of a beginning, the longest shorter one that it ends with (Knuth, Morris, Pratt).
    let mut shorter = vec![0_usize];
    let mut length = 0;
    for byte in secret.iter().skip(1) {
        length = grown(secret, &shorter, length, *byte);
        shorter.push(length);
    }
    end.iter()
        .fold(0, |length, byte| grown(secret, &shorter, length, *byte))
}

/// The longest beginning of `secret` after one of the length `length` was followed by `byte`.
fn grown(secret: &[u8], shorter: &[usize], mut length: usize, byte: u8) -> usize {
    while length > 0 && secret.get(length) != Some(&byte) {
        length = shorter.get(length - 1).copied().unwrap_or(0);
    }
    if secret.get(length) == Some(&byte) {
        length + 1
    } else {
        0
    }
}

/// A name as it stands in the replacement: at most 64 characters, none that JSON or a shell would mind.
fn label(name: &str) -> String {
    name.chars()
        .take(64)
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' => c,
            _ => '_',
        })
        .collect()
}

fn load_key(path: &Path) -> Result<[u8; KEY_BYTES], KeyError> {
    let io = |source| KeyError::Io {
        path: path.to_owned(),
        source,
    };
    match open_key(path) {
        Ok(file) => return read_key(path, file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| io(std::io::Error::other(error.to_string())))?;
    // A whole file is made beside it and linked into place, so that of two daemons
    // that start at once one makes the key and both read the same, whole one.
    let beside = path.with_extension(format!("new-{}-{}", std::process::id(), hex(&key[..4])));
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(&key))
        .and_then(|()| match std::fs::hard_link(&beside, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    // Nothing depends on the file beside any more; if it stays, it is 32 random bytes nobody reads.
    let _ = std::fs::remove_file(&beside);
    made.map_err(io)?;
    read_key(path, open_key(path).map_err(io)?)
}

fn open_key(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn read_key(path: &Path, file: File) -> Result<[u8; KEY_BYTES], KeyError> {
    let io = |source| KeyError::Io {
        path: path.to_owned(),
        source,
    };
    let untrusted = |fault| KeyError::Untrusted {
        path: path.to_owned(),
        fault,
    };
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(untrusted("is no ordinary file"));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(untrusted("belongs to another user"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(untrusted("can be read or written by other users"));
    }
    let mut bytes = Vec::new();
    let limit = KEY_BYTES as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(io)?;
    bytes
        .try_into()
        .map_err(|_| untrusted("does not have 32 bytes"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use proptest::prelude::*;

    use super::*;
    use crate::config::spellings::json_escaped;

    fn masker(secrets: &[(&str, &str)]) -> Masker {
        let environment = BTreeMap::from([("HOME".to_owned(), "/home/someone".to_owned())]);
        let masker = Masker::with_key([7; 32], &environment);
        for (name, value) in secrets {
            masker.register(name, value);
        }
        masker
    }

    #[test]
    fn each_occurrence_becomes_the_name_and_the_tag_of_the_value() {
        let masker = masker(&[("A", "12345678"), ("B", "abcdefgh")]);
        let text = masker.mask("x12345678,abcdefgh,12345678");
        let a = masker.mask("12345678").into_owned();
        assert_eq!(a.len(), "<A:xxxxxxxx>".len());
        assert!(a.starts_with("<A:") && a.ends_with('>'));
        let b = masker.mask("abcdefgh").into_owned();
        assert_eq!(text, format!("x{a},{b},{a}"));
        assert!(matches!(masker.mask("nothing"), Cow::Borrowed("nothing")));
    }

    #[test]
    fn the_tag_is_the_keyed_hash_of_the_value() {
        // RFC 4231, test case 2 has a short key; with it, HMAC pads as for ours.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let masker = Masker::with_key(key, &BTreeMap::new());
        let text = "what do ya want for nothing?";
        masker.register("N", text);
        assert_eq!(masker.mask(text), "<N:5bdcc146>");
        assert_ne!(masker.keyed_hash("a", b"x"), masker.keyed_hash("b", b"x"));
    }

    #[test]
    fn what_is_no_secret_stays_readable() {
        let masker = masker(&[
            ("SHORT", "1234567"),
            ("PATH", "/usr/bin:/bin"),
            ("WORK", "/home/someone"),
            ("UMLAUTS", "äöüäöüä"),
        ]);
        let text = "1234567 /usr/bin:/bin /home/someone äöüäöüä";
        assert_eq!(masker.mask(text), text);
    }

    #[test]
    fn overlapping_values_go_whole_under_the_longest_name() {
        let masker = masker(&[
            ("SHORT", "abcdefgh"),
            ("LONG", "abcdefghijkl"),
            ("TAIL", "ijklmnop"),
        ]);
        let text = masker
            .mask("-abcdefghijkl- -abcdefgh- -abcdefghijklmnop-")
            .into_owned();
        let parts: Vec<_> = text.split(' ').collect();
        assert!(parts[0].starts_with("-<LONG:") && parts[0].ends_with(">-"));
        assert!(parts[1].starts_with("-<SHORT:") && parts[1].ends_with(">-"));
        assert!(
            parts[2].starts_with("-<LONG:") && parts[2].ends_with(">-"),
            "{text}"
        );
    }

    #[test]
    fn escaped_forms_are_found() {
        let value = "p\"w/ü\n\\d\u{1}x€";
        let masker = masker(&[("PW", value)]);
        let json = serde_json::Value::from(value).to_string();
        let nested = serde_json::Value::from(json.clone()).to_string();
        let ascii = r#""p\"w/\u00fc\n\\d\u0001x\u20ac""#.to_owned();
        let slashes = json.replace('/', "\\/");
        for text in [
            value.to_owned(),
            json,
            nested,
            ascii,
            slashes,
            format!("{value:?}"),
        ] {
            let hidden = masker.mask(&text).into_owned();
            assert!(
                hidden.contains("<PW:") && !hidden.contains("w/"),
                "{hidden}"
            );
        }
    }

    #[test]
    fn forms_of_addresses_are_found() {
        let masker = masker(&[
            ("PART", "top secret/value#1"),
            ("HOST", "SecretHost.Example"),
            ("Q", "a&b=c d\"é"),
        ]);
        for (text, name) in [
            ("http://h/top%20secret/value", "<PART:"),
            ("http://h/top%20secret/value%231/mcp", "<PART:"),
            ("k=top+secret%2Fvalue%231", "<PART:"),
            ("dns: secrethost.example", "<HOST:"),
            ("?q=a&b=c%20d%22%C3%A9", "<Q:"),
        ] {
            let hidden = masker.mask(text).into_owned();
            assert!(hidden.contains(name), "{hidden}");
        }
    }

    #[test]
    fn a_value_that_may_go_on_is_not_settled() {
        let masker = masker(&[("A", "abcabcabd"), ("B", "bd-12345678")]);
        for (text, settled) in [
            ("", 0),
            ("nothing", 7),
            ("xabcab", 1),
            ("abcabcabcab", 3),
            ("-abcabcabd", 1),
            ("-abcabcabd-", 1),
            ("-abcabcabd+", 11),
            ("-bd-1234567", 1),
            ("é", 2),
        ] {
            assert_eq!(masker.settled(text), settled, "{text}");
        }
    }

    #[test]
    fn many_values_are_registered_in_a_moment() {
        let masker = masker(&[]);
        for number in 0..20_000 {
            masker.register("N", &format!("value-{number:08}"));
        }
        assert!(masker.mask("value-00019999").starts_with("<N:"));
    }

    #[test]
    fn lines_of_a_long_value_are_masked_by_themselves() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nAAAA\n";
        let masker = masker(&[("KEY", key)]);
        let line = masker.mask("stderr: MIIEvQIBADANBgkqhkiG").into_owned();
        assert!(line.starts_with("stderr: <KEY:"), "{line}");
        assert_eq!(masker.mask("AAAA"), "AAAA");
    }

    #[test]
    fn clones_share_what_is_registered_and_debug_shows_nothing() {
        let first = masker(&[]);
        let second = first.clone();
        second.register("A", "12345678");
        assert!(first.mask("12345678").starts_with("<A:"));
        assert!(!format!("{first:?}").contains("12345678"));
    }

    #[test]
    fn the_key_is_made_once_and_kept_private() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("key");
        let first = load_key(&path).unwrap();
        assert_eq!(load_key(&path).unwrap(), first);
        assert_ne!(first, [0; 32]);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 1);
    }

    #[test]
    fn daemons_that_start_at_once_read_one_key() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("key");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| load_key(&path).unwrap()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn a_doubtful_key_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("key");
        let environment = BTreeMap::new();
        std::fs::write(&path, [1; 32]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let open = || Masker::open(state.path(), &environment);
        assert!(matches!(open(), Err(KeyError::Untrusted { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(open().is_ok());
        std::fs::write(&path, [1; 31]).unwrap();
        assert!(matches!(open(), Err(KeyError::Untrusted { .. })));
        std::fs::rename(&path, state.path().join("other")).unwrap();
        symlink("other", &path).unwrap();
        assert!(matches!(open(), Err(KeyError::Io { .. })));
    }

    proptest! {
        #[test]
        fn pieces_cut_where_they_are_settled_hide_what_the_whole_hides(
            secrets in prop::collection::vec("[xyzé]{8,10}", 1..5),
            gaps in prop::collection::vec("[ xyz]{0,3}", 7),
            order in prop::collection::vec(0usize..5, 1..12),
            lengths in prop::collection::vec(0usize..20, 1..8),
        ) {
            let masker = masker(&[]);
            for secret in &secrets {
                masker.register("NAME", secret);
            }
            let mut text = String::new();
            for (index, gap) in order.iter().zip(gaps.iter().cycle()) {
                text.push_str(&secrets[index % secrets.len()]);
                text.push_str(gap);
            }
            let mut held = String::new();
            let mut shown = String::new();
            let mut rest = text.as_str();
            for length in lengths.iter().cycle().take(40) {
                let (piece, after) = rest.split_at(rest.floor_char_boundary(*length));
                rest = after;
                held.push_str(piece);
                let settled = held.split_off(masker.settled(&held));
                shown.push_str(&masker.mask(&held));
                shown.push('|');
                held = settled;
            }
            held.push_str(rest);
            shown.push_str(&masker.mask(&held));
            for secret in &secrets {
                prop_assert!(!shown.replace('|', "").contains(secret.as_str()), "{}", shown);
            }
        }

        #[test]
        fn no_registered_value_is_left(
            secrets in prop::collection::vec("[xyz\"\\\\é\n]{8,14}", 1..6),
            gaps in prop::collection::vec("[ xyz]{0,3}", 7),
            order in prop::collection::vec(0usize..6, 1..12),
        ) {
            let masker = masker(&[]);
            for secret in &secrets {
                masker.register("NAME", secret);
            }
            let mut text = String::new();
            for (index, gap) in order.iter().zip(gaps.iter().cycle()) {
                text.push_str(&secrets[index % secrets.len()]);
                text.push_str(gap);
            }
            let json = serde_json::Value::from(text.clone()).to_string();
            for form in [text, json] {
                let masked = masker.mask(&form).into_owned();
                for secret in &secrets {
                    prop_assert!(!masked.contains(secret.as_str()));
                    prop_assert!(!masked.contains(&json_escaped(secret)));
                }
            }
        }
    }
}
