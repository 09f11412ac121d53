//! Which callable names exist: the `allow` and `block` globs of the configuration.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::config::ToolFilter;

/// A rule that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The pattern is malformed, such as an unclosed `[`.
    #[error("{list}: the pattern {pattern:?} cannot be used: {cause}")]
    BadPattern {
        /// The key of the list.
        list: &'static str,
        /// The pattern as written.
        pattern: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The patterns together are too large to be compiled.
    #[error("{list}: the patterns cannot be used together: {cause}")]
    TooLarge {
        /// The key of the list.
        list: &'static str,
        /// What the compiler says.
        cause: String,
    },
    /// Cedar's policies cannot be had.
    #[error("{}", .faults.join("\n"))]
    Cedar {
        /// What is wrong with them, each with its place.
        faults: Vec<String>,
    },
    /// A rubric cannot be judged by.
    #[error("policy.risk {rubric}: {cause}")]
    Risk {
        /// The rubric.
        rubric: String,
        /// Why not.
        cause: String,
    },
}

/// Which tools exist in one configuration.
#[derive(Clone, Debug)]
pub(super) struct Visibility {
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    All,
    Allow(GlobSet),
    Block(GlobSet),
}

impl Visibility {
    /// Compiles the configuration's globs: `*` and `?` match any character,
    /// `[...]` a set, `[!...]` its complement; case counts.
    ///
    /// # Errors
    /// A pattern that is malformed is named; nothing is matched literally instead.
    pub(super) fn new(filter: &ToolFilter) -> Result<Self, PolicyError> {
        let rule = match filter {
            ToolFilter::All => Rule::All,
            ToolFilter::Allow(patterns) => Rule::Allow(compile("tools.allow", patterns)?),
            ToolFilter::Block(patterns) => Rule::Block(compile("tools.block", patterns)?),
        };
        Ok(Self { rule })
    }

    /// Whether a tool exists for programs and clients.
    ///
    /// `allow` looks at the callable name only. `block` looks at the name
    /// without its suffix as well, so that no suffix lets a tool slip through.
    pub(super) fn visible(&self, callable: &str, plain: &str) -> bool {
        match &self.rule {
            Rule::All => true,
            Rule::Allow(globs) => globs.is_match(callable),
            Rule::Block(globs) => !globs.is_match(callable) && !globs.is_match(plain),
        }
    }

    /// The configuration key that hides a tool.
    pub(super) fn rule_name(&self) -> &'static str {
        match self.rule {
            Rule::All | Rule::Allow(_) => "tools.allow",
            Rule::Block(_) => "tools.block",
        }
    }
}

pub(super) fn compile(list: &'static str, patterns: &[String]) -> Result<GlobSet, PolicyError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern)
            .literal_separator(false)
            .case_insensitive(false)
            .build()
            .map_err(|error| PolicyError::BadPattern {
                list,
                pattern: pattern.clone(),
                cause: error.kind().to_string(),
            })?;
        set.add(glob);
    }
    set.build().map_err(|error| PolicyError::TooLarge {
        list,
        cause: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(patterns: &[&str]) -> Visibility {
        Visibility::new(&ToolFilter::Allow(owned(patterns))).unwrap()
    }

    fn block(patterns: &[&str]) -> Visibility {
        Visibility::new(&ToolFilter::Block(owned(patterns))).unwrap()
    }

    fn owned(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(|&pattern| pattern.to_owned()).collect()
    }

    #[test]
    fn an_empty_allow_list_allows_nothing_and_an_empty_block_list_blocks_nothing() {
        assert!(!allow(&[]).visible("mcp__a__b", "mcp__a__b"));
        assert!(block(&[]).visible("mcp__a__b", "mcp__a__b"));
        let all = Visibility::new(&ToolFilter::All).unwrap();
        assert!(all.visible("mcp__a__b", "mcp__a__b"));
    }

    #[test]
    fn globs_match_any_character_and_keep_case() {
        let policy = allow(&["mcp__a__get_?", "mcp__b__[xy]*", "mcp__c__[!x]"]);
        let seen: Vec<&str> = [
            "mcp__a__get_1",
            "mcp__a__get_12",
            "mcp__A__get_1",
            "mcp__b__y__z",
            "mcp__b__z",
            "mcp__c__x",
            "mcp__c__y",
        ]
        .into_iter()
        .filter(|name| policy.visible(name, name))
        .collect();
        assert_eq!(seen, ["mcp__a__get_1", "mcp__b__y__z", "mcp__c__y"]);
    }

    #[test]
    fn allow_takes_the_exact_name_and_block_the_name_without_suffix_too() {
        assert!(!allow(&["mcp__s__a"]).visible("mcp__s__a_1f3c", "mcp__s__a"));
        assert!(allow(&["mcp__s__a_1f3c"]).visible("mcp__s__a_1f3c", "mcp__s__a"));
        assert!(!block(&["mcp__s__a"]).visible("mcp__s__a_1f3c", "mcp__s__a"));
        assert!(!block(&["mcp__s__a_1f3c"]).visible("mcp__s__a_1f3c", "mcp__s__a"));
    }

    #[test]
    fn an_unclosed_bracket_is_refused_by_name() {
        let error = Visibility::new(&ToolFilter::Block(owned(&["mcp__[a"]))).unwrap_err();
        assert!(error.to_string().contains("mcp__[a"), "{error}");
        assert!(error.to_string().contains("tools.block"), "{error}");
    }
}
