//! `${VAR}` in the texts of a server: the values that references stand for.
//!
//! A variable that is set but empty expands to nothing, its default
//! notwithstanding. What a variable expands to is not looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use ptc_protocol::{MAX_WANTED_VARIABLES, Unsendable, Vars};
use tokio::sync::watch;

use super::mask::Masker;
use super::offered::usable;
use super::template::{Part, Template};
use super::{Config, ServerConfig, Transport, home_path};

pub use super::expand_error::ExpandError;

/// Which key of a server a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Command,
    Args,
    Env,
    Cwd,
    Url,
    Headers,
}

impl Field {
    /// Whether `${project}` has a meaning in it.
    pub(super) fn takes_project(self) -> bool {
        matches!(self, Self::Args | Self::Cwd)
    }

    /// Whether values that a shim sent are used in it. They are another
    /// process's word, so they decide neither what is started nor who is dialled.
    fn takes_sent(self) -> bool {
        matches!(self, Self::Env | Self::Headers)
    }
}

/// A server's transport with every reference replaced. It holds secrets, so `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub enum Expanded {
    /// A child process.
    Stdio {
        /// Program: absolute if it held a slash, else a name to be found on the server's PATH.
        command: PathBuf,
        /// Its arguments.
        args: Vec<String>,
        /// Its own variables.
        env: BTreeMap<String, String>,
        /// Its working directory, absolute.
        cwd: PathBuf,
    },
    /// An endpoint of either HTTP transport.
    Endpoint {
        /// Its address.
        url: String,
        /// Headers sent with each request.
        headers: BTreeMap<String, String>,
    },
}

impl fmt::Debug for Expanded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdio { .. } => "Expanded::Stdio(..)",
            Self::Endpoint { .. } => "Expanded::Endpoint(..)",
        })
    }
}

/// The values variables stand for: the recorded environment, then what shims sent. In memory only.
#[derive(Default)]
pub struct Variables {
    values: RwLock<Values>,
    /// Counts what may change a judgement over a client.
    version: watch::Sender<u64>,
}

#[derive(Default)]
pub(super) struct Values {
    pub(super) recorded: BTreeMap<String, String>,
    pub(super) sent: BTreeMap<String, String>,
    /// Variables without a value that a client has and could not send.
    unsendable: BTreeMap<String, Unsendable>,
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables(..)")
    }
}

impl Variables {
    /// Starts with the daemon's recorded environment.
    pub fn new(recorded: BTreeMap<String, String>) -> Self {
        Self {
            values: RwLock::new(Values {
                recorded,
                ..Values::default()
            }),
            version: watch::Sender::default(),
        }
    }

    /// Puts another recorded environment in place and forgets what shims sent.
    pub fn record(&self, recorded: BTreeMap<String, String>) {
        *self.write() = Values {
            recorded,
            ..Values::default()
        };
        self.judged_anew();
    }

    /// The recorded environment's value of one variable.
    pub fn recorded(&self, name: &str) -> Option<String> {
        self.read().recorded.get(name).cloned()
    }

    /// The variables to ask a shim for: those of `env` and `headers` that the recorded
    /// environment lacks, at most 64, those without a default first.
    pub fn wants(&self, servers: &[ServerConfig]) -> Vec<String> {
        let mut names = BTreeMap::new();
        for server in servers.iter().filter(|server| server.enabled) {
            for (name, optional) in sent_names(server) {
                *names.entry(name).or_insert(true) &= optional;
            }
        }
        let values = self.read();
        names.retain(|name, _| !values.recorded.contains_key(name));
        let mut names: Vec<_> = names.into_iter().map(|(name, opt)| (opt, name)).collect();
        names.sort();
        names.truncate(MAX_WANTED_VARIABLES);
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Takes what a shim sent of the `wanted` variables; true when a server that uses one of them may start, or
    /// start anew, or fail for another reason. The first value of a name stays in use; names not wanted, values
    /// over 32 KiB and values with a NUL are not used.
    pub fn take(&self, wanted: &[String], sent: &Vars) -> bool {
        let mut values = self.write();
        let mut changed = false;
        for name in wanted {
            if values.recorded.contains_key(name) || values.sent.contains_key(name) {
                continue;
            }
            match usable(name, sent) {
                None => {}
                Some(Ok(value)) => {
                    values.unsendable.remove(name);
                    values.sent.insert(name.clone(), value.to_owned());
                    changed = true;
                }
                Some(Err(why)) => {
                    changed |= values.unsendable.insert(name.clone(), why) != Some(why);
                }
            }
        }
        drop(values);
        if changed {
            self.judged_anew();
        }
        changed
    }

    /// Forgets what shims sent.
    pub fn forget_sent(&self) {
        let mut values = self.write();
        values.sent.clear();
        values.unsendable.clear();
        drop(values);
        self.judged_anew();
    }

    /// Has everybody who waits for a judgement over a client judge again.
    pub fn judged_anew(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Changes whenever a judgement over a client may.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The variables without a value or a default, over all enabled servers, sorted.
    pub fn missing(&self, config: &Config) -> Vec<String> {
        let mut missing = BTreeSet::new();
        for server in config.servers.iter().filter(|server| server.enabled) {
            let values = self.read();
            for (_, field, text) in texts(&server.transport) {
                let mut expansion = Expansion::new(&values, field, None);
                if let Ok(template) = Template::parse(text) {
                    expansion.add(&template);
                    missing.append(&mut expansion.missing);
                }
            }
        }
        missing.into_iter().collect()
    }

    /// Replaces every reference in a server's texts. What came from variables, and
    /// the literal headers, are registered with `masker` before they are handed out.
    pub fn expand(
        &self,
        server: &ServerConfig,
        project: Option<&str>,
        masker: &Masker,
    ) -> Result<Expanded, ExpandError> {
        let values = self.read();
        let mut server_texts = BTreeMap::new();
        let (mut missing, mut own) = (BTreeSet::new(), BTreeSet::new());
        let mut no_project = false;
        for (key, field, text) in texts(&server.transport) {
            let Ok(template) = Template::parse(text) else {
                return Err(ExpandError::Malformed { key });
            };
            let mut expansion = Expansion::new(&values, field, project);
            expansion.add(&template);
            if !field.takes_sent() {
                own.extend(expansion.missing.iter().cloned());
            }
            missing.append(&mut expansion.missing);
            no_project |= expansion.no_project;
            for (name, value) in &expansion.used {
                masker.register(name, value);
            }
            if let (Field::Headers, Some(name)) = (field, key.strip_prefix("headers.")) {
                register_header(name, &expansion.text, masker);
            }
            server_texts.insert(key, expansion.text);
        }
        let home = values.recorded.get("HOME").map(PathBuf::from);
        let unsendable = values.unsendable.clone();
        drop(values);
        if no_project {
            return Err(ExpandError::NoProject);
        }
        let home_used = ["command", "cwd"]
            .iter()
            .filter_map(|key| server_texts.get(*key))
            .any(|text| home_path(text, None).is_none());
        if home_used && home.is_none() {
            missing.insert("HOME".to_owned());
            own.insert("HOME".to_owned());
        }
        if !missing.is_empty() {
            return Err(ExpandError::Missing {
                names: missing.into_iter().collect(),
                own: own.into_iter().collect(),
                unsendable: unsendable.into_iter().collect(),
            });
        }
        Ok(assemble(&server.transport, &server_texts, home.as_deref()))
    }

    /// Replaces every reference in a text that is no server's; values that shims sent are not used. What came from
    /// variables is registered with `masker`.
    ///
    /// # Errors
    /// What is missing or malformed, without any value.
    pub fn expand_own(&self, text: &str, masker: &Masker) -> Result<String, String> {
        let template = Template::parse(text).map_err(|error| error.to_string())?;
        let values = self.read();
        // Such a field takes nothing that another process sent.
        let mut expansion = Expansion::new(&values, Field::Command, None);
        expansion.add(&template);
        if let Some(name) = expansion.missing.first() {
            return Err(format!(
                "the variable {name} has no value here: `ptcctl env capture {name}` records it"
            ));
        }
        for (name, value) in &expansion.used {
            masker.register(name, value);
        }
        Ok(expansion.text)
    }

    pub(super) fn read(&self) -> std::sync::RwLockReadGuard<'_, Values> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Values> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The variables of a server that clients may send, each with whether it has a default wherever it stands.
pub fn sent_names(server: &ServerConfig) -> BTreeMap<String, bool> {
    let mut used = BTreeMap::new();
    for (_, field, text) in texts(&server.transport) {
        if let (true, Ok(template)) = (field.takes_sent(), Template::parse(text)) {
            template.names(&mut used);
        }
    }
    used
}

/// Registers the headers that are written out in the file, for servers too that are never
/// expanded. To be called with each configuration before anything about it is logged.
pub fn register_headers(config: &Config, masker: &Masker) {
    for server in &config.servers {
        for (key, field, text) in texts(&server.transport) {
            if let (Field::Headers, Some(name)) = (field, key.strip_prefix("headers.")) {
                for literal in literals(text) {
                    register_header(name, &literal, masker);
                }
            }
        }
    }
}

/// What of a text is written out: all of it, or what stands between its references, defaults included.
fn literals(text: &str) -> Vec<String> {
    fn collect(template: Template, found: &mut Vec<String>) {
        for part in template.0 {
            match part {
                Part::Text(text) => found.push(text),
                Part::Variable { default, .. } => {
                    if let Some(default) = default {
                        collect(default, found);
                    }
                }
                Part::Project => {}
            }
        }
    }
    let mut found = Vec::new();
    match Template::parse(text) {
        Ok(template) => collect(template, &mut found),
        Err(_) => found.push(text.to_owned()),
    }
    found
}

/// A header's value is a secret with and without its scheme (`Bearer`, `Basic`).
fn register_header(name: &str, value: &str, masker: &Masker) {
    masker.register(name, value);
    if let Some((_, credentials)) = value.split_once(' ') {
        masker.register(name, credentials.trim());
    }
}

/// The text of one key while its references are replaced.
struct Expansion<'v> {
    values: &'v Values,
    field: Field,
    project: Option<&'v str>,
    text: String,
    /// Variables that had a value, with it.
    used: Vec<(String, String)>,
    missing: BTreeSet<String>,
    no_project: bool,
}

impl<'v> Expansion<'v> {
    fn new(values: &'v Values, field: Field, project: Option<&'v str>) -> Self {
        Self {
            values,
            field,
            project,
            text: String::new(),
            used: Vec::new(),
            missing: BTreeSet::new(),
            no_project: false,
        }
    }

    fn add(&mut self, template: &Template) {
        for part in &template.0 {
            match part {
                Part::Text(text) => self.text.push_str(text),
                Part::Project => match self.project {
                    Some(project) => self.text.push_str(project),
                    None => self.no_project = true,
                },
                Part::Variable { name, default } => match (self.value(name), default) {
                    (Some(value), _) => {
                        self.text.push_str(value);
                        self.used.push((name.clone(), value.to_owned()));
                    }
                    (None, Some(default)) => self.add(default),
                    (None, None) => {
                        self.missing.insert(name.clone());
                    }
                },
            }
        }
    }

    fn value(&self, name: &str) -> Option<&'v str> {
        let recorded = self.values.recorded.get(name);
        let sent = self.values.sent.get(name);
        let sent = sent.filter(|_| self.field.takes_sent());
        recorded.or(sent).map(String::as_str)
    }
}

/// A server's texts that may hold references, each with a key that tells them apart.
fn texts(transport: &Transport) -> Vec<(String, Field, &str)> {
    let mut texts = Vec::new();
    match transport {
        Transport::Stdio {
            command,
            args,
            env,
            cwd,
            base: _,
        } => {
            texts.push(("command".to_owned(), Field::Command, command.as_str()));
            for (index, arg) in args.iter().enumerate() {
                texts.push((format!("args[{index}]"), Field::Args, arg));
            }
            for (name, value) in env {
                texts.push((format!("env.{name}"), Field::Env, value));
            }
            if let Some(cwd) = cwd {
                texts.push(("cwd".to_owned(), Field::Cwd, cwd));
            }
        }
        Transport::Http { url, headers } | Transport::Sse { url, headers } => {
            texts.push(("url".to_owned(), Field::Url, url.as_str()));
            for (name, value) in headers {
                texts.push((format!("headers.{name}"), Field::Headers, value));
            }
        }
    }
    texts
}

/// The transport with its expanded texts, its paths absolute.
fn assemble(
    transport: &Transport,
    texts: &BTreeMap<String, String>,
    home: Option<&Path>,
) -> Expanded {
    let get = |key: &str| texts.get(key).cloned().unwrap_or_default();
    let all = |prefix: &str, names: &BTreeMap<String, String>| {
        names
            .keys()
            .map(|name| (name.clone(), get(&format!("{prefix}.{name}"))))
            .collect()
    };
    match transport {
        Transport::Stdio {
            args,
            env,
            cwd,
            base,
            ..
        } => {
            let path = |text: String| home_path(&text, home).unwrap_or_else(|| text.into());
            let command = get("command");
            let command = if command.contains('/') {
                base.join(path(command))
            } else {
                command.into()
            };
            Expanded::Stdio {
                command,
                args: (0..args.len())
                    .map(|at| get(&format!("args[{at}]")))
                    .collect(),
                env: all("env", env),
                cwd: match cwd {
                    Some(_) => base.join(path(get("cwd"))),
                    None => base.clone(),
                },
            }
        }
        Transport::Http { headers, .. } | Transport::Sse { headers, .. } => Expanded::Endpoint {
            url: get("url"),
            headers: all("headers", headers),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::parse;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn masker() -> Masker {
        Masker::with_key([5; 32], &BTreeMap::new())
    }

    fn config(text: &str) -> Config {
        parse(text, Path::new("/conf/c.yaml")).unwrap()
    }

    fn missing(config: &Config, variables: &Variables) -> Vec<String> {
        match variables.expand(&config.servers[0], None, &masker()) {
            Err(ExpandError::Missing { names, .. }) => names,
            other => panic!("{other:?}"),
        }
    }

    const STDIO: &str = "servers:\n- name: a\n  command: ${DIR}/run\n  args: ['--mode=${MODE:-fast}', '$5']\n\
                         \x20 env: {T: 'Bearer ${TOKEN}', E: 'x${EMPTY:-no}y', D: '${NONE:-}'}\n  cwd: ~/work\n";

    #[test]
    fn references_are_replaced_in_every_field() {
        let variables = Variables::new(map(&[
            ("DIR", "bin"),
            ("TOKEN", "s3cr3t-value"),
            ("EMPTY", ""),
            ("HOME", "/home/me"),
        ]));
        let masker = masker();
        let expanded = variables
            .expand(&config(STDIO).servers[0], None, &masker)
            .unwrap();
        let expected = Expanded::Stdio {
            command: "/conf/bin/run".into(),
            args: vec!["--mode=fast".to_owned(), "$5".to_owned()],
            env: map(&[("T", "Bearer s3cr3t-value"), ("E", "xy"), ("D", "")]),
            cwd: "/home/me/work".into(),
        };
        assert!(expanded == expected);
        assert!(masker.mask("s3cr3t-value").starts_with("<TOKEN:"));
        assert!(!format!("{expanded:?} {variables:?}").contains("s3cr3t"));
    }

    #[test]
    fn what_a_variable_holds_is_not_expanded_again() {
        let config = config("servers: [{name: a, command: b, env: {X: '${A}'}}]\n");
        let variables = Variables::new(map(&[("A", "${B} ${"), ("B", "no")]));
        let expanded = variables
            .expand(&config.servers[0], None, &masker())
            .unwrap();
        let Expanded::Stdio { env, .. } = expanded else {
            panic!()
        };
        assert_eq!(env, map(&[("X", "${B} ${")]));
    }

    #[test]
    fn commands_and_folders_start_from_the_files_folder() {
        for (command, cwd, expected) in [
            ("srv", "", ("srv", "/conf")),
            ("./srv", "sub", ("/conf/./srv", "/conf/sub")),
            ("/x/srv", "/y", ("/x/srv", "/y")),
            ("~/srv", "'~'", ("/h/srv", "/h")),
        ] {
            let cwd = match cwd {
                "" => String::new(),
                cwd => format!(", cwd: {cwd}"),
            };
            let config = config(&format!(
                "servers: [{{name: a, command: {command}{cwd}}}]\n"
            ));
            let variables = Variables::new(map(&[("HOME", "/h")]));
            let expanded = variables
                .expand(&config.servers[0], None, &masker())
                .unwrap();
            let Expanded::Stdio { command, cwd, .. } = expanded else {
                panic!()
            };
            assert_eq!(
                (command.as_path(), cwd.as_path()),
                (Path::new(expected.0), Path::new(expected.1))
            );
        }
    }

    #[test]
    fn all_missing_variables_are_named() {
        let config = config(
            "servers: [{name: a, command: ~/x, args: ['${B}', '${A:-${C}}'], env: {X: '${A}'}}]\n",
        );
        let variables = Variables::default();
        assert_eq!(missing(&config, &variables), ["A", "B", "C", "HOME"]);
        assert_eq!(variables.missing(&config), ["A", "B", "C"]);
        let one = ExpandError::Missing {
            names: vec!["A".to_owned()],
            own: Vec::new(),
            unsendable: Vec::new(),
        };
        assert_eq!(
            one.to_string(),
            "environment variable ${A} is not set: start a client that has it in its environment, or record it from \
             your login shell with `ptcctl env capture A`, then `ptcctl restart`"
        );
        let own = ExpandError::Missing {
            names: vec!["A".to_owned(), "B".to_owned()],
            own: vec!["B".to_owned()],
            unsendable: Vec::new(),
        };
        assert_eq!(
            own.to_string(),
            "environment variables ${A}, ${B} are not set: clients send variables for env and headers only; \
             move ${B} there, or record them from your login shell with `ptcctl env capture A B`, then `ptcctl restart`"
        );
    }

    #[test]
    fn sent_values_reach_env_and_headers_only() {
        let config = config(
            "servers:\n- {name: a, command: b, args: ['${A}'], env: {X: '${A}'}}\n\
             - {name: h, transport: http, url: 'http://h/', headers: {Authorization: 'Bearer ${A}'}}\n",
        );
        let variables = Variables::default();
        let wanted = variables.wants(&config.servers);
        assert_eq!(wanted, ["A"]);
        assert!(variables.take(&wanted, &map(&[("A", "sent-value"), ("B", "not wanted")])));
        assert_eq!(missing(&config, &variables), ["A"]);
        let expanded = variables
            .expand(&config.servers[1], None, &masker())
            .unwrap();
        let Expanded::Endpoint { headers, .. } = expanded else {
            panic!()
        };
        assert_eq!(headers, map(&[("Authorization", "Bearer sent-value")]));
        let used = sent_names(&config.servers[0]);
        assert_eq!(used, BTreeMap::from([("A".to_owned(), false)]));
    }

    #[test]
    fn the_recorded_environment_wins_and_the_first_value_sent_stays() {
        let config = config("servers: [{name: a, command: b, env: {X: '${A}', Y: '${B}'}}]\n");
        let variables = Variables::new(map(&[("A", "recorded")]));
        let wanted = variables.wants(&config.servers);
        assert_eq!(wanted, ["B"]);
        let all = ["A".to_owned(), "B".to_owned()];
        assert!(variables.take(&all, &map(&[("A", "x"), ("B", "one")])));
        assert!(!variables.take(&all, &map(&[("B", "two")])));
        assert!(!variables.take(&all, &map(&[("B", "one")])));
        let expanded = variables
            .expand(&config.servers[0], None, &masker())
            .unwrap();
        let Expanded::Stdio { env, .. } = expanded else {
            panic!()
        };
        assert_eq!(env, map(&[("X", "recorded"), ("Y", "one")]));
        variables.forget_sent();
        assert_eq!(missing(&config, &variables), ["B"]);
        variables.record(map(&[("B", "new")]));
        assert_eq!(missing(&config, &variables), ["A"]);
        let long = "x".repeat(ptc_protocol::MAX_VARIABLE_BYTES + 1);
        for bad in [long.as_str(), "a\0b"] {
            assert!(variables.take(&all, &map(&[("A", bad)])));
            assert_eq!(missing(&config, &variables), ["A"]);
        }
    }

    #[test]
    fn at_most_64_names_are_wanted_those_without_default_first() {
        let env: Vec<_> = (0..80)
            .map(|at| match at {
                0..70 => format!("V{at:02}: '${{V{at:02}:-d}}'"),
                _ => format!("V{at:02}: '${{V{at:02}}}'"),
            })
            .collect();
        let config = config(&format!(
            "servers:\n- {{name: a, command: '${{C}}', env: {{{}}}}}\n- {{name: b, command: c, enabled: false, env: {{Z: '${{Z}}'}}}}\n",
            env.join(", ")
        ));
        let wanted = Variables::default().wants(&config.servers);
        assert_eq!(wanted.len(), 64);
        assert_eq!(wanted[..2], ["V70", "V71"]);
        assert_eq!(wanted[10], "V00");
    }

    #[test]
    fn literal_headers_are_masked_with_and_without_their_scheme() {
        let config = config(
            "servers:\n- name: h\n  transport: http\n  url: http://h/\n  headers: {Authorization: Bearer literal-1, X-Key: 'k-${A:-defaulted}'}\n",
        );
        let masker = masker();
        register_headers(&config, &masker);
        assert!(
            masker
                .mask("literal-1 k-defaulted")
                .starts_with("<Authorization:")
        );
        // The reference itself is no secret, its default is.
        let written = masker.mask("k-${A:-defaulted}").into_owned();
        assert!(written.starts_with("k-${A:-<X-Key:"), "{written}");
        Variables::default()
            .expand(&config.servers[0], None, &masker)
            .unwrap();
        for (text, name) in [
            ("Bearer literal-1", "<Authorization:"),
            ("literal-1", "<Authorization:"),
            ("k-defaulted", "<X-Key:"),
        ] {
            assert!(masker.mask(text).starts_with(name), "{text}");
        }
    }

    #[test]
    fn the_project_folder_is_filled_in() {
        let config = config(
            "servers: [{name: a, command: b, scope: project, args: ['-r=${project}'], cwd: '${project}/s'}]\n",
        );
        let variables = Variables::default();
        let server = &config.servers[0];
        assert_eq!(
            variables.expand(server, None, &masker()).unwrap_err(),
            ExpandError::NoProject
        );
        let expanded = variables.expand(server, Some("/p"), &masker()).unwrap();
        let Expanded::Stdio { args, cwd, .. } = expanded else {
            panic!()
        };
        assert_eq!((args.join(" "), cwd), ("-r=/p".to_owned(), "/p/s".into()));
    }

    proptest! {
        #[test]
        fn nothing_that_came_from_a_variable_is_left_after_masking(
            secrets in prop::collection::vec("[k-z\"\\\\ ]{8,20}", 3),
            around in "[a-z ]{0,6}",
        ) {
            let names = ["ONE", "TWO", "THREE"];
            let pairs: Vec<_> = names.into_iter().zip(secrets.iter().map(String::as_str)).collect();
            let variables = Variables::new(map(&pairs));
            let text = format!("{around}${{ONE}}{around}${{TWO}}${{THREE:-x}}");
            let server = ServerConfig {
                transport: Transport::Stdio {
                    command: "c".to_owned(),
                    args: vec![text.clone()],
                    env: map(&[("E", &text)]),
                    cwd: None,
                    base: "/".into(),
                },
                ..config("servers: [{name: a, command: b}]\n").servers.remove(0)
            };
            let masker = masker();
            let Ok(Expanded::Stdio { args, env, .. }) = variables.expand(&server, None, &masker) else {
                panic!()
            };
            prop_assert!(args.join("").contains(&secrets[0]));
            for said in [args.join(","), format!("{env:?}"), serde_json::json!(env).to_string()] {
                let masked = masker.mask(&said);
                for secret in &secrets {
                    prop_assert!(!masked.contains(secret.as_str()));
                }
            }
        }
    }
}
