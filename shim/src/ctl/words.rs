//! Turns numbers and foreign text into what a person reads.

use std::time::{SystemTime, UNIX_EPOCH};

use ptc_protocol::text::steers;

/// A span in its two largest units, such as `3h12m`.
pub(super) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// How long ago something was, in its largest unit, such as `4s ago`.
pub(super) fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86400 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86400),
    }
}

/// How long ago a time in milliseconds since the Unix epoch was.
pub(super) fn ago_since(ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
    ago(now.saturating_sub(ms) / 1000)
}

/// A duration, such as `180ms` or `2.4s`.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..10_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        _ => format!("{}s", ms / 1000),
    }
}

/// A size, such as `1.9 MB`.
pub(super) fn bytes(count: u64) -> String {
    let (unit, name) = match count {
        0..1000 => return format!("{count} B"),
        1000..1_000_000 => (1000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    let tenths = count / (unit / 10);
    if tenths < 100 {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    } else {
        format!("{} {name}", tenths / 10)
    }
}

/// `1 run`, `2 runs`.
pub(super) fn count(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Text from elsewhere on one line, with nothing in it that steers a terminal.
pub(super) fn plain(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words
        .chars()
        .map(|c| {
            if c == '\t' || super::visible::steers(c) {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// A line of a log, with what would steer a terminal written out.
pub(super) fn visible(line: &str) -> String {
    use std::fmt::Write as _;
    // What turns the direction of text hides as well as a control character does.
    let hides = |c| c != '\t' && steers(c);
    let mut text = String::with_capacity(line.len());
    for c in line.chars() {
        // Writing to a string cannot fail.
        let _ = match c {
            c if !hides(c) => write!(text, "{c}"),
            c if c.is_ascii() => write!(text, "\\x{:02x}", u32::from(c)),
            c => write!(text, "\\u{{{:x}}}", u32::from(c)),
        };
    }
    text
}

/// The first `width` characters, the last of them `…` where something was cut.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

/// Lines of at most `width` characters, cut between words where there are any.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest = word;
        while !rest.is_empty() {
            let Some(line) = lines.last_mut() else {
                break;
            };
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            let length = rest.chars().count();
            if used + gap + length <= width {
                line.push_str(if gap > 0 { " " } else { "" });
                line.push_str(rest);
                break;
            }
            if used == 0 {
                // A word longer than a line is cut.
                let at = rest
                    .char_indices()
                    .nth(width)
                    .map_or(rest.len(), |(at, _)| at);
                let (head, tail) = rest.split_at(at);
                line.push_str(head);
                rest = tail;
            }
            lines.push(String::new());
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words_and_long_words_are_cut() {
        assert_eq!(wrap("a bb  ccc\ndd", 4), ["a bb", "ccc", "dd"]);
        assert_eq!(wrap("aä abcdefgh i", 4), ["aä", "abcd", "efgh", "i"]);
        assert_eq!(wrap(" ", 4), [""; 0]);
        assert_eq!(wrap("ab", 0), ["a", "b"]);
    }

    #[test]
    fn numbers_read_well() {
        let spans = [0, 59, 60, 11_520, 360_000].map(span);
        assert_eq!(spans, ["0s", "59s", "1m", "3h12m", "4d4h"]);
        let ages = [4, 60, 7200, 200_000].map(ago);
        assert_eq!(ages, ["4s ago", "1m ago", "2h ago", "2d ago"]);
        let durations = [0, 999, 2450, 61_000].map(duration);
        assert_eq!(durations, ["0ms", "999ms", "2.4s", "61s"]);
        let sizes = [7, 1900, 1_950_000, 123_456_789, 5_000_000_000].map(bytes);
        assert_eq!(sizes, ["7 B", "1.9 kB", "1.9 MB", "123 MB", "5.0 GB"]);
        assert_eq!([count(1, "run"), count(2, "run")], ["1 run", "2 runs"]);
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(
            plain("a\n\u{1b}[31m  b\t\u{9b}c"),
            "a \u{fffd}[31m b \u{fffd}c"
        );
        assert_eq!(
            visible("a\tb\u{1b}[2J\r\u{85}\u{202e}ä\u{7f}"),
            "a\tb\\x1b[2J\\x0d\\u{85}\\u{202e}ä\\x7f"
        );
        assert_eq!([shorten("abc", 3), shorten("abcd", 3)], ["abc", "ab…"]);
    }
}
