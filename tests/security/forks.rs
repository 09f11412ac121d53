//! Forked workers: that they are, what they share, and what happens without their server.

use std::collections::BTreeSet;

use libtest_mimic::{Failed, Trial};
use ptc_protocol::run::Confinement;
use ptcd::config::SandboxChoice;
use ptcd::sandbox::testing::Without;
use ptcd::sandbox::{Sandbox, WorkerProcess};
use serde_json::Value;

use crate::lab::{
    RUNTIME, START, ask, end, eventually, fresh, ground, image, run_in, sandbox,
    sandbox_of_fresh_interpreters, spawn, tiers,
};
use crate::life::{LATER, kill, lives};

type Test = fn() -> Result<(), Failed>;

/// The confining tiers in which workers can be forked.
fn forking() -> impl Iterator<Item = SandboxChoice> {
    let no_containers = image().is_none();
    tiers().iter().copied().filter(move |_| no_containers)
}

fn answers(sandbox: &Sandbox, program: &str) -> [Value; 2] {
    [0, 1].map(|_| run_in(sandbox, program).answer()["ok"].clone())
}

/// Forks of one server have its hash seed and its addresses; interpreters of their own have not.
fn workers_are_forked() -> Result<(), Failed> {
    let program = "result = [hash('x'), id(json)]";
    for tier in forking() {
        let [one, other] = answers(sandbox(tier), program);
        assert_eq!(one, other, "{tier:?}");
        let [one, other] = answers(sandbox_of_fresh_interpreters(tier), program);
        assert_ne!(one, other, "{tier:?}");
    }
    Ok(())
}

/// What the system or a library draws by lot is drawn by each worker.
fn what_is_drawn_differs() -> Result<(), Failed> {
    let program = "import random, secrets, ssl, tempfile, uuid\n\
        result = [random.random(), random.getrandbits(64), uuid.uuid4().hex, uuid.uuid1().time, secrets.token_hex(8), \
        ssl.RAND_bytes(8).hex(), next(tempfile._get_candidate_names()), os.urandom(8).hex()]";
    for tier in forking() {
        let [one, other] = answers(sandbox(tier), program);
        let (one, other) = (one.as_array().unwrap(), other.as_array().unwrap());
        for (at, drawn) in one.iter().enumerate() {
            assert_ne!(*drawn, other[at], "{tier:?}: {at}");
        }
    }
    Ok(())
}

/// What a program does to its interpreter, its memory and its descriptors stays its own.
fn the_next_program_sees_nothing_of_the_one_before() -> Result<(), Failed> {
    let look = "import fcntl, random, signal, builtins\n\
        result = [ctypes.c_long.from_address(id(7) + 24).value & 0xffffffff, json.dumps.__name__, len.__name__, sorted(os.environ), \
        os.umask(0o77), fcntl.fcntl(0, fcntl.F_GETFL), str(signal.getsignal(signal.SIGTERM)), 'marker' in sys.modules, \
        sys.getrecursionlimit(), os.listdir('.'), os.getcwd() == os.path.realpath('.'), sys.path, \
        ctypes.CDLL(None).getenv(b'MARK')]";
    let spoil = "import fcntl, signal, builtins, random\n\
        ctypes.c_uint32.from_address(id(7) + 24).value = 8\n\
        answer('soon')\n\
        builtins.len = lambda x: 0\n\
        os.environ['MARK'] = '1'\nos.umask(0)\n\
        fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsys.modules['marker'] = sys\n\
        sys.setrecursionlimit(5000)\nopen('left', 'w').close()\nsys.path.append('/left')\nrandom.seed(1)\n\
        os.mkdir('deeper'); os.chdir('deeper')";
    for tier in forking() {
        let shared = sandbox(tier);
        let before = run_in(shared, look).answer()["ok"].clone();
        assert_eq!(before[0], 7, "{before}");
        let spoiler = spawn(shared);
        assert_eq!(ask(&spoiler, spoil), Some("soon".into()));
        let meanwhile = run_in(shared, look).answer()["ok"].clone();
        end(spoiler, Some(Value::Null));
        let after = run_in(shared, look).answer()["ok"].clone();
        assert_eq!([&before, &before], [&meanwhile, &after], "{tier:?}");
    }
    Ok(())
}

/// Looked at from outside: no memory that two can write, the four descriptors, and a parent that is the warden.
fn nothing_is_shared_with_the_server() -> Result<(), Failed> {
    for tier in forking() {
        let shared = sandbox(tier);
        let worker = spawn(shared);
        // It waits for its program.
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", worker.pid()));
        let maps = read("maps")?;
        let shared = |line: &&str| {
            let rights = line.split(' ').nth(1).unwrap_or_default();
            rights.contains('s') && rights.contains('w')
        };
        assert_eq!(maps.lines().find(shared), None);
        let descriptors: BTreeSet<u32> = std::fs::read_dir(format!("/proc/{}/fd", worker.pid()))?
            .map(|entry| {
                entry
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        assert_eq!(descriptors, BTreeSet::from([0, 1, 2, 3]));
        let server = server_of(&worker).ok_or("no server is seen")?;
        assert_eq!(parent_of(server), parent_of(worker.pid()));
        let scratch = |pid| std::fs::read_link(format!("/proc/{pid}/cwd"));
        assert_ne!(scratch(worker.pid())?, std::path::Path::new("/"));
        end(worker, Some(Value::Null));
    }
    Ok(())
}

/// The calls that only one of the two ways to fork needs, by what their first condition compares with.
const AT_ONCE: &str = "PR_GET_TID_ADDRESS";
const TWICE: &str = "FORK";

/// Who owns a recursive lock that this thread took, by the C library's word, and who this thread is, by the kernel's.
const OWNER: &str = "import threading\nlock, c = ctypes.create_string_buffer(64), ctypes.CDLL(None)\n\
    ctypes.c_int.from_buffer(lock, 16).value = 1\nc.pthread_mutex_lock(lock)\n\
    result = [ctypes.c_int.from_buffer(lock, 8).value, threading.get_native_id()]";

/// The profile whose server cannot make the call that compares with `value`.
fn server_without(value: &str) -> Without {
    let mut profile: Value = serde_json::from_str(ptcd::sandbox::testing::profile_text()).unwrap();
    let calls = profile["server"].as_array_mut().unwrap();
    let before = calls.len();
    calls.retain(|entry| entry["when"][0][0]["is"] != value);
    assert_eq!(calls.len(), before - 1, "{value}");
    Without {
        profile: Some(profile.to_string()),
        ..Without::default()
    }
}

/// By one call or, where that cannot be, by two forks: the worker is the warden's, its namespaces are nobody else's, and
/// no process in between is left.
fn a_worker_is_the_wardens_child_in_either_way() -> Result<(), Failed> {
    for tier in forking() {
        let tier = match tier {
            SandboxChoice::Full => Confinement::Full,
            _ => Confinement::Landlock,
        };
        for value in [TWICE, AT_ONCE] {
            let weak = RUNTIME.block_on(ground().prove_forks(tier, &server_without(value)))?;
            let [one, other] = [(); 2].map(|()| RUNTIME.block_on(weak.spawn_verified()));
            let (one, other) = (one?, other?);
            let server = server_of(&one).ok_or("no server is seen")?;
            for worker in [&one, &other] {
                assert_eq!(
                    parent_of(worker.pid()),
                    parent_of(server),
                    "{tier:?} {value}"
                );
            }
            let space = |pid, name| std::fs::read_link(format!("/proc/{pid}/ns/{name}"));
            for (name, own) in [
                ("user", true),
                ("pid", true),
                ("mnt", true),
                ("ipc", true),
                ("net", false),
                ("uts", false),
            ] {
                let own = own && tier == Confinement::Full;
                let all = [one.pid(), other.pid(), server].map(|pid| space(pid, name));
                let all = all.into_iter().collect::<Result<BTreeSet<_>, _>>()?;
                assert_eq!(
                    all.len(),
                    if own { 3 } else { 1 },
                    "{tier:?} {value} {name}"
                );
            }
            let entries = std::fs::read_dir("/proc")?.flatten();
            let left = entries
                .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
                .find(|pid| parent_of(*pid) == Some(server));
            assert_eq!(left, None, "{tier:?} {value}");
            for worker in [one, other] {
                let answer = ask(&worker, OWNER).ok_or("no answer")?;
                assert_eq!(answer["ok"][0], answer["ok"][1], "{tier:?} {value}");
                end(worker, Some(answer));
            }
        }
    }
    Ok(())
}

fn parent_of(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// The process that has the same parent as a worker and holds open what its workers may reach.
fn server_of(worker: &WorkerProcess) -> Option<i32> {
    let parent = parent_of(worker.pid())?;
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != worker.pid() && parent_of(*pid) == Some(parent))
        .find(|pid| {
            std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|found| found.count() > 32)
        })
}

/// Programs that run go on, the next ones start interpreters of their own, and the operator is told.
fn without_their_server_workers_are_fresh_interpreters() -> Result<(), Failed> {
    for tier in forking() {
        let sandbox = fresh(tier);
        let running = spawn(&sandbox);
        let server = server_of(&running).ok_or("no server is seen")?;
        kill(server.cast_unsigned());
        eventually(LATER, "the server is gone", || !lives(server));
        let program = "result = [hash('x'), id(json)]";
        let seeds = [0, 1].map(|_| run_in(&sandbox, program).answer()["ok"].clone());
        assert_ne!(seeds[0], seeds[1]);
        let notes = sandbox.state().unwrap().notes;
        let told = notes
            .iter()
            .any(|note| note.contains("there is no fork server"));
        assert!(told, "{notes:?}");
        let answer = ask(&running, "result = 'goes on'").ok_or("it is gone")?;
        assert_eq!(answer["ok"], "goes on");
        end(running, Some(answer));
    }
    Ok(())
}

/// One that neither forks nor ends is given up: programs run, each in an interpreter of its own.
fn a_server_that_stands_still_is_gone_without() -> Result<(), Failed> {
    for tier in forking() {
        let sandbox = fresh(tier);
        let running = spawn(&sandbox);
        let server = server_of(&running).ok_or("no server is seen")?;
        let stopped = rustix::process::Pid::from_raw(server).ok_or("no pid")?;
        rustix::process::kill_process(stopped, rustix::process::Signal::STOP)?;
        let program = "result = hash('x')";
        let seeds = [0, 1].map(|_| run_in(&sandbox, program).answer()["ok"].clone());
        assert_ne!(seeds[0], seeds[1]);
        let notes = sandbox.state().unwrap().notes;
        let told = notes
            .iter()
            .any(|note| note.contains("ended, or did not answer in time"));
        assert!(told, "{notes:?}");
        eventually(LATER, "the server is gone", || !lives(server));
        end(running, Some(Value::Null));
    }
    Ok(())
}

/// After so many forks another server forks, in its own place in memory; what the one before it forked goes on.
fn a_server_is_replaced_in_time() -> Result<(), Failed> {
    let without = Without {
        renewal: Some((3, u64::MAX)),
        ..Without::default()
    };
    for tier in forking() {
        let tier = match tier {
            SandboxChoice::Full => Confinement::Full,
            _ => Confinement::Landlock,
        };
        // The first fork is the one that tries to get out.
        let weak = RUNTIME.block_on(ground().prove_forks(tier, &without))?;
        let forked = || RUNTIME.block_on(weak.spawn_verified());
        let seed =
            |worker: &WorkerProcess| ask(worker, "result = hash('x')").unwrap()["ok"].clone();
        let (before, other) = (forked()?, forked()?);
        let server = server_of(&before).ok_or("no server is seen")?;
        let old = seed(&other);
        end(other, Some(Value::Null));
        eventually(LATER, "another server forks", || {
            let worker = forked().unwrap();
            let new = seed(&worker);
            end(worker, Some(Value::Null));
            new != old
        });
        eventually(LATER, "the old server is gone", || !lives(server));
        assert_eq!(seed(&before), old);
        end(before, Some(Value::Null));
    }
    Ok(())
}

/// A worker that was forked ends as others do, and what it used is its own.
fn what_a_worker_used_is_its_own() -> Result<(), Failed> {
    for tier in forking() {
        let busy = run_in(
            sandbox(tier),
            "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nx = bytearray(64 << 20)",
        );
        let idle = run_in(sandbox(tier), "result = 1");
        assert!(busy.exit.cpu.as_millis() >= 250, "{:?}", busy.exit);
        assert!(busy.exit.peak_memory_bytes > 64 << 20, "{:?}", busy.exit);
        assert!(idle.exit.cpu < busy.exit.cpu, "{:?}", idle.exit);
        assert!(idle.exit.peak_memory_bytes < 64 << 20, "{:?}", idle.exit);
        assert!(idle.exit.peak_memory_bytes > 0);
    }
    Ok(())
}

/// Without the calls that only a server makes it cannot be had, and a worker does not need them.
fn a_server_that_cannot_confine_its_children_forks_none() -> Result<(), Failed> {
    let mut profile: Value = serde_json::from_str(ptcd::sandbox::testing::profile_text()).unwrap();
    let calls = profile["server"].as_array().unwrap().len();
    assert!(calls > 5);
    profile["server"] = Value::Array(Vec::new());
    let without = Without {
        profile: Some(profile.to_string()),
        ..Without::default()
    };
    for tier in [Confinement::Landlock, Confinement::Full] {
        if tier == Confinement::Full && crate::lab::lack_of_full().is_some() {
            continue;
        }
        let fault = RUNTIME
            .block_on(ground().prove_forks(tier, &without))
            .map(drop)
            .unwrap_err();
        assert!(!fault.is_empty());
    }
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    let tests: [(&str, Test); 10] = [
        ("workers_are_forked", workers_are_forked),
        ("what_is_drawn_differs", what_is_drawn_differs),
        (
            "the_next_program_sees_nothing_of_the_one_before",
            the_next_program_sees_nothing_of_the_one_before,
        ),
        (
            "nothing_is_shared_with_the_server",
            nothing_is_shared_with_the_server,
        ),
        (
            "without_their_server_workers_are_fresh_interpreters",
            without_their_server_workers_are_fresh_interpreters,
        ),
        (
            "a_server_that_stands_still_is_gone_without",
            a_server_that_stands_still_is_gone_without,
        ),
        (
            "a_worker_is_the_wardens_child_in_either_way",
            a_worker_is_the_wardens_child_in_either_way,
        ),
        ("a_server_is_replaced_in_time", a_server_is_replaced_in_time),
        (
            "what_a_worker_used_is_its_own",
            what_a_worker_used_is_its_own,
        ),
        (
            "a_server_that_cannot_confine_its_children_forks_none",
            a_server_that_cannot_confine_its_children_forks_none,
        ),
    ];
    let kept = std::env::var(START).is_ok_and(|start| start == "exec");
    tests
        .into_iter()
        .map(|(name, test)| {
            let trial = Trial::test(format!("forks::{name}"), test);
            if kept {
                trial
                    .with_kind("workers are to be interpreters of their own")
                    .with_ignored_flag(true)
            } else {
                trial
            }
        })
        .collect()
}
