//! What a program leaves behind: it cannot delay the answer, print into another run, or call a tool after the end.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::suite::trial;
use ptc_tests::{Client, Daemon, Home, Plan, TestResult};

/// Far less than what any of the programs leaves sleeping, far more than a run takes on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Name, program, what its output ends with.
const PROGRAMS: [(&str, &str, &str); 13] = [
    (
        "threads_that_print",
        "import threading, time\n\
         def spam():\n    while True: print('spam')\n\
         for _ in range(4): threading.Thread(target=spam).start()\n\
         time.sleep(0.05)\nemit('end')",
        "",
    ),
    (
        "a_thread_that_sleeps",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nprint('end')",
        "end\n",
    ),
    (
        "a_thread_that_calls_tools",
        "import threading, asyncio, time\n\
         def call():\n    while True: asyncio.run(mcp__m__echo(x=1))\n\
         threading.Thread(target=call).start()\ntime.sleep(0.1)\nemit('end')",
        "",
    ),
    (
        "a_task_that_calls_tools",
        "import asyncio\n\
         async def call():\n    while True: await mcp__m__echo(x=1)\n\
         task = asyncio.create_task(call())\nawait asyncio.sleep(0.1)\nprint('end')",
        "end\n",
    ),
    (
        "a_task_that_calls_a_tool_when_it_is_cancelled",
        "import asyncio\n\
         async def call():\n    try:\n        await asyncio.sleep(600)\n    finally:\n        print('late')\n        await mcp__m__echo(x=1)\n\
         task = asyncio.create_task(call())\nawait asyncio.sleep(0.01)\nprint('end')",
        "end\n",
    ),
    (
        "exit_handlers",
        "import atexit, time\natexit.register(time.sleep, 600)\natexit.register(print, 'late')\nprint('end')",
        "end\n",
    ),
    (
        "a_finalizer",
        "import time\nclass Held:\n    def __del__(self):\n        print('late')\n        time.sleep(600)\nheld = Held()\nprint('end')",
        "end\n",
    ),
    (
        "signal_handlers_and_a_timer",
        "import signal, time\n\
         for number in range(1, 65):\n    try:\n        signal.signal(number, lambda *a: time.sleep(600))\n    except (OSError, ValueError):\n        pass\n\
         signal.setitimer(signal.ITIMER_REAL, 600)\nprint('end')",
        "end\n",
    ),
    (
        "a_trace_function",
        "import sys, time\ndef trace(*a):\n    time.sleep(600)\nprint('end')\nsys.setprofile(None)\nsys.settrace(trace)",
        "end\n",
    ),
    (
        "replaced_builtins",
        "import builtins, json, os\nkeep = print\nown = vars(builtins)\n\
         for name in ('len', 'isinstance', 'str', 'bytes', 'dict', 'type', 'range', 'print', 'BaseException'):\n    own[name] = None\n\
         json.dumps = os.write = os._exit = None\nkeep('end')",
        "end\n",
    ),
    (
        "closed_descriptors",
        "import os\nprint('begin')\nos.close(1)\nos.close(2)\nprint('end')",
        "end\n",
    ),
    (
        "a_replaced_stdout_that_blocks",
        "import sys, time\nclass Slow:\n    def write(self, text):\n        time.sleep(600)\n    def flush(self):\n        time.sleep(600)\nprint('end')\nsys.stdout = sys.stderr = Slow()",
        "end\n",
    ),
    (
        "no_stdout_at_all",
        "import sys\nprint('end')\nsys.stdout.close()\nsys.stdout = sys.stderr = None",
        "end\n",
    ),
];

struct Party {
    client: Mutex<Client>,
    _daemon: Daemon,
    _home: Home,
}

impl Party {
    fn new() -> Self {
        let home = Home::new(
            &Plan::new()
                .server("m", &[])
                .set("execution.timeout_seconds", 60)
                .set("execution.max_tool_calls", 1_000_000),
        );
        let daemon = home.daemon();
        daemon.wait_for("m", ServerState::Ready);
        Self {
            client: Mutex::new(home.client()),
            _daemon: daemon,
            _home: home,
        }
    }
}

pub(super) fn tests() -> Vec<Trial> {
    let party: Arc<OnceLock<Party>> = Arc::default();
    PROGRAMS
        .into_iter()
        .map(|(name, program, output)| {
            let party = Arc::clone(&party);
            trial("leftovers", name, move || check(program, output, &party))
        })
        .collect()
}

fn check(program: &str, output: &str, party: &OnceLock<Party>) -> TestResult {
    let party = party.get_or_init(Party::new);
    let mut client = party.client.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let run = client.run(program);
    let took = start.elapsed();
    assert!(!run.is_error, "{}", run.text);
    assert!(took < SOON, "the answer took {took:?}");
    let printed = run.structured["output"].as_str().unwrap_or_default();
    assert!(
        printed.ends_with(output) && !printed.contains("late"),
        "{}",
        run.text
    );
    let before = calls(&mut client);
    // Long enough for what was left to do something, were it there.
    assert_eq!(
        client
            .run("await mcp__m__sleep(ms=150)\nprint('next')")
            .printed(),
        "next"
    );
    let after = calls(&mut client);
    assert!(before > 0, "no count came from the server");
    assert_eq!(after - before, 2, "calls that no program under way made");
    Ok(())
}

/// How many calls have reached the server, this one included.
#[track_caller]
fn calls(client: &mut Client) -> u64 {
    let run = client.run("emit((await mcp__m__stats())['tools/call'])");
    assert_eq!(run.structured["output"], "", "{}", run.text);
    run.structured["result"].as_u64().unwrap_or_default()
}
