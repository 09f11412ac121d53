//! Shows the words of a server: secrets are taken out first, so that no cut leaves half of one.

use std::fmt;

use super::stderr::Mask;

/// How much of a message that is none is shown, in characters.
const MAX_SHOWN_CHARS: usize = 120;
/// How much of it is looked at, in bytes: a secret that begins in what is shown is whole in it.
pub(super) const LOOKED_AT: usize = 64 * 1024;

/// How the words of servers are shown. The default one knows no secrets.
#[derive(Clone, Default)]
pub(crate) struct Words(Option<Mask>);

impl fmt::Debug for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Words")
    }
}

impl Words {
    pub(crate) fn masked_by(mask: Mask) -> Self {
        Self(Some(mask))
    }

    /// The text without secrets.
    pub(crate) fn mask(&self, text: &str) -> String {
        match &self.0 {
            Some(mask) => mask(text),
            None => text.to_owned(),
        }
    }

    /// The beginning of some bytes as one line of harmless text.
    pub(crate) fn shown(&self, bytes: &[u8]) -> String {
        let head = bytes.get(..LOOKED_AT).unwrap_or(bytes);
        let text: String = self
            .mask(&String::from_utf8_lossy(head))
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(MAX_SHOWN_CHARS)
            .collect();
        text.trim().to_owned()
    }

    /// Head and tail of a text that is longer than so many characters, without secrets; a shorter
    /// one as it is.
    pub(crate) fn middle_cut(&self, text: &str, limit: usize) -> String {
        if fits(text, limit) {
            return text.to_owned();
        }
        middle_cut(&self.mask(text), limit)
    }

    /// The head of a text that is longer than so many characters, without secrets; a shorter one
    /// as it is.
    pub(crate) fn clip(&self, text: &str, limit: usize) -> String {
        if fits(text, limit) {
            return text.to_owned();
        }
        let masked = self.mask(text);
        if fits(&masked, limit) {
            return masked;
        }
        let head: String = masked.chars().take(limit).collect();
        format!("{head}...")
    }
}

fn fits(text: &str, limit: usize) -> bool {
    text.len() <= limit || text.chars().count() <= limit
}

/// Keeps head and tail of a long text in which no secret is left.
pub(super) fn middle_cut(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    if count <= limit {
        return text.to_owned();
    }
    let tail = limit / 4;
    let head: String = text.chars().take(limit - tail).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!(
        "{head}\n... ({} characters left out) ...\n{end}",
        count - limit
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECRET: &str = "s3cr3t-token-of-some-length";

    fn words() -> Words {
        Words::masked_by(Arc::new(|text| text.replace(SECRET, "<TOKEN:1>")))
    }

    #[test]
    fn no_cut_leaves_half_of_a_secret() {
        let words = words();
        for before in 0..140 {
            let text = format!("{}{SECRET}{}", "a".repeat(before), "z".repeat(140 - before));
            for shown in [
                words.shown(text.as_bytes()),
                words.middle_cut(&text, 100),
                words.clip(&text, 100),
            ] {
                for part in [&SECRET[..2], &SECRET[SECRET.len() - 2..]] {
                    assert!(!shown.contains(part), "{before}: {shown}");
                }
            }
        }
    }

    #[test]
    fn what_is_short_stays_and_what_steers_does_not() {
        let words = words();
        assert_eq!(words.middle_cut("ä", 1), "ä");
        assert_eq!(words.clip("abc", 3), "abc");
        assert_eq!(words.clip("abcd", 3), "abc...");
        assert_eq!(words.clip(SECRET, 10), "<TOKEN:1>");
        assert_eq!(words.shown(b" \x1b[31mx\xff\n"), "[31mx\u{fffd}");
        let cut = words.middle_cut(&"x".repeat(20), 8);
        assert_eq!(cut, "xxxxxx\n... (12 characters left out) ...\nxx");
    }
}
