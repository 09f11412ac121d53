//! `ptcctl doctor`: what it finds, with and without a daemon, and the profile it prints.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use libtest_mimic::Trial;
use ptc_protocol::doctor::{Check, Verdict};
use ptc_protocol::status::ServerState;
use ptc_tests::programs::program;
use ptc_tests::suite::skip;
use ptc_tests::{Home, Plan, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        without_a_daemon_everything_is_checked_and_nothing_is_started,
        a_running_daemon_checks_itself,
        a_command_that_is_nowhere_fails_with_the_path_that_was_searched,
        a_server_that_fails_is_a_failure,
        one_server_is_checked_alone,
        faults_of_the_configuration_fail,
        an_open_folder_fails_with_the_command_that_closes_it,
        a_journal_that_cannot_be_written_fails,
        a_python_that_is_too_old_or_missing_fails,
        a_tier_that_is_asked_for_and_not_here_fails,
        what_the_landlock_tier_does_not_stop_is_said,
        the_profile_names_the_ptcd_beside_it,
        the_profile_is_taken_by_the_parser,
    ]
}

/// A doctor may take longer than other verbs: it starts interpreters and workers.
const LIMIT: Duration = Duration::from_mins(3);

/// The exit code and the checks.
fn doctor(home: &Home, more: &[&str]) -> anyhow::Result<(i32, Vec<Check>)> {
    let config = home.config();
    let config = config.to_str().context("a path in UTF-8")?;
    let mut words = vec!["--config", config, "--json", "doctor"];
    words.extend(more);
    let output = home.output_of("ptcctl", &words, LIMIT);
    let value: Value = serde_json::from_slice(&output.stdout)?;
    let code = output.status.code().unwrap_or(-1);
    assert_eq!(
        (&value["schema"], &value["ok"]),
        (&json!(1), &json!(code == 0))
    );
    Ok((code, serde_json::from_value(value["checks"].clone())?))
}

fn of<'a>(checks: &'a [Check], name: &str) -> anyhow::Result<&'a Check> {
    let found = checks.iter().find(|check| check.name == name);
    found.with_context(|| format!("no check {name} in {checks:#?}"))
}

fn failing(checks: &[Check]) -> Vec<&str> {
    let failed = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Failed);
    failed.map(|check| check.name.as_str()).collect()
}

fn without_a_daemon_everything_is_checked_and_nothing_is_started() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let (code, checks) = doctor(&home, &[])?;
    assert_eq!((code, failing(&checks)), (0, vec![]), "{checks:#?}");
    let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
    let wanted = [
        "versions",
        "socket folder",
        "socket",
        "service",
        "configuration",
        "journal",
        "python",
    ];
    assert_eq!(names[..wanted.len()], wanted);
    assert!(of(&checks, "python")?.fact.contains("is CPython 3."));
    let server = &of(&checks, "server m")?.fact;
    assert!(
        server.starts_with("stdio, ") && server.contains("mock-mcp"),
        "{server}"
    );
    assert!(of(&checks, "sandbox")?.fact.starts_with("programs run "));
    assert!(!home.socket().exists() && !home.state().join("lock").exists());
    Ok(())
}

fn a_running_daemon_checks_itself() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let (code, checks) = doctor(&home, &[])?;
    assert_eq!((code, failing(&checks)), (0, vec![]), "{checks:#?}");
    let own = &of(&checks, "running ptcd")?.fact;
    assert!(
        own.starts_with(&format!("pid {}, up ", daemon.pid())),
        "{own}"
    );
    assert!(of(&checks, "server m")?.fact.ends_with("; ready"));
    let tier = daemon.status().programs.confinement.context("no tier")?;
    assert!(
        own.contains(&format!("in the tier {}", tier.as_str())),
        "{own}"
    );
    let proof = &of(&checks, &format!("tier {}", tier.as_str()))?.fact;
    for attempt in [
        "read a file",
        "connect to a port",
        "start a process",
        "run a program",
    ] {
        assert!(proof.contains(attempt), "{proof}");
    }
    // A program runs all the same, before and after.
    let run = home.client().run("print(1)");
    assert_eq!(run.printed(), "1");
    Ok(())
}

fn a_command_that_is_nowhere_fails_with_the_path_that_was_searched() -> TestResult {
    let entry = json!({ "name": "gone", "transport": "stdio", "command": "no-such-program" });
    let home = Home::new(&Plan::bare().entry(entry));
    // Where nothing is captured, the login shell of whoever runs the tests has its say in PATH.
    let path = format!("/captured/bin:{}", std::env::var("PATH")?);
    let shell = home.login_shell(&format!("export PATH='{path}'"));
    let shell = shell.to_str().context("a path in UTF-8")?;
    let (code, _, err) = home.ctl(&["env", "capture", "--shell", shell]);
    assert_eq!(code, 0, "{err}");
    let (code, checks) = doctor(&home, &[])?;
    assert_eq!((code, failing(&checks)), (1, vec!["server gone"]));
    let check = of(&checks, "server gone")?;
    assert_eq!(
        check.fact,
        format!("`no-such-program` is not in its PATH ({path})")
    );
    assert!(
        check
            .fix
            .as_deref()
            .is_some_and(|fix| fix.contains("under env"))
    );
    Ok(())
}

fn a_server_that_fails_is_a_failure() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(home.ctl(&["servers", "disable", "m"]).0, 0);
    let (code, checks) = doctor(&home, &["m"])?;
    assert!(code == 0 && of(&checks, "server m")?.fact.ends_with("; disabled"));
    home.write_config(
        &Plan::bare()
            .entry(json!({ "name": "m", "transport": "stdio", "command": "/bin/false" }))
            .text(),
    );
    assert_eq!(home.ctl(&["reload"]).0, 0);
    assert_eq!(home.ctl(&["servers", "enable", "m"]).0, 0);
    ptc_tests::wait::until("it was tried", ptc_tests::PATIENCE, || {
        daemon.server("m").detail.is_some()
    });
    let (_, checks) = doctor(&home, &["m"])?;
    let check = of(&checks, "server m")?;
    assert_ne!(check.verdict, Verdict::Ok, "{check:?}");
    assert!(
        check
            .fix
            .as_deref()
            .is_some_and(|fix| fix.contains("m.log")),
        "{check:?}"
    );
    Ok(())
}

fn one_server_is_checked_alone() -> TestResult {
    let entry = json!({ "name": "gone", "transport": "stdio", "command": "no-such-program" });
    let home = Home::new(&Plan::new().server("m", &[]).entry(entry));
    let (code, checks) = doctor(&home, &["m"])?;
    assert_eq!((code, checks.len()), (0, 1), "{checks:#?}");
    let (code, checks) = doctor(&home, &["other"])?;
    assert_eq!((code, failing(&checks)), (1, vec!["server other"]));
    assert_eq!(checks[0].fix.as_deref(), Some("name one of m, gone"));
    let (code, out, _) = home.ctl(&["doctor", "gone"]);
    assert_eq!(code, 1);
    assert!(
        out.starts_with("failed  server gone  `no-such-program`"),
        "{out}"
    );
    assert!(
        out.contains("fix: ") && out.ends_with("1 check: 0 ok, 1 failed\n"),
        "{out}"
    );
    Ok(())
}

fn faults_of_the_configuration_fail() -> TestResult {
    let home = Home::with_text("execution: {sandbox: chroot}\n");
    let (code, checks) = doctor(&home, &[])?;
    assert_eq!((code, failing(&checks)), (1, vec!["configuration"]));
    let fact = &of(&checks, "configuration")?.fact;
    assert!(fact.contains("execution.sandbox must be one of"), "{fact}");
    Ok(())
}

fn an_open_folder_fails_with_the_command_that_closes_it() -> TestResult {
    let home = Home::new(&Plan::new());
    let folder = home.socket().parent().context("no folder")?.to_owned();
    std::fs::create_dir_all(&folder)?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
    let (code, checks) = doctor(&home, &[])?;
    assert_eq!(code, 1);
    let check = of(&checks, "socket folder")?;
    assert!(check.fact.ends_with("has mode 0755: others may enter it"));
    assert_eq!(
        check.fix,
        Some(format!("chmod 0700 '{}'", folder.display()))
    );
    Ok(())
}

fn a_journal_that_cannot_be_written_fails() -> TestResult {
    let home = Home::with_text("");
    let file = home.write("file", "");
    home.write_config(&format!("journal: {{path: {}/journal}}\n", file.display()));
    let (code, checks) = doctor(&home, &[])?;
    assert_eq!(
        (code, failing(&checks)),
        (1, vec!["journal"]),
        "{checks:#?}"
    );
    Ok(())
}

fn a_python_that_is_too_old_or_missing_fails() -> TestResult {
    for (python, says) in [
        ("/nowhere/python3", "does not run"),
        ("no-such-python", "not on PATH"),
    ] {
        let home = Home::new(&Plan::bare().set("execution.python", python));
        let (code, checks) = doctor(&home, &[])?;
        assert_eq!(code, 1);
        let check = of(&checks, "python")?;
        assert_eq!(check.verdict, Verdict::Failed);
        assert!(check.fact.contains(says), "{check:?}");
        assert_eq!(of(&checks, "sandbox")?.verdict, Verdict::Failed);
    }
    Ok(())
}

fn a_tier_that_is_asked_for_and_not_here_fails() -> TestResult {
    let wanted = if cfg!(target_os = "linux") {
        "seatbelt"
    } else {
        "landlock"
    };
    let home = Home::new(&Plan::bare().set("execution.sandbox", wanted));
    let (code, checks) = doctor(&home, &[])?;
    assert_eq!(
        (code, failing(&checks)),
        (1, vec!["sandbox"]),
        "{checks:#?}"
    );
    let fact = &of(&checks, "sandbox")?.fact;
    assert!(
        fact.contains("programs are refused") && fact.contains(wanted),
        "{fact}"
    );
    let home = Home::new(&Plan::bare().set("execution.sandbox", "none"));
    let (code, checks) = doctor(&home, &[])?;
    assert_eq!((code, of(&checks, "sandbox")?.verdict), (0, Verdict::Note));
    Ok(())
}

/// In the doctor, in the status and in what a client is told.
fn what_the_landlock_tier_does_not_stop_is_said() -> TestResult {
    const GAP: &str = "learn whether a path exists";
    let home = Home::new(&Plan::bare().set("execution.sandbox", "landlock"));
    let daemon = home.daemon();
    let programs = daemon.status().programs;
    if programs.refusal.is_some() {
        return skip("this machine has no Landlock");
    }
    assert!(
        programs.notes.iter().any(|note| note.contains(GAP)),
        "{programs:?}"
    );
    let (_, out, _) = home.ctl(&["status"]);
    assert!(out.contains(GAP), "{out}");
    let (_, checks) = doctor(&home, &[])?;
    for name in ["tier landlock", "running ptcd"] {
        let fact = &of(&checks, name)?.fact;
        assert!(fact.contains(GAP), "{fact}");
    }
    let mut client = home.shim();
    let told = client.initialize("2025-11-25");
    assert!(told.to_string().contains(GAP), "{told}");
    Ok(())
}

fn the_profile_names_the_ptcd_beside_it() -> TestResult {
    let home = Home::new(&Plan::bare());
    let (code, out, err) = home.ctl(&["doctor", "--apparmor"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let ptcd = program("ptcd").canonicalize()?;
    let line = format!(
        "profile ptcd \"{}\" flags=(unconfined) {{\n  userns,\n",
        ptcd.display()
    );
    assert!(out.contains(&line), "{out}");
    assert!(
        out.contains("sudo apparmor_parser -r /etc/apparmor.d/ptcd"),
        "{out}"
    );
    Ok(())
}

/// The parser, where it knows the rule that the profile is there for.
fn parser() -> anyhow::Result<&'static str> {
    let known = [
        "apparmor_parser",
        "/sbin/apparmor_parser",
        "/usr/sbin/apparmor_parser",
    ];
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let word = text
            .split_whitespace()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
        word.split('.').next()?.parse::<u32>().ok()
    };
    for program in known {
        match version(program) {
            Some(4..) => return Ok(program),
            Some(_) => return skip("apparmor_parser is older than 4, which knows no userns rule"),
            None => {}
        }
    }
    skip("there is no apparmor_parser")
}

fn the_profile_is_taken_by_the_parser() -> TestResult {
    let parser = parser()?;
    let home = Home::new(&Plan::bare());
    let (_, out, _) = home.ctl(&["doctor", "--apparmor"]);
    let file = home.write("profile", &out);
    let output = Command::new(parser).args(["-Q", "-K"]).arg(file).output()?;
    assert!(output.status.success(), "{output:?}");
    Ok(())
}
