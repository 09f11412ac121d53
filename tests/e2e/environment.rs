//! The environment that servers get: recorded for the daemon, never that of whoever started it.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use libtest_mimic::Trial;
use ptc_protocol::environment::{RecordedBy, RecordedEnvironment};
use ptc_protocol::status::ServerState;
use ptc_tests::programs::program;
use ptc_tests::suite::skip;
use ptc_tests::{Daemon, Home, Plan, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        the_first_clients_environment_does_not_reach_servers,
        what_is_captured_reaches_servers_and_stays,
        what_changes_a_loader_is_never_captured,
        a_name_that_the_login_shell_lacks_is_told,
        a_login_shell_that_hangs_is_given_up,
        in_the_foreground_the_own_environment_wins,
        a_user_whom_no_database_knows_has_a_daemon_all_the_same,
    ]
}

fn recorded(home: &Home) -> RecordedEnvironment {
    let path = home.state().join("environment.json");
    let mode = path.metadata().expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read(path).expect("its text");
    serde_json::from_slice(&text).expect("a recorded environment")
}

fn the_first_clients_environment_does_not_reach_servers() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let mut command = home.command("ptc-mcp");
    let path = std::env::var("PATH")?;
    command
        .arg("--config")
        .arg(home.config())
        .env("PATH", format!("/accidental/bin:{path}"))
        .env("TMPDIR", home.path("accidental"))
        .env("SHELL", "/accidental/sh");
    let mut client = home.shim_of(command);
    client.initialize("2025-11-25");
    let found = client.run("import json\nprint(json.dumps(await mcp__m__env()))");
    let found: Value = serde_json::from_str(found.printed())?;
    assert!(!found.to_string().contains("accidental"), "{found}");
    let recorded = recorded(&home);
    assert_eq!(recorded.by, RecordedBy::Start);
    for name in ["PATH", "HOME", "USER", "LOGNAME", "SHELL"] {
        let want = recorded.variables.get(name).map(String::as_str);
        // What the user database does not know, a process may still have.
        if want.is_some() {
            assert_eq!(found[name].as_str(), want, "{name}");
        }
    }
    assert!(recorded.variables.contains_key("PATH"));
    assert_eq!(home.ctl(&["stop"]).0, 0);
    Ok(())
}

fn what_is_captured_reaches_servers_and_stays() -> TestResult {
    let entry = json!({
        "name": "m", "transport": "stdio", "command": program("mock-mcp"),
        "env": {"KEY": "${NOTES_KEY}"}, "args": ["--tag", "${NOTES_KEY}"],
    });
    let home = Home::new(&Plan::new().entry(entry));
    let path = format!("/captured/bin:{}", std::env::var("PATH")?);
    let shell = home.login_shell(&format!(
        "echo hello\nexport PATH='{path}' NOTES_KEY=first-value OTHER=x"
    ));
    let shell = shell.display().to_string();
    let capture = |more: &[&str]| {
        let args = ["env", "capture", "--shell", &shell];
        home.ctl(&[&args, more].concat())
    };
    let (code, out, err) = capture(&["NOTES_KEY"]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let want = format!(
        "ptcctl: PATH and 1 variable captured from {shell}: takes effect when the daemon starts\n"
    );
    assert_eq!(err, want);
    let (_, out, _) = home.ctl(&["env", "show"]);
    let has = |line: &str| out.lines().any(|shown| shown == line);
    assert!(has(&format!("PATH={path}")), "{out}");
    assert!(has("NOTES_KEY (11 characters)"), "{out}");
    assert!(
        !out.contains("first-value") && !out.contains("OTHER"),
        "{out}"
    );
    let (_, out, _) = home.ctl(&["env", "show", "--json"]);
    let shown: Value = serde_json::from_str(&out)?;
    assert_eq!(
        (&shown["schema"], &shown["captured"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(shown["variables"]["NOTES_KEY"], json!({"characters": 11}));
    let look = "e = await mcp__m__env()\nprint(e['KEY'][::-1], e['PATH'].split(':')[0])";
    let mut client = home.client();
    assert_eq!(client.run(look).printed(), "eulav-tsrif /captured/bin");
    // A start does not put what it would find in the place of what was captured.
    assert_eq!(recorded(&home).by, RecordedBy::Capture);
    let text = std::fs::read_to_string(home.path("shell"))?;
    home.write("shell", &text.replace("first-value", "other-value"));
    let (code, _, err) = capture(&[]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("takes effect with `ptcctl restart`"), "{err}");
    assert_eq!(home.ctl(&["restart"]).0, 0);
    assert_eq!(client.run(look).printed(), "eulav-rehto /captured/bin");
    assert_eq!(home.ctl(&["stop"]).0, 0);
    Ok(())
}

fn what_changes_a_loader_is_never_captured() -> TestResult {
    let home = Home::new(&Plan::new());
    for name in ["LD_PRELOAD", "DYLD_X", "PYTHONPATH", "NODE_OPTIONS", "A=B"] {
        let (code, out, err) = home.ctl(&["env", "capture", name]);
        assert_eq!((code, out.as_str()), (2, ""), "{name}: {err}");
        assert!(err.contains(name), "{err}");
    }
    assert!(!home.state().join("environment.json").exists());
    Ok(())
}

fn a_name_that_the_login_shell_lacks_is_told() -> TestResult {
    let home = Home::new(&Plan::new());
    let shell = home.login_shell("export THERE=1").display().to_string();
    let args = ["env", "capture", "--shell", &shell, "NOT_THERE", "THERE"];
    let (code, _, err) = home.ctl(&args);
    assert_eq!(code, 1);
    let mut lines = err.lines();
    let want = format!("ptcctl: {shell} has no NOT_THERE");
    assert_eq!(lines.next(), Some(want.as_str()));
    assert!(err.contains("PATH and 1 variable captured"), "{err}");
    assert_eq!(recorded(&home).variables["THERE"], "1");
    Ok(())
}

fn a_login_shell_that_hangs_is_given_up() -> TestResult {
    let home = Home::new(&Plan::new());
    let pid = home.path("pid");
    let hangs = format!("sleep 600 & echo $! > '{}'\nwait", pid.display());
    let shell = home.login_shell(&hangs).display().to_string();
    let (code, out, err) = home.ctl(&["env", "capture", "--shell", &shell]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("did not answer within 5 s and was killed"),
        "{err}"
    );
    assert!(!home.state().join("environment.json").exists());
    let started = std::fs::read_to_string(pid).unwrap_or_default();
    // A shell that was slow to begin has started nothing that could be left.
    if let Some(process) = started
        .trim()
        .parse()
        .ok()
        .and_then(ptc_tests::process::Process::of)
    {
        ptc_tests::daemon::gone(&[process], Duration::from_secs(30));
    }
    Ok(())
}

fn in_the_foreground_the_own_environment_wins() -> TestResult {
    let entry = json!({
        "name": "m", "transport": "stdio", "command": program("mock-mcp"),
        "env": {"ONE": "${FIRST_KEY}", "TWO": "${SECOND_KEY}"},
    });
    let home = Home::new(&Plan::new().entry(entry));
    let shell = home.login_shell("export FIRST_KEY=captured-1 SECOND_KEY=captured-2");
    let shell = shell.display().to_string();
    let args = [
        "env",
        "capture",
        "--shell",
        &shell,
        "FIRST_KEY",
        "SECOND_KEY",
    ];
    assert_eq!(home.ctl(&args).0, 0);
    let mut daemon = Daemon::spawn(&home, |command| {
        command.env("FIRST_KEY", "of-the-terminal");
    });
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let look = "e = await mcp__m__env()\nprint(e['ONE'][::-1], e['TWO'][::-1])";
    assert_eq!(client.run(look).printed(), "lanimret-eht-fo 2-derutpac");
    Ok(())
}

/// A user id that no database is likely to know.
const NOBODY_KNOWN: u32 = 3_141_592;

fn a_user_whom_no_database_knows_has_a_daemon_all_the_same() -> TestResult {
    if !ptc_tests::machine::is_root() {
        return skip("only root can be a user whom no database knows");
    }
    let home = Home::new(&Plan::bare());
    // The programs stand where that user can reach them.
    for name in ["ptcd", "ptcctl"] {
        let copy = home.path(name);
        std::fs::copy(program(name), &copy)?;
        std::fs::set_permissions(copy, std::fs::Permissions::from_mode(0o755))?;
    }
    for folder in ["home", "run"] {
        std::os::unix::fs::chown(home.path(folder), Some(NOBODY_KNOWN), Some(NOBODY_KNOWN))?;
    }
    std::fs::set_permissions(home.config(), std::fs::Permissions::from_mode(0o644))?;
    let run = |verb: &str| {
        use std::os::unix::process::CommandExt as _;
        let mut command = std::process::Command::new(home.path("ptcctl"));
        command
            .arg("--config")
            .arg(home.config())
            .args([verb, "--json"])
            .env_clear()
            .envs(home.environment())
            .current_dir("/")
            .uid(NOBODY_KNOWN)
            .gid(NOBODY_KNOWN);
        command.output().expect("ptcctl to run")
    };
    let output = run("start");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let recorded = recorded(&home);
    assert_eq!(recorded.login_shell, None);
    let names: Vec<&String> = recorded.variables.keys().collect();
    assert_eq!(names, ["PATH"]);
    assert!(run("stop").status.success());
    Ok(())
}
