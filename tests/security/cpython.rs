//! Runs, for `tests/security/cpython`, parts of CPython's own tests in the tier full, and says what fails only there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use ptc_protocol::run::Confinement;
use ptcd::config::SandboxChoice;
use ptcd::sandbox::testing::{Ground, Weak, Without};
use ptcd::sandbox::{Limits, SandboxConfig};
use serde_json::Value;

use crate::lab::{RUNTIME, config, end};

/// How long one module may take.
const LIMIT: Duration = Duration::from_mins(10);
const LIMITS: Limits = Limits {
    memory_bytes: 1 << 30,
    scratch_bytes: 256 << 20,
    max_threads: 128,
    cpu_seconds: 600,
};

/// What an error says when the sandbox is its cause: a call that is refused, a path that is not there, a limit.
const EXPLAINED: [&str; 15] = [
    "Operation not permitted",
    "Permission denied",
    "Function not implemented",
    "No such file or directory",
    "Read-only file system",
    "Operation not supported",
    "Inappropriate ioctl for device",
    "Invalid argument",
    "Too many open files",
    "No space left on device",
    "No child processes",
    "MemoryError",
    "can't start new thread",
    "cannot open shared object file",
    // What asyncio makes of a refused socket.
    "could not bind on any address",
];

/// Tests that fail for what they do not say: scratch holds no programs, there is no group 0, and a server that asyncio
/// could give no socket has none.
const KNOWN: [&str; 7] = [
    "test_shutil.TestWhich",
    "test_make_archive_owner_group",
    "test_tarfile_root_owner",
    "test_chown",
    "test_buffered_proto_create_connection",
    "test_create_server_ssl",
    "test_start_tls_server_1",
];

const PROGRAM: &str = "import io, os, sys, unittest, traceback\n\
    null = os.open('/dev/null', os.O_RDWR); os.dup2(null, 1); os.dup2(null, 2)\n\
    sys.stdout = sys.stderr = io.StringIO(); sys.argv = ['test']; os.environ['HOME'] = os.getcwd()\n\
    from test import support\n\
    support.verbose = 0; support.use_resources = []\n\
    class Result(unittest.TestResult):\n\
    \x20   def addSubTest(self, test, part, error):\n\
    \x20       super().addSubTest(test, part, error)\n\
    ended = Result()\n\
    try: suite = unittest.defaultTestLoader.loadTestsFromName('test.' + name)\n\
    except unittest.SkipTest as skip: result = {'run': 0, 'failed': {}, 'skipped': str(skip)}\n\
    else:\n\
    \x20   suite.run(ended)\n\
    \x20   result = {'run': ended.testsRun, 'failed': {t.id(): text.strip()[-2000:] for t, text in ended.errors + ended.failures}, 'skipped': len(ended.skipped)}\n";

#[derive(Debug, Default)]
struct Tested {
    run: u64,
    failed: BTreeMap<String, String>,
    /// Why there is no more of it.
    broken: Option<String>,
}

fn test(weak: &Weak, name: &str) -> Tested {
    let worker = RUNTIME.block_on(weak.spawn()).unwrap();
    let mut channel = worker.channel.try_clone().unwrap();
    channel.set_read_timeout(Some(LIMIT)).unwrap();
    let program = format!("name = {name:?}\n{PROGRAM}");
    let mut message = u32::try_from(program.len()).unwrap().to_le_bytes().to_vec();
    message.extend_from_slice(program.as_bytes());
    let mut lines = BufReader::new(worker.channel.try_clone().unwrap());
    let (mut ready, mut text) = (String::new(), String::new());
    let asked = lines
        .read_line(&mut ready)
        .and_then(|_| channel.write_all(&message))
        .and_then(|()| lines.read_line(&mut text));
    let answer: Option<Value> = asked.ok().and_then(|_| serde_json::from_str(&text).ok());
    let outcome = end(worker, answer.or(Some(Value::Null)).filter(|_| true));
    let answer = outcome.answer.unwrap_or_default();
    let result = &answer["ok"];
    if result.is_null() {
        return Tested {
            broken: Some(format!("{answer} {:?}", outcome.exit)),
            ..Tested::default()
        };
    }
    let failed = result["failed"].as_object().into_iter().flatten();
    Tested {
        run: result["run"].as_u64().unwrap_or_default(),
        failed: failed
            .map(|(test, text)| (test.clone(), text.as_str().unwrap_or_default().to_owned()))
            .collect(),
        broken: None,
    }
}

/// Tests the modules named on the command line; the exit code says whether anything fails that is not explained.
pub(crate) fn run() -> i32 {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let config = SandboxConfig {
        limits: LIMITS,
        warden_program: Some(std::env::current_exe().unwrap()),
        ..config(SandboxChoice::Full)
    };
    let ground = RUNTIME.block_on(Ground::find(config)).unwrap();
    let shown = Without {
        shown: vec![ground.library().join("test")],
        ..Without::default()
    };
    let start = |tier| RUNTIME.block_on(ground.unproved(tier, &shown)).unwrap();
    let (full, none) = (start(Confinement::Full), start(Confinement::None));
    let mut out = std::io::stdout();
    let (mut total, mut only, mut open) = (0, 0, 0);
    for name in &names {
        let (inside, outside) = (test(&full, name), test(&none, name));
        total += inside.run;
        writeln!(
            out,
            "{name}: {} run, {} failed; outside {} run, {} failed",
            inside.run,
            inside.failed.len(),
            outside.run,
            outside.failed.len()
        )
        .unwrap();
        if let Some(broken) = &inside.broken {
            writeln!(out, "  BROKEN {broken}\n  outside {:?}", outside.broken).unwrap();
            open += 1;
        }
        if inside.run < 2 {
            writeln!(out, "  {:?}", inside.failed).unwrap();
        }
        for (test, text) in inside
            .failed
            .iter()
            .filter(|(test, _)| !outside.failed.contains_key(*test))
        {
            only += 1;
            let explained = EXPLAINED.iter().any(|cause| text.contains(cause))
                || KNOWN.iter().any(|known| test.contains(known));
            open += usize::from(!explained);
            let last = text.lines().last().unwrap_or_default();
            writeln!(
                out,
                "  {} {test}: {last}",
                if explained { "explained" } else { "OPEN" }
            )
            .unwrap();
        }
    }
    writeln!(
        out,
        "{total} tests inside; {only} fail only there, {open} of them unexplained"
    )
    .unwrap();
    i32::from(open > 0)
}
