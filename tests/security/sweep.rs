//! Every system call by number: what the profile does not name is refused.

use std::collections::BTreeSet;

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use serde_json::Value;

use crate::lab::{run, tiers};

const PROFILE: &str = include_str!("../../sandbox-profiles/python.seccomp.json");

/// Calls each number from 0 to 599 with zeros, but those that wait, end the worker or are passed around seccomp.
const PROGRAM: &str = "skip = set(facts_skip)\n\
    result = {n: code_of(n, 0, 0, 0, 0, 0, 0) for n in range(600) if n not in skip}";

/// On x86_64: rt_sigreturn, pause, exit, exit_group, rt_sigsuspend, select, ppoll, pselect6, rt_sigtimedwait, vfork
/// (a child on the same stack), restart_syscall, brk, munmap, close of 0, and the two probes' own numbers.
const SKIPPED: [i64; 22] = [
    3, 7, 11, 12, 15, 23, 32, 33, 34, 35, 58, 60, 61, 128, 130, 219, 231, 270, 271, 335, 336, 436,
];

/// Calls of the profile by number, as far as this machine's headers name them.
fn named() -> BTreeSet<String> {
    let profile: Value = serde_json::from_str(PROFILE).unwrap();
    ["allow", "answers"]
        .iter()
        .flat_map(|part| profile[*part].as_array().unwrap())
        .flat_map(|entry| entry["calls"].as_array().unwrap())
        .map(|call| call.as_str().unwrap().to_owned())
        .collect()
}

fn sweep() -> Result<(), Failed> {
    let program = format!("facts_skip = {SKIPPED:?}\n{PROGRAM}");
    for tier in tiers() {
        sweep_in(*tier, &program)?;
    }
    Ok(())
}

fn sweep_in(tier: SandboxChoice, program: &str) -> Result<(), Failed> {
    let outcome = run(tier, program);
    let found = outcome.answer()["ok"].as_object().ok_or("no object")?;
    let mut open: Vec<i64> = Vec::new();
    for (number, code) in found {
        if ![libc::EPERM, libc::ENOSYS].contains(&i32::try_from(code.as_i64().unwrap()).unwrap()) {
            open.push(number.parse()?);
        }
    }
    let allowed: BTreeSet<i64> = named().iter().filter_map(|name| number_of(name)).collect();
    let unnamed: Vec<&i64> = open
        .iter()
        .filter(|number| !allowed.contains(number))
        .collect();
    assert!(
        unnamed.is_empty(),
        "answered though not in the profile: {unnamed:?}"
    );
    // The filter is not simply a refusal of everything.
    assert!(open.len() > 50, "{open:?}");
    Ok(())
}

/// Unconfined, many more are answered by the kernel, so the sweep can tell.
fn control() -> Result<(), Failed> {
    let program = "s = facts['sys']\n\
        result = [n for n in sorted(s) if code_of(s[n], -1, -1, -1, -1, -1, -1) not in (1, 38)]";
    let names = |choice| -> Vec<Value> {
        let outcome = run(choice, program);
        outcome.answer()["ok"].as_array().unwrap().clone()
    };
    let open = names(SandboxChoice::None);
    assert!(open.len() > 25, "{open:?}");
    let allowed = named();
    for tier in tiers() {
        let answered = names(*tier);
        let unnamed: Vec<&Value> = answered
            .iter()
            .filter(|name| {
                let name = name.as_str().unwrap().trim_start_matches("SYS_");
                !allowed.contains(name)
            })
            .collect();
        assert!(unnamed.is_empty(), "{unnamed:?}");
        assert!(answered.len() < open.len() / 2, "{answered:?}");
    }
    Ok(())
}

/// The number of a call, from the C library's own table of names, as Python's ctypes cannot ask it.
fn number_of(name: &str) -> Option<i64> {
    if name == "fchmodat2" {
        // Newer than many a table.
        return Some(452);
    }
    let header = [
        "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
        "/usr/include/asm/unistd_64.h",
    ]
    .iter()
    .find_map(|path| std::fs::read_to_string(path).ok())?;
    let line = header
        .lines()
        .find(|line| line.starts_with(&format!("#define __NR_{name} ")))?;
    line.rsplit(' ').next()?.parse().ok()
}

pub(crate) fn all() -> Vec<Trial> {
    let whole = Trial::test("sweep::no_call_outside_the_profile_is_answered", sweep);
    vec![
        if number_of("read") == Some(0) {
            whole
        } else {
            whole
                .with_kind("no table of x86_64's system calls")
                .with_ignored_flag(true)
        },
        Trial::test("sweep::unconfined_the_kernel_answers", control),
    ]
}
