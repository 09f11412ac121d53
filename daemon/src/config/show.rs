//! Shows a configuration with every default filled in, under the keys of the file.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    Config, Era, ExecutionConfig, JournalConfig, Record, Scope, ServerConfig, Share,
    StructuredContent, ToolFilter, ToolsConfig, Transport, policy, submit,
};

/// The configuration as the file would write it whole: keys in the order of the documentation, variables as they
/// stand, each text through `mask`.
pub fn show(config: &Config, mask: &dyn Fn(&str) -> String) -> Value {
    let servers: Vec<Value> = config
        .servers
        .iter()
        .map(|server| self::server(server, mask))
        .collect();
    json!({
        "servers": servers,
        "tools": tools(&config.tools),
        "policy": policy::show(&config.policy, seconds),
        "execution": execution(&config.execution),
        "daemon": {
            "drain_seconds": seconds(config.daemon.drain),
            "idle_server_seconds": seconds(config.daemon.idle_server),
        },
        "journal": journal(&config.journal),
        "submit": submit::show_submit(&config.submit),
        "profiles": submit::show_profiles(config.profiles, seconds),
    })
}

fn server(server: &ServerConfig, mask: &dyn Fn(&str) -> String) -> Value {
    let texts = |map: &BTreeMap<String, String>| -> Map<String, Value> {
        map.iter()
            .map(|(name, value)| (name.clone(), json!(mask(value))))
            .collect()
    };
    let mut shown = Map::new();
    let mut put = |key: &str, value: Value| shown.insert(key.to_owned(), value);
    put("name", json!(server.name));
    put("transport", json!(server.transport.name()));
    match &server.transport {
        Transport::Stdio {
            command,
            args,
            env,
            cwd,
            base,
        } => {
            put("command", json!(mask(command)));
            let args: Vec<String> = args.iter().map(|text| mask(text)).collect();
            put("args", json!(args));
            put("env", Value::Object(texts(env)));
            let base = base.display().to_string();
            put("cwd", json!(mask(cwd.as_deref().unwrap_or(&base))));
        }
        Transport::Http { url, headers } | Transport::Sse { url, headers } => {
            put("url", json!(mask(url)));
            put("headers", Value::Object(texts(headers)));
        }
    }
    let scope = match server.scope {
        Scope::Shared => "shared",
        Scope::Project => "project",
    };
    put("scope", json!(scope));
    put("start_timeout_seconds", seconds(server.start_timeout));
    put("enabled", json!(server.enabled));
    put("purpose", json!(mask(&server.purpose)));
    put("trust_annotations", json!(server.trust_annotations));
    let protocol = match server.protocol {
        Era::Auto => "auto",
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    };
    put("protocol", json!(protocol));
    put("max_concurrent_calls", json!(server.max_concurrent_calls));
    Value::Object(shown)
}

fn tools(tools: &ToolsConfig) -> Value {
    let mut shown = Map::new();
    match &tools.filter {
        ToolFilter::All => {}
        ToolFilter::Allow(globs) => {
            shown.insert("allow".to_owned(), json!(globs));
        }
        ToolFilter::Block(globs) => {
            shown.insert("block".to_owned(), json!(globs));
        }
    }
    let expose: Vec<&str> = tools.expose.iter().map(|tool| tool.name()).collect();
    shown.insert("expose".to_owned(), json!(expose));
    Value::Object(shown)
}

fn execution(execution: &ExecutionConfig) -> Value {
    let structured = match execution.structured_content {
        StructuredContent::Full => "full",
        StructuredContent::Lean => "lean",
        StructuredContent::Off => "off",
    };
    let engines = execution.engines.offered.iter();
    let engines: Vec<&str> = engines.map(|engine| engine.as_str()).collect();
    let on = |on: bool, word: &'static str| if on { word } else { "off" };
    json!({
        "timeout_seconds": seconds(execution.timeout),
        "max_output_bytes": execution.max_output_bytes,
        "engine": execution.engines.default.as_str(),
        "engines": engines,
        "monty_worker": execution.engines.monty_worker,
        "sandbox": execution.sandbox.as_str(),
        "python": execution.python,
        "max_tool_calls": execution.max_tool_calls,
        "max_concurrent_calls": execution.max_concurrent_calls,
        "tool_call_timeout_seconds": seconds(execution.tool_call_timeout),
        "trace": on(execution.trace, "summary"),
        "max_tool_result_bytes": execution.max_tool_result_bytes,
        "memory_bytes": execution.memory_bytes,
        "scratch_bytes": execution.scratch_bytes,
        "max_threads": execution.max_threads,
        "max_runs": execution.max_runs,
        "check_arguments": on(execution.check_arguments, "on"),
        "structured_content": structured,
        "step_budget": execution.step_budget.map_or_else(|| json!("off"), |steps| json!(steps)),
        "pool": {
            "warm": execution.pool.warm, "max": execution.pool.max, "start": execution.pool.start.as_str(),
        },
        "container": {
            "engine": execution.container.engine.as_str(),
            "image": execution.container.image,
        },
    })
}

fn journal(journal: &JournalConfig) -> Value {
    let record = match journal.record {
        Record::Full => "full",
        Record::Hashes => "hashes",
        Record::Off => "off",
    };
    let share = match journal.share {
        Share::Own => "own",
        Share::All => "all",
    };
    json!({
        "path": journal.path,
        "record": record,
        "keep_runs": journal.keep_runs,
        "keep_days": journal.keep_days,
        "keep_bytes": journal.keep_bytes,
        "share": share,
    })
}

/// Whole seconds as a whole number.
fn seconds(time: Duration) -> Value {
    if time.subsec_nanos() == 0 {
        json!(time.as_secs())
    } else {
        json!(time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse;
    use super::*;

    fn masked(text: &str) -> String {
        text.replace("s3cr3t-value", "<HEADER>")
    }

    #[test]
    fn what_is_shown_reads_as_the_same_configuration() {
        let text = "servers:\n  - {name: a, transport: stdio, command: x, args: [NO, 1.10, \"${V:-d}\"], env: {E: \"0644\"}, \
                    purpose: \"p: #1\", start_timeout_seconds: 0.5}\n\
                    tools: {allow: [\"mcp__a__*\"], expose: [execute_program]}\n\
                    execution: {timeout_seconds: 2.5, trace: off, check_arguments: off, structured_content: lean}\n\
                    journal: {record: full}\n";
        let path = Path::new("/c/config.yaml");
        let config = parse(text, path).unwrap();
        let mut shown = show(&config, &masked);
        // What is null is absent: no value of the file means it.
        for section in ["/execution", "/execution/container", "/journal"] {
            let section = shown.pointer_mut(section).unwrap();
            let section = section.as_object_mut().unwrap();
            section.retain(|_, value| !value.is_null());
        }
        let mut again = parse(&shown.to_string(), path).unwrap();
        let mut config = config;
        for server in config.servers.iter_mut().chain(&mut again.servers) {
            let Transport::Stdio { cwd, .. } = &mut server.transport else {
                panic!("{server:?}")
            };
            // The folder that an absent `cwd` means is written out.
            *cwd = Some("/c".to_owned());
        }
        assert_eq!(again, config);
    }

    #[test]
    fn secrets_are_masked_and_variables_are_not_replaced() {
        let text = "servers:\n  - {name: a, transport: stdio, command: x, env: {A: \"Bearer s3cr3t-value\", B: \"${TOKEN}\"}}\n";
        let config = parse(text, Path::new("/c/config.yaml")).unwrap();
        let env = &show(&config, &masked)["servers"][0]["env"];
        assert_eq!(env, &json!({"A": "Bearer <HEADER>", "B": "${TOKEN}"}));
    }
}
