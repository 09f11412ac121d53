//! Each call of the seccomp profile is there because something needs it: without it that something fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::sync::Mutex;

use libtest_mimic::{Failed, Trial};
use ptc_protocol::run::Confinement;
use ptcd::sandbox::WorkerProcess;
use ptcd::sandbox::testing::{Weak, Without, profile_text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{RUNTIME, ask, end, eventually, ground};
use crate::life::LATER;
use crate::need::{NEEDS, Need};
use Need::{Elsewhere, Exit, Program, Start, Stop};

/// The key of each call of the profile that is for this processor, with the profile without it.
fn each_left_out() -> BTreeMap<String, String> {
    let profile: Value = serde_json::from_str(profile_text()).unwrap();
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (entry, allowed) in profile["allow"].as_array().unwrap().iter().enumerate() {
        if allowed
            .get("arch")
            .is_some_and(|arch| arch != std::env::consts::ARCH)
        {
            continue;
        }
        let calls: Vec<&str> = allowed["calls"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        for (at, call) in calls.iter().enumerate() {
            let nth = count.entry((*call).to_owned()).or_default();
            let key = if *nth == 0 {
                (*call).to_owned()
            } else {
                format!("{call}:{nth}")
            };
            *nth += 1;
            let mut without = profile.clone();
            if calls.len() == 1 {
                without["allow"].as_array_mut().unwrap().remove(entry);
            } else {
                without["allow"][entry]["calls"]
                    .as_array_mut()
                    .unwrap()
                    .remove(at);
            }
            all.insert(key, without.to_string());
        }
    }
    all
}

/// Whether what needs the call succeeds in a fresh worker of `weak`.
fn succeeds(weak: &Weak, need: Need) -> bool {
    let Ok(worker) = RUNTIME.block_on(weak.spawn()) else {
        return false;
    };
    match need {
        Exit => {
            // Where only the thread that leaves ends, the other one answers.
            let program = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), answer({}))).start()\n\
                ctypes.CDLL(None)._exit(7)";
            let answer = ask(&worker, program);
            let outcome = end(worker, answer);
            return outcome.answer.is_none() && outcome.exit.code == Some(7);
        }
        Stop => return goes_on_after_a_stop(worker),
        Start | Program(_) | Elsewhere(..) => {}
    }
    let program = match need {
        Program(text) | Elsewhere(_, text) => text,
        Start | Exit | Stop => "",
    };
    let answer = ask(&worker, program);
    let outcome = end(worker, answer);
    outcome
        .answer
        .is_some_and(|answer| answer.get("ok").is_some())
}

/// A worker that waits is stopped and let go on; the kernel then makes a call of its own to wait for the rest.
fn goes_on_after_a_stop(worker: WorkerProcess) -> bool {
    let signal = |signal| {
        let pid = Pid::from_raw(worker.pid()).unwrap();
        kill_process(pid, signal).unwrap();
    };
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.pid())).unwrap();
        stat.rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next())
    };
    let program = "import select; p = select.poll(); p.register(3, select.POLLIN); answer('soon'); p.poll(30000)";
    let begun = ask(&worker, program);
    let answer = begun.and_then(|_| {
        // It can wait for nothing else.
        eventually(LATER, "it waits", || state() == Some('S'));
        signal(Signal::STOP);
        eventually(LATER, "it is stopped", || state() == Some('T'));
        signal(Signal::CONT);
        let mut channel = worker.channel.try_clone().ok()?;
        channel.write_all(b"x").ok()?;
        let mut text = String::new();
        BufReader::new(channel).read_line(&mut text).ok()?;
        serde_json::from_str::<Value>(&text).ok()
    });
    end(worker, answer.clone());
    answer.is_some_and(|answer| answer.get("ok").is_some())
}

fn every_call_is_needed() -> Result<(), Failed> {
    let left_out = each_left_out();
    let keys: BTreeSet<&str> = left_out.keys().map(String::as_str).collect();
    let needs: BTreeMap<&str, Need> = NEEDS.iter().copied().collect();
    assert_eq!(
        keys,
        needs.keys().copied().collect(),
        "the profile and this table differ"
    );
    let work = Mutex::new(left_out.iter());
    let unneeded = Mutex::new(Vec::new());
    let next = || work.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let ground = ground();
                let mut weak = RUNTIME
                    .block_on(ground.unproved(Confinement::Full, &Without::default()))
                    .unwrap();
                while let Some((call, profile)) = next() {
                    let without = Without {
                        profile: Some(profile.clone()),
                        ..Without::default()
                    };
                    RUNTIME
                        .block_on(ground.change(&mut weak, &without))
                        .unwrap();
                    if succeeds(&weak, needs[call.as_str()]) {
                        unneeded.lock().unwrap().push(call.clone());
                    }
                }
            });
        }
    });
    let unneeded = unneeded.into_inner().unwrap();
    assert!(unneeded.is_empty(), "nothing needs {unneeded:?}");
    Ok(())
}

fn with_all_everything_succeeds() -> Result<(), Failed> {
    let weak = RUNTIME.block_on(ground().unproved(Confinement::Full, &Without::default()))?;
    let failed: Vec<&str> = NEEDS
        .iter()
        .filter(|(_, need)| !succeeds(&weak, *need))
        .map(|(call, _)| *call)
        .collect();
    assert!(failed.is_empty(), "even with all calls: {failed:?}");
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    vec![
        Trial::test(
            "needs::without_any_one_call_something_fails",
            every_call_is_needed,
        ),
        Trial::test(
            "needs::with_all_calls_nothing_fails",
            with_all_everything_succeeds,
        ),
    ]
}
