//! Bounds how deep a policy may nest, before anything that follows it into the depths reads it.
//!
//! Parser, validator and evaluator of Cedar call themselves for each level, tens of KiB of stack each; only the last
//! looks at what is left of it. A text of some KiB could end the process otherwise.

use crate::load::{Fault, Source, fault};

/// Most operators, dots and brackets of one policy: no expression is deeper than it has of them.
const MAX: usize = 500;
/// What the thread that reads policies has as its stack, in bytes; only what is used of it takes memory.
pub(crate) const STACK: usize = 512 * 1024 * 1024;

/// A fault for each text with a policy that may be too deep, at the place where it becomes so.
pub(crate) fn faults(sources: &[Source]) -> Vec<Fault> {
    let one = |source: &Source| {
        let offset = too_deep(&source.text)?;
        let message = format!(
            "this policy has more than {MAX} operators, dots and brackets: write sets, such as [1, 2].contains(x), or \
             several policies"
        );
        Some(fault(Some(source), offset, message))
    };
    sources.iter().filter_map(one).collect()
}

/// Where the first policy goes over the limit, in bytes. Texts and comments do not count.
fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut count) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        match byte {
            b'"' => {
                at += 1;
                while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if bytes.get(at) == Some(&b'\\') { 2 } else { 1 };
                }
            }
            b'/' if next == Some(&b'/') => {
                while bytes.get(at).is_some_and(|byte| *byte != b'\n') {
                    at += 1;
                }
            }
            b';' => count = 0,
            b'&' | b'|' if next == Some(byte) => {
                at += 1;
                count += 1;
            }
            b'i' if next == Some(&b'f') => count += 1,
            b'(' | b'[' | b'{' | b'.' | b'!' | b'+' | b'-' | b'*' => count += 1,
            _ => {}
        }
        if count > MAX {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::load::one;
    use crate::table::judged;

    /// Conditions that are deep in every way there is.
    fn conditions(n: usize) -> Vec<String> {
        vec![
            "(".repeat(n) + "true" + &")".repeat(n),
            "[".repeat(n) + "1" + &"]".repeat(n) + " == [1]",
            "{a: ".repeat(n) + "1" + &"}".repeat(n) + " == {}",
            "true".to_owned() + &" && true".repeat(n),
            "false".to_owned() + &" || false".repeat(n),
            "1".to_owned() + &" + 1".repeat(n) + " == 1",
            "1".to_owned() + &" * 1".repeat(n) + " == 1",
            "context.arguments".to_owned() + &".a".repeat(n) + " == 1",
            "context.arguments".to_owned() + &"[\"a\"]".repeat(n) + " == 1",
            "if true then true else ".repeat(n) + "false",
            "[1]".to_owned() + &".contains([1]".repeat(n) + &")".repeat(n),
        ]
    }

    fn policy(condition: &str) -> String {
        format!("permit(principal, action, resource) when {{ {condition} }};")
    }

    #[test]
    fn a_policy_deeper_than_any_is_a_fault_with_its_place() {
        for condition in conditions(100_000) {
            let faults = one(&policy(&condition)).unwrap_err();
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].starts_with("p.cedar:1:"), "{faults:?}");
            assert!(faults[0].contains("more than 500 operators"), "{faults:?}");
        }
    }

    /// On the stack that a test's thread has, which is no larger than the daemon's.
    #[test]
    fn what_is_within_the_limit_loads_judges_and_goes() {
        // Brackets around the condition and the scope count, and `.contains(` counts twice.
        for condition in conditions(240) {
            if let Ok(policies) = one(&policy(&condition)) {
                judged(&policies, "m/echo", &Map::new());
            }
        }
        let or = "resource.name == \"x\" || ".repeat(150) + "resource.name == \"mcp__m__echo\"";
        assert_eq!(one(&policy(&or)).unwrap().count(), 1);
    }

    #[test]
    fn each_policy_is_counted_by_itself_and_texts_not_at_all() {
        let many = policy("1 + 1 == 2").repeat(300);
        assert_eq!(too_deep(&many), None);
        let text = format!("context.arguments_json == \"{}\\\"((\"", "(".repeat(9000));
        assert_eq!(too_deep(&policy(&text)), None);
        assert_eq!(too_deep(&format!("// {}\n", "(".repeat(9000))), None);
        assert_eq!(too_deep(&"(".repeat(501)), Some(500));
    }
}
