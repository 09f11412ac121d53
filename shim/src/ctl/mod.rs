//! The command line: one file a verb.

mod apparmor;
mod approvals;
mod call;
mod completions;
mod config;
mod doctor;
mod env;
mod inspect;
mod large;
mod last_end;
mod log_file;
mod logs;
mod mcp;
mod names;
mod output;
mod policy;
mod reload;
mod replay;
mod restart;
mod run;
mod run_text;
mod run_view;
mod runs;
mod server_text;
mod servers;
mod service;
mod start;
mod status;
mod status_text;
mod stop;
mod table;
mod tools;
mod unique;
mod unit;
mod unit_text;
mod visible;
mod words;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ptc_protocol::BUILD;
use ptc_protocol::paths::{Environment, PathError, Places, Sources, variable};
use ptc_protocol::route;

use crate::connect::{ConnectError, Peer, connect, recorded};
use crate::ending::is_held;
use crate::launch_error::numbered;
use output::Output;

/// Asks and steers ptcd.
#[derive(Debug, Parser)]
#[command(name = "ptcctl", version = BUILD)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent flags of the command line"
)]
struct Global {
    /// Print one JSON object with a `schema` number instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Never print colours (also NO_COLOR)
    #[arg(long, global = true)]
    no_color: bool,
    /// Print no messages but errors
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Print more
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// Socket of the daemon (also PTC_SOCKET)
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Configuration file of the daemon (also PTC_MCP_CONFIG)
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the daemon, its clients and its servers
    Status(status::Arguments),
    /// List the tools a program can call
    Tools(tools::Arguments),
    /// Show one tool: what it does and what it takes
    Inspect(inspect::Arguments),
    /// Call one tool and print its result
    Call(call::Arguments),
    /// Run a program and print what it gives
    Run(run::Arguments),
    /// List finished runs, or show one with its calls
    Runs(runs::Arguments),
    /// Repeat a run from its record; no server is called
    Replay(replay::Arguments),
    /// Show the servers, or restart, enable or disable one
    Servers(servers::Arguments),
    /// Check or show the configuration, or print its path
    #[command(subcommand)]
    Config(config::Arguments),
    /// Show the calls that wait for a person, or answer one
    Approvals(approvals::Arguments),
    /// Check the policies that say who may call what
    #[command(subcommand)]
    Policy(policy::Arguments),
    /// Steer which callable names tools have
    #[command(subcommand)]
    Names(names::Arguments),
    /// Check everything that ptc needs, and say what to do
    Doctor(doctor::Arguments),
    /// Show the end of the daemon's log or of a server's stderr, and what is added to it
    Logs(logs::Arguments),
    /// Record the environment that servers get, or show it
    #[command(subcommand)]
    Env(env::Arguments),
    /// Have the daemon read its configuration again
    Reload(reload::Arguments),
    /// Start the daemon where it is not running
    Start,
    /// Have the daemon end, after its running programs, and wait for that
    Stop(stop::Arguments),
    /// Have the daemon end, then start it anew
    Restart(stop::Arguments),
    /// Make the daemon a service of systemd or launchd, or take that back
    #[command(subcommand)]
    Service(service::Arguments),
    /// Print a script that completes this command line in a shell
    Completions(completions::Arguments),
}

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Ok,
    Failure,
    /// What was written on the command line cannot be meant; clap ends with the same number.
    Usage,
    NotRunning,
    /// `status --check`: it does not work now and may by itself.
    Transient,
    /// `status --check`: it does not work until someone acts.
    Blocked,
    /// `status --check`: there is no server of that name.
    UnknownName,
    TimedOut,
    NoSandbox,
}

impl Exit {
    /// The number the program ends with.
    fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::NotRunning => 3,
            Self::Transient => 10,
            Self::Blocked => 11,
            Self::UnknownName => 12,
            Self::TimedOut => 124,
            Self::NoSandbox => 125,
        }
    }
}

/// What was written on the command line cannot be meant.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Usage {
    /// What is wrong with it.
    text: String,
}

impl From<&anyhow::Error> for Usage {
    fn from(error: &anyhow::Error) -> Self {
        Self { text: chain(error) }
    }
}

/// Most bytes of one word of the command line that is part of a request: written out for it they are three times as many,
/// and a request has room for 64 KiB.
const MAX_WORD: usize = 16 * 1024;

/// A route with what was written on the command line, which must not be longer than anything that could be meant.
fn request(path: &str, query: &[(&str, &str)]) -> Result<String, Usage> {
    match query.iter().find(|(_, word)| word.len() > MAX_WORD) {
        None => Ok(route::with(path, query)),
        Some((name, word)) => Err(Usage {
            text: format!(
                "the {name} on the command line has {} bytes; at most {MAX_WORD} can be asked for",
                word.len()
            ),
        }),
    }
}

/// What every verb works with.
#[derive(Debug)]
struct Context {
    places: Places,
    output: Output,
}

impl Context {
    /// A fresh connection, good for one request.
    async fn connect(&self) -> Result<Peer, ConnectError> {
        let peer = connect(&self.places).await?;
        self.output
            .detail(&format!("connected to {}", peer.socket().display()));
        Ok(peer)
    }

    /// The same, of a daemon that was heard to answer: for requests whose own answer may take long.
    async fn connect_awake(&self) -> Result<Peer, ConnectError> {
        let _: serde_json::Value = self.connect().await?.get(route::HEALTH).await?;
        self.connect().await
    }
}

/// Ends for what the command line's own parser says: help and version are answers, the rest faults.
fn unparsed(error: &clap::Error) -> ExitCode {
    let words = std::env::args_os().skip(1);
    let json = words
        .take_while(|word| word != "--")
        .any(|word| word == "--json");
    if json && error.use_stderr() {
        let text = error.render().to_string();
        let text = text.trim_start_matches("error: ").trim_end();
        let plain = Output {
            json,
            color: false,
            quiet: false,
            verbose: false,
        };
        return plain.failure(text, Exit::Usage).code().into();
    }
    // Without a stderr there is nobody to tell.
    let _ = error.print();
    if error.use_stderr() {
        Exit::Usage.code().into()
    } else {
        ExitCode::SUCCESS
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    let global = &cli.global;
    let output = Output {
        json: global.json,
        color: !global.no_color
            && std::env::var_os(variable::NO_COLOR).is_none_or(|value| value.is_empty())
            && std::io::stdout().is_terminal(),
        quiet: global.quiet,
        verbose: global.verbose,
    };
    let exit = match places_of(cli.global.config.clone(), cli.global.socket.clone()) {
        Ok(places) => {
            let context = Context { places, output };
            work(&context, cli.verb).unwrap_or_else(|error| failed(&context, &error))
        }
        Err(error) => output.failure(&error.to_string(), Exit::Failure),
    };
    exit.code().into()
}

fn places_of(config: Option<PathBuf>, socket: Option<PathBuf>) -> Result<Places, PathError> {
    Places::find(&Sources {
        config,
        socket,
        environment: Environment::of_process(),
    })
}

/// Says why a verb failed, and what to do where no daemon can be asked.
fn failed(context: &Context, error: &anyhow::Error) -> Exit {
    let exit = exit_of(error);
    let text = chain(error);
    let text = match exit {
        Exit::NotRunning if is_held(&context.places.lock_file()) => {
            let process = recorded(&context.places).map(|(pid, _)| pid);
            format!(
                "ptcd{} is ending, and takes nothing more ({text}): `ptcctl stop` waits for its end, \
                 `ptcctl start` for its end and starts it anew",
                numbered(process)
            )
        }
        Exit::NotRunning => format!(
            "ptcd is not running ({text}; {}): start it with `ptcctl start`, or open an editor that uses ptc-mcp",
            last_end::of(&context.places)
        ),
        _ => text,
    };
    context.output.failure(&text, exit)
}

/// Whether `doctor` is a verb and looks at one server.
fn doctor_takes_a_server() -> bool {
    use clap::CommandFactory as _;
    let command = Cli::command();
    let doctor = command.find_subcommand("doctor");
    doctor.is_some_and(|doctor| doctor.get_positionals().next().is_some())
}

/// An error with its causes, each said once: some errors name their cause themselves.
fn chain(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        if text.is_empty() {
            cause
        } else if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

fn work(context: &Context, verb: Verb) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match verb {
            Verb::Status(arguments) => status::run(context, &arguments).await,
            Verb::Tools(arguments) => tools::run(context, &arguments).await,
            Verb::Inspect(arguments) => inspect::run(context, &arguments).await,
            Verb::Call(arguments) => call::run(context, &arguments).await,
            Verb::Run(arguments) => run::run(context, &arguments).await,
            Verb::Runs(arguments) => runs::run(context, &arguments).await,
            Verb::Replay(arguments) => replay::run(context, &arguments).await,
            Verb::Servers(arguments) => servers::run(context, &arguments).await,
            Verb::Config(arguments) => config::run(context, &arguments).await,
            Verb::Approvals(arguments) => approvals::run(context, &arguments).await,
            Verb::Policy(arguments) => policy::run(context, &arguments).await,
            Verb::Names(arguments) => names::run(context, &arguments).await,
            Verb::Doctor(arguments) => doctor::run(context, &arguments).await,
            Verb::Logs(arguments) => logs::run(context, &arguments).await,
            Verb::Env(arguments) => env::run(context, &arguments).await,
            Verb::Service(arguments) => service::run(context, &arguments).await,
            Verb::Completions(arguments) => completions::run(context, &arguments),
            Verb::Reload(arguments) => reload::run(context, &arguments).await,
            Verb::Start => start::run(context).await,
            Verb::Stop(arguments) => stop::run(context, &arguments).await,
            Verb::Restart(arguments) => restart::run(context, &arguments).await,
        }
    })
}

fn exit_of(error: &anyhow::Error) -> Exit {
    if error.is::<Usage>() {
        return Exit::Usage;
    }
    match error.downcast_ref::<ConnectError>() {
        Some(error) if error.is_absent() => Exit::NotRunning,
        _ => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use std::path::Path;

    /// Every text below a folder that this package's people and messages come from.
    fn texts(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                texts(&path, found);
            } else {
                found.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }

    #[test]
    fn every_verb_that_a_text_names_exists() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = Vec::new();
        texts(&package.join("src"), &mut found);
        if let Ok(readme) = std::fs::read_to_string(package.join("../README.md")) {
            found.push(("README.md".into(), readme));
        }
        let command = Cli::command();
        let mut named = 0;
        for (path, text) in &found {
            for (_, rest) in text
                .match_indices("`ptcctl ")
                .map(|(at, m)| text.split_at(at + m.len()))
            {
                let verb: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
                named += 1;
                let exists = verb.is_empty() || command.find_subcommand(&verb).is_some();
                assert!(exists, "{}: there is no `ptcctl {verb}`", path.display());
            }
        }
        assert!(named > 10, "only {named} verbs are named");
    }

    #[test]
    fn what_cannot_be_meant_is_a_fault_of_usage() {
        let error = anyhow::anyhow!("\"x\" is no argument").context("call");
        let error = anyhow::Error::from(Usage::from(&error));
        assert_eq!(exit_of(&error).code(), 2);
        assert_eq!(chain(&error), "call: \"x\" is no argument");
    }

    #[test]
    fn a_word_that_no_request_has_room_for_is_a_fault_of_usage() {
        let word = "ä".repeat(MAX_WORD / 2);
        let path = request(route::TOOL, &[("name", &word)]).unwrap();
        assert!(path.len() < 64 * 1024, "{}", path.len());
        let error = request(
            route::TOOL,
            &[("verb", "show"), ("name", &format!("{word}a"))],
        );
        let text = "the name on the command line has 16385 bytes; at most 16384 can be asked for";
        assert_eq!(error.unwrap_err().to_string(), text);
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = std::io::Error::other("no luck");
        let error = anyhow::Error::from(ConnectError::Io {
            socket: "/s".into(),
            source: cause,
        });
        assert_eq!(chain(&error), "cannot connect to /s: no luck");
        assert_eq!(
            chain(&error.context("cannot ask")),
            "cannot ask: cannot connect to /s: no luck"
        );
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_may_stand_behind_the_verb() {
        let cli = Cli::try_parse_from(["ptcctl", "status", "--json", "--socket", "/s"]).unwrap();
        assert!(cli.global.json);
        assert_eq!(cli.global.socket, Some("/s".into()));
        assert!(Cli::try_parse_from(["ptcctl", "status", "-q", "-v"]).is_err());
    }
}
