//! The layouts of other programs, which are answered with what to write here.

/// Top-level keys under which other programs keep their servers.
const FOREIGN_SERVERS: [&str; 5] = [
    "mcpServers",
    "mcp_servers",
    "mcp-servers",
    "context_servers",
    "mcp",
];

/// Keys of other programs' server entries, with what to write here.
const FOREIGN_KEYS: &[(&str, &str)] = &[
    ("type", "write `transport: stdio`, `http` or `sse`"),
    ("disabled", "write `enabled: false`"),
    ("environment", "write `env`"),
    ("httpUrl", "write `transport: http` and `url`"),
    ("serverUrl", "write `transport: http` and `url`"),
    (
        "timeout",
        "write `start_timeout_seconds`, or `execution.tool_call_timeout_seconds`",
    ),
    ("alwaysAllow", "write `tools: {allow: [...]}`"),
    ("autoApprove", "write `tools: {allow: [...]}`"),
    ("disabledTools", "write `tools: {block: [...]}`"),
];

/// Whether a top-level key is where another program keeps its servers.
pub(super) fn is_foreign_servers(key: &str) -> bool {
    FOREIGN_SERVERS.contains(&key)
}

/// What to write in place of another program's key.
pub(super) fn foreign_key(section: &str, key: &str) -> Option<&'static str> {
    if section != "servers[]" {
        return None;
    }
    FOREIGN_KEYS
        .iter()
        .find(|(name, _)| *name == key)
        .map(|(_, hint)| *hint)
}
