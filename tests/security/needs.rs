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
use Need::{Elsewhere, Exit, Fork, ForkWithout, Program, Start, Stop};

/// Where a call stands in the profile: the list, the entry in it, the call in that.
type Place = (&'static str, usize, usize);

/// The key of each call of the profile that is for this processor and the tier `full`.
fn keys() -> BTreeMap<String, Place> {
    let mut all = keys_of("allow", "");
    all.extend(keys_of("server", "server "));
    all
}

/// The same of one list, whose keys begin with `prefix`.
fn keys_of(list: &'static str, prefix: &str) -> BTreeMap<String, Place> {
    let profile: Value = serde_json::from_str(profile_text()).unwrap();
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (entry, allowed) in profile[list].as_array().unwrap().iter().enumerate() {
        let elsewhere = allowed
            .get("arch")
            .is_some_and(|arch| arch != std::env::consts::ARCH);
        let another = allowed["tiers"]
            .as_array()
            .is_some_and(|tiers| !tiers.contains(&Value::from("full")));
        if elsewhere || another {
            continue;
        }
        let calls = allowed["calls"].as_array().unwrap();
        for (at, call) in calls.iter().filter_map(Value::as_str).enumerate() {
            let nth = count.entry(call.to_owned()).or_default();
            let key = if *nth == 0 {
                format!("{prefix}{call}")
            } else {
                format!("{prefix}{call}:{nth}")
            };
            *nth += 1;
            all.insert(key, (list, entry, at));
        }
    }
    all
}

/// The profile without what stands at `places`.
fn left_out(places: &[Place]) -> Without {
    let mut profile: Value = serde_json::from_str(profile_text()).unwrap();
    for (list, entry, at) in places {
        profile[list][entry]["calls"][at] = Value::Null;
    }
    for (list, ..) in places {
        let entries = profile[list].as_array_mut().unwrap();
        for entry in entries.iter_mut() {
            let calls = entry["calls"].as_array_mut().unwrap();
            calls.retain(|call| !call.is_null());
        }
        entries.retain(|entry| entry["calls"] != Value::Array(Vec::new()));
    }
    Without {
        profile: Some(profile.to_string()),
        ..Without::default()
    }
}

/// Whether what needs the call succeeds in a fresh worker of `weak`.
fn succeeds(weak: &mut Weak, need: Need) -> bool {
    if matches!(need, Fork | ForkWithout(_)) {
        return forks(weak);
    }
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
        Start | Program(_) | Elsewhere(..) | Fork | ForkWithout(_) => {}
    }
    let program = match need {
        Program(text) | Elsewhere(_, text) => text,
        Start | Exit | Stop | Fork | ForkWithout(_) => "",
    };
    let answer = ask(&worker, program);
    let outcome = end(worker, answer);
    outcome
        .answer
        .is_some_and(|answer| answer.get("ok").is_some())
}

/// Whether a worker can be forked.
fn forks(weak: &mut Weak) -> bool {
    if RUNTIME.block_on(weak.serve()).is_err() {
        return false;
    }
    weak.fork(true);
    let forked = RUNTIME.block_on(weak.spawn());
    weak.fork(false);
    // All workers here have one number, so that each has to be gone before the next.
    forked.map(|worker| end(worker, Some(Value::Null))).is_ok()
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
    let places = keys();
    let keys: BTreeSet<&str> = places.keys().map(String::as_str).collect();
    let needs: BTreeMap<&str, Need> = NEEDS.iter().copied().collect();
    assert_eq!(
        keys,
        needs.keys().copied().collect(),
        "the profile and this table differ"
    );
    let work = Mutex::new(places.iter());
    let unneeded = Mutex::new(Vec::new());
    let next = || work.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let ground = ground();
                let mut weak = RUNTIME
                    .block_on(ground.unproved(Confinement::Full, &Without::default()))
                    .unwrap();
                while let Some((call, place)) = next() {
                    let need = needs[call.as_str()];
                    let without = match need {
                        ForkWithout(other) => left_out(&[*place, places[other]]),
                        _ => left_out(&[*place]),
                    };
                    RUNTIME
                        .block_on(ground.change(&mut weak, &without))
                        .unwrap();
                    if succeeds(&mut weak, need) {
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
    let mut weak = RUNTIME.block_on(ground().unproved(Confinement::Full, &Without::default()))?;
    let places = keys();
    let mut failed = Vec::new();
    for (call, need) in NEEDS {
        let without = match need {
            ForkWithout(other) => left_out(&[places[*other]]),
            _ => Without::default(),
        };
        RUNTIME.block_on(ground().change(&mut weak, &without))?;
        if !succeeds(&mut weak, *need) {
            failed.push(*call);
        }
    }
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
