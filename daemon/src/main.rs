//! The ptcd program: reads its command line and starts what it asks for.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ptc_protocol::paths::{Environment, Places, Sources};
use ptc_protocol::status::Readiness;
use ptcd::app::environment::{self, Starter};
use ptcd::app::service::{self, Service};
use ptcd::app::{self, App, Signals, StartError};
use rustix::fs::Mode;

/// The daemon behind ptc-mcp: runs confined Python programs against your MCP servers.
#[derive(Debug, Parser)]
#[command(name = "ptcd", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one configuration until told to stop
    Serve {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Socket path
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Leave the terminal's session, as a program started by ptc-mcp does
        #[arg(long)]
        detach: bool,
        /// Write one line of JSON to stdout when the socket takes connections, then use stdout no more
        #[arg(long)]
        ready_stdout: bool,
        /// As a service of systemd or launchd: take its socket over, tell it how the daemon is, write the log to the
        /// state folder
        #[arg(long, conflicts_with_all = ["detach", "ready_stdout"])]
        service: bool,
    },
    /// Read a configuration file and tell every fault in it; asks no daemon
    Check {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check what a daemon needs and print it as JSON; `ptcctl doctor` shows it to people
    #[command(hide = true)]
    Doctor {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Check this server alone
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
    },
    /// Run a program against a built-in server and show what comes back
    Demo {
        /// Program to run in place of the built-in one
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Figures the built-in server gives
        #[arg(long, value_name = "FILE", hide = true)]
        figures: Option<PathBuf>,
    },
    /// The built-in server of the demo
    #[command(hide = true)]
    DemoServer {
        /// Figures to give
        #[arg(long, value_name = "FILE")]
        figures: Option<PathBuf>,
    },
    /// Ends what servers leave behind when the daemon is killed
    #[command(hide = true)]
    Survivors,
    /// The parent of all workers
    #[command(hide = true)]
    Warden {
        /// In namespaces of its own
        #[arg(long)]
        inside: bool,
    },
}

fn main() -> ExitCode {
    // Everything ptcd makes is for its user alone.
    let umask = rustix::process::umask(Mode::from_raw_mode(0o077));
    match Arguments::parse().command {
        Command::Warden { inside } => ptcd::sandbox::warden::main(inside),
        Command::Survivors => {
            app::end_survivors();
            ExitCode::SUCCESS
        }
        Command::DemoServer { figures } => report(ptcd::demo::server::serve(figures.as_deref())),
        Command::Demo { program, figures } => report(
            block_on(ptcd::demo::run(
                program.as_deref(),
                figures.as_deref(),
                umask,
            ))
            .and_then(|run| run),
        ),
        Command::Check { config } => check(config),
        Command::Doctor { config, server } => report(doctor(config, server)),
        Command::Serve {
            config,
            socket,
            detach,
            ready_stdout,
            service,
        } => {
            let sources = Sources {
                config,
                socket,
                environment: Environment::of_process(),
            };
            serve(
                &sources,
                Way {
                    detach,
                    ready_stdout,
                    service,
                },
                umask,
            )
        }
    }
}

/// Reads a configuration as a daemon would.
fn check(config: Option<PathBuf>) -> ExitCode {
    use std::io::Write as _;
    let sources = Sources {
        config,
        socket: None,
        environment: Environment::of_process(),
    };
    let places = match Places::find(&sources) {
        Ok(places) => places,
        Err(error) => return report(Err(error.into())),
    };
    let (lines, code) = match app::check(&places) {
        Ok(line) => (vec![line], ExitCode::SUCCESS),
        Err(faults) => (faults.lines(), ExitCode::FAILURE),
    };
    let mut stdout = std::io::stdout();
    // A reader that has gone wants no more lines.
    let _ = lines.iter().try_for_each(|line| writeln!(stdout, "{line}"));
    code
}

/// Checks what a daemon of these places would need, in the environment that one would have.
fn doctor(config: Option<PathBuf>, server: Option<String>) -> anyhow::Result<()> {
    use std::io::Write as _;
    let sources = Sources {
        config,
        socket: None,
        environment: Environment::of_process(),
    };
    let places = Places::find(&sources)?;
    let (environment, fault) = environment::base(&places, Starter::Program);
    if let Some(fault) = fault {
        complain(&fault);
    }
    let checks = block_on(app::examine(&places, environment, server))??;
    let mut text = serde_json::to_vec(&checks)?;
    text.push(b'\n');
    std::io::stdout().write_all(&text)?;
    Ok(())
}

/// How the daemon is started.
#[derive(Clone, Copy)]
struct Way {
    detach: bool,
    ready_stdout: bool,
    service: bool,
}

fn serve(sources: &Sources, way: Way, umask: Mode) -> ExitCode {
    ptcd::sandbox::give_large_memory_back();
    if way.detach {
        // Fails only for a process that leads a group already, which then needs no new session.
        let _ = rustix::process::setsid();
    }
    let mut ready = Ready {
        stdout: way.ready_stdout,
        manager: service::Manager::default(),
    };
    let places = match Places::find(sources) {
        Ok(places) => places,
        Err(error) => return ready.failed(&error.to_string()),
    };
    // A daemon must not keep the folder busy that it happened to be started in.
    let _ = std::env::set_current_dir(Path::new("/"));
    let service = match begin(&places, way) {
        Ok(service) => service,
        Err(error) => return ready.failed(&chain(&error)),
    };
    ready.manager = service.manager();
    let starter = if way.detach || way.service {
        Starter::Program
    } else {
        Starter::Person
    };
    let (environment, fault) = environment::base(&places, starter);
    if let Some(fault) = fault {
        complain(&fault);
    }
    let served = block_on(async {
        let signals = Signals::new()?;
        let app = App::start_as(places, environment, umask, service).await?;
        ready.say(&Readiness::Ready {
            socket: app.socket(),
        });
        app.serve(signals).await;
        Ok::<(), StartError>(())
    });
    match served {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(StartError::AlreadyRunning)) => {
            ready.say(&Readiness::AlreadyRunning);
            tracing::error!("another ptcd serves this configuration already");
            if !way.ready_stdout {
                complain("another ptcd serves this configuration already");
            }
            ExitCode::FAILURE
        }
        Ok(Err(error)) => ready.failed(&chain(&error)),
        Err(error) => ready.failed(&format!("{error:#}")),
    }
}

/// What is done before there are threads: what a service manager hands over is taken, and the log opened.
fn begin(places: &Places, way: Way) -> Result<Service, StartError> {
    if !way.service {
        return Ok(Service::default());
    }
    let service = Service::adopt()?;
    service::log_to_file(places)?;
    Ok(service)
}

fn block_on<T>(future: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let value = runtime.block_on(future);
    // Blocking tasks that hang must not keep an ended daemon alive.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    Ok(value)
}

/// The readiness line, for whoever started the daemon.
#[derive(Clone, Copy)]
struct Ready {
    stdout: bool,
    manager: service::Manager,
}

impl Ready {
    fn say(self, readiness: &Readiness) {
        use std::io::Write as _;
        if !self.stdout {
            return;
        }
        let Ok(mut line) = serde_json::to_vec(readiness) else {
            return;
        };
        line.push(b'\n');
        let mut stdout = std::io::stdout();
        // The starter may be gone; the daemon is wanted all the same.
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
        let _ = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
    }

    fn failed(self, message: &str) -> ExitCode {
        self.say(&Readiness::Failed {
            message: message.to_owned(),
        });
        self.manager.failed(message);
        complain(message);
        ExitCode::FAILURE
    }
}

/// An error with its causes, each said once: some tell their cause themselves.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

fn report(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn complain(message: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "ptcd: {message}");
}
