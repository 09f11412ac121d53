//! The list of servers: from the file's nodes to server configurations.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use url::Url;

use super::check::{COUNT, MAX_PATH};
use super::expand::Field;
use super::fault::{Fault, Place, shown};
use super::fields::{Section, Words};
use super::raw::{Node, Value};
use super::template::Template;
use super::{Era, Scope, ServerConfig, Transport};

/// Keys of a server.
pub(super) const KEYS: [&str; 15] = [
    "name",
    "transport",
    "command",
    "args",
    "env",
    "url",
    "headers",
    "cwd",
    "scope",
    "start_timeout_seconds",
    "enabled",
    "purpose",
    "trust_annotations",
    "protocol",
    "max_concurrent_calls",
];
/// Keys of a child process, and keys of an endpoint.
const STDIO_KEYS: [&str; 4] = ["command", "args", "env", "cwd"];
const HTTP_KEYS: [&str; 2] = ["url", "headers"];
/// Headers that belong to the transport, in small letters.
const OWN_HEADERS: [&str; 14] = [
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Longest name of a server, in characters.
const MAX_NAME: usize = 128;
/// Longest purpose of a server, in characters; models read it.
const MAX_PURPOSE: usize = 200;
/// Limit of the first connection attempt.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Calls in flight at one server.
const CONCURRENT_CALLS: usize = 16;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Stdio,
    Http,
    Sse,
}

const TRANSPORTS: &Words<Kind> = &[
    (&["stdio"], Kind::Stdio),
    (&["http"], Kind::Http),
    (&["sse"], Kind::Sse),
];
const SCOPES: &Words<Scope> = &[(&["shared"], Scope::Shared), (&["project"], Scope::Project)];
const ERAS: &Words<Era> = &[
    (&["auto"], Era::Auto),
    (&["legacy"], Era::Legacy),
    (&["modern"], Era::Modern),
];

/// The servers of the list; an entry at fault is left out.
pub(super) fn resolve(node: &Node, base: &Path, faults: &mut Vec<Fault>) -> Vec<ServerConfig> {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        _ if node.is_null() => &[],
        _ => {
            let message = format!(
                "servers must be a list, such as `servers: [{{name: NAME, command: COMMAND}}]`, not {}",
                node.kind()
            );
            faults.push(Fault::at(node.at, &message));
            &[]
        }
    };
    let mut names: BTreeMap<String, (&str, Place)> = BTreeMap::new();
    let mut servers = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let title = format!("servers[{index}]");
        if item.is_null() {
            let message = format!("{title} is empty: write its keys, `name` first");
            faults.push(Fault::at(item.at, &message));
            continue;
        }
        let Some(section) = Section::open(item, title, "servers[]", &KEYS, faults) else {
            continue;
        };
        let name = name(&section, faults);
        if let Some((name, at)) = name {
            match names.get(&fold(name)) {
                Some((first, place)) => {
                    faults.push(same_name(name, at, first, *place));
                }
                None => {
                    names.insert(fold(name), (name, at));
                }
            }
        }
        let name = name.map(|(name, _)| name.to_owned());
        servers.extend(server(&section, name, base, faults));
    }
    servers
}

/// The name as it stands in callable names, where every other character becomes an underscore.
fn fold(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

fn same_name(name: &str, at: Place, first: &str, first_at: Place) -> Fault {
    let (shown_name, shown_first, line) = (shown(name), shown(first), first_at.line);
    let message = if name == first {
        format!("server name {shown_name} is already on line {line}")
    } else {
        format!(
            "server name {shown_name} is the same as {shown_first} on line {line}: both become mcp__{}__",
            fold(name)
        )
    };
    Fault::at(at, &message)
}

fn name<'a>(section: &Section<'a>, faults: &mut Vec<Fault>) -> Option<(&'a str, Place)> {
    if section.get("name").is_none() {
        let message = format!("{} is missing", section.path("name"));
        faults.push(Fault::at(section.at(), &message));
        return None;
    }
    let (text, at) = section.text("name", faults)?;
    let length = text.chars().count();
    if text.trim().is_empty() || length > MAX_NAME || text.chars().any(char::is_control) {
        let path = section.path("name");
        let message = format!("{path} must have 1 to {MAX_NAME} printable characters");
        faults.push(Fault::at(at, &message));
        return None;
    }
    Some((text, at))
}

/// One server; every key is looked at, whatever is wrong with the others.
fn server(
    section: &Section<'_>,
    name: Option<String>,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Option<ServerConfig> {
    let before = faults.len();
    let kind = section.word("transport", Kind::Stdio, TRANSPORTS, faults);
    // A transport at fault says nothing about which other keys belong.
    let known = faults.len() == before;
    let scope = section.word("scope", Scope::Shared, SCOPES, faults);
    let texts = Texts {
        section,
        project: scope == Scope::Project,
    };
    if known {
        misplaced(section, kind, faults);
    }
    let transport = match kind {
        _ if !known => None,
        Kind::Stdio => stdio(&texts, base, faults),
        Kind::Http | Kind::Sse => endpoint(&texts, kind, faults),
    };
    let start_timeout = section.seconds("start_timeout_seconds", START_TIMEOUT, faults);
    let enabled = section.switch("enabled", true, faults);
    let purpose = purpose(section, faults);
    let trust_annotations = section.switch("trust_annotations", false, faults);
    let protocol = section.word("protocol", Era::Auto, ERAS, faults);
    if let (Era::Modern, Kind::Sse, Some(entry)) = (protocol, kind, section.get("protocol")) {
        let message = format!(
            "{}: modern is for stdio and http; what is behind `transport: sse` is older",
            section.path("protocol")
        );
        faults.push(Fault::at(entry.node.at, &message));
    }
    let max_concurrent_calls =
        section.whole("max_concurrent_calls", CONCURRENT_CALLS, COUNT, faults);
    let transport = transport?;
    Some(ServerConfig {
        name: name?,
        scope,
        start_timeout,
        enabled,
        purpose,
        trust_annotations,
        protocol,
        max_concurrent_calls,
        transport,
    })
}

/// Faults for keys that mean nothing to this transport.
fn misplaced(section: &Section<'_>, kind: Kind, faults: &mut Vec<Fault>) {
    let (others, hint) = match kind {
        Kind::Stdio => (
            HTTP_KEYS.as_slice(),
            "is for `transport: http` or `sse`, and this server's transport is stdio",
        ),
        Kind::Http | Kind::Sse => (STDIO_KEYS.as_slice(), "is for `transport: stdio` only"),
    };
    for key in others {
        if let Some(entry) = section.get(key) {
            let message = format!("{} {hint}", section.path(key));
            faults.push(Fault::at(entry.at, &message));
        }
    }
}

fn purpose(section: &Section<'_>, faults: &mut Vec<Fault>) -> String {
    if section.get("purpose").is_none() {
        return String::new();
    }
    let Some((text, at)) = section.text("purpose", faults) else {
        return String::new();
    };
    let text = text.trim();
    if text.chars().count() > MAX_PURPOSE || text.chars().any(char::is_control) {
        let path = section.path("purpose");
        let message = format!("{path} must be one line of at most {MAX_PURPOSE} characters");
        faults.push(Fault::at(at, &message));
    }
    text.to_owned()
}

fn stdio(texts: &Texts<'_, '_>, base: &Path, faults: &mut Vec<Fault>) -> Option<Transport> {
    let section = texts.section;
    let command = texts.required("command", Field::Command, "stdio", faults);
    let args = section.texts("args", faults);
    let args = args
        .iter()
        .enumerate()
        .map(|(index, (text, at))| {
            texts.check(&format!("args[{index}]"), text, *at, Field::Args, faults);
            (*text).to_owned()
        })
        .collect();
    let mut env = BTreeMap::new();
    for (name, (text, at)) in section.named_texts("env", faults) {
        if name.is_empty() || name.contains(['=', '\0']) {
            let path = section.path("env");
            let message = format!("{path}: {} cannot name a variable", shown(name));
            faults.push(Fault::at(at, &message));
        }
        texts.check(&format!("env.{name}"), text, at, Field::Env, faults);
        env.insert(name.to_owned(), text.to_owned());
    }
    let cwd = section.get("cwd").and_then(|_| {
        let (text, at) = section.text("cwd", faults)?;
        if text.is_empty() {
            let message = format!("{} must be a path", section.path("cwd"));
            faults.push(Fault::at(at, &message));
        }
        texts.check("cwd", text, at, Field::Cwd, faults);
        Some(text.to_owned())
    });
    Some(Transport::Stdio {
        command: command?,
        args,
        env,
        cwd,
        base: base.to_owned(),
    })
}

fn endpoint(texts: &Texts<'_, '_>, kind: Kind, faults: &mut Vec<Fault>) -> Option<Transport> {
    let section = texts.section;
    let word = if kind == Kind::Http { "http" } else { "sse" };
    let url = texts.required("url", Field::Url, word, faults);
    if let (Some(url), Some(entry)) = (&url, section.get("url"))
        && let Some(fault) = url_fault(url)
    {
        let message = format!("{} {fault}", section.path("url"));
        faults.push(Fault::at(entry.node.at, &message));
    }
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    let path = section.path("headers");
    for (name, (text, at)) in section.named_texts("headers", faults) {
        let twice = headers.keys().any(|known| known.eq_ignore_ascii_case(name));
        for fault in header_faults(name, text, twice) {
            faults.push(Fault::at(at, &format!("{path}: {fault}")));
        }
        texts.check(&format!("headers.{name}"), text, at, Field::Headers, faults);
        headers.insert(name.to_owned(), text.to_owned());
    }
    let url = url?;
    Some(match kind {
        Kind::Sse => Transport::Sse { url, headers },
        Kind::Stdio | Kind::Http => Transport::Http { url, headers },
    })
}

/// What is wrong with a URL; it may hold secrets and is not shown.
fn url_fault(text: &str) -> Option<String> {
    let begins = |start: &str| {
        text.get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    if !["http://", "https://", "${"].into_iter().any(begins) {
        return Some("must begin with http:// or https://".to_owned());
    }
    if text.contains("${") {
        // What stands for the rest is known only at the start.
        return None;
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return Some(format!("is no URL: {error}")),
    };
    let named = !url.username().is_empty() || url.password().is_some();
    named.then(|| {
        "must hold no user and no password: write `headers: {Authorization: ...}`".to_owned()
    })
}

/// What is wrong with a header; its value may be a secret and is not shown.
fn header_faults(name: &str, value: &str, twice: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let small = name.to_ascii_lowercase();
    if name.is_empty() || !name.chars().all(token) {
        faults.push(format!("{} cannot name a header", shown(name)));
    } else if OWN_HEADERS.contains(&small.as_str()) || small.starts_with("mcp-") {
        faults.push(format!("{name} is set by ptcd itself: leave it out"));
    } else if twice {
        faults.push(format!(
            "{name} is there twice; capitals make no difference"
        ));
    }
    if value.contains(['\r', '\n']) {
        faults.push(format!("{name} must be one line"));
    } else if !value.chars().all(|c| c == '\t' || matches!(c, ' '..='~')) {
        faults.push(format!(
            "{name} holds a character that no header can: ASCII only"
        ));
    }
    faults
}

/// The texts of a server that may hold variables. None is ever shown in a fault: it may be a secret.
struct Texts<'s, 'a> {
    section: &'s Section<'a>,
    /// Whether `${project}` has a meaning.
    project: bool,
}

impl Texts<'_, '_> {
    fn required(
        &self,
        key: &str,
        field: Field,
        transport: &str,
        faults: &mut Vec<Fault>,
    ) -> Option<String> {
        if self.section.get(key).is_none() {
            let path = self.section.path(key);
            let message = format!("{path} is missing: transport {transport} requires it");
            faults.push(Fault::at(self.section.at(), &message));
            return None;
        }
        let (text, at) = self.section.text(key, faults)?;
        if text.is_empty() {
            let message = format!("{} must not be empty", self.section.path(key));
            faults.push(Fault::at(at, &message));
            return None;
        }
        self.check(key, text, at, field, faults);
        Some(text.to_owned())
    }

    fn check(&self, key: &str, text: &str, at: Place, field: Field, faults: &mut Vec<Fault>) {
        let mut fault = |message: String| {
            let path = self.section.path(key);
            faults.push(Fault::at(at, &format!("{path}: {message}")));
        };
        if text.contains('\0') {
            fault("holds a NUL character".to_owned());
        }
        if matches!(field, Field::Command | Field::Cwd) && text.len() > MAX_PATH {
            fault(format!("a path of more than {MAX_PATH} bytes"));
        }
        match Template::parse(text) {
            Err(error) => fault(error.to_string()),
            Ok(template) if template.uses_project() && !(self.project && field.takes_project()) => {
                fault(
                    "${project} is valid only in cwd and args of a server with `scope: project`"
                        .to_owned(),
                );
            }
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, parse};

    fn read(text: &str) -> Result<Config, Vec<String>> {
        parse(text, Path::new("/conf/c.yaml")).map_err(|faults| {
            let lines = faults.lines();
            lines
                .iter()
                .map(|line| line.strip_prefix("/conf/c.yaml:").unwrap().to_owned())
                .collect()
        })
    }

    fn one(text: &str) -> ServerConfig {
        let mut servers = read(text)
            .unwrap_or_else(|faults| panic!("{faults:?}"))
            .servers;
        assert_eq!(servers.len(), 1);
        servers.remove(0)
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_server_has_its_defaults() {
        let server = one("servers: [{name: files, command: fs-server}]\n");
        let expected = ServerConfig {
            name: "files".to_owned(),
            transport: Transport::Stdio {
                command: "fs-server".to_owned(),
                args: Vec::new(),
                env: BTreeMap::new(),
                cwd: None,
                base: "/conf".into(),
            },
            scope: Scope::Shared,
            start_timeout: Duration::from_secs(30),
            enabled: true,
            purpose: String::new(),
            trust_annotations: false,
            protocol: Era::Auto,
            max_concurrent_calls: 16,
        };
        assert_eq!(server, expected);
    }

    #[test]
    fn scalars_in_args_and_env_stay_as_written() {
        let server = one(
            "servers:\n- name: yes\n  command: s\n  args: [NO, 2.50, 0755, ~, 1e9, null, '', 'x y']\n\
             \x20 env:\n    n: off\n    no: Null\n    TIME: 01:02:03\n    BIG: 98765432109876543210\n\
             \x20   QUOTED: \"0x1F\"\n    TILDE: ~\n    NOTHING:\n    DOLLARS: a$b$$c\n",
        );
        assert_eq!(server.name, "yes");
        let Transport::Stdio { args, env, .. } = server.transport else {
            panic!()
        };
        assert_eq!(args, ["NO", "2.50", "0755", "~", "1e9", "null", "", "x y"]);
        let expected = map(&[
            ("n", "off"),
            ("no", "Null"),
            ("TIME", "01:02:03"),
            ("BIG", "98765432109876543210"),
            ("QUOTED", "0x1F"),
            ("TILDE", "~"),
            ("NOTHING", ""),
            ("DOLLARS", "a$b$$c"),
        ]);
        assert_eq!(env, expected);
    }

    #[test]
    fn merge_keys_give_each_server_what_it_lacks() {
        let config = read(
            "x-common: &common\n  command: uvx\n  args: [one]\nservers:\n\
             \x20 - {<<: *common, name: a}\n  - <<: *common\n    name: b\n    args: [two]\n",
        )
        .unwrap();
        let args: Vec<_> = config
            .servers
            .iter()
            .map(|server| match &server.transport {
                Transport::Stdio { args, .. } => args.join(" "),
                _ => String::new(),
            })
            .collect();
        assert_eq!(args, ["one", "two"]);
    }

    #[test]
    fn equal_names_are_refused_with_both_lines() {
        let faults = read(
            "servers:\n  - {name: web.api, command: a}\n  - {name: other, command: a}\n\
             \x20 - {name: web-api, command: a}\n  - {name: web.api, command: a}\n",
        )
        .unwrap_err();
        assert_eq!(
            faults,
            [
                "4:12: server name \"web-api\" is the same as \"web.api\" on line 2: both become mcp__web_api__",
                "5:12: server name \"web.api\" is already on line 2",
            ]
        );
    }

    /// Entries of one server, and what the one fault of each says.
    const REFUSED: &[(&str, &str)] = &[
        ("command: a", "servers[0].name is missing"),
        (
            "name: x",
            "servers[0].command is missing: transport stdio requires it",
        ),
        (
            "name: x, transport: http",
            "servers[0].url is missing: transport http requires it",
        ),
        ("name: x, transport: sse", "transport sse requires it"),
        (
            "name: x, transport: ws, command: a",
            "servers[0].transport must be one of stdio, http, sse, not \"ws\"",
        ),
        (
            "name: x, command: a, url: http://b",
            "servers[0].url is for `transport: http` or `sse`",
        ),
        (
            "name: x, transport: http, url: http://b, cwd: c",
            "servers[0].cwd is for `transport: stdio` only",
        ),
        (
            "name: x, transport: http, url: localhost",
            "must begin with http:// or https://",
        ),
        (
            "name: x, transport: http, url: http://b, headers: {'a b': c}",
            "cannot name a header",
        ),
        (
            "name: x, transport: http, url: http://b, headers: {a: \"c\\nd\"}",
            "must be one line",
        ),
        (
            "name: x, transport: http, url: 'http://'",
            "servers[0].url is no URL: empty host",
        ),
        (
            "name: x, transport: http, url: ftp://b",
            "must begin with http:// or https://",
        ),
        (
            "name: x, transport: http, url: 'https://me:hunter2@b/'",
            "servers[0].url must hold no user and no password: write `headers",
        ),
        (
            "name: x, transport: http, url: http://b, headers: {HOST: c}",
            "servers[0].headers: HOST is set by ptcd itself",
        ),
        (
            "name: x, transport: sse, url: http://b, headers: {Mcp-Session-Id: c}",
            "Mcp-Session-Id is set by ptcd itself",
        ),
        (
            "name: x, transport: http, url: http://b, headers: {X-Key: c, x-key: d}",
            "x-key is there twice",
        ),
        (
            "name: x, transport: http, url: http://b, headers: {X-Key: hunter2é}",
            "X-Key holds a character that no header can",
        ),
        (
            "name: x, command: ''",
            "servers[0].command must not be empty",
        ),
        ("name: ' ', command: a", "1 to 128 printable characters"),
        (
            "name: [x], command: a",
            "servers[0].name must be text, not a list",
        ),
        (
            "name: x, command: a, args: one two",
            "servers[0].args must be a list, such as `args: [one, two]`, not text",
        ),
        (
            "name: x, command: a, args: [[b]]",
            "servers[0].args[0] must be text, not a list",
        ),
        (
            "name: x, command: a, env: [A=b]",
            "servers[0].env must be a mapping",
        ),
        (
            "name: x, command: a, env: {A: {b: c}}",
            "servers[0].env.A must be text, not a mapping",
        ),
        (
            "name: x, command: a, env: {A=B: c}",
            "cannot name a variable",
        ),
        ("name: x, command: a, args: [\"b\\0\"]", "NUL"),
        (
            "name: x, command: a, cwd:",
            "servers[0].cwd must be text, not nothing",
        ),
        (
            "name: x, command: a, enabled: maybe",
            "servers[0].enabled must be one of on, off",
        ),
        (
            "name: x, command: a, start_timeout_seconds: 0",
            "start_timeout_seconds must be a number",
        ),
        (
            "name: x, command: a, max_concurrent_calls: 0",
            "from 1 to 1000000",
        ),
        (
            "name: x, command: a, purpose: \"b\\nc\"",
            "one line of at most 200",
        ),
        ("name: x, command: a, scope: user", "one of shared, project"),
        (
            "name: x, command: a, type: stdio",
            "unknown key servers[0].\"type\": write `transport",
        ),
        (
            "name: x, command: a, disabled: true",
            "write `enabled: false`",
        ),
        ("name: x, command: a, arg: [b]", "did you mean args?"),
        (
            "name: x, command: a, engine: b",
            "unknown key servers[0].\"engine\": the keys here are ",
        ),
        (
            "name: x, transport: sse, url: http://b, protocol: modern",
            "servers[0].protocol: modern is for stdio and http",
        ),
        (
            "name: x, command: a, protocol: old",
            "one of auto, legacy, modern",
        ),
    ];

    #[test]
    fn each_transport_has_its_own_keys() {
        for (entry, words) in REFUSED {
            let faults = read(&format!("servers: [{{{entry}}}]\n")).expect_err(entry);
            assert_eq!(faults.len(), 1, "{entry}: {faults:?}");
            assert!(faults[0].contains(words), "{entry}: {faults:?}");
            assert!(!faults[0].contains("hunter2"), "{faults:?}");
        }
        for (text, words) in [
            (
                "servers: [x]\n",
                "servers[0] is a mapping with the keys name",
            ),
            ("servers:\n  -\n", "servers[0] is empty"),
        ] {
            let faults = read(text).unwrap_err();
            assert!(faults[0].contains(words), "{faults:?}");
        }
    }

    #[test]
    fn all_faults_of_a_server_come_together() {
        let faults = read(
            "servers:\n  - name: a\n    argz: [x]\n    enabled: 5\n    env: {A: '${'}\n  - command: b\n",
        )
        .unwrap_err();
        let lines: Vec<_> = faults
            .iter()
            .map(|fault| fault.split(':').next().unwrap())
            .collect();
        assert_eq!(lines, ["2", "3", "4", "5", "6"], "{faults:?}");
    }

    #[test]
    fn a_malformed_reference_is_a_fault_that_does_not_show_the_text() {
        for text in ["hunter2${", "hunter2${}", "hunter2${1X}", "hunter2${A B}"] {
            let faults = read(&format!(
                "servers:\n- name: x\n  command: a\n  env:\n    PASSWORD: '{text}'\n"
            ))
            .unwrap_err();
            assert_eq!(faults.len(), 1);
            assert!(
                faults[0].starts_with("5:15: servers[0].env.PASSWORD: "),
                "{faults:?}"
            );
            assert!(!faults[0].contains("hunter2"), "{faults:?}");
        }
    }

    #[test]
    fn the_project_reference_is_for_cwd_and_args_of_project_servers() {
        let server = one(
            "servers: [{name: a, command: b, scope: project, args: ['${project}'], cwd: '${project}'}]\n",
        );
        assert_eq!(server.scope, Scope::Project);
        for entry in [
            "command: b, args: ['${project}']",
            "command: '${project}/b', scope: project",
            "command: b, scope: project, env: {A: '${B:-${project}}'}",
        ] {
            let faults = read(&format!("servers: [{{name: a, {entry}}}]\n")).unwrap_err();
            assert!(
                faults[0].contains("${project} is valid only in"),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn an_endpoint_has_its_url_and_its_headers() {
        for word in ["http", "sse"] {
            let server = one(&format!(
                "servers: [{{name: a, transport: {word}, url: 'HTTPS://h/${{P}}', headers: {{A: 'b c'}}}}]\n"
            ));
            assert_eq!(server.transport.name(), word);
            let (Transport::Http { url, headers } | Transport::Sse { url, headers }) =
                server.transport
            else {
                panic!()
            };
            assert_eq!(
                (url.as_str(), headers),
                ("HTTPS://h/${P}", map(&[("A", "b c")]))
            );
        }
        let modern = one("servers: [{name: a, command: b, protocol: modern}]\n");
        assert_eq!(modern.protocol, Era::Modern);
    }
}
