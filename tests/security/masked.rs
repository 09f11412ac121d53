//! A machine that lacks something: what is left is taken and said, and where too little is left nothing runs.

use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};
use ptc_protocol::run::Confinement;
use ptcd::config::SandboxChoice;
use ptcd::sandbox::Sandbox;
use serde_json::{Value, json};

use crate::lab::{IMAGE, RUNTIME, config, lack_of_full, run_in};
use crate::life::MODE;

/// Takes something away, for good, and becomes the program it is told.
const MASK: &str = "import ctypes, os, struct, sys\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def check(result):\n\
    \x20   if result: raise OSError(ctypes.get_errno(), 'mask')\n\
    def without_namespaces():\n\
    \x20   user, group = os.getuid(), os.getgid(); check(libc.unshare(0x10000000))\n\
    \x20   lines = {'uid_map': '0 0 65536', 'gid_map': '0 0 65536'}\n\
    \x20   if user: lines = {'setgroups': 'deny', 'uid_map': f'{user} {user} 1', 'gid_map': f'{group} {group} 1'}\n\
    \x20   for name, line in lines.items(): open('/proc/self/' + name, 'w').write(line)\n\
    \x20   open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n\
    def without_call(number):\n\
    \x20   steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7fff0000)]\n\
    \x20   code = ctypes.create_string_buffer(b''.join(struct.pack('<HBBI', *step) for step in steps))\n\
    \x20   program = struct.pack('<HxxxxxxQ', 4, ctypes.addressof(code))\n\
    \x20   check(libc.prctl(38, 1, 0, 0, 0)); check(libc.prctl(22, 2, program, 0, 0))\n\
    for word in sys.argv[2].split(','):\n\
    \x20   if word == 'namespaces': without_namespaces()\n\
    \x20   elif word == 'landlock': without_call(444)\n\
    os.execv(sys.argv[1], [sys.argv[1]])\n";

/// Says which tier is had for each choice, and what a program in it can read.
pub(crate) fn tell() {
    let all: Vec<Value> = [SandboxChoice::Auto, SandboxChoice::Full, SandboxChoice::Landlock]
        .into_iter()
        .map(|choice| {
            let sandbox = RUNTIME.block_on(Sandbox::start(config(choice)));
            match sandbox.state() {
                Ok(ready) => {
                    let outcome = run_in(&sandbox, "open('/etc/hostname').read()");
                    json!({"tier": ready.confinement.as_str(), "notes": ready.notes, "errno": outcome.answer()["errno"]})
                }
                Err(refusal) => json!({"refused": refusal.message}),
            }
        })
        .collect();
    crate::lab::clear();
    std::io::Write::write_all(
        &mut std::io::stdout(),
        Value::from(all).to_string().as_bytes(),
    )
    .unwrap();
}

/// What is told where these are masked.
fn told(masked: &str) -> Result<Vec<Value>, Failed> {
    let output = Command::new("python3")
        .args(["-I", "-c", MASK])
        .arg(std::env::current_exe()?)
        .arg(masked)
        .env(MODE, "tell")
        // It asks for the other tiers, wherever this runs; an engine may not answer there.
        .env_remove(IMAGE)
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).map_err(|error| format!("{error}: {output:?}").into())
}

fn tier(told: &Value) -> Option<&str> {
    told["tier"].as_str()
}

#[track_caller]
fn refused(told: &Value, words: &[&str]) {
    let text = told["refused"].as_str().unwrap_or_default();
    assert!(words.iter().all(|word| text.contains(word)), "{told}");
}

fn without_namespaces_landlock_is_taken_and_it_is_said() -> Result<(), Failed> {
    let told = told("namespaces")?;
    assert_eq!(
        tier(&told[0]),
        Some(Confinement::Landlock.as_str()),
        "{told:?}"
    );
    assert!(
        told[0]["notes"].to_string().contains("namespaces"),
        "{told:?}"
    );
    assert_eq!(told[0]["errno"], libc::EACCES);
    refused(&told[1], &["namespaces"]);
    assert_eq!(tier(&told[2]), Some("landlock"), "{told:?}");
    Ok(())
}

fn without_landlock_only_full_is_had() -> Result<(), Failed> {
    let told = told("landlock")?;
    for full in &told[..2] {
        assert_eq!(
            (tier(full), &full["errno"]),
            (Some("full"), &json!(libc::ENOENT)),
            "{told:?}"
        );
    }
    refused(&told[2], &["Landlock"]);
    Ok(())
}

fn without_both_nothing_runs() -> Result<(), Failed> {
    for told in told("namespaces,landlock")? {
        refused(&told, &[]);
        assert_eq!(tier(&told), None);
    }
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    let all = vec![
        Trial::test(
            "masked::without_namespaces_landlock_is_taken_and_it_is_said",
            without_namespaces_landlock_is_taken_and_it_is_said,
        ),
        Trial::test(
            "masked::without_landlock_only_full_is_had",
            without_landlock_only_full_is_had,
        ),
        Trial::test(
            "masked::without_both_nothing_runs",
            without_both_nothing_runs,
        ),
    ];
    match lack_of_full() {
        None => all,
        Some(reason) => all
            .into_iter()
            .map(|trial| trial.with_kind(reason).with_ignored_flag(true))
            .collect(),
    }
}
