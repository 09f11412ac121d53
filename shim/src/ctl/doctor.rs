//! `ptcctl doctor`: checks everything that ptc needs, with what to do about each fault.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use clap::Args;
use ptc_protocol::doctor::{Check, Checks, Verdict};
use ptc_protocol::run::Confinement;
use ptc_protocol::status::{SCHEMA, Status};
use ptc_protocol::{BUILD, DOCTOR_TIMEOUT, PROTOCOL, route};
use serde_json::{Value, json};

use super::output::{print, print_json};
use super::words::{count, plain, span};
use super::{Context, Exit, apparmor, request, unit};
use crate::connect::{ConnectError, open_to_others, own_uid};
use crate::ending::is_held;
use crate::launch;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Check this server alone
    server: Option<String>,
    /// Print an AppArmor profile that lets ptcd confine programs where the system keeps user namespaces from it
    #[arg(long, conflicts_with = "server")]
    apparmor: bool,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.apparmor {
        return print_profile(context);
    }
    let server = arguments.server.as_deref();
    // What cannot be meant is said whether a daemon is there or not.
    request(route::DOCTOR, &asked_for(server))?;
    let mut checks = Vec::new();
    let status = status(context).await;
    if server.is_none() {
        checks.extend(socket(context, &status));
    }
    let (found, build) = match ask(context, status.as_ref().ok(), server).await {
        Ok(found) => (found.checks, Some((found.build, found.protocol))),
        Err(text) => {
            let fix = "see the reason; `ptcd doctor` alone prints what it finds";
            let text = format!("ptcd could not be asked: {text}");
            (vec![Check::failed("ptcd", text, fix)], None)
        }
    };
    if server.is_none() {
        checks.insert(0, versions(status.as_ref().ok(), build));
        let program = launch::program().ok();
        let home = std::env::home_dir();
        checks.push(unit::check(home.as_deref(), program.as_deref()));
        checks.extend(status.as_ref().ok().map(|status| daemon(status, &found)));
    }
    checks.extend(found);
    show(context, &checks)
}

fn print_profile(context: &Context) -> anyhow::Result<Exit> {
    let program = launch::program()?;
    if let Some(text) = apparmor::profile(&program) {
        print(&text)?;
        return Ok(Exit::Ok);
    }
    let text = format!(
        "the path {} cannot be written in a profile: move ptcd to a folder without control characters",
        program.display()
    );
    Ok(context.output.failure(&text, Exit::Failure))
}

async fn status(context: &Context) -> Result<Status, ConnectError> {
    context.connect().await?.get(route::STATUS).await
}

/// What ptcd itself finds: the running one in its own surroundings, else the one beside this program in those it would
/// be started with.
async fn ask(
    context: &Context,
    running: Option<&Status>,
    server: Option<&str>,
) -> Result<Checks, String> {
    context
        .output
        .detail("ptcd tries each tier of the sandbox; that takes some seconds");
    if running.is_none() {
        let asked = launch::examine(&context.places, server).await;
        return asked.map_err(|error| error.to_string());
    }
    let path = route::with(route::DOCTOR, &asked_for(server));
    let peer = context.connect().await.map_err(|error| error.to_string())?;
    let asked = peer.get_within(&path, DOCTOR_TIMEOUT).await;
    asked.map_err(|error| error.to_string())
}

/// The query for one server, or for everything.
fn asked_for(server: Option<&str>) -> Vec<(&'static str, &str)> {
    server.map(|name| ("server", name)).into_iter().collect()
}

/// Who is of which build.
fn versions(running: Option<&Status>, ptcd: Option<(String, u32)>) -> Check {
    const NAME: &str = "versions";
    let own = format!("ptcctl {BUILD} (protocol {PROTOCOL})");
    let Some((build, protocol)) = ptcd else {
        return Check::note(NAME, format!("{own}; the build of ptcd is not known"), None);
    };
    let who = if running.is_some() {
        "the running ptcd"
    } else {
        "ptcd"
    };
    let mut fact = format!("{own}, {who} {build} (protocol {protocol})");
    let clients = running
        .map(|status| status.clients.iter())
        .into_iter()
        .flatten();
    let others: Vec<String> = clients
        .filter_map(|client| {
            let build = client.other_build.as_deref()?;
            Some(format!("{} of build {}", plain(&client.name), plain(build)))
        })
        .collect();
    if !others.is_empty() {
        fact = format!("{fact}; clients: {}", others.join(", "));
    }
    if build != BUILD || protocol != PROTOCOL {
        let fix = match running {
            Some(_) => "`ptcctl restart` starts the ptcd beside this program",
            None => "install ptcd and ptcctl together",
        };
        return Check::failed(NAME, fact, fix);
    }
    if others.is_empty() {
        Check::ok(NAME, fact)
    } else {
        let fix = "restart those clients to give them this build".to_owned();
        Check::note(NAME, fact, Some(fix))
    }
}

/// The socket and its folder: whose they are, and that nobody else may use them.
fn socket(context: &Context, status: &Result<Status, ConnectError>) -> Vec<Check> {
    let path = match status {
        Ok(status) => Path::new(&status.socket),
        Err(_) => &context.places.socket,
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut checks = vec![private("socket folder", folder, 0o700)];
    match (status, path.symlink_metadata()) {
        (Err(error), _) if !error.is_absent() => {
            let fix = "end what listens there, or make the folder yours alone";
            checks.push(Check::failed("socket", error.to_string(), fix));
        }
        (Err(_), _) if is_held(&context.places.lock_file()) => {
            let fact =
                "a ptcd holds the lock of this configuration and does not listen: it is ending";
            let fix = "`ptcctl stop` waits for its end".to_owned();
            checks.push(Check::note("socket", fact, Some(fix)));
        }
        (Err(_), found) => {
            let left = match found {
                Ok(_) => ", what is left of the last one goes with the next",
                Err(_) => "",
            };
            let fact = format!(
                "ptcd is not running, nothing listens on {}{left}",
                path.display()
            );
            checks.push(Check::ok("socket", fact));
        }
        (Ok(_), Ok(found)) if found.file_type().is_socket() => {
            checks.push(private("socket", path, 0o600));
        }
        (Ok(_), _) => {
            let fact = format!("ptcd listens, and {} is no socket any more", path.display());
            let fix = "`ptcctl restart` makes it anew";
            checks.push(Check::failed("socket", fact, fix));
        }
    }
    checks
}

/// Whether a path is ours and closed to everybody else.
fn private(name: &str, path: &Path, mode: u32) -> Check {
    let shown = path.display();
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Check::ok(name, format!("{shown} is not there yet"));
        }
        Err(error) => {
            return Check::failed(name, format!("{shown}: {error}"), "make it reachable");
        }
    };
    if found.file_type().is_symlink() {
        let fact = format!("{shown} is a symbolic link");
        return Check::failed(name, fact, "put in its place what it leads to");
    }
    if found.uid() != own_uid() {
        let fact = format!("{shown} belongs to user {}, not to you", found.uid());
        return Check::failed(name, fact, "remove it, or name another with --socket");
    }
    let bits = found.mode() & 0o777;
    if open_to_others(&found) {
        let fact = format!("{shown} has mode {bits:04o}: others may enter it");
        return Check::failed(name, fact, format!("chmod {mode:04o} '{shown}'"));
    }
    Check::ok(name, format!("{shown} is yours alone (mode {bits:04o})"))
}

/// What the running daemon says of itself, held against what was found now.
fn daemon(status: &Status, found: &[Check]) -> Check {
    const NAME: &str = "running ptcd";
    let programs = &status.programs;
    let head = format!("pid {}, up {}", status.pid, span(status.uptime_seconds));
    if let Some(refusal) = &programs.refusal {
        let fact = format!("{head}; programs are refused: {}", plain(refusal));
        let fix = "do what the reason says, then `ptcctl restart`";
        return Check::failed(NAME, fact, fix);
    }
    let Some(tier) = programs.confinement else {
        return Check::note(NAME, head, None);
    };
    let word = if tier == Confinement::None {
        "UNCONFINED".to_owned()
    } else {
        format!("in the tier {}", tier.as_str())
    };
    let notes: Vec<String> = programs.notes.iter().map(|note| plain(note)).collect();
    let notes = notes.iter().map(|note| format!("; {note}"));
    let fact = notes.fold(format!("{head}; programs run {word}"), |text, note| {
        text + &note
    });
    let better = found.iter().any(|check| {
        check.name == "tier full" && check.verdict == Verdict::Ok && tier == Confinement::Landlock
    });
    if better {
        let fix = "the tier full can be had now: `ptcctl restart` takes it, unless execution.sandbox says landlock";
        return Check::note(NAME, fact, Some(fix.to_owned()));
    }
    if tier == Confinement::None {
        return Check::note(NAME, fact, None);
    }
    Check::ok(NAME, fact)
}

fn show(context: &Context, checks: &[Check]) -> anyhow::Result<Exit> {
    let failed = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Failed);
    let failed = failed.count();
    if context.output.json {
        print_json(&as_json(checks))?;
    } else {
        print(&text(checks, context.output.color))?;
    }
    Ok(if failed == 0 { Exit::Ok } else { Exit::Failure })
}

/// The checks, and in one line those that failed.
fn as_json(checks: &[Check]) -> Value {
    let failed = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Failed);
    let failed: Vec<String> = failed
        .map(|check| format!("{}: {}", check.name, check.fact))
        .collect();
    let mut object = json!({ "schema": SCHEMA, "ok": failed.is_empty(), "checks": checks });
    if !failed.is_empty() {
        object["error"] = json!(failed.join("; "));
        object["exit"] = json!(Exit::Failure.code());
    }
    object
}

/// A line a check, what to do below it, and how many of each verdict there are.
fn text(checks: &[Check], color: bool) -> String {
    let width = checks.iter().map(|check| check.name.chars().count());
    let width = width.max().unwrap_or_default();
    let mut lines = Vec::new();
    for check in checks {
        let word = check.verdict.as_str();
        let mark = if color {
            let color = match check.verdict {
                Verdict::Ok => 32,
                Verdict::Note => 33,
                Verdict::Failed => 31,
            };
            format!("\u{1b}[{color}m{word:<6}\u{1b}[0m")
        } else {
            format!("{word:<6}")
        };
        let name = plain(&check.name);
        lines.push(format!("{mark}  {name:<width$}  {}", plain(&check.fact)));
        if let Some(fix) = &check.fix {
            lines.push(format!("{:6}  {:width$}  fix: {}", "", "", plain(fix)));
        }
    }
    let of = |verdict| {
        checks
            .iter()
            .filter(move |check| check.verdict == verdict)
            .count()
    };
    lines.push(String::new());
    lines.push(format!(
        "{}: {} ok, {} failed{}",
        count(checks.len() as u64, "check"),
        of(Verdict::Ok),
        of(Verdict::Failed),
        match of(Verdict::Note) {
            0 => String::new(),
            notes => format!(", {}", count(notes as u64, "note")),
        }
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn each_check_has_a_line_and_what_to_do_stands_below_it() {
        let checks = [
            Check::ok("python", "3.11.2"),
            Check::note(
                "tier full",
                "no\u{1b}[31m namespaces",
                Some("allow them".into()),
            ),
            Check::failed("server x", "`y` is not in its PATH (/bin)", "install it"),
        ];
        assert_eq!(
            text(&checks, false),
            "ok      python     3.11.2\n\
             note    tier full  no\u{fffd}[31m namespaces\n\
             \u{20}                  fix: allow them\n\
             failed  server x   `y` is not in its PATH (/bin)\n\
             \u{20}                  fix: install it\n\
             \n\
             3 checks: 1 ok, 1 failed, 1 note"
        );
    }

    #[test]
    fn what_failed_stands_in_one_line_of_the_json() {
        let ok = Check::ok("python", "3.11.2");
        let value = json!({"schema": 1, "ok": true, "checks": [{"name": "python", "verdict": "ok", "fact": "3.11.2"}]});
        assert_eq!(as_json(std::slice::from_ref(&ok)), value);
        let failed = ["a", "b"].map(|name| Check::failed(name, "no luck", "have some"));
        let value = as_json(&[ok, failed[0].clone(), failed[1].clone()]);
        assert_eq!(value["error"], "a: no luck; b: no luck");
        assert_eq!((&value["ok"], &value["exit"]), (&json!(false), &json!(1)));
    }

    #[test]
    fn what_others_may_enter_fails_with_the_command_that_closes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        std::fs::create_dir(&path).unwrap();
        let set = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o755);
        let open = private("socket folder", &path, 0o700);
        let fix = format!("chmod 0700 '{}'", path.display());
        assert_eq!((open.verdict, open.fix), (Verdict::Failed, Some(fix)));
        set(0o700);
        assert_eq!(private("socket folder", &path, 0o700).verdict, Verdict::Ok);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(
            private("socket folder", &link, 0o700).verdict,
            Verdict::Failed
        );
        let absent = private("socket folder", &folder.path().join("none"), 0o700);
        assert_eq!(absent.verdict, Verdict::Ok);
    }

    #[test]
    fn another_build_of_ptcd_is_a_failure() {
        let same = versions(None, Some((BUILD.to_owned(), PROTOCOL)));
        assert_eq!(same.verdict, Verdict::Ok);
        for ptcd in [
            ("9.9.9".to_owned(), PROTOCOL),
            (BUILD.to_owned(), PROTOCOL + 1),
        ] {
            assert_eq!(versions(None, Some(ptcd)).verdict, Verdict::Failed);
        }
    }
}
