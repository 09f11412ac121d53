//! `ptcctl tools`: lists what a program can call.

use clap::Args;
use ptc_protocol::route;
use ptc_protocol::status::{Status, ToolList};
use serde_json::{Value, json};

use super::output::{print, print_json, say};
use super::words::{count, plain};
use super::{Context, Exit};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Part of a name, or a whole name with `*` for any text
    pattern: Option<String>,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let output = context.output;
    let mut list: ToolList = context.connect().await?.get(route::TOOLS).await?;
    let nothing = list.tools.is_empty() && list.unavailable.is_empty();
    let pattern = arguments.pattern.as_deref().unwrap_or_default();
    list.tools.retain(|tool| matches(pattern, tool));
    let value = serde_json::to_value(&list)?;
    if nothing {
        return without_tools(context, value).await;
    }
    if output.json {
        print_json(&value)?;
        return Ok(Exit::Ok);
    }
    print(&list.tools.join("\n"))?;
    if list.tools.is_empty() && !pattern.is_empty() {
        output.message(&format!(
            "no tool that can be called now matches {pattern:?}"
        ));
    }
    for (server, reason) in &list.unavailable {
        let text = format!("{} is missing: {}", plain(server), plain(reason));
        output.message(&text);
    }
    Ok(Exit::Ok)
}

/// Says why a program can call nothing.
async fn without_tools(context: &Context, list: Value) -> anyhow::Result<Exit> {
    let output = context.output;
    let status: Status = context.connect().await?.get(route::STATUS).await?;
    let faults = &status.config.faults;
    if faults.is_empty() {
        if output.json {
            print_json(&list)?;
        } else if status.servers.is_empty() {
            output
                .message("no server is configured; `ptcctl status` says which file was looked for");
        } else {
            output.message("no tool can be called; `ptcctl status` shows the servers");
        }
        return Ok(Exit::Ok);
    }
    let summary = format!(
        "the configuration file has {}: mend the file, then `ptcctl reload`",
        count(faults.len() as u64, "fault")
    );
    if output.json {
        let mut value = json!({ "error": summary, "faults": faults, "exit": Exit::Failure.code() });
        if let (Some(value), Value::Object(list)) = (value.as_object_mut(), list) {
            value.extend(list);
        }
        print_json(&value)?;
    } else {
        for fault in faults {
            say(&plain(fault));
        }
        say(&summary);
    }
    Ok(Exit::Failure)
}

/// Whether a name has `pattern` in it, or is it, where the pattern has stars.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return name.contains(pattern);
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match name.split_once(part) {
            Some((_, behind)) => name = behind,
            None => return false,
        }
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_part_or_has_stars() {
        let name = "mcp__github__get_issue";
        for pattern in [
            "",
            "github",
            "*",
            "mcp__*",
            "*issue",
            "mcp__*__*",
            "mcp__github__get_issue*",
        ] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in [
            "gitlab",
            "github*",
            "*github",
            "mcp__*__x*",
            "mcp__github__get_issue*e",
        ] {
            assert!(!matches(pattern, name), "{pattern}");
        }
    }
}
