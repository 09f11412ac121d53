//! Finds half of a surrogate pair in JSON text, which is JSON and no text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Longest part of a name that a path shows, in characters.
const MAX_NAME_CHARS: usize = 80;

/// Where in `json`, which stands at `path`, half a character is, and what is required; `None` where none is.
///
/// Only for a text that is known to be broken: each level is read once more.
pub(super) fn half_character(json: &str, path: &str) -> Option<String> {
    match json.trim_start().as_bytes().first()? {
        b'"' => {
            let half = half_escape(json)?;
            Some(format!(
                "{path}: found half of a surrogate pair ({half}), required text of whole characters"
            ))
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            let mut items = items.iter().enumerate();
            items.find_map(|(at, item)| half_character(item.get(), &format!("{path}[{at}]")))
        }
        b'{' => {
            let members: Result<BTreeMap<Cow<'_, str>, &RawValue>, _> = serde_json::from_str(json);
            let Ok(members) = members else {
                let half = half_escape(json)?;
                return Some(format!(
                    "{path}: found half of a surrogate pair ({half}) in a name, required names of whole characters"
                ));
            };
            members.iter().find_map(|(name, member)| {
                let name: String = name.chars().take(MAX_NAME_CHARS).collect();
                half_character(member.get(), &format!("{path}.{name}"))
            })
        }
        _ => None,
    }
}

/// The first escape for half a pair that has no other half, as it is written.
fn half_escape(json: &str) -> Option<&str> {
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        rest = rest.get(at..)?;
        let step = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => return rest.get(..6),
            (Some(_), _) => 6,
            // What stands behind the backslash may be one more.
            (None, _) => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
        };
        rest = rest.get(step..)?;
    }
    None
}

/// The number of an escape at the beginning of a text.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_is_found_with_its_path() {
        let said = |path: &str, half: &str| {
            format!(
                "{path}: found half of a surrogate pair ({half}), required text of whole characters"
            )
        };
        for (json, path, half) in [
            (r#"{"code":"\ud800"}"#, "p.code", r"\ud800"),
            (
                r#"{"a":[1,"\\",{"b":"x\uD83D\uDE00\uDfff"}]}"#,
                "p.a[2].b",
                r"\uDfff",
            ),
            (r#""\\ud800\udc00\ud801""#, "p", r"\udc00"),
        ] {
            assert_eq!(half_character(json, "p"), Some(said(path, half)), "{json}");
        }
        let name = half_character(r#"{"a":{"\ud800":1}}"#, "p").unwrap();
        assert!(
            name.starts_with("p.a: found half") && name.contains("in a name"),
            "{name}"
        );
        for whole in [r#"{"a":"\ud83d\ude00 \\ud800"}"#, "1", "[]", r#""\n""#] {
            assert_eq!(half_character(whole, "p"), None, "{whole}");
        }
    }
}
