//! Writes about single servers for a person to read: all of one, or why some are not ready.

use ptc_protocol::status::{ServerState, ServerStatus, Status};

use super::status_text::{View, counted, homely, labelled, server_action};
use super::words::{ago, count, duration, plain, shorten, wrap};

/// Most characters of a cause below the table.
const MAX_CAUSE: usize = 400;
/// How far the lines of a cause stand to the right.
const INDENT: usize = 4;

/// The whole causes of the servers that are not ready, where the table has them only in part.
pub(super) fn causes(servers: &[ServerStatus], table: &[String], view: &View) -> Vec<String> {
    let ailing = servers.iter().filter(|server| is_ailing(server));
    ailing
        .filter_map(|server| {
            let detail = plain(server.detail.as_deref()?);
            let shown = table.iter().any(|line| line.ends_with(&detail));
            (!shown).then(|| cause(&plain(&server.name), &detail, view))
        })
        .flatten()
        .collect()
}

fn is_ailing(server: &ServerStatus) -> bool {
    !matches!(server.state, ServerState::Ready | ServerState::Disabled)
}

fn cause(name: &str, detail: &str, view: &View) -> Vec<String> {
    let text = shorten(detail, MAX_CAUSE);
    let lines = wrap(&text, view.width.saturating_sub(INDENT));
    let indented = lines.iter().map(|line| format!("{:INDENT$}{line}", ""));
    std::iter::once(format!("{name}:"))
        .chain(indented)
        .collect()
}

/// Everything about one server.
pub(super) fn whole(server: &ServerStatus, status: &Status, view: &View) -> String {
    let mut lines = vec![labelled(
        &plain(&server.name),
        &format!("{}, {}", server.state.as_str(), plain(&server.via)),
    )];
    let mut put = |label: &str, text: &str| {
        let room = view.width.saturating_sub(12);
        let wrapped = wrap(text, room);
        let labels = std::iter::once(label).chain(std::iter::repeat(""));
        lines.extend(
            labels
                .zip(&wrapped)
                .map(|(label, line)| labelled(label, line)),
        );
    };
    if let Some(detail) = &server.detail {
        put("detail", &plain(detail));
    }
    if let Some(protocol) = &server.protocol {
        put("protocol", &format!("MCP {}", plain(protocol)));
    }
    if let Some(tools) = server.tools {
        put("tools", &counted(tools));
    }
    put("calls", &calls(server));
    if let Some(pid) = server.pid {
        put("pid", &pid.to_string());
    }
    if server.junk_lines > 0 {
        let lines = count(server.junk_lines, "line");
        let from = if server.via == "stdio" {
            "stdout"
        } else {
            "stream"
        };
        put(from, &format!("{lines} of no protocol, passed over"));
    }
    for note in &server.notes {
        put("note", &plain(note));
    }
    if server.via == "stdio" {
        let folder = homely(&status.state_dir, view);
        put("log", &format!("a file of its name in {folder}/servers"));
    }
    let next = server_action(std::slice::from_ref(server), view);
    lines.extend(next.map(|next| format!("next: {next}")));
    lines.join("\n")
}

fn calls(server: &ServerStatus) -> String {
    let failed = match server.failed_calls {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let median = server
        .p50_ms
        .map_or_else(String::new, |ms| format!("; median {}", duration(ms)));
    let last = server
        .last_call_ms_ago
        .map_or_else(String::new, |ms| format!("; the last {}", ago(ms / 1000)));
    format!("{}{failed}{median}{last}", server.calls)
}
