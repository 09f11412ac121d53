//! Remembers how tools looked when the operator pinned them, and denies those that look otherwise since.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::ToolFacts;

/// Largest file of pins, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Most lines that are told of one tool's difference, and most characters of one.
const MAX_LINES: usize = 60;
const MAX_LINE: usize = 400;

/// Definitions by server and the server's own name of the tool.
type Pinned = BTreeMap<String, BTreeMap<String, Value>>;

/// What is pinned. All clones are one.
#[derive(Clone, Debug)]
pub struct Pins(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Where it is kept; nothing where it is for nobody to keep.
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pinned: Pinned,
    /// Why nothing is known of what is pinned.
    fault: Option<String>,
}

/// How a tool stands to its pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// It is not pinned.
    None,
    /// It looks as it did.
    Same,
    /// It looks otherwise: what is gone begins with `-`, what came with `+`.
    Changed(Vec<String>),
}

impl Pins {
    /// Nothing is pinned, and nothing can be.
    pub fn none() -> Self {
        Self(Arc::new(Inner {
            path: None,
            state: Mutex::default(),
        }))
    }

    /// What the file says; where it cannot be read every call is denied, since any tool may be pinned. Blocking.
    pub fn open(path: PathBuf) -> Self {
        let state = match read(&path) {
            Ok(pinned) => State {
                pinned,
                fault: None,
            },
            Err(error) => State {
                pinned: Pinned::new(),
                fault: Some(format!("{}: {error}", path.display())),
            },
        };
        Self(Arc::new(Inner {
            path: Some(path),
            state: Mutex::new(state),
        }))
    }

    /// Why a call of this tool is denied; for the program's author.
    pub(super) fn denies(&self, tool: &ToolFacts<'_>) -> Option<String> {
        let state = self.lock();
        if let Some(fault) = &state.fault {
            return Some(format!("which tools are pinned cannot be read: {fault}"));
        }
        let pinned = state.pinned.get(tool.server)?.get(tool.tool)?;
        (!is_same(pinned, tool)).then(|| {
            format!(
                "what {} says of itself has changed since it was pinned; the user can see how with `ptcctl tools pins` \
                 and pin it anew",
                tool.callable
            )
        })
    }

    /// How a tool stands to its pin.
    pub fn pin_of(&self, tool: &ToolFacts<'_>) -> Pin {
        let state = self.lock();
        let servers = state.pinned.get(tool.server);
        match servers.and_then(|tools| tools.get(tool.tool)) {
            None => Pin::None,
            Some(pinned) if is_same(pinned, tool) => Pin::Same,
            Some(pinned) => Pin::Changed(difference(pinned, &definition(tool))),
        }
    }

    /// Pins tools as they look now, or takes their pins away, and writes it down. Blocking.
    ///
    /// # Errors
    /// Why it cannot be written; everything is as before then.
    pub fn change(&self, tools: &[ToolFacts<'_>], pin: bool) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(fault) = &state.fault {
            return Err(io::Error::other(fault.clone()));
        }
        let mut pinned = state.pinned.clone();
        for tool in tools {
            let server = pinned.entry(tool.server.to_owned()).or_default();
            if pin {
                server.insert(tool.tool.to_owned(), definition(tool));
            } else {
                server.remove(tool.tool);
            }
        }
        pinned.retain(|_, tools| !tools.is_empty());
        let path = self.0.path.as_deref();
        write(
            path.ok_or_else(|| io::Error::other("there is no file for it"))?,
            &pinned,
        )?;
        state.pinned = pinned;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is remembered of a tool: all that a model or a policy goes by.
fn definition(tool: &ToolFacts<'_>) -> Value {
    json!({
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    })
}

fn is_same(pinned: &Value, tool: &ToolFacts<'_>) -> bool {
    let of = |key: &str| pinned.get(key).filter(|value| !value.is_null());
    let present = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    of("description").and_then(Value::as_str) == tool.description
        && of("inputSchema").cloned() == present(tool.input_schema)
        && of("outputSchema").cloned() == present(tool.output_schema)
        && of("annotations").cloned() == present(tool.annotations)
}

/// The lines that only one of two definitions has.
fn difference(before: &Value, after: &Value) -> Vec<String> {
    let lines = |value: &Value| -> Vec<String> {
        ["description", "inputSchema", "outputSchema", "annotations"]
            .iter()
            .flat_map(|key| {
                let value = value.get(*key).unwrap_or(&Value::Null);
                let text = match value {
                    Value::String(text) => text.clone(),
                    value => serde_json::to_string_pretty(value).unwrap_or_default(),
                };
                let lines = text.lines().map(|line| format!("{key}: {line}"));
                lines.collect::<Vec<String>>()
            })
            .collect()
    };
    let (before, after) = (lines(before), lines(after));
    // A description may have as many lines as its server likes.
    let (old, new): (BTreeSet<&String>, BTreeSet<&String>) =
        (before.iter().collect(), after.iter().collect());
    let gone = before.iter().filter(|line| !new.contains(line));
    let came = after.iter().filter(|line| !old.contains(line));
    let gone = gone.map(|line| format!("- {line}"));
    let mut told: Vec<String> = gone
        .chain(came.map(|line| format!("+ {line}")))
        .map(|line| line.chars().take(MAX_LINE).collect())
        .collect();
    if told.is_empty() {
        told.push("the same lines in another order".to_owned());
    }
    if told.len() > MAX_LINES {
        let more = told.len() - MAX_LINES;
        told.truncate(MAX_LINES);
        told.push(format!("{more} more lines"));
    }
    told
}

fn read(path: &Path) -> io::Result<Pinned> {
    let file = match OpenOptions::new()
        .read(true)
        .custom_flags(flags())
        .open(path)
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pinned::new()),
        opened => opened?,
    };
    is_own(&file)?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is too long"));
    }
    Ok(serde_json::from_str(&text)?)
}

/// No link is followed, and a pipe keeps nobody waiting.
fn flags() -> i32 {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    flags.bits().cast_signed()
}

/// That it is a file which nobody but this user writes to: others could say of any tool that it is pinned as it looks.
fn is_own(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    let why = if !found.is_file() {
        "it is no file"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if found.mode() & 0o022 != 0 {
        "others may write to it (chmod 600 it, after a look at what it says)"
    } else {
        return Ok(());
    };
    Err(io::Error::other(why))
}

fn write(path: &Path, pinned: &Pinned) -> io::Result<()> {
    let text = serde_json::to_string(pinned)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it would be too long"));
    }
    let fresh = path.with_extension("json.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(flags())
        .open(&fresh)?;
    is_own(&file)?;
    file.write_all(text.as_bytes())?;
    // What is renamed before it is on disk may be empty after a crash, and every call would be denied.
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool<'a>(description: &'a str, schema: &'a Value) -> ToolFacts<'a> {
        ToolFacts {
            callable: "mcp__a__b",
            plain: "mcp__a__b",
            server: "a",
            tool: "b",
            description: Some(description),
            annotations: None,
            input_schema: Some(schema),
            output_schema: None,
        }
    }

    #[test]
    fn a_tool_that_looks_otherwise_is_denied_until_it_is_pinned_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins.json");
        let pins = Pins::open(path.clone());
        let (one, two) = (
            json!({"type": "object", "properties": {"x": {"type": "number", "maximum": 1e3}}}),
            json!({"properties": {"x": {"type": "string"}}, "type": "object"}),
        );
        let reordered =
            json!({"properties": {"x": {"maximum": 1e3, "type": "number"}}, "type": "object"});
        assert_eq!(pins.pin_of(&tool("says", &one)), Pin::None);
        assert_eq!(pins.denies(&tool("anything", &two)), None);
        pins.change(&[tool("says", &one)], true).unwrap();
        // The next daemon knows it, too.
        for pins in [pins.clone(), Pins::open(path.clone())] {
            assert_eq!(pins.denies(&tool("says", &one)), None);
            assert_eq!(pins.denies(&tool("says", &reordered)), None);
            assert_eq!(pins.pin_of(&tool("says", &reordered)), Pin::Same);
            for changed in [tool("says more", &one), tool("says", &two)] {
                let why = pins.denies(&changed).unwrap();
                assert!(
                    why.contains("mcp__a__b") && why.contains("ptcctl tools pins"),
                    "{why}"
                );
            }
            let unknown = ToolFacts {
                annotations: Some(&one),
                ..tool("says", &one)
            };
            assert!(pins.denies(&unknown).is_some());
            let gives = ToolFacts {
                output_schema: Some(&two),
                ..tool("says", &one)
            };
            assert!(pins.denies(&gives).is_some());
            let other = ToolFacts {
                server: "c",
                ..tool("else", &two)
            };
            assert_eq!(pins.denies(&other), None);
            let Pin::Changed(lines) = pins.pin_of(&tool("says more", &one)) else {
                panic!("not changed");
            };
            assert_eq!(lines, ["- description: says", "+ description: says more"]);
        }
        let changed = tool("says more", &two);
        pins.change(&[changed], true).unwrap();
        assert_eq!(pins.denies(&changed), None);
        pins.change(&[changed], false).unwrap();
        assert_eq!(pins.denies(&tool("says", &one)), None);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
    }

    fn write_privately(path: &Path, text: &str) {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600);
        file.open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_file_that_is_none_or_that_others_write_to_denies_everything_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins.json");
        let schema = json!({});
        let denies = || {
            let why = Pins::open(path.clone()).denies(&tool("says", &schema));
            why.unwrap_or_default()
        };
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, 0o600.into(), 0).unwrap();
        assert!(denies().ends_with("it is no file"), "{}", denies());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere.json", &path).unwrap();
        assert!(denies().contains("pins.json"));
        std::fs::remove_file(&path).unwrap();
        write_privately(&path, "{}");
        assert_eq!(denies(), "");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, mode).unwrap();
        assert!(denies().contains("others may write to it"), "{}", denies());
        // What lies where the new file is written keeps nobody waiting either.
        std::fs::remove_file(&path).unwrap();
        let pins = Pins::open(path.clone());
        let fresh = path.with_extension("json.new");
        rustix::fs::mknodat(rustix::fs::CWD, &fresh, pipe, 0o600.into(), 0).unwrap();
        assert!(pins.change(&[tool("says", &schema)], true).is_err());
        assert_eq!(pins.pin_of(&tool("says", &schema)), Pin::None);
    }

    #[test]
    fn a_description_of_a_hundred_thousand_lines_is_compared_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pins = Pins::open(folder.path().join("pins.json"));
        let lines = |word: &str| -> String {
            let lines = (0..100_000).map(|n| format!("{word}{n}\n"));
            lines.collect()
        };
        let schema = json!({});
        pins.change(&[tool(&lines("a"), &schema)], true).unwrap();
        let Pin::Changed(told) = pins.pin_of(&tool(&lines("b"), &schema)) else {
            panic!("not changed");
        };
        assert_eq!(told.len(), MAX_LINES + 1);
        assert_eq!(told[MAX_LINES], "199940 more lines");
    }

    #[test]
    fn pins_that_cannot_be_read_deny_everything_and_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins.json");
        write_privately(&path, "[1]");
        let pins = Pins::open(path.clone());
        let schema = json!({});
        let why = pins.denies(&tool("says", &schema)).unwrap();
        assert!(why.contains("pins.json"), "{why}");
        assert!(pins.change(&[tool("says", &schema)], true).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[1]");
        assert!(Pins::none().change(&[tool("says", &schema)], true).is_err());
    }
}
