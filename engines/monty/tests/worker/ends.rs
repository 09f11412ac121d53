//! How a worker ends where the daemon, the kernel or its own allocator ends it.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::party::{Limits, Party};

#[test]
fn memory_used_up_between_two_looks_of_the_interpreter_is_told_all_the_same() {
    let mut party = Party::start(Limits {
        memory: 96 << 20,
        cpu_seconds: 20,
    });
    party.run("print('before')\nx = ('a,' * (2 * 10**7)).split(',')\nprint('after')");
    let (_, last) = party.follow();
    let (kind, done) = last.unwrap();
    assert_eq!(kind, 'D');
    assert_eq!(done["error"]["type"], "MemoryError");
    let exit = party.end();
    assert_eq!(exit.output, "before\n");
    assert_eq!(exit.signal, None);
}

#[test]
fn a_result_that_does_not_fit_into_memory_ends_the_program_as_such() {
    let mut party = Party::start(Limits {
        memory: 64 << 20,
        cpu_seconds: 20,
    });
    party.run("r = await mcp__m__echo(text='x')\nprint(len(r))");
    let (_, call) = party.read().unwrap();
    party.answer(&call["id"], &json!(vec![1; 6_000_000]));
    let (_, last) = party.follow();
    let (kind, done) = last.unwrap();
    assert_eq!((kind, &done["error"]["type"]), ('D', &json!("MemoryError")));
}

#[test]
fn a_worker_without_its_daemon_ends() {
    for program in ["while True: pass", "await mcp__m__echo(text=1)"] {
        let mut party = Party::start(Limits {
            cpu_seconds: 20,
            ..Limits::default()
        });
        party.run(program);
        party.hang_up();
        assert_eq!(party.end().code, Some(70), "{program}");
    }
    let party = Party::start(Limits::default());
    party.hang_up();
    assert_eq!(party.end().code, Some(70));
}

#[test]
fn what_is_no_frame_ends_the_worker() {
    for bytes in [
        &b"\x00\x00\x00\x00R"[..],
        b"\xff\xff\xff\xffR",
        b"\x03\x00\x00\x00z{}",
        b"\x02\x00\x00\x00R{",
    ] {
        let mut party = Party::start(Limits::default());
        party.send_raw(bytes);
        assert_eq!(party.end().code, Some(70), "{bytes:?}");
    }
}

#[test]
fn the_signal_by_which_others_are_asked_ends_nothing() {
    let mut party = Party::start(Limits::default());
    party.run("print(await mcp__m__echo(text='still here'))");
    let (_, call) = party.read().unwrap();
    party.signal("-USR1");
    party.answer(&call["id"], &json!("still here"));
    let (_, last) = party.follow();
    assert_eq!(last.unwrap().1["ok"], true);
    assert_eq!(party.end().output, "still here\n");
}

#[test]
fn a_worker_started_by_hand_leaves() {
    let status = Command::new("/bin/sh")
        .args([
            "-c",
            "exec \"$0\" 3<&-",
            env!("CARGO_BIN_EXE_ptcd-monty-worker"),
        ])
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(64));
}
