//! Gives each tool the name by which programs call it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Most tools whose names are kept for ever.
pub const MAX_KEPT: usize = 50_000;
/// Most tools beyond these that can have a name at all in one life of the daemon.
const MAX_LOOSE: usize = 50_000;
/// Revision of the text that [`Names::to_text`] writes.
const VERSION: u64 = 1;
/// Hex digits a suffix may have; the later ones only where the earlier are taken.
const SUFFIX_DIGITS: [usize; 5] = [4, 8, 16, 32, 64];

/// A text that holds no kept names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the kept names cannot be used: {cause}")]
pub struct NamesError {
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub cause: String,
}

/// A tool: its server's name in the configuration, and its name on the wire.
type Tool = (String, String);

/// The names given so far.
///
/// A name once given is kept: it never moves to another tool, whatever the
/// order in which servers answer. Where that cannot be promised any more,
/// after a broken file or past [`MAX_KEPT`], every tool in a collision takes a
/// suffix, so that nobody has the name that two could claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    kept: BTreeMap<Tool, String>,
    /// Tools that are not recorded; `None` where no name could be had.
    loose: BTreeMap<Tool, Option<String>>,
    owners: HashMap<String, Tool>,
    untrusted: bool,
}

/// What [`Names::parse`] read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The names that count.
    pub names: Names,
    /// Entries left out because the rule could not have given that name.
    pub ignored: usize,
}

impl Names {
    /// The state after a broken file: nothing is recorded until a reset.
    pub fn untrusted() -> Self {
        Self {
            untrusted: true,
            ..Self::default()
        }
    }

    /// Whether names are recorded, so that they survive a restart.
    pub fn is_trusted(&self) -> bool {
        !self.untrusted
    }

    /// How many names are recorded.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Gives names to tools first seen together. Returns whether the recorded state changed.
    ///
    /// The order of `seen` has no influence.
    pub fn assign<'a>(&mut self, seen: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
        let fresh: BTreeSet<Tool> = seen
            .into_iter()
            .map(|(server, tool)| (server.to_owned(), tool.to_owned()))
            .filter(|tool| !self.kept.contains_key(tool) && !self.loose.contains_key(tool))
            .collect();
        if fresh.is_empty() {
            return false;
        }
        if self.untrusted || self.kept.len() + fresh.len() > MAX_KEPT {
            self.assign_loose(fresh);
            return false;
        }
        self.assign_kept(&fresh);
        true
    }

    /// The name of a tool, if it has one.
    pub fn callable(&self, server: &str, tool: &str) -> Option<&str> {
        let tool = (server.to_owned(), tool.to_owned());
        match self.kept.get(&tool) {
            Some(name) => Some(name),
            None => self.loose.get(&tool)?.as_deref(),
        }
    }

    /// Reads what [`Names::to_text`] wrote. An entry that the rule could not have given is left out.
    ///
    /// # Errors
    /// A line that is not an entry, a name or a tool that occurs twice, too many entries.
    pub fn parse(text: &str) -> Result<Parsed, NamesError> {
        let mut names = Self::default();
        let mut ignored = 0;
        let mut lines = text.lines().enumerate();
        let head = lines
            .next()
            .map_or(Value::Null, |(_, line)| parse_line(line));
        if head.get("version").and_then(Value::as_u64) != Some(VERSION) {
            return Err(error(0, "it is not the head of this revision"));
        }
        match head.get("trusted") {
            Some(Value::Bool(trusted)) => names.untrusted = !trusted,
            _ => return Err(error(0, "it does not say whether names are trusted")),
        }
        for (index, line) in lines {
            let Ok([server, tool, name]) = serde_json::from_str::<[String; 3]>(line) else {
                return Err(error(index, "it is not a list of server, tool and name"));
            };
            let tool = (server, tool);
            if !possible(&tool).any(|possible| possible == name) {
                ignored += 1;
                continue;
            }
            if names.kept.len() >= MAX_KEPT {
                return Err(error(index, "there are too many entries"));
            }
            if names.owners.insert(name.clone(), tool.clone()).is_some() {
                return Err(error(index, "its name occurs twice"));
            }
            if names.kept.insert(tool, name).is_some() {
                return Err(error(index, "its tool occurs twice"));
            }
        }
        Ok(Parsed { names, ignored })
    }

    /// The recorded state, an entry a line, sorted.
    pub fn to_text(&self) -> String {
        let mut text = json!({"version": VERSION, "trusted": !self.untrusted}).to_string();
        text.push('\n');
        for ((server, tool), name) in &self.kept {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", json!([server, tool, name]));
        }
        text
    }

    fn assign_kept(&mut self, fresh: &BTreeSet<Tool>) {
        let mut groups: BTreeMap<String, Vec<&Tool>> = BTreeMap::new();
        for tool in fresh {
            groups
                .entry(plain(&tool.0, &tool.1))
                .or_default()
                .push(tool);
        }
        // Plain names first: a suffixed name must give way to a tool that is really called so.
        for (name, group) in groups {
            if self.owners.contains_key(&name) {
                continue;
            }
            if let Some(winner) = plain_winner(&group) {
                self.owners.insert(name.clone(), winner.clone());
                self.kept.insert(winner.clone(), name);
            }
        }
        for tool in fresh {
            if self.kept.contains_key(tool) {
                continue;
            }
            match self.free_suffixed(tool) {
                Some(name) => {
                    self.owners.insert(name.clone(), tool.clone());
                    self.kept.insert(tool.clone(), name);
                }
                None => {
                    self.loose.insert(tool.clone(), None);
                }
            }
        }
    }

    fn assign_loose(&mut self, fresh: BTreeSet<Tool>) {
        for tool in fresh {
            if self.loose.len() >= MAX_LOOSE {
                break;
            }
            self.loose.insert(tool, None);
        }
        let mut claims: HashMap<String, usize> = HashMap::new();
        for (server, tool) in self.loose.keys() {
            *claims.entry(plain(server, tool)).or_default() += 1;
        }
        let mut nameless: Vec<Tool> = Vec::new();
        for (tool, given) in &mut self.loose {
            let plain = plain(&tool.0, &tool.1);
            let contested = claims.get(&plain).is_some_and(|&claims| claims > 1);
            match given {
                Some(name) if *name == plain && contested => {
                    self.owners.remove(&plain);
                    *given = None;
                    nameless.push(tool.clone());
                }
                Some(_) => {}
                None if contested || is_blank(&tool.1) || self.owners.contains_key(&plain) => {
                    nameless.push(tool.clone());
                }
                None => {
                    self.owners.insert(plain.clone(), tool.clone());
                    *given = Some(plain);
                }
            }
        }
        for tool in nameless {
            let name = self.free_suffixed(&tool);
            if let Some(name) = &name {
                self.owners.insert(name.clone(), tool.clone());
            }
            self.loose.insert(tool, name);
        }
    }

    fn free_suffixed(&self, tool: &Tool) -> Option<String> {
        suffixed(tool).find(|name| !self.owners.contains_key(name))
    }
}

/// The name a tool would have if no other claimed it: `mcp__<server>__<tool>`,
/// with `_` for each character that is no ASCII letter, digit or underscore.
pub fn plain(server: &str, tool: &str) -> String {
    format!("mcp__{}__{}", fold(server), fold(tool))
}

/// Replaces each character that Python would not take in a name.
pub fn fold(name: &str) -> String {
    name.chars()
        .map(|c| if is_plain_char(c) { c } else { '_' })
        .collect()
}

/// The one of a group that may keep the plain name, if any.
fn plain_winner<'a>(group: &[&'a Tool]) -> Option<&'a Tool> {
    let mut claimants = group.iter().copied().filter(|tool| !is_blank(&tool.1));
    if let [only] = group {
        return claimants.next().filter(|tool| *tool == *only);
    }
    let mut natural = claimants.filter(|(server, tool)| is_plain(server) && is_plain(tool));
    let first = natural.next()?;
    natural.next().is_none().then_some(first)
}

fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_plain(name: &str) -> bool {
    name.chars().all(is_plain_char)
}

/// Whether nothing of a tool's name is left after folding.
fn is_blank(tool: &str) -> bool {
    tool.chars().all(|c| c == '_' || !is_plain_char(c))
}

fn suffixed(tool: &Tool) -> impl Iterator<Item = String> + use<> {
    let (server, name) = tool;
    let mut hasher = Sha256::new();
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    hasher.update((server.len() as u64).to_le_bytes());
    hasher.update(server.as_bytes());
    hasher.update(name.as_bytes());
    let mut digits = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    let plain = plain(server, name);
    SUFFIX_DIGITS.into_iter().map(move |length| {
        let suffix: String = digits.chars().take(length).collect();
        format!("{plain}_{suffix}")
    })
}

/// Every name the rule could give to a tool.
fn possible(tool: &Tool) -> impl Iterator<Item = String> + use<> {
    let plain = (!is_blank(&tool.1)).then(|| plain(&tool.0, &tool.1));
    plain.into_iter().chain(suffixed(tool))
}

fn parse_line(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or(Value::Null)
}

fn error(index: usize, cause: &str) -> NamesError {
    NamesError {
        line: index + 1,
        cause: cause.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn given(seen: &[(&str, &str)]) -> Vec<String> {
        let mut names = Names::default();
        names.assign(seen.iter().copied());
        list(&names, seen)
    }

    fn list(names: &Names, seen: &[(&str, &str)]) -> Vec<String> {
        seen.iter()
            .map(|(server, tool)| names.callable(server, tool).unwrap().to_owned())
            .collect()
    }

    fn hash(server: &str, tool: &str, digits: usize) -> String {
        let name = suffixed(&(server.into(), tool.into()))
            .nth(SUFFIX_DIGITS.iter().position(|&d| d == digits).unwrap())
            .unwrap();
        name[name.len() - digits..].to_owned()
    }

    #[test]
    fn every_other_character_becomes_an_underscore() {
        assert_eq!(
            given(&[
                ("back-stage", "catalog.get-facets"),
                ("kw", "class"),
                ("kw", "x y"),
                ("k", "café"),
            ]),
            [
                "mcp__back_stage__catalog_get_facets",
                "mcp__kw__class",
                "mcp__kw__x_y",
                "mcp__k__caf_",
            ]
        );
    }

    #[test]
    fn the_only_name_that_needed_no_change_keeps_the_plain_form() {
        let seen = [("s", "a-b"), ("s", "a.b"), ("s", "a_b"), ("s", "a b")];
        let names = given(&seen);
        assert_eq!(names[2], "mcp__s__a_b");
        assert_eq!(names[0], format!("mcp__s__a_b_{}", hash("s", "a-b", 4)));
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn two_natural_claims_to_one_name_leave_it_to_nobody() {
        let seen = [("a", "b__c"), ("a__b", "c")];
        let names = given(&seen);
        assert_eq!(
            names,
            [
                format!("mcp__a__b__c_{}", hash("a", "b__c", 4)),
                format!("mcp__a__b__c_{}", hash("a__b", "c", 4)),
            ]
        );
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn names_that_fold_to_underscores_alone_get_the_suffix() {
        for tool in ["天气查询", "_", "--", "__"] {
            let name = given(&[("w", tool)]).remove(0);
            assert_eq!(name, format!("{}_{}", plain("w", tool), hash("w", tool, 4)));
        }
    }

    #[test]
    fn a_name_once_given_is_kept_and_a_newcomer_takes_the_suffix() {
        let mut names = Names::default();
        names.assign([("s", "a-b")]);
        assert_eq!(names.callable("s", "a-b"), Some("mcp__s__a_b"));
        let mut names = Names::parse(&names.to_text()).unwrap().names;
        assert!(names.assign([("s", "a_b")]));
        assert!(!names.assign([("s", "a_b"), ("s", "a-b")]));
        assert_eq!(names.callable("s", "a-b"), Some("mcp__s__a_b"));
        assert_eq!(
            names.callable("s", "a_b").map(str::to_owned),
            Some(format!("mcp__s__a_b_{}", hash("s", "a_b", 4)))
        );
    }

    #[test]
    fn a_suffixed_name_already_taken_is_lengthened() {
        let blocker = format!("a_b_{}", hash("s", "a-b", 4));
        let blocker8 = format!("a_b_{}", hash("s", "a-b", 8));
        let seen = [
            ("s", "a-b"),
            ("s", "a_b"),
            ("s", blocker.as_str()),
            ("s", blocker8.as_str()),
        ];
        let names = given(&seen);
        assert_eq!(names[0], format!("mcp__s__a_b_{}", hash("s", "a-b", 16)));
        assert_eq!(names[2], format!("mcp__s__{blocker}"));
    }

    #[test]
    fn after_a_broken_file_each_tool_in_a_collision_takes_the_suffix() {
        let mut names = Names::untrusted();
        assert!(!names.assign([("s", "a_b"), ("s", "x")]));
        assert_eq!(names.callable("s", "a_b"), Some("mcp__s__a_b"));
        assert!(!names.assign([("s", "a-b")]));
        assert_eq!(
            list(&names, &[("s", "a_b"), ("s", "a-b"), ("s", "x")]),
            [
                format!("mcp__s__a_b_{}", hash("s", "a_b", 4)),
                format!("mcp__s__a_b_{}", hash("s", "a-b", 4)),
                "mcp__s__x".to_owned(),
            ]
        );
        let again = Names::parse(&names.to_text()).unwrap().names;
        assert_eq!(again, Names::untrusted());
    }

    #[test]
    fn past_the_bound_kept_names_stay_and_new_ones_in_a_collision_are_suffixed() {
        let tools: Vec<String> = (0..MAX_KEPT - 1).map(|i| format!("t{i}")).collect();
        let mut names = Names::default();
        assert!(names.assign(tools.iter().map(|tool| ("s", tool.as_str()))));
        assert!(!names.assign([("s", "t-0"), ("s", "n.a"), ("s", "n_a"), ("s", "new")]));
        assert_eq!(names.kept(), MAX_KEPT - 1);
        assert_eq!(
            list(
                &names,
                &[
                    ("s", "t0"),
                    ("s", "t-0"),
                    ("s", "n.a"),
                    ("s", "n_a"),
                    ("s", "new")
                ]
            ),
            [
                "mcp__s__t0".to_owned(),
                "mcp__s__t_0".to_owned(),
                format!("mcp__s__n_a_{}", hash("s", "n.a", 4)),
                format!("mcp__s__n_a_{}", hash("s", "n_a", 4)),
                "mcp__s__new".to_owned(),
            ]
        );
    }

    #[test]
    fn entries_the_rule_could_not_have_given_are_left_out() {
        let head = "{\"version\":1,\"trusted\":true}\n";
        let text = format!(
            "{head}[\"s\",\"a\",\"mcp__s__a\"]\n[\"s\",\"b\",\"mcp__s__stolen\"]\n[\"s\",\"_\",\"mcp__s___\"]\n"
        );
        let parsed = Names::parse(&text).unwrap();
        assert_eq!(parsed.ignored, 2);
        assert_eq!(parsed.names.callable("s", "a"), Some("mcp__s__a"));
        assert_eq!(parsed.names.kept(), 1);
    }

    #[test]
    fn broken_texts_are_refused_with_the_line() {
        let head = "{\"version\":1,\"trusted\":true}\n";
        let twice =
            format!("{head}[\"a\",\"b__c\",\"mcp__a__b__c\"]\n[\"a__b\",\"c\",\"mcp__a__b__c\"]\n");
        for (text, line) in [
            (String::new(), 1),
            ("[]".into(), 1),
            ("{\"version\":2,\"trusted\":true}".into(), 1),
            (format!("{head}[\"a\",\"b\"]"), 2),
            (format!("{head}\u{0}"), 2),
            (twice, 3),
        ] {
            assert_eq!(Names::parse(&text).unwrap_err().line, line, "{text:?}");
        }
    }

    fn tool_sets() -> impl Strategy<Value = Vec<Vec<(String, String)>>> {
        let tool = ("[ab_.é]{1,3}", "[ab_.é-]{0,4}");
        prop::collection::vec(prop::collection::vec(tool, 0..8), 1..4)
    }

    /// Names of any characters: long ones, and many that fold to the same.
    fn any_tool_sets() -> impl Strategy<Value = Vec<Vec<(String, String)>>> {
        let name = prop_oneof![
            any::<String>(),
            "\\PC{0,4}",
            "[a-b_\\-. \u{0}\n\u{1f600}\u{301}ÄäA\"\\\\]{0,3}",
            "(_|-|__){0,3}",
            ("[ab]{1,2}", 0_usize..400).prop_map(|(unit, times)| unit.repeat(times)),
            // What a suffix of another name looks like.
            "a_b_[0-9a-f]{4}",
        ];
        let tool = (name.clone(), name);
        prop::collection::vec(prop::collection::vec(tool, 0..12), 1..5)
    }

    fn feed(names: &mut Names, batch: &[(String, String)]) {
        names.assign(batch.iter().map(|(s, t)| (s.as_str(), t.as_str())));
    }

    fn all_names(names: &Names, batches: &[Vec<(String, String)>]) -> BTreeMap<Tool, String> {
        batches
            .iter()
            .flatten()
            .map(|tool| {
                let name = names.callable(&tool.0, &tool.1).unwrap();
                (tool.clone(), name.to_owned())
            })
            .collect()
    }

    proptest! {
        #[test]
        fn names_are_distinct_valid_stable_and_independent_of_order(batches in tool_sets()) {
            let mut names = Names::default();
            let mut turned = Names::default();
            let mut before: BTreeMap<Tool, String> = BTreeMap::new();
            for (index, batch) in batches.iter().enumerate() {
                feed(&mut names, batch);
                let mut back = batch.clone();
                back.reverse();
                feed(&mut turned, &back);
                let now = all_names(&names, &batches[..=index]);
                for (tool, name) in &before {
                    prop_assert_eq!(now.get(tool), Some(name));
                }
                before = now;
            }
            prop_assert_eq!(&all_names(&turned, &batches), &before);
            let distinct: BTreeSet<&String> = before.values().collect();
            prop_assert_eq!(distinct.len(), before.len());
            for name in before.values() {
                prop_assert!(name.starts_with("mcp__") && is_plain(name));
            }
            let parsed = Names::parse(&names.to_text()).unwrap();
            prop_assert_eq!(parsed.ignored, 0);
            prop_assert_eq!(parsed.names, names);
        }

        #[test]
        fn any_names_are_distinct_identifiers_that_outlive_restarts(
            batches in any_tool_sets(),
            turns in prop::collection::vec(any::<prop::sample::Index>(), 5),
        ) {
            let mut names = Names::default();
            let mut turned = Names::default();
            let mut before: BTreeMap<Tool, String> = BTreeMap::new();
            for (index, batch) in batches.iter().enumerate() {
                let changed = names.assign(batch.iter().map(|(s, t)| (s.as_str(), t.as_str())));
                prop_assert_eq!(changed, names.kept() > before.len());
                // The same tools in another order, some listed twice, in a daemon that was started anew.
                let mut other = batch.clone();
                if !other.is_empty() {
                    let at = turns[index].index(other.len());
                    other.rotate_left(at);
                    other.push(other[0].clone());
                }
                feed(&mut turned, &other);
                let parsed = Names::parse(&turned.to_text()).unwrap();
                prop_assert_eq!(parsed.ignored, 0);
                turned = parsed.names;
                let now = all_names(&names, &batches[..=index]);
                for (tool, name) in &before {
                    prop_assert_eq!(now.get(tool), Some(name));
                }
                before = now;
            }
            prop_assert_eq!(&turned, &names);
            let distinct: BTreeSet<&String> = before.values().collect();
            prop_assert_eq!(distinct.len(), before.len());
            for ((server, tool), name) in &before {
                // ASCII alone, so that Python's own folding of identifiers changes nothing.
                prop_assert!(name.is_ascii() && is_plain(name), "{}", name);
                let plain = plain(server, tool);
                let suffix = name.strip_prefix(&plain).unwrap_or("no");
                prop_assert!(suffix.is_empty() || suffix.starts_with('_') && suffix.len() >= 5);
                prop_assert!(suffix.len() == 65 || suffix.len() <= 33);
            }
        }

        #[test]
        fn a_text_of_names_never_gives_one_name_to_two_tools(
            batches in any_tool_sets(),
            cut in any::<prop::sample::Index>(),
            junk in "\\PC{0,3}",
        ) {
            let mut names = Names::default();
            for batch in &batches {
                feed(&mut names, batch);
            }
            // A file that lost a part, or got some characters in.
            let mut text = names.to_text();
            let at = text.floor_char_boundary(cut.index(text.len()));
            text.insert_str(at, &junk);
            for text in [&text[..at], text.as_str()] {
                let Ok(parsed) = Names::parse(text) else { continue };
                let mut names = parsed.names;
                for batch in &batches {
                    feed(&mut names, batch);
                }
                let all = all_names(&names, &batches);
                let distinct: BTreeSet<&String> = all.values().collect();
                prop_assert_eq!(distinct.len(), all.len());
            }
        }

        #[test]
        fn untrusted_names_are_distinct_and_no_name_moves_to_another_tool(batches in tool_sets()) {
            let mut names = Names::untrusted();
            let mut owner: BTreeMap<String, Tool> = BTreeMap::new();
            for (index, batch) in batches.iter().enumerate() {
                feed(&mut names, batch);
                let now = all_names(&names, &batches[..=index]);
                let distinct: BTreeSet<&String> = now.values().collect();
                prop_assert_eq!(distinct.len(), now.len());
                for (tool, name) in now {
                    let first = owner.entry(name).or_insert_with(|| tool.clone());
                    prop_assert_eq!(&*first, &tool);
                }
            }
        }
    }
}
