//! What stands at the socket's path, and what strangers say there.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use libtest_mimic::Trial;
use ptc_protocol::{MAX_HANDSHAKE_BYTES, UPGRADE_TOKEN, route};
use ptc_tests::direct::{Direct, hello};
use ptc_tests::process::{Process, needs_proc};
use ptc_tests::wait::until;
use ptc_tests::{Client, Daemon, Home, PATIENCE, Plan, TestResult};
use rustix::process::Signal;
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_peer_that_says_nothing_or_half_of_it_is_let_go,
        a_handshake_that_stops_or_is_too_long_ends_alone,
        a_listener_that_is_no_daemon_is_named_and_the_shim_stays,
        a_stopped_daemon_is_told_in_time_and_served_again_once_it_goes_on,
        a_socket_removed_under_a_daemon_is_made_anew,
        a_stale_record_of_a_daemon_misleads_nobody,
        a_path_at_the_systems_limit_works_or_is_refused_with_both_numbers,
        without_descriptors_the_daemon_waits_and_recovers,
        the_starters_pipe_ends_with_the_starter,
        a_shim_in_a_folder_that_is_gone_works,
        shims_killed_in_quick_succession_leave_one_daemon,
    ]
}

fn a_peer_that_says_nothing_or_half_of_it_is_let_go() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut silent = Direct::connect(&home);
    let mut half = Direct::connect(&home);
    half.write(b"GET /v1/heal");
    let mut headers = Direct::connect(&home);
    headers.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n");
    let mut kept = Direct::connect(&home);
    kept.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut noise = Direct::connect(&home);
    noise.write(b"\x16\x03\x01\x02\x00\x01\xff\r\n\r\n");
    assert_eq!(silent.rest(), "");
    half.rest();
    headers.rest();
    assert!(kept.rest().starts_with("HTTP/1.1 200"));
    noise.rest();
    assert_eq!(home.client().run("print(1)").printed(), "1");
    assert_eq!(daemon.status().health.state, "ok");
    Ok(())
}

fn a_handshake_that_stops_or_is_too_long_ends_alone() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.client();
    let said = json!(hello(&home, 1)).to_string();
    let long = format!(
        "{{\"client\":\"{}\",{}\n",
        "x".repeat(MAX_HANDSHAKE_BYTES),
        &said[1..]
    );
    let exact = {
        let mut hello = hello(&home, 2);
        hello.client = Some(String::new());
        let room = MAX_HANDSHAKE_BYTES - 1 - json!(hello).to_string().len();
        hello.client = Some("y".repeat(room));
        hello
    };
    let mut nothing = Direct::upgrade(&home);
    let mut half = Direct::upgrade(&home);
    half.write(&said.as_bytes()[..said.len() / 2]);
    let mut over = Direct::upgrade(&home);
    over.offer(long.as_bytes());
    let mut other = Direct::upgrade(&home);
    other.write(b"[]\n");
    let mut without_variables = Direct::upgrade(&home);
    without_variables.send(&json!(hello(&home, 3)));
    assert!(without_variables.line().is_some());
    for stream in [&mut nothing, &mut half, &mut over, &mut other] {
        assert_eq!(stream.rest(), "");
    }
    without_variables.rest();
    // The largest hello is one, and what came of the others disturbs nobody.
    let mut largest = Direct::open_as(&home, &exact);
    largest.initialize();
    assert_eq!(client.run("print('undisturbed')").printed(), "undisturbed");
    assert_eq!(daemon.status().clients.len(), 2);
    Ok(())
}

/// Plays something at the path of this home's socket that is no ptcd; `play` gets each connection.
fn impostor(home: &Home, play: impl Fn(UnixStream) + Send + 'static) -> std::io::Result<()> {
    let socket = home.socket();
    let folder = socket.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let listener = UnixListener::bind(&socket)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            play(stream);
        }
    });
    Ok(())
}

/// A call is answered with a reason, and the shim stays.
#[track_caller]
fn is_told(home: &Home) {
    let mut client = home.client();
    let id = client.start_run("print('nowhere')");
    let answer = client.answer_within(&id, PATIENCE * 3);
    let text = answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default();
    let socket = home.socket().display().to_string();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(
        text.contains(&socket) && text.contains("Nothing ran"),
        "{answer}"
    );
    assert_eq!(client.ask("ping", &json!({})), json!({}));
}

fn a_listener_that_is_no_daemon_is_named_and_the_shim_stays() -> TestResult {
    let homes: Vec<Home> = (0..4).map(|_| Home::new(&Plan::new())).collect();
    // One that takes no connection at all, with its queue full.
    let socket = homes[0].socket();
    let folder = socket.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let deaf = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )?;
    rustix::net::bind(&deaf, &rustix::net::SocketAddrUnix::new(&socket)?)?;
    rustix::net::listen(&deaf, 1)?;
    let mut queued = Vec::new();
    for _ in 0..8 {
        let next = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        )?;
        if rustix::net::connect(&next, &rustix::net::SocketAddrUnix::new(&socket)?).is_err() {
            break;
        }
        queued.push(next);
    }
    let kept = std::sync::Mutex::new(Vec::new());
    impostor(&homes[1], move |stream| {
        if let Ok(mut kept) = kept.lock() {
            kept.push(stream);
        }
    })?;
    impostor(&homes[2], drop)?;
    impostor(&homes[3], |mut stream| {
        let _ = stream.write_all(b"220 mail ready\r\n");
        let _ = stream.read(&mut [0; 64]);
    })?;
    std::thread::scope(|scope| {
        for home in &homes {
            scope.spawn(|| is_told(home));
        }
    });
    // Nothing of it was removed, nor does a daemon take the place.
    for home in &homes[1..] {
        let mut daemon = Daemon::spawn(home, |_| {});
        assert!(!daemon.wait(PATIENCE).success());
        assert!(home.socket().exists());
        let said = std::fs::read_to_string(home.daemon_log())?;
        assert!(said.contains("nothing was removed"), "{said}");
    }
    Ok(())
}

fn a_stopped_daemon_is_told_in_time_and_served_again_once_it_goes_on() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut before = home.client();
    assert_eq!(before.run("print(1)").printed(), "1");
    daemon.freeze();
    let waits = before.start_run("print('later')");
    let mut fresh = home.client();
    let list = fresh.ask("tools/list", &json!({}));
    assert_eq!(list["tools"].as_array().map(Vec::len), Some(3));
    let id = fresh.start_run("print('now')");
    let answer = fresh.answer_within(&id, PATIENCE * 3);
    let text = answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    daemon.signal(Signal::CONT);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(
        text.contains("did not answer") && text.contains("Nothing ran"),
        "{text}"
    );
    assert_eq!(before.finish_run(&waits).printed(), "later");
    assert_eq!(fresh.run("print('again')").printed(), "again");
    assert_eq!(daemon.status().pid, daemon.pid());
    Ok(())
}

fn a_socket_removed_under_a_daemon_is_made_anew() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut before = home.client();
    let folder = home.socket().parent().map(Path::to_owned);
    let record = home.state().join("daemon.json");
    for round in 0..3 {
        match round {
            0 => std::fs::remove_file(home.socket())?,
            1 => std::fs::remove_dir_all(folder.as_deref().unwrap_or(Path::new("/nowhere")))?,
            _ => std::fs::remove_file(&record)?,
        }
        until("it is there again", PATIENCE, || {
            home.socket().exists() && record.exists()
        });
        // The same daemon, for those that were there and for others.
        assert_eq!(before.run("print('kept')").printed(), "kept");
        assert_eq!(home.client().run("print('new')").printed(), "new");
        assert_eq!(daemon.status().pid, daemon.pid());
    }
    // Another file in its place is not ours to remove.
    std::fs::remove_file(home.socket())?;
    std::fs::write(home.socket(), "precious")?;
    until("it is said in the log", PATIENCE, || {
        std::fs::read_to_string(home.daemon_log())
            .is_ok_and(|log| log.contains("cannot be made anew"))
    });
    assert_eq!(before.run("print('still')").printed(), "still");
    assert_eq!(std::fs::read_to_string(home.socket())?, "precious");
    std::fs::remove_file(home.socket())?;
    until("it is there again", PATIENCE, || {
        UnixStream::connect(home.socket()).is_ok()
    });
    daemon.stop();
    Ok(())
}

fn a_stale_record_of_a_daemon_misleads_nobody() -> TestResult {
    let home = Home::new(&Plan::new());
    home.daemon().kill();
    let record = home.state().join("daemon.json");
    assert!(record.exists(), "a killed daemon leaves its record");
    let own = std::process::id();
    let elsewhere = home.path("nobody.sock").display().to_string();
    let of = |pid: u32, socket: &str| {
        json!({"pid": pid, "started_ms": 1, "socket": socket, "build": "9", "protocol": 9})
            .to_string()
    };
    for text in [
        String::new(),
        "garbage".to_owned(),
        "1\n".to_owned(),
        of(1, &elsewhere),
        of(own, &elsewhere),
        of(own, "relative.sock"),
        "x".repeat(100_000),
    ] {
        std::fs::write(&record, &text)?;
        std::fs::set_permissions(&record, std::fs::Permissions::from_mode(0o600))?;
        assert_eq!(home.client().run("print(1)").printed(), "1", "{text:.80}");
        let (code, _, said) = home.ctl(&["stop"]);
        assert_eq!(code, 0, "{said}");
    }
    Ok(())
}

fn a_path_at_the_systems_limit_works_or_is_refused_with_both_numbers() -> TestResult {
    let home = Home::new(&Plan::new());
    let limit = ptc_protocol::paths::MAX_SOCKET_PATH;
    for length in limit - 2..=limit + 2 {
        let folder = home.path(&format!("l{length}"));
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        // Bytes count, not characters.
        let rest = length - folder.as_os_str().len() - 1;
        let name = format!("{}{}", "ä".repeat(rest / 2), "s".repeat(rest % 2));
        let socket = folder.join(name);
        assert_eq!(socket.as_os_str().len(), length);
        let config = home.config();
        let args = [
            "--config".into(),
            config.into_os_string(),
            "--socket".into(),
        ];
        let mut command = home.command("ptc-mcp");
        command.args(&args).arg(&socket);
        let mut client = home.shim_of(command);
        client.initialize("2025-11-25");
        let id = client.start_run("print('here')");
        let text = client.answer(&id)["result"]["content"][0]["text"].to_string();
        if socket.exists() {
            assert!(text.contains("here"), "{length}: {text}");
            let socket = socket.display().to_string();
            let (code, _, said) = home.ctl(&["--socket", &socket, "stop"]);
            assert_eq!(code, 0, "{said}");
        } else {
            assert!(length > limit, "{length}: {text}");
            for part in [&length.to_string(), &limit.to_string()] {
                assert!(text.contains(part.as_str()), "{length}: {text}");
            }
        }
    }
    Ok(())
}

fn without_descriptors_the_daemon_waits_and_recovers() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new().server("m", &[]));
    let mut daemon = Daemon::under_shell(&home, &[], "ulimit -n 80");
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ptc_protocol::status::ServerState::Ready);
    let mut client = home.client();
    let run = client.start_run("await mcp__m__sleep(ms=3000)\nprint('whole')");
    until("its call is out", PATIENCE, || {
        daemon.server("m").calls == 1
    });
    // Upgraded, so that they are kept for the time of a handshake at least.
    let mut held = Vec::new();
    let upgrade = format!(
        "GET {} HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: {UPGRADE_TOKEN}\r\n\r\n",
        route::MCP
    );
    for _ in 0..120 {
        let mut stream = UnixStream::connect(home.socket())?;
        stream.write_all(upgrade.as_bytes())?;
        held.push(stream);
    }
    let log = || std::fs::read_to_string(home.daemon_log()).unwrap_or_default();
    until("it has said that it lacks something", PATIENCE, || {
        log().contains("connections cannot be taken")
    });
    assert_eq!(client.finish_run(&run).printed(), "whole");
    drop(held);
    assert_eq!(home.client().run("print('new')").printed(), "new");
    let notes = daemon.status().programs.notes;
    assert!(
        notes.iter().any(|note| note.contains("open files")),
        "{notes:?}"
    );
    let lines = log().matches("connections cannot be taken").count();
    assert!(lines < 20, "{lines} lines of one shortage");
    assert_eq!(client.run("print('and the old')").printed(), "and the old");
    Ok(())
}

fn the_starters_pipe_ends_with_the_starter() -> TestResult {
    let home = Home::new(&Plan::new());
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "p", "version": "0"},
    });
    let call = json!({"name": "execute_program", "arguments": {"code": "print(6 * 7)"}});
    let script = format!(
        "printf '%s\\n' '{}' '{}' | \"$0\" \"$@\" 2>&1 | cat",
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    );
    let mut command = std::process::Command::new("/bin/sh");
    command
        .env_clear()
        .envs(home.environment())
        .args(["-c", &script])
        .arg(ptc_tests::programs::program("ptc-mcp"))
        .args(["--eof-wait", "30", "--config"])
        .arg(home.config());
    let child = command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    // The end of file comes though the daemon lives: it holds nothing of its starter.
    let output = ended.recv_timeout(PATIENCE * 2)??;
    let text = String::from_utf8(output.stdout)?;
    assert!(
        text.contains("successfully") && text.contains("42"),
        "{text}"
    );
    assert_eq!(home.ctl(&["status"]).0, 0);
    Ok(())
}

fn a_shim_in_a_folder_that_is_gone_works() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let folder = home.path("passing");
    std::fs::create_dir(&folder)?;
    let first = format!("cd {0} && rmdir {0}", folder.to_str().unwrap_or("/nowhere"));
    let mut command = home.under_shell("ptc-mcp", &[], &first);
    command.arg("--config").arg(home.config());
    let mut client: Client = home.shim_of(command);
    client.initialize("2025-11-25");
    assert_eq!(
        client.run("print(await mcp__m__add(a=1, b=2))").printed(),
        "{'sum': 3}"
    );
    Ok(())
}

fn shims_killed_in_quick_succession_leave_one_daemon() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new().server("m", &[]));
    for round in 0..20 {
        let mut client = home.shim();
        if round % 2 > 0 {
            let params = json!({
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "x", "version": "0"},
            });
            client.request("initialize", &params);
        }
        match round % 3 {
            0 => client.signal(Signal::TERM),
            _ => client.kill(),
        }
    }
    assert_eq!(home.client().run("print('alive')").printed(), "alive");
    let of = |name: &str| {
        let all = home.processes().into_iter();
        let lines = all.map(Process::command_line);
        lines
            .filter(|line| line.first().is_some_and(|word| word.ends_with(name)))
            .count()
    };
    until("one daemon and no other shim", PATIENCE, || {
        of("ptcd") == 1 && of("ptc-mcp") == 0
    });
    Ok(())
}
