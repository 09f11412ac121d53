//! `ptcctl tools`: lists what a program can call, and pins how it looks.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use ptc_protocol::route;
use ptc_protocol::status::{Done, Status, ToolList};
use serde_json::{Value, json};

use crate::connect::REQUEST_TIMEOUT;

use super::output::{print, print_json, say};
use super::words::{count, plain};
use super::{Context, Exit, reload, request};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Part of a name, or a whole name with `*` for any text
    pattern: Option<String>,
    /// Show behind each name what the tool does: read, write or destructive
    #[arg(short, long)]
    effects: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Have calls of tools denied as soon as their description, arguments or annotations change
    Pin {
        /// A whole name with `*` for any text; all tools where there is none
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        pattern: Option<String>,
        /// Pin those anew, too, that look otherwise than they were pinned
        #[arg(long)]
        anew: bool,
    },
    /// Show how tools stand to their pins, with what has changed
    Pins {
        /// A whole name with `*` for any text; all tools where there is none
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        pattern: Option<String>,
    },
    /// Take pins away
    Unpin {
        /// A whole name with `*` for any text
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        pattern: String,
    },
}

/// Asks for pins, or for what is to be done with them.
async fn pins(context: &Context, verb: &Verb) -> anyhow::Result<Exit> {
    let (word, pattern) = match verb {
        Verb::Pin {
            pattern,
            anew: false,
        } => ("pin", pattern.as_deref()),
        Verb::Pin {
            pattern,
            anew: true,
        } => ("anew", pattern.as_deref()),
        Verb::Pins { pattern } => ("show", pattern.as_deref()),
        Verb::Unpin { pattern } => ("unpin", Some(pattern.as_str())),
    };
    let name = pattern.unwrap_or_default();
    let path = request(route::TOOLS_PIN, &[("verb", word), ("name", name)])?;
    if word != "show" || context.output.json {
        return reload::tell(context, &path).await;
    }
    let peer = context.connect().await?;
    let done: Done = peer.post_within(&path, REQUEST_TIMEOUT).await?;
    for message in &done.messages {
        print(&plain(message))?;
    }
    if done.messages.is_empty() {
        context.output.message("no such tool is pinned");
    }
    Ok(if done.ok { Exit::Ok } else { Exit::Failure })
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    if let Some(verb) = &arguments.verb {
        return pins(context, verb).await;
    }
    let output = context.output;
    let mut list: ToolList = context.connect().await?.get(route::TOOLS).await?;
    let nothing = list.tools.is_empty() && list.unavailable.is_empty();
    let pattern = arguments.pattern.as_deref().unwrap_or_default();
    list.tools.retain(|tool| matches(pattern, tool));
    list.effects.retain(|tool, _| matches(pattern, tool));
    let value = serde_json::to_value(&list)?;
    if nothing {
        return without_tools(context, value).await;
    }
    if output.json {
        print_json(&value)?;
        return Ok(Exit::Ok);
    }
    print(&lines(&list, arguments.effects).join("\n"))?;
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

/// A line a tool, with what it does where that is asked for.
fn lines(list: &ToolList, effects: bool) -> Vec<String> {
    let width = list.tools.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or_default();
    let line = |name: &String| match list.effects.get(name) {
        Some(effect) if effects => format!("{name:width$}  {}", plain(effect)),
        _ => name.clone(),
    };
    list.tools.iter().map(line).collect()
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
    fn what_tools_do_is_shown_where_it_is_asked_for() {
        let list = ToolList {
            schema: 1,
            tools: vec!["mcp__a__get".to_owned(), "mcp__a__b".to_owned()],
            unavailable: [].into(),
            effects: [("mcp__a__b".to_owned(), "read".to_owned())].into(),
        };
        assert_eq!(lines(&list, false), ["mcp__a__get", "mcp__a__b"]);
        assert_eq!(lines(&list, true), ["mcp__a__get", "mcp__a__b    read"]);
    }

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
