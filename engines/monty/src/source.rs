//! A program's text as models send it, and where its lines are in what is compiled.
//!
//! Line numbers stay those of the text as sent: a fence is blanked, not removed, and a text that is indented as a whole
//! is compiled as a block under one more line.

/// What a program is called in tracebacks.
pub(crate) const NAME: &str = "<program>";
const BLOCK: &str = "if 1:\n";

/// One program.
#[derive(Debug)]
pub(crate) struct Source {
    /// The text as sent, with plain ends of lines.
    lines: Vec<String>,
    /// What is compiled.
    pub(crate) text: String,
    /// Lines that stand before the program's first in what is compiled.
    shift: usize,
}

impl Source {
    pub(crate) fn new(sent: &str) -> Self {
        let plain = sent
            .strip_prefix('\u{feff}')
            .unwrap_or(sent)
            .replace("\r\n", "\n")
            .replace('\r', "\n");
        let lines: Vec<String> = plain.split('\n').map(str::to_owned).collect();
        let mut text = without_fence(&lines).unwrap_or(plain);
        let shift = usize::from(starts_indented(&text));
        if shift == 1 {
            text.insert_str(0, BLOCK);
        }
        Self { lines, text, shift }
    }

    /// The number that a line of what is compiled has in the text as sent.
    pub(crate) fn number(&self, line: usize) -> usize {
        line.saturating_sub(self.shift)
    }

    /// The line, counted from 1, at a byte of what is compiled.
    pub(crate) fn number_at(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        self.number(before.matches('\n').count() + 1)
    }

    /// The text of a line as sent, or nothing.
    pub(crate) fn line(&self, number: usize) -> &str {
        number
            .checked_sub(1)
            .and_then(|at| self.lines.get(at))
            .map_or("", String::as_str)
    }

    /// Whether a fence was left in place because nothing closes it.
    pub(crate) fn begins_with_fence(&self) -> bool {
        let start = self.text.trim_start();
        start.starts_with("```") || start.starts_with("~~~")
    }

    /// Puts `new` in the place of bytes of what is compiled; both are equally long, so that no place moves.
    pub(crate) fn overwrite(&mut self, at: usize, new: &str) {
        let range = at..at + new.len();
        if self.text.is_char_boundary(range.start) && self.text.is_char_boundary(range.end) {
            self.text.replace_range(range, new);
        }
    }
}

/// The text without a fence around all of it, if there is one; no Python text begins with one.
fn without_fence(lines: &[String]) -> Option<String> {
    let mut filled = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, _)| at);
    let first = filled.next()?;
    let last = filled.next_back()?;
    let (opening, closing) = (lines.get(first)?.trim(), lines.get(last)?.trim());
    let fenced = ['`', '~'].into_iter().any(|mark| {
        let size = opening.len() - opening.trim_start_matches(mark).len();
        let rest = opening.get(size..).unwrap_or_default();
        size >= 3
            && !rest.contains(mark)
            && closing.len() >= size
            && closing.trim_matches(mark).is_empty()
    });
    fenced.then(|| {
        let kept = lines
            .iter()
            .enumerate()
            .map(|(at, line)| if at == first || at == last { "" } else { line });
        kept.collect::<Vec<_>>().join("\n")
    })
}

fn starts_indented(text: &str) -> bool {
    let code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    text.split('\n')
        .find(code)
        .is_some_and(|line| line.starts_with([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_around_all_of_it_is_blanked_and_lines_keep_their_numbers() {
        let source = Source::new("\u{feff}```python\r\nprint(1)\r\n```\r\n");
        assert_eq!(source.text, "\nprint(1)\n\n");
        assert_eq!(source.line(2), "print(1)");
        assert!(!source.begins_with_fence());
        assert_eq!(Source::new("x = '''\n```\n'''").text, "x = '''\n```\n'''");
        assert!(Source::new("```\nprint(1)").begins_with_fence());
    }

    #[test]
    fn a_text_indented_as_a_whole_is_a_block_whose_lines_keep_their_numbers() {
        let source = Source::new("# a\n    x = 1\n    y = 2");
        assert_eq!(source.text, "if 1:\n# a\n    x = 1\n    y = 2");
        assert_eq!(source.number(3), 2);
        assert_eq!(source.number_at(source.text.find("y =").unwrap()), 3);
        assert_eq!(Source::new("x = 1\n    y").text, "x = 1\n    y");
    }
}
