//! Typed access to the keys of one mapping; whatever does not fit becomes a fault and its default.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fault::{Fault, Place, shown};
use super::foreign;
use super::raw::{Entry, Node, Value};

/// Longest time that can be asked for: a year, in seconds.
pub(super) const MAX_SECONDS: u64 = 365 * 24 * 3600;
/// YAML's words for yes and no, which are read whatever their capitals.
const BOOLEAN_WORDS: [&str; 6] = ["on", "true", "yes", "off", "false", "no"];

/// One mapping of the file whose keys are known.
pub(super) struct Section<'a> {
    /// How messages name it, such as `servers[0]`; empty for the file itself.
    name: String,
    /// How the table of other programs' keys names it, such as `servers[]`.
    pattern: &'static str,
    at: Place,
    entries: &'a [Entry],
}

/// Words of a key: the first spelling is the one that messages show.
pub(super) type Words<T> = [(&'static [&'static str], T)];

impl<'a> Section<'a> {
    /// Opens a mapping; keys that are not in `known` become faults. `None` where it is no mapping.
    pub(super) fn open(
        node: &'a Node,
        name: String,
        pattern: &'static str,
        known: &[&str],
        faults: &mut Vec<Fault>,
    ) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            if !node.is_null() {
                let message = format!(
                    "{name} is a mapping with the keys {}, not {}",
                    known.join(", "),
                    node.kind()
                );
                faults.push(Fault::at(node.at, &message));
            }
            return None;
        };
        let section = Self {
            name,
            pattern,
            at: node.at,
            entries,
        };
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                section.unknown(entry, known, faults);
            }
        }
        Some(section)
    }

    /// The file itself, whose keys the caller has looked at.
    pub(super) fn of_file(at: Place, entries: &'a [Entry]) -> Self {
        Self {
            name: String::new(),
            pattern: "",
            at,
            entries,
        }
    }

    /// Where the mapping starts.
    pub(super) fn at(&self) -> Place {
        self.at
    }

    /// The entry of a key that was written.
    pub(super) fn get(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The key with its section's name, as messages show it.
    pub(super) fn path(&self, key: &str) -> String {
        if self.name.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.name)
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn whole<T: TryFrom<u64>>(
        &self,
        key: &str,
        default: T,
        (least, most): (u64, u64),
        faults: &mut Vec<Fault>,
    ) -> T {
        let Some(entry) = self.get(key) else {
            return default;
        };
        let number = plain_text(&entry.node)
            .filter(|text| is_decimal(text))
            .and_then(|text| text.parse::<u64>().ok())
            .filter(|number| (least..=most).contains(number))
            .and_then(|number| T::try_from(number).ok());
        let Some(number) = number else {
            let expected = format!("a whole number from {least} to {most}");
            self.unfit(entry, &expected, faults);
            return default;
        };
        number
    }

    /// A time in seconds above 0, a fraction allowed.
    pub(super) fn seconds(
        &self,
        key: &str,
        default: Duration,
        faults: &mut Vec<Fault>,
    ) -> Duration {
        let Some(entry) = self.get(key) else {
            return default;
        };
        let time = plain_text(&entry.node)
            .filter(|text| {
                let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
                is_decimal(whole) && !fraction.is_empty() && all_digits(fraction)
            })
            .and_then(|text| text.parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .filter(|time| {
                *time >= Duration::from_millis(1) && *time <= Duration::from_secs(MAX_SECONDS)
            });
        let Some(time) = time else {
            let expected = format!("a number of seconds above 0, at most {MAX_SECONDS}");
            self.unfit(entry, &expected, faults);
            return default;
        };
        time
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(
        &self,
        key: &str,
        default: T,
        words: &Words<T>,
        faults: &mut Vec<Fault>,
    ) -> T {
        let Some(entry) = self.get(key) else {
            return default;
        };
        let found = match &entry.node.value {
            Value::Text { text, .. } => words.iter().find(|(spellings, _)| {
                spellings
                    .iter()
                    .any(|word| word == text || is_same_boolean(word, text))
            }),
            _ => None,
        };
        let Some((_, value)) = found else {
            self.unfit(entry, &one_of(words), faults);
            return default;
        };
        *value
    }

    /// A switch: on or off, true or false, yes or no.
    pub(super) fn switch(&self, key: &str, default: bool, faults: &mut Vec<Fault>) -> bool {
        const SWITCH: [(&[&str], bool); 2] = [
            (&["on", "true", "yes"], true),
            (&["off", "false", "no"], false),
        ];
        self.word(key, default, &SWITCH, faults)
    }

    /// A text as written. Nothing, a list or a mapping is a fault.
    pub(super) fn text(&self, key: &str, faults: &mut Vec<Fault>) -> Option<(&'a str, Place)> {
        let entry = self.get(key)?;
        match &entry.node.value {
            Value::Text { text, .. } if !entry.node.is_null() => Some((text, entry.node.at)),
            _ => {
                self.unfit(entry, "text", faults);
                None
            }
        }
    }

    /// A list of texts as written; nothing is an empty list.
    pub(super) fn texts(&self, key: &str, faults: &mut Vec<Fault>) -> Vec<(&'a str, Place)> {
        let Some(entry) = self.get(key) else {
            return Vec::new();
        };
        let items = match &entry.node.value {
            Value::List(items) => items.as_slice(),
            Value::Text { text, .. } if text.is_empty() && entry.node.is_null() => &[],
            _ => {
                let expected = format!("a list, such as `{key}: [one, two]`");
                self.unfit_kind(entry, &expected, faults);
                &[]
            }
        };
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if let Value::Text { text, .. } = &item.value {
                texts.push((text.as_str(), item.at));
            } else {
                let path = self.path(key);
                let message = format!("{path}[{index}] must be text, not {}", item.kind());
                faults.push(Fault::at(item.at, &message));
            }
        }
        texts
    }

    /// A mapping of names to texts as written; nothing is an empty mapping, a name without value an empty text.
    pub(super) fn named_texts(
        &self,
        key: &str,
        faults: &mut Vec<Fault>,
    ) -> BTreeMap<&'a str, (&'a str, Place)> {
        let Some(entry) = self.get(key) else {
            return BTreeMap::new();
        };
        let entries = match &entry.node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Text { text, .. } if text.is_empty() && entry.node.is_null() => &[],
            _ => {
                let expected = format!("a mapping, such as `{key}: {{NAME: value}}`");
                self.unfit_kind(entry, &expected, faults);
                &[]
            }
        };
        let mut texts = BTreeMap::new();
        for inner in entries {
            if let Value::Text { text, .. } = &inner.node.value {
                texts.insert(inner.key.as_str(), (text.as_str(), inner.node.at));
            } else {
                let path = self.path(key);
                let (name, kind) = (&inner.key, inner.node.kind());
                let message = format!("{path}.{name} must be text, not {kind}");
                faults.push(Fault::at(inner.node.at, &message));
            }
        }
        texts
    }

    /// Adds the fault of a key that is not `known`.
    pub(super) fn unknown(&self, entry: &Entry, known: &[&str], faults: &mut Vec<Fault>) {
        let path = self.path(&shown(&entry.key));
        let message = if let Some(hint) = foreign::foreign_key(self.pattern, &entry.key) {
            format!("unknown key {path}: {hint}")
        } else if let Some(near) = nearest(&entry.key, known) {
            format!("unknown key {path}: did you mean {near}?")
        } else {
            format!("unknown key {path}: the keys here are {}", known.join(", "))
        };
        faults.push(Fault::at(entry.at, &message));
    }

    /// A value that does not fit, shown as written.
    fn unfit(&self, entry: &Entry, expected: &str, faults: &mut Vec<Fault>) {
        let found = match &entry.node.value {
            Value::Text { text, plain: true } if text.is_empty() => "nothing".to_owned(),
            Value::Text { text, .. } => shown(text),
            _ => entry.node.kind().to_owned(),
        };
        let path = self.path(&entry.key);
        let mut message = format!("{path} must be {expected}, not {found}");
        if entry.node.is_null() {
            message.push_str("; leave the key out for its default");
        }
        faults.push(Fault::at(entry.node.at, &message));
    }

    /// A value of the wrong kind, which is not shown since it may be a secret.
    fn unfit_kind(&self, entry: &Entry, expected: &str, faults: &mut Vec<Fault>) {
        let path = self.path(&entry.key);
        let message = format!("{path} must be {expected}, not {}", entry.node.kind());
        faults.push(Fault::at(entry.node.at, &message));
    }
}

fn one_of<T>(words: &Words<T>) -> String {
    let words: Vec<_> = words
        .iter()
        .filter_map(|(spellings, _)| spellings.first().copied())
        .collect();
    format!("one of {}", words.join(", "))
}

fn is_same_boolean(word: &str, text: &str) -> bool {
    BOOLEAN_WORDS.contains(&word) && word.eq_ignore_ascii_case(text)
}

fn plain_text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Text { text, plain: true } => Some(text),
        _ => None,
    }
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Digits without a leading zero, which other readers would take for octal.
fn is_decimal(text: &str) -> bool {
    !text.is_empty() && all_digits(text) && (text == "0" || !text.starts_with('0'))
}

/// The known key that differs by a slip of the finger, or that the key is the beginning of.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let key: Vec<char> = key
        .to_lowercase()
        .replace('-', "_")
        .chars()
        .take(64)
        .collect();
    let typed: String = key.iter().collect();
    let begun = |name: &&&str| typed.len() >= 3 && name.starts_with(&typed);
    let slipped = known
        .iter()
        .map(|name| (distance(&key, &name.chars().collect::<Vec<_>>()), *name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 5)
        .min()
        .map(|(_, name)| name);
    slipped.or_else(|| known.iter().find(begun).copied())
}

/// Insertions, deletions and replacements between two texts.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for ((y, above), pair) in b.iter().zip(row.iter().skip(1)).zip(&row) {
            let left = next.last().copied().unwrap_or_default();
            next.push((left + 1).min(above + 1).min(pair + usize::from(x != y)));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["timeout_seconds", "trace", "args"];
        assert_eq!(nearest("timeout_second", &known), Some("timeout_seconds"));
        assert_eq!(nearest("Timeout-Seconds", &known), Some("timeout_seconds"));
        assert_eq!(nearest("arg", &known), Some("args"));
        assert_eq!(nearest("logging", &known), None);
    }

    #[test]
    fn numbers_are_decimal() {
        assert!(is_decimal("0") && is_decimal("10"));
        for text in ["", "010", "1_0", "0x1", "1e3", "-1", "+1", "1 "] {
            assert!(!is_decimal(text), "{text}");
        }
    }
}
