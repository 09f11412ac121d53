//! Finds names that a misspelt one may have meant.

/// Most names that are suggested.
const MAX_SUGGESTIONS: usize = 3;
/// Longest name that is compared, in characters.
const MAX_CHARS: usize = 256;

/// The known names nearest to one that is not known, nearest first; at most three.
pub(super) fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    if name.len() > MAX_CHARS * 4 {
        return Vec::new();
    }
    let wanted = tail(name);
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|candidate| {
            let whole = distance(name, candidate)?;
            // A model often remembers the tool and not the server, or the other way round.
            let tool = distance(wanted, tail(candidate))?;
            let best = whole.min(tool + 1);
            let allowed = 1 + wanted.chars().count() / 4;
            (best <= allowed).then_some((best, candidate))
        })
        .collect();
    found.sort_unstable();
    found
        .into_iter()
        .take(MAX_SUGGESTIONS)
        .map(|(_, candidate)| candidate.to_owned())
        .collect()
}

/// The tools a name may mean: those that differ in prefix, dots, hyphens and underscores only, else the nearest.
pub(super) fn near_tools<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let wanted = parts(name);
    let known: Vec<&str> = known.into_iter().collect();
    let same: Vec<String> = known
        .iter()
        .copied()
        .filter(|candidate| !wanted.is_empty() && parts(candidate) == wanted)
        .take(MAX_SUGGESTIONS)
        .map(str::to_owned)
        .collect();
    if same.is_empty() {
        near(name, known)
    } else {
        same
    }
}

/// The words of a name without the prefix of tools, in small letters.
fn parts(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = name
        .split(['_', '-', '.', '/', ' '])
        .filter(|part| !part.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    if parts.len() > 1 && parts.first().is_some_and(|part| part == "mcp") {
        parts.remove(0);
    }
    parts
}

/// The part of a callable name behind its server.
fn tail(name: &str) -> &str {
    name.strip_prefix("mcp__")
        .and_then(|rest| rest.split_once("__"))
        .map_or(name, |(_, tool)| tool)
}

/// The number of edits between two names, case and `-` against `_` aside; `None` for names too long to compare.
fn distance(a: &str, b: &str) -> Option<usize> {
    let fold = |name: &str| -> Vec<char> {
        name.chars()
            .map(|c| {
                if c == '-' || c == '.' {
                    '_'
                } else {
                    c.to_ascii_lowercase()
                }
            })
            .collect()
    };
    let (a, b) = (fold(a), fold(b));
    if a.len() > MAX_CHARS || b.len() > MAX_CHARS {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (j, to) in b.iter().enumerate() {
            let up = row.get(j + 1).copied().unwrap_or(usize::MAX);
            let cost = (diagonal + usize::from(from != to))
                .min(left + 1)
                .min(up + 1);
            if let Some(cell) = row.get_mut(j) {
                *cell = left;
            }
            diagonal = up;
            left = cost;
        }
        if let Some(cell) = row.last_mut() {
            *cell = left;
        }
    }
    row.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_megabytes_is_near_to_none_and_costs_nothing() {
        let known: Vec<String> = (0..2000).map(|n| format!("mcp__s__t{n}")).collect();
        let name = "mcp__s__t".repeat(1_000_000);
        let start = std::time::Instant::now();
        for _ in 0..1000 {
            assert_eq!(
                near(&name, known.iter().map(String::as_str)),
                Vec::<String>::new()
            );
        }
        // One look at each of its characters, for each known name, would take days.
        assert!(start.elapsed().as_secs() < 10);
    }

    #[test]
    fn edits_are_counted_and_small_differences_of_style_are_none() {
        assert_eq!(distance("kitten", "sitting"), Some(3));
        assert_eq!(distance("", "abc"), Some(3));
        assert_eq!(distance("abc", ""), Some(3));
        assert_eq!(distance("Max-Results", "max_results"), Some(0));
        assert_eq!(distance(&"a".repeat(300), "b"), None);
    }

    #[test]
    fn the_nearest_come_first_and_strangers_not_at_all() {
        let known = [
            "mcp__h__echo",
            "mcp__h__each",
            "mcp__g__echo",
            "mcp__h__delete_all",
        ];
        assert_eq!(
            near("mcp__h__ecko", known),
            ["mcp__h__echo", "mcp__g__echo"]
        );
        assert_eq!(near("echo", known), ["mcp__g__echo", "mcp__h__echo"]);
        assert!(near("mcp__h__nothing_like_it", known).is_empty());
        assert_eq!(near("limti", ["limit", "cursor"]), ["limit"]);
        assert_eq!(near("limits", ["limit", "cursor"]), ["limit"]);
        for name in ["h.delete-all", "h__delete_all", "MCP/h/Delete_All"] {
            assert_eq!(near_tools(name, known), ["mcp__h__delete_all"], "{name}");
        }
    }
}
