//! One finished run as text: what is known of it, and its calls as bars on the run's clock.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use ptc_protocol::detail::{CallEntry, RunDetail};

use super::words::{bytes, count, duration, plain, shorten};

/// Where stdout is no terminal.
const DEFAULT_WIDTH: usize = 100;
/// Widest bar of the run's clock, in characters.
const MAX_BAR: usize = 40;
const MIN_BAR: usize = 10;
/// Widest name of a tool.
const MAX_TOOL: usize = 36;
/// Room for what stands behind a bar.
const FIGURES: usize = 30;

/// The width of the terminal, or a usual one.
pub(super) fn width() -> usize {
    let stdout = std::io::stdout();
    let size = stdout
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(&stdout).ok());
    let columns = size.flatten().map(|size| usize::from(size.ws_col));
    columns
        .filter(|columns| *columns > 0)
        .unwrap_or(DEFAULT_WIDTH)
}

/// Everything about one run, a line each.
pub(super) fn detail_text(detail: &RunDetail, width: usize) -> Vec<String> {
    let mut lines = head(detail);
    if !detail.calls.is_empty() {
        lines.push(String::new());
        lines.extend(waterfall(detail, width));
    }
    if let Some(error) = &detail.record.error {
        lines.push(String::new());
        lines.extend(error.lines().map(plain));
    }
    lines
}

fn head(detail: &RunDetail) -> Vec<String> {
    let (record, origin) = (&detail.record, &detail.provenance);
    let said = origin.reason.as_ref().or(origin.caveat.as_ref());
    let mut lines = vec![
        format!("run      {}", plain(&record.run)),
        format!(
            "ending   {}{} after {}",
            record.ending.as_str(),
            record
                .limit
                .as_ref()
                .map(|limit| format!(" ({})", plain(limit)))
                .unwrap_or_default(),
            duration(record.duration_ms)
        ),
        format!(
            "level    {}: {}",
            origin.level.as_str(),
            said.map_or("", String::as_str)
        ),
        format!(
            "client   {}{}",
            plain(record.client.as_deref().unwrap_or("-")),
            record
                .facts
                .project
                .as_ref()
                .map(|folder| format!(", in {}", plain(folder)))
                .unwrap_or_default()
        ),
        format!(
            "ran on   python {}, {} sandbox, ptcd {}",
            origin.python.as_deref().unwrap_or("-"),
            record.confinement.as_str(),
            origin.ptcd.as_deref().unwrap_or("-")
        ),
        format!(
            "output   {}; {} of results from {}, {} failed",
            bytes(record.output_bytes),
            bytes(record.result_bytes),
            count(record.calls, "call"),
            record.failed_calls
        ),
    ];
    if let (Some(cpu), Some(memory)) = (record.cpu_ms, record.peak_memory_bytes) {
        let text = format!(
            "used     {} of processor time, {} of memory",
            duration(cpu),
            bytes(memory)
        );
        lines.push(text);
    }
    if let Some(hash) = &origin.output_sha256 {
        lines.push(format!("sha256   {hash} (output as kept)"));
    }
    lines.push(match &detail.not_replayable {
        None => format!("replay   ptcctl replay {}", plain(&record.run)),
        Some(reason) => format!("replay   not possible: {}", plain(reason)),
    });
    lines
}

/// The calls in the order in which the program asked for them.
fn waterfall(detail: &RunDetail, width: usize) -> Vec<String> {
    let mut calls: Vec<&CallEntry> = detail.calls.iter().collect();
    calls.sort_by_key(|entry| (entry.asked_ms, entry.call));
    let widest = calls.iter().map(|entry| plain(&entry.tool).chars().count());
    let tool = widest.max().unwrap_or(0).min(MAX_TOOL);
    let bar = width.saturating_sub(tool + FIGURES).clamp(MIN_BAR, MAX_BAR);
    let last = calls.iter().map(|entry| entry.ended_ms);
    let end = last
        .max()
        .unwrap_or(0)
        .max(detail.record.duration_ms)
        .max(1);
    let ruler = format!(
        "{:tool$}  0{:>rest$}",
        "",
        duration(end),
        rest = bar.saturating_sub(1)
    );
    let legend = "  waiting \u{2591}  server \u{2588}  failed \u{2592}";
    let lines = calls.iter().map(|entry| {
        let name = shorten(&plain(&entry.tool), tool);
        let mut line = format!(
            "{name:tool$}  {}  {}",
            bars(entry, end, bar),
            figures(entry)
        );
        if let Some(error) = &entry.error {
            let room = width.saturating_sub(line.chars().count() + 2).max(20);
            line.push_str("  ");
            line.push_str(&shorten(&plain(error), room));
        }
        line
    });
    std::iter::once(format!("{ruler}{legend}"))
        .chain(lines)
        .collect()
}

/// One call on the run's clock: what it waited, then what its server took.
fn bars(entry: &CallEntry, end: u64, width: usize) -> String {
    let at = |ms: u64| {
        let place = u128::from(ms.min(end)) * width as u128 / u128::from(end);
        usize::try_from(place).unwrap_or(width)
    };
    let sent = entry.sent_ms.unwrap_or(entry.ended_ms);
    let (from, sent, to) = (at(entry.asked_ms), at(sent), at(entry.ended_ms));
    let full = if entry.ok { '\u{2588}' } else { '\u{2592}' };
    let mut bar: Vec<char> = (0..width)
        .map(|place| match place {
            _ if place < from || place >= to => ' ',
            _ if place < sent => '\u{2591}',
            _ => full,
        })
        .collect();
    // However short, a call leaves a mark where it began.
    let mark = sent.min(width.saturating_sub(1));
    if let Some(place) = bar.get_mut(mark) {
        *place = full;
    }
    bar.into_iter().collect()
}

/// Times and sizes of one call.
fn figures(entry: &CallEntry) -> String {
    let Some(sent) = entry.sent_ms else {
        return "not sent".to_owned();
    };
    let mut text = duration(entry.ended_ms.saturating_sub(sent));
    let waited = sent.saturating_sub(entry.asked_ms);
    if waited > 0 {
        let _ = write!(text, " after {}", duration(waited));
    }
    if let Some(size) = entry.result_bytes {
        let _ = write!(text, ", {}", bytes(size as u64));
    }
    if let Some(kind) = entry.kind {
        let _ = write!(text, ", {}", kind.as_str());
    }
    text
}

#[cfg(test)]
mod tests {
    use ptc_protocol::run::ToolErrorKind;

    use super::*;

    #[test]
    fn waiting_stands_apart_from_the_servers_time() {
        let entry = CallEntry {
            asked_ms: 20,
            sent_ms: Some(50),
            ended_ms: 80,
            ok: true,
            result_bytes: Some(1234),
            ..CallEntry::default()
        };
        assert_eq!(bars(&entry, 100, 10), "  ░░░███  ");
        assert_eq!(figures(&entry), "30ms after 30ms, 1.2 kB");
        let failed = CallEntry {
            ok: false,
            kind: Some(ToolErrorKind::Timeout),
            ..entry.clone()
        };
        assert_eq!(bars(&failed, 100, 10), "  ░░░▒▒▒  ");
        let refused = CallEntry {
            sent_ms: None,
            ended_ms: 20,
            ..failed
        };
        assert_eq!(bars(&refused, 100, 10), "  ▒       ");
        assert_eq!(figures(&refused), "not sent");
        let last = CallEntry {
            asked_ms: 100,
            sent_ms: Some(100),
            ended_ms: 100,
            ..entry
        };
        assert_eq!(bars(&last, 100, 10), "         █");
    }
}
