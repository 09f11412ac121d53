//! A program cannot use more than its limits.

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use ptcd::sandbox::Limits;
use serde_json::json;

use crate::attempt::{Attempt, Expect, trials};
use crate::lab::{LIMITS, RUNTIME, ask, end, run, sandbox, tiers};

const MEMORY: Expect = Expect::Raises("MemoryError");
const BOMBS: &[Attempt] = &[
    Attempt {
        name: "one_huge_block_is_a_memory_error",
        program: "bytearray(10**12)",
        control: MEMORY,
        confined: MEMORY,
    },
    Attempt {
        name: "a_growing_list_is_a_memory_error",
        program: "l = []\nwhile True: l.append(bytearray(1 << 20))",
        control: MEMORY,
        confined: MEMORY,
    },
    Attempt {
        name: "a_doubling_text_is_a_memory_error",
        program: "s = 'x'\nwhile True: s += s",
        control: MEMORY,
        confined: MEMORY,
    },
    Attempt {
        name: "no_more_descriptors_than_the_limit",
        program: "keep = [os.dup(0) for _ in range(1000)]",
        control: Expect::Errno(&[libc::EMFILE]),
        confined: Expect::Errno(&[libc::EMFILE]),
    },
    Attempt {
        name: "a_file_is_not_larger_than_the_limit",
        // Behind the last byte a file may have; what it has before may be nothing, so that the quota does not come first.
        program: "f = os.open('x', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'x', 0); os.pwrite(f, b'x', 8 << 20)",
        control: Expect::Errno(&[libc::EFBIG]),
        confined: Expect::Errno(&[libc::EFBIG]),
    },
];

/// Private mappings by any flags count.
fn mappings() -> Result<(), Failed> {
    let program = "import mmap\nkeep = []\n\
        while True:\n    m = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.write(bytes(8 << 20)); keep.append(m)";
    for tier in tiers() {
        let outcome = run(*tier, program);
        Expect::Errno(&[libc::ENOMEM]).check(outcome.answer())?;
        let peak = outcome.exit.peak_memory_bytes;
        assert!(peak < LIMITS.memory_bytes + (40 << 20), "{peak}");
    }
    Ok(())
}

/// Threads end at the limit, small stacks or not, and the worker lives on.
fn threads() -> Result<(), Failed> {
    let program = "import threading\nthreading.stack_size(65536); gate = threading.Event(); n = 0\n\
        try:\n    while n < 1000:\n        threading.Thread(target=gate.wait, daemon=True).start(); n += 1\n\
        except RuntimeError: pass\n\
        gate.set(); result = n";
    for choice in [SandboxChoice::None].iter().chain(tiers()) {
        let started = run(*choice, program).answer()["ok"].as_u64().unwrap();
        if *choice == SandboxChoice::Full {
            // Alone in its user namespace it is counted alone.
            assert_eq!(started, LIMITS.max_threads - 1);
        }
        // Other workers of the same user start and end meanwhile, and the kernel counts them all.
        assert!(
            (1..=LIMITS.max_threads + 64).contains(&started),
            "{started}"
        );
    }
    Ok(())
}

/// Spinning ends by the kernel's hand.
fn processor() -> Result<(), Failed> {
    let short = Limits {
        cpu_seconds: 1,
        ..LIMITS
    };
    for tier in tiers() {
        let worker = RUNTIME.block_on(sandbox(*tier).spawn_limited(short))?;
        let answer = ask(
            &worker,
            "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        );
        let outcome = end(worker, answer);
        assert_eq!(
            (outcome.answer, outcome.exit.signal),
            (None, Some(libc::SIGKILL))
        );
        assert!(outcome.exit.cpu.as_secs_f64() < 2.5, "{:?}", outcome.exit);
    }
    Ok(())
}

/// Pipes hold what they hold outside the worker's memory; descriptors end before that is much.
fn pipes() -> Result<(), Failed> {
    let program = "import fcntl, os\nheld = 0\n\
        try:\n    while True:\n        r, w = os.pipe(); os.set_blocking(w, False)\n\
        \x20       try: fcntl.fcntl(w, 1031, 1 << 20)\n        except OSError: pass\n\
        \x20       try:\n            while True: held += os.write(w, bytes(1 << 16))\n        except BlockingIOError: pass\n\
        except OSError as e: result = [e.errno, held]";
    for choice in [SandboxChoice::None].iter().chain(tiers()) {
        let outcome = run(*choice, program);
        let answer = &outcome.answer()["ok"];
        assert_eq!(answer[0], libc::EMFILE, "{choice:?}");
        let held = answer[1].as_u64().unwrap_or_default();
        assert!((1..64 << 20).contains(&held), "{held}");
    }
    Ok(())
}

/// What a worker used is told after its end.
fn usage() -> Result<(), Failed> {
    for tier in tiers() {
        let outcome = run(
            *tier,
            "x = bytearray(50 << 20)\nfor i in range(10**6): pass",
        );
        assert!(
            outcome.exit.peak_memory_bytes > 50 << 20,
            "{:?}",
            outcome.exit
        );
        assert!(outcome.exit.cpu.as_millis() > 10, "{:?}", outcome.exit);
        let outcome = run(*tier, "os._exit(7)");
        assert_eq!((outcome.exit.code, outcome.exit.signal), (Some(7), None));
        let outcome = run(*tier, "ctypes.string_at(0)");
        assert_eq!(
            (outcome.exit.code, outcome.exit.signal),
            (None, Some(libc::SIGSEGV))
        );
    }
    Ok(())
}

/// The limits a worker sees are those it was started with.
fn as_given() -> Result<(), Failed> {
    let program = "import resource as r\nresult = [r.getrlimit(n)[1] for n in \
        (r.RLIMIT_DATA, r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE, r.RLIMIT_CORE)]";
    for tier in tiers() {
        let core = i32::from(*tier != SandboxChoice::Container);
        assert_eq!(
            run(*tier, program).answer()["ok"],
            json!([256 << 20, 4_u64 << 30, 20, 8 << 20, 128, core])
        );
    }
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    let mut all = trials("limits", BOMBS);
    all.push(Trial::test("limits::mappings_count_as_memory", mappings));
    all.push(Trial::test("limits::threads_end_at_the_limit", threads));
    all.push(Trial::test(
        "limits::a_spinning_program_is_killed",
        processor,
    ));
    all.push(Trial::test("limits::what_pipes_hold_is_bounded", pipes));
    all.push(Trial::test("limits::what_was_used_is_told", usage));
    all.push(Trial::test("limits::limits_are_as_given", as_given));
    all
}
