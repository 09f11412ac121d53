//! Finds the names in a program that look like tools and belong to none.

use std::collections::BTreeMap;

use super::Answers;

/// Most names that are looked into: each is compared with every tool's name.
const MAX_NAMES: usize = 8;
/// Longest name that is looked into, in bytes.
const MAX_NAME: usize = 256;
const PREFIX: &str = "mcp__";

/// Each name with the prefix of tools that stands in `program` and not in `tools`, and why it is not there.
pub(super) fn absent(
    program: &str,
    tools: &BTreeMap<String, Vec<String>>,
    answers: &dyn Answers,
) -> BTreeMap<String, String> {
    let names: BTreeMap<&str, &str> = program
        .split(|c: char| !(is_of_name(c) || c == '.' || c == '-'))
        .flat_map(words)
        .filter(|(word, written)| word.starts_with(PREFIX) && written.len() <= MAX_NAME)
        .filter(|(word, _)| !tools.contains_key(*word))
        .collect();
    names
        .into_iter()
        .take(MAX_NAMES)
        .filter_map(|(name, written)| Some((name.to_owned(), answers.hint(written)?)))
        .collect()
}

/// The words between dots and hyphens, each with what is written behind it, as a server may write a tool's name.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let here = rest?;
        let end = here.find(['.', '-']).unwrap_or(here.len());
        rest = here.get(end + 1..);
        Some((here.get(..end)?, here.trim_end_matches(['.', '-'])))
    })
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, Value};

    use super::*;
    use crate::pool::frame::Helper;
    use crate::registry::{ToolError, View};

    #[derive(Debug)]
    struct Echo;

    impl Answers for Echo {
        fn seen_by(&self, _: &View) -> Option<Arc<dyn Answers>> {
            None
        }
        fn answer(&self, _: Helper, _: &Map<String, Value>) -> Result<Value, ToolError> {
            Ok(Value::Null)
        }
        fn signatures(&self) -> BTreeMap<String, Vec<String>> {
            BTreeMap::new()
        }
        fn hint(&self, name: &str) -> Option<String> {
            (name != "mcp__no__word").then(|| format!("no {name}"))
        }
    }

    #[test]
    fn only_whole_words_with_the_prefix_that_no_tool_has_are_found() {
        let tools = BTreeMap::from([("mcp__a__b".to_owned(), Vec::new())]);
        let program =
            "x = mcp__a__b() + mcp__a__bc(mcp__d__e.f, notmcp__g__h)\nmcp__no__word\n'mcp__i-j'";
        let found: Vec<String> = absent(program, &tools, &Echo).into_values().collect();
        assert_eq!(found, ["no mcp__a__bc", "no mcp__d__e.f", "no mcp__i-j"]);
    }

    #[test]
    fn few_names_of_bounded_length_are_looked_into() {
        let none = BTreeMap::new();
        let names: Vec<String> = (0..100).map(|n| format!("mcp__a__{n}")).collect();
        assert_eq!(absent(&names.join("\n"), &none, &Echo).len(), MAX_NAMES);
        let long = |length: usize| format!("mcp__{}", "x".repeat(length - PREFIX.len()));
        assert_eq!(absent(&long(MAX_NAME), &none, &Echo).len(), 1);
        assert_eq!(absent(&long(MAX_NAME + 1), &none, &Echo).len(), 0);
    }
}
