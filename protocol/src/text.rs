//! Which characters of a foreign text would do more on a terminal than be seen.

/// Whether a character steers what shows it: control characters, line ends and tabs among them, and the marks of
/// Unicode that set the direction of what follows.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_seen_steers_nothing() {
        for c in [
            '\0', '\n', '\t', '\u{1b}', '\u{7f}', '\u{9b}', '\u{61c}', '\u{202e}', '\u{2067}',
        ] {
            assert!(steers(c), "{c:?}");
        }
        for c in [' ', 'a', 'é', '漢', '\u{ad}', '\u{200d}', '\u{2028}'] {
            assert!(!steers(c), "{c:?}");
        }
    }
}
