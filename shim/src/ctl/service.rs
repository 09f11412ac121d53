//! `ptcctl service`: makes the daemon a service of the user's systemd or launchd, and takes it back.

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use ptc_protocol::paths::Places;
use ptc_protocol::status::SCHEMA;
use serde_json::{Value, json};

use super::output::{print, print_json, say};
use super::stop;
use super::unit_text::{Facts, UnitFile, files, is_own};
use super::words::plain;
use super::{Context, Exit};
use crate::ending::is_held;
use crate::environment;
use crate::launch::{Ask, ENDING_TIMEOUT, private_file, private_folder, program};
use crate::manager::{self, Kind, LABEL, SERVICE_UNIT, SOCKET_UNIT};

#[derive(Debug, Subcommand)]
pub(super) enum Arguments {
    /// Have the service manager hold the socket and start the daemon at the first connection
    Install(Install),
    /// Take that back
    Uninstall(Uninstall),
    /// Show whether the daemon is a service, and of which program
    Status,
}

#[derive(Debug, Args)]
pub(super) struct Install {
    /// Print what would be written and run, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace files that ptcctl did not write; they are kept beside as NAME.before
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(super) struct Uninstall {
    /// Print what would be removed and run, and do nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let Some(units) = context.places.units.as_deref() else {
        let text = "a service is for the default daemon only: leave --config, --socket, PTC_MCP_CONFIG, PTC_SOCKET \
                    and PTC_STATE_DIR out";
        return Ok(context.output.failure(text, Exit::Failure));
    };
    let work = Work {
        context,
        kind: Kind::of_system(),
        units,
        files: wanted(&context.places, units)?,
    };
    match arguments {
        Arguments::Install(install) if install.dry_run => work.show(&work.files, &work.enabling()),
        Arguments::Install(install) => work.install(install.force).await,
        Arguments::Uninstall(Uninstall { dry_run }) => work.uninstall(*dry_run).await,
        Arguments::Status => work.status().await,
    }
}

/// The files as they should be for the daemon beside this program.
fn wanted(places: &Places, units: &Path) -> anyhow::Result<Vec<UnitFile>> {
    let program = program()?;
    let text = |path: &Path| {
        let text = path
            .to_str()
            .filter(|text| !text.contains(char::is_control));
        let refused = || format!("a service cannot have the path {}", path.display());
        text.map(str::to_owned).with_context(refused)
    };
    let facts = Facts {
        program: &text(&program)?,
        socket: &text(&places.socket)?,
        log: &text(&places.log_file())?,
    };
    Ok(files(Kind::of_system(), units, &facts))
}

/// What stands at a unit's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Same,
    /// Written by another version, or for another program.
    Own,
    /// Somebody else's, a link or a folder.
    Foreign,
}

impl Found {
    fn at(file: &UnitFile) -> Self {
        let Ok(about) = std::fs::symlink_metadata(&file.path) else {
            return Self::Nothing;
        };
        match std::fs::read_to_string(&file.path) {
            _ if !about.is_file() => Self::Foreign,
            Ok(text) if text == file.text => Self::Same,
            Ok(text) if is_own(&text) => Self::Own,
            _ => Self::Foreign,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "absent",
            Self::Same => "installed",
            Self::Own => "outdated",
            Self::Foreign => "foreign",
        }
    }
}

type Commands = Vec<Vec<String>>;

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

struct Work<'a> {
    context: &'a Context,
    kind: Kind,
    units: &'a Path,
    files: Vec<UnitFile>,
}

impl Work<'_> {
    /// What makes the service manager take the files into use.
    fn enabling(&self) -> Commands {
        match self.kind {
            Kind::Systemd => vec![
                words(&["systemctl", "--user", "daemon-reload"]),
                words(&["systemctl", "--user", "enable", "--now", SOCKET_UNIT]),
            ],
            Kind::Launchd => {
                let domain = manager::launchd_domain();
                let file = self.kind.main_file(self.units).display().to_string();
                vec![words(&["launchctl", "bootstrap", &domain, &file])]
            }
        }
    }

    /// What makes it let go of them.
    fn disabling(&self) -> Commands {
        match self.kind {
            Kind::Systemd => vec![words(&[
                "systemctl",
                "--user",
                "disable",
                "--now",
                SOCKET_UNIT,
                SERVICE_UNIT,
            ])],
            Kind::Launchd => {
                let job = format!("{}/{LABEL}", manager::launchd_domain());
                vec![words(&["launchctl", "bootout", &job])]
            }
        }
    }

    /// Prints files and commands.
    fn show(&self, files: &[UnitFile], commands: &Commands) -> anyhow::Result<Exit> {
        if self.context.output.json {
            let files = files
                .iter()
                .map(|file| json!({ "path": file.path, "text": file.text }));
            let files: Vec<Value> = files.collect();
            print_json(&json!({
                "schema": SCHEMA, "dry_run": true, "files": files, "commands": commands,
            }))?;
            return Ok(Exit::Ok);
        }
        let texts = files
            .iter()
            .map(|file| format!("--- {}\n{}", file.path.display(), file.text));
        let lines = commands
            .iter()
            .map(|words| format!("+ {}\n", words.join(" ")));
        print(&texts.chain(lines).collect::<String>())?;
        Ok(Exit::Ok)
    }

    async fn install(&self, force: bool) -> anyhow::Result<Exit> {
        let output = self.context.output;
        let foreign: Vec<&UnitFile> = self
            .files
            .iter()
            .filter(|file| Found::at(file) == Found::Foreign)
            .collect();
        if let (Some(file), false) = (foreign.first(), force) {
            let text = format!(
                "{} is there, and ptcctl did not write it: nothing was changed; --force replaces it and keeps it \
                 beside as NAME.before",
                file.path.display()
            );
            return Ok(output.failure(&text, Exit::Failure));
        }
        self.reachable().await?;
        let changes = self.write()?;
        self.prepare().await?;
        // Whoever comes from here on is served by the service manager; the lock is free for it.
        self.end_older().await?;
        if self.kind == Kind::Launchd {
            // A job that is known already is not taken again.
            let _ = self.run_all(&self.disabling()).await;
        }
        self.run_all(&self.enabling()).await?;
        let end = format!("{} starts ptcd at the next connection", self.kind.name());
        self.told("installed", &changes, &end)
    }

    /// Whether there is a service manager that can be asked, before anything is written.
    async fn reachable(&self) -> anyhow::Result<()> {
        let asked = match self.kind {
            Kind::Systemd => manager::run(&["systemctl", "--user", "show-environment"]).await,
            Kind::Launchd => manager::run(&["launchctl", "managername"]).await,
        };
        let name = self.kind.name();
        asked.with_context(|| {
            format!("{name} of this user cannot be asked, so nothing was changed")
        })?;
        Ok(())
    }

    /// Writes what differs; says what was done, a sentence a file.
    fn write(&self) -> anyhow::Result<Vec<String>> {
        std::fs::create_dir_all(self.units)
            .with_context(|| format!("cannot make {}", self.units.display()))?;
        let mut changes = Vec::new();
        for file in &self.files {
            let path = file.path.display();
            changes.push(match Found::at(file) {
                Found::Same => format!("{path} is as it should be"),
                Found::Nothing => format!("{path} written"),
                Found::Own => format!("{path} written anew in place of one that ptcctl wrote"),
                Found::Foreign => {
                    let mut before = file.path.clone().into_os_string();
                    before.push(".before");
                    std::fs::rename(&file.path, &before)
                        .with_context(|| format!("cannot move {path}"))?;
                    format!("{path} written in place of another's, which is {path}.before now")
                }
            });
            replace(&file.path, &file.text).with_context(|| format!("cannot write {path}"))?;
        }
        Ok(changes)
    }

    /// Makes what a service finds where a client would have made it: the state folder with the recorded
    /// environment in it, and on macOS the socket's folder and the log.
    async fn prepare(&self) -> anyhow::Result<()> {
        let places = &self.context.places;
        private_folder(&places.state_root)?;
        private_folder(&places.state_dir)?;
        let recorded = environment::for_start(places, Ask::Anew).await;
        environment::write(places, &recorded)?;
        if self.kind == Kind::Launchd {
            if let Some(folder) = places.socket.parent() {
                private_folder(folder)?;
            }
            private_file(&places.log_file())?;
        }
        Ok(())
    }

    async fn end_older(&self) -> anyhow::Result<()> {
        if !is_held(&self.context.places.lock_file()) {
            return Ok(());
        }
        let end = stop::end(self.context, ENDING_TIMEOUT).await?;
        if !end.ended {
            bail!("the daemon that runs now does not end: `ptcctl stop`, then install again");
        }
        Ok(())
    }

    async fn run_all(&self, commands: &Commands) -> anyhow::Result<()> {
        for command in commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            self.context.output.detail(&words.join(" "));
            manager::run(&words).await?;
        }
        Ok(())
    }

    async fn uninstall(&self, dry_run: bool) -> anyhow::Result<Exit> {
        let (mut own, mut foreign) = (Vec::new(), Vec::new());
        for file in &self.files {
            match Found::at(file) {
                Found::Nothing => {}
                Found::Foreign => foreign.push(file),
                Found::Same | Found::Own => own.push(file),
            }
        }
        let mut after = Commands::new();
        if self.kind == Kind::Systemd {
            after.push(words(&["systemctl", "--user", "daemon-reload"]));
        }
        if dry_run {
            let removing = own
                .iter()
                .map(|file| vec!["rm".to_owned(), file.path.display().to_string()]);
            let commands = match own[..] {
                [] => Commands::new(),
                _ => self
                    .disabling()
                    .into_iter()
                    .chain(removing)
                    .chain(after)
                    .collect(),
            };
            return self.show(&[], &commands);
        }
        let mut changes = Vec::new();
        if !own.is_empty() {
            if let Err(error) = self.run_all(&self.disabling()).await {
                // Without its files the service is gone at the next login at the latest.
                say(&format!("{error:#}"));
            }
            for file in &own {
                let path = file.path.display();
                std::fs::remove_file(&file.path)
                    .with_context(|| format!("cannot remove {path}"))?;
                changes.push(format!("{path} removed"));
            }
            if let Err(error) = self.run_all(&after).await {
                say(&format!("{error:#}"));
            }
        }
        for file in foreign {
            let path = file.path.display();
            changes.push(format!("{path} left as it is: ptcctl did not write it"));
        }
        let end = if own.is_empty() {
            "nothing of ptcctl's was installed"
        } else {
            "ptcd is no service any more: clients start it themselves"
        };
        self.told("uninstalled", &changes, end)
    }

    fn told(&self, what: &str, changes: &[String], end: &str) -> anyhow::Result<Exit> {
        let output = self.context.output;
        if output.json {
            print_json(
                &json!({ "schema": SCHEMA, "ok": true, "done": what, "messages": changes }),
            )?;
            return Ok(Exit::Ok);
        }
        for change in changes {
            output.message(&plain(change));
        }
        output.message(end);
        Ok(Exit::Ok)
    }

    async fn status(&self) -> anyhow::Result<Exit> {
        let mut rows = Vec::new();
        for file in &self.files {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            let active = match (self.kind, Found::at(file)) {
                (_, Found::Nothing) => None,
                (Kind::Systemd, _) => {
                    Some(word_of(&["systemctl", "--user", "is-active", &name]).await)
                }
                (Kind::Launchd, _) => {
                    let job = format!("{}/{LABEL}", manager::launchd_domain());
                    let known = manager::run(&["launchctl", "print", &job]).await.is_ok();
                    Some(if known { "known" } else { "unknown" }.to_owned())
                }
            };
            rows.push((file, Found::at(file), active));
        }
        if self.context.output.json {
            let units = rows.iter().map(|(file, found, active)| {
                json!({ "path": file.path, "file": found.name(), "active": active })
            });
            let units: Vec<Value> = units.collect();
            print_json(&json!({ "schema": SCHEMA, "manager": self.kind.name(), "units": units }))?;
            return Ok(Exit::Ok);
        }
        let lines = rows.iter().map(|(file, found, active)| {
            let active = active
                .as_deref()
                .map_or_else(String::new, |word| format!(", {word}"));
            format!("{}  {}{active}", file.path.display(), found.name())
        });
        print(&lines.collect::<Vec<_>>().join("\n"))?;
        let next = if rows.iter().any(|(_, found, _)| *found == Found::Own) {
            "next: `ptcctl service install` writes the files for this ptcd"
        } else if rows.iter().all(|(_, found, _)| *found == Found::Nothing) {
            "ptcd is no service: `ptcctl service install` makes it one"
        } else {
            return Ok(Exit::Ok);
        };
        self.context.output.message(next);
        Ok(Exit::Ok)
    }
}

/// The one word a command answers, whatever its exit code.
async fn word_of(command: &[&str]) -> String {
    match manager::run(command).await {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            plain(text.trim())
        }
        Err(manager::ManagerError::Refused { answered, .. }) if !answered.is_empty() => {
            plain(&answered)
        }
        Err(error) => plain(&error.to_string()),
    }
}

/// Puts a text in a file's place as one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut fresh = path.to_owned().into_os_string();
    fresh.push(".new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, path)
}
