//! The call log: what is in it, who can read it, and what happens without it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::machine::is_root;
use ptc_tests::suite::skip;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, party};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        each_call_has_a_record_before_and_after,
        a_failed_and_a_refused_call_have_records_too,
        record_decides_how_much_of_values_is_kept,
        a_log_that_cannot_be_opened_stops_the_start,
        a_log_that_cannot_be_written_stops_the_call,
        a_folder_that_cannot_be_written_refuses_programs,
        values_of_variables_are_masked,
    ]
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Every record of a call, in the order written.
fn call_records(folder: &Path) -> Vec<Value> {
    files_below(folder)
        .iter()
        .flat_map(|file| {
            std::fs::read_to_string(file)
                .unwrap_or_default()
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect::<Vec<Value>>()
        })
        .filter(|record| record["event"] == "call" || record["event"] == "result")
        .collect()
}

fn whole_text(folder: &Path) -> String {
    files_below(folder)
        .iter()
        .map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned())
        .collect()
}

fn each_call_has_a_record_before_and_after() -> TestResult {
    let (home, daemon, mut client) = party(Plan::new());
    let params = json!({"name": "execute_program", "arguments": {
        "code": "await mcp__m__echo(word='alpha')\nawait mcp__m__add(a=1, b=2)",
    }});
    client.send_request(&json!("request-17"), "tools/call", &params);
    let run = client.finish_run(&json!("request-17"));
    let folder = home.state().join("journal");
    let records = call_records(&folder);
    assert_eq!(records.len(), 4, "{records:?}");
    let session = daemon.status().clients[0].session.clone();
    for record in &records {
        assert_eq!(record["run"], run.structured["run"], "{record}");
        assert_eq!(record["session"], json!(session), "{record}");
        assert_eq!(record["request"], json!("request-17"), "{record}");
    }
    let short: Vec<(&str, u64)> = records
        .iter()
        .map(|record| {
            (
                record["event"].as_str().unwrap_or_default(),
                record["call"].as_u64().unwrap_or_default(),
            )
        })
        .collect();
    let first = short[0].1;
    assert_eq!(
        short,
        [
            ("call", first),
            ("result", first),
            ("call", first + 1),
            ("result", first + 1)
        ]
    );
    assert_eq!(
        (&records[0]["tool"], &records[2]["tool"]),
        (&json!("mcp__m__echo"), &json!("mcp__m__add"))
    );
    let mode = |path: &Path| {
        path.metadata()
            .map_or(0, |about| about.permissions().mode() & 0o777)
    };
    assert_eq!(mode(&folder), 0o700);
    assert!(files_below(&folder).iter().all(|file| mode(file) == 0o600));
    Ok(())
}

fn a_failed_and_a_refused_call_have_records_too() -> TestResult {
    let (home, _daemon, mut client) = party(Plan::new());
    client.run("try:\n    await mcp__m__fail(message='m')\nexcept ToolError: pass");
    let records = call_records(&home.state().join("journal"));
    assert_eq!(records.len(), 2, "{records:?}");
    assert!(
        records[1].to_string().contains("tool_failed"),
        "{records:?}"
    );
    Ok(())
}

fn record_decides_how_much_of_values_is_kept() -> TestResult {
    let code = "await mcp__m__raw_result(json='{\"content\": [{\"type\": \"text\", \"text\": \"the-re\" }]}'.replace('the-re', 'the-' + 'result'))\nawait mcp__m__echo(word='the-argument')";
    for (word, arguments, results) in [
        ("full", true, true),
        ("hashes", true, false),
        ("off", false, false),
    ] {
        let (home, _daemon, mut client) = party(Plan::new().set("journal.record", word));
        let run = client.run(code);
        assert!(!run.is_error, "{}", run.text);
        let folder = home.state().join("journal");
        let text = whole_text(&folder);
        assert_eq!(text.contains("the-argument"), arguments, "{word}: {text}");
        // The result stands in the argument of the tool that gives it back, so only its own record counts.
        let after: String = call_records(&folder)
            .iter()
            .filter(|record| record["event"] == "result")
            .map(Value::to_string)
            .collect();
        assert_eq!(after.contains("the-result"), results, "{word}: {after}");
        assert_eq!(call_records(&folder).len(), 4, "{word}");
    }
    Ok(())
}

fn a_log_that_cannot_be_opened_stops_the_start() -> TestResult {
    let home = Home::new(&Plan::new());
    let file = home.write("in-the-way", "a file");
    home.write_config(
        &Plan::new()
            .set("journal.path", file.display().to_string())
            .text(),
    );
    let mut daemon = Daemon::spawn(&home, |_| {});
    assert!(!daemon.wait(PATIENCE).success());
    let said = std::fs::read_to_string(home.daemon_log())?;
    assert!(said.contains(&file.display().to_string()), "{said}");
    Ok(())
}

fn a_log_that_cannot_be_written_stops_the_call() -> TestResult {
    let (home, daemon, client) = party(Plan::new());
    drop((client, daemon));
    let small = SmallDisk::mount(&home.path("small"))?;
    home.write_config(
        &Plan::new()
            .server("m", &[])
            .set(
                "journal.path",
                small.0.join("journal").display().to_string(),
            )
            .text(),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    assert_eq!(
        client.run("print(await mcp__m__add(a=1, b=1))").printed(),
        "{'sum': 2}"
    );
    small.fill();
    let run = client.run(
        "for _ in range(400):\n    try:\n        await mcp__m__echo(filler='f' * 500)\n    except ToolError as e:\n        print(e.kind)\n        print(e)\n        break\nelse:\n    print('every call went out')",
    );
    // What is left of a block may still take a few lines, so either the run or one of its calls is refused.
    let refused = run.structured["ending"] == "refused";
    assert!(refused || run.text.contains("unavailable"), "{}", run.text);
    assert!(
        run.text.contains("cannot be written") && run.text.contains("journal"),
        "the cause is not named: {}",
        run.text
    );
    // With no room at all nothing runs.
    small.fill();
    let run = client.run("print('it ran')");
    assert_eq!(run.structured["ending"], "refused", "{}", run.text);
    assert!(run.text.contains("No space left"), "{}", run.text);
    // The daemon lives, and calls go out again once there is room.
    small.empty();
    assert_eq!(
        client.run("print(await mcp__m__add(a=2, b=2))").printed(),
        "{'sum': 4}"
    );
    drop((client, daemon));
    Ok(())
}

fn a_folder_that_cannot_be_written_refuses_programs() -> TestResult {
    if is_root() {
        return skip("root writes whatever a folder's mode says");
    }
    let (home, _daemon, mut client) = party(Plan::new());
    assert_eq!(client.run("print(1)").printed(), "1");
    let runs = home.state().join("journal/runs");
    std::fs::set_permissions(&runs, std::fs::Permissions::from_mode(0o500))?;
    let run = client.run("print('it ran')");
    assert_eq!(run.structured["ending"], "refused", "{}", run.text);
    assert!(run.text.contains("Permission denied"), "{}", run.text);
    std::fs::set_permissions(&runs, std::fs::Permissions::from_mode(0o700))?;
    assert_eq!(client.run("print(2)").printed(), "2");
    Ok(())
}

fn values_of_variables_are_masked() -> TestResult {
    let secret = "s3cret-value-4711";
    let home = Home::new(
        &Plan::new()
            .entry(json!({
                "name": "m", "transport": "stdio",
                "command": ptc_tests::programs::program("mock-mcp"),
                "env": {"TOKEN": "${TEST_TOKEN}"},
            }))
            .set("journal.record", "full"),
    );
    let mut daemon = Daemon::spawn(&home, |_| {});
    daemon.wait_until_it_answers();
    let mut command = home.command("ptc-mcp");
    command
        .arg("--config")
        .arg(home.config())
        .env("TEST_TOKEN", secret);
    let mut client = home.shim_of(command);
    client.initialize("2025-11-25");
    daemon.wait_for("m", ServerState::Ready);
    let run = client.run("e = await mcp__m__env()\nprint(e['TOKEN'] == 's3cret-' + 'value-4711')\ntry:\n    await mcp__m__fail(message=e['TOKEN'])\nexcept ToolError as e:\n    raise");
    assert!(run.is_error);
    assert!(
        !run.structured["error"].to_string().contains(secret),
        "{}",
        run.text
    );
    assert!(run.text.contains("<TEST_TOKEN:"), "{}", run.text);
    let kept = whole_text(&home.state());
    assert!(!kept.contains(secret), "the value is in the state folder");
    assert!(kept.contains("<TEST_TOKEN:"));
    let log = std::fs::read_to_string(home.daemon_log())?;
    assert!(!log.contains(secret));
    Ok(())
}

/// A file system of 128 KiB, taken away at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> anyhow::Result<Self> {
        if !is_root() {
            return skip("a small file system can be mounted by root only");
        }
        std::fs::create_dir(at)?;
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs"])
            .arg(at)
            .stderr(std::process::Stdio::null())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            return skip("no file system can be mounted here");
        }
        Ok(Self(at.to_owned()))
    }

    fn fill(&self) {
        let _ = std::fs::write(self.0.join("filler"), vec![b'f'; 256 * 1024]);
    }

    fn empty(&self) {
        let _ = std::fs::remove_file(self.0.join("filler"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
