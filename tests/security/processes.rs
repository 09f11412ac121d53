//! No process is started, signalled, traced or looked into.

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use serde_json::Value;

use crate::attempt::{Attempt, DENIED, EPERM, Expect, trials};
use crate::lab::{ask, end, run, sandbox, spawn, tiers};

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "fork_is_refused",
        program: "pid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "forkpty_is_refused",
        program: "pid, fd = os.forkpty()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)",
        control: Expect::Succeeds,
        confined: DENIED,
    },
    Attempt {
        name: "subprocess_is_refused",
        program: "import subprocess; subprocess.run(['/bin/true'], check=True)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "posix_spawn_is_refused",
        program: "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_shell_is_refused",
        program: "if os.system('exit 0') != 0: raise PermissionError(1, 'no shell')",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "multiprocessing_is_refused",
        program: "import multiprocessing as m\np = m.get_context('fork').Process(target=int); p.start(); p.join()",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "vfork_by_number_is_refused",
        program: "r = syscall(facts['sys']['SYS_clone'], 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)\nos.waitpid(r, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "clone3_looks_absent",
        program: "syscall(facts['sys']['SYS_clone3'], 0, 0)",
        control: Expect::Errno(&[libc::EINVAL, libc::EFAULT]),
        confined: Expect::Errno(&[libc::ENOSYS]),
    },
    Attempt {
        name: "a_user_namespace_by_clone_is_refused",
        program: "r = syscall(facts['sys']['SYS_clone'], 0x10000000 | 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)",
        control: Expect::OtherThan(&[libc::EPERM, libc::ENOSYS]),
        confined: EPERM,
    },
    Attempt {
        name: "unshare_is_refused",
        program: "syscall(facts['sys']['SYS_unshare'], 0x10000000)",
        control: Expect::OtherThan(&[libc::EPERM, libc::ENOSYS]),
        confined: EPERM,
    },
    Attempt {
        name: "setns_is_refused",
        program: "syscall(facts['sys']['SYS_setns'], -1, 0)",
        control: Expect::Errno(&[libc::EBADF]),
        confined: EPERM,
    },
    Attempt {
        // As root, programs are another user's, who may not signal the warden or init anyway; a process of their own
        // user shows what would be possible.
        name: "no_process_is_signalled_whoever_it_is",
        program: "result = codes(*[(facts['sys']['SYS_kill'], pid, 0) for pid in (facts['peer'], os.getppid(), 1)])",
        control: Expect::Begins("0"),
        confined: Expect::Gives("[1, 1, 1]"),
    },
    Attempt {
        name: "a_signal_to_all_is_refused",
        program: "os.kill(-1, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_signal_to_oneself_is_refused",
        program: "os.kill(os.getpid(), 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_signal_to_a_group_is_refused",
        program: "os.killpg(os.getpgid(0), 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "tkill_and_tgkill_are_refused",
        program: "s = facts['sys']; p = os.getpid()\n\
            result = [code_of(s['SYS_tkill'], p, 0), code_of(s['SYS_tgkill'], p, p, 0)]",
        control: Expect::Gives("[0, 0]"),
        confined: Expect::Gives("[1, 1]"),
    },
    Attempt {
        name: "a_queued_signal_is_refused",
        program: "b = ctypes.create_string_buffer(128); b[8] = 255; b[9] = 255; b[10] = 255; b[11] = 255\n\
            syscall(facts['sys']['SYS_rt_sigqueueinfo'], os.getpid(), 28, ctypes.addressof(b))",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_pidfd_is_not_had",
        program: "os.close(os.pidfd_open(os.getpid()))",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::ENOSYS]),
    },
    Attempt {
        name: "a_signal_by_pidfd_is_refused",
        program: "syscall(facts['sys']['SYS_pidfd_send_signal'], -1, 0, 0, 0)",
        control: Expect::Errno(&[libc::EBADF]),
        confined: EPERM,
    },
    Attempt {
        name: "a_signal_by_a_timer_of_a_descriptor_is_refused",
        program: "import fcntl; r, w = os.pipe(); fcntl.fcntl(r, fcntl.F_SETOWN, os.getpid())",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "another_signal_for_a_descriptor_is_refused",
        program: "import fcntl; r, w = os.pipe(); fcntl.fcntl(r, 10, 9)",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "watching_a_folder_is_refused",
        program: "import fcntl; fcntl.fcntl(os.open('.', 0), fcntl.F_NOTIFY, fcntl.DN_CREATE)",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "ptrace_is_refused",
        program: "syscall(facts['sys']['SYS_ptrace'], 0, 0, 0, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "memory_of_a_process_is_not_read",
        program: "b = ctypes.create_string_buffer(8)\n\
            v = (ctypes.c_size_t * 2)(ctypes.addressof(b), 8)\n\
            a = ctypes.addressof(v)\n\
            result = syscall(facts['sys']['SYS_process_vm_readv'], os.getpid(), a, 1, a, 1, 0)",
        control: Expect::Gives("8"),
        confined: EPERM,
    },
    Attempt {
        name: "memory_of_a_process_is_not_written",
        program: "b = ctypes.create_string_buffer(8)\n\
            v = (ctypes.c_size_t * 2)(ctypes.addressof(b), 8)\n\
            a = ctypes.addressof(v)\n\
            result = syscall(facts['sys']['SYS_process_vm_writev'], os.getpid(), a, 1, a, 1, 0)",
        control: Expect::Gives("8"),
        confined: EPERM,
    },
    Attempt {
        name: "processes_are_not_compared",
        program: "syscall(facts['sys']['SYS_kcmp'], os.getpid(), os.getpid(), 1, 0, 0)",
        control: Expect::OtherThan(&[libc::EPERM, libc::ENOSYS]),
        confined: EPERM,
    },
    Attempt {
        name: "descriptors_of_a_process_are_not_taken",
        program: "syscall(facts['sys']['SYS_pidfd_getfd'], -1, 0, 0)",
        control: Expect::Errno(&[libc::EBADF]),
        confined: EPERM,
    },
    Attempt {
        name: "memory_of_a_process_is_not_advised",
        program: "syscall(facts['sys']['SYS_process_madvise'], -1, 0, 0, 0, 0)",
        control: Expect::OtherThan(&[libc::EPERM, libc::ENOSYS]),
        confined: EPERM,
    },
    Attempt {
        name: "the_death_of_the_parent_stays_deadly",
        program: "syscall(facts['sys']['SYS_prctl'], 1, 0, 0, 0, 0)",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "dumpable_is_not_changed",
        program: "syscall(facts['sys']['SYS_prctl'], 4, 0, 0, 0, 0)",
        control: Expect::Succeeds,
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "no_tracer_is_named",
        program: "syscall(facts['sys']['SYS_prctl'], 22, 0, 0, 0, 0)",
        control: Expect::OtherThan(&[libc::ENOSYS]),
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "another_user_is_not_become",
        program: "os.setresuid(os.getuid(), os.getuid(), os.getuid())",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "capabilities_are_not_set",
        program: "h = (ctypes.c_uint * 2)(0x20080522, 0); d = (ctypes.c_uint * 6)()\n\
            syscall(facts['sys']['SYS_capset'], ctypes.addressof(h), ctypes.addressof(d))",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "limits_of_another_process_are_not_touched",
        program: "syscall(facts['sys']['SYS_prlimit64'], os.getpid(), 7, 0, 0)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "own_limits_are_not_raised",
        program: "import resource as r; s, h = r.getrlimit(r.RLIMIT_DATA); r.setrlimit(r.RLIMIT_DATA, (h, h + 1))",
        control: Expect::Raises("ValueError"),
        confined: Expect::Raises("ValueError"),
    },
    Attempt {
        name: "priorities_are_not_changed",
        program: "os.setpriority(os.PRIO_PROCESS, 0, 19)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "a_processor_is_not_chosen",
        program: "os.sched_setaffinity(0, os.sched_getaffinity(0))",
        control: Expect::Succeeds,
        confined: EPERM,
    },
    Attempt {
        name: "the_environment_is_empty",
        program: "result = [dict(os.environ), ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')[0]]",
        control: Expect::Gives("[{}, null]"),
        confined: Expect::Gives("[{}, null]"),
    },
    Attempt {
        name: "the_user_is_not_root_and_has_no_privilege",
        program: "result = [0 in os.getresuid() + os.getresgid(), 0 in os.getgroups()]",
        control: Expect::Gives("[false, false]"),
        confined: Expect::Gives("[false, false]"),
    },
    Attempt {
        name: "clocks_of_other_processes_are_not_read",
        program: "import time; time.clock_gettime(~1 << 3 | 2)",
        control: Expect::OtherThan(&[libc::EPERM]),
        confined: Expect::Errno(&[libc::EINVAL]),
    },
    Attempt {
        name: "groups_of_others_are_not_asked",
        program: "os.getpgid(1)",
        control: Expect::Succeeds,
        confined: EPERM,
    },
];

/// Programs by which the worker would become another.
const BECOME: &[(&str, &str)] = &[
    ("a_program_is_not_run", "os.execv('/bin/true', ['true'])"),
    (
        "the_interpreter_is_not_run_again",
        "os.execv(sys.executable, [sys.executable, '-c', ''])",
    ),
    (
        "the_loader_runs_nothing",
        "l = [p for p in ('/lib64/ld-linux-x86-64.so.2', '/lib/ld-linux-aarch64.so.1', '/lib/ld-musl-x86_64.so.1') \
         if os.path.exists(p)]; os.execv(l[0], [l[0], '/bin/true'])",
    ),
    (
        "a_program_is_not_run_by_descriptor",
        "b = ctypes.create_string_buffer(b''); a = (ctypes.c_char_p * 2)(b'true', None)\n\
         syscall(facts['sys']['SYS_execveat'], os.open('/bin/true', os.O_PATH), ctypes.addressof(b), \
         ctypes.addressof(a), 0, 0x1000)",
    ),
    (
        "a_file_of_scratch_is_not_run",
        "open('x', 'w').write('#!/bin/true\\n'); os.chmod('x', 0o755); os.execv('./x', ['x'])",
    ),
];

/// Unconfined, the worker becomes the program and answers nothing; confined, it stays.
fn becomes(program: &str) -> Result<(), Failed> {
    let control = run(SandboxChoice::None, program);
    assert_eq!((control.answer, control.exit.code), (None, Some(0)));
    for tier in tiers() {
        DENIED.holds_in(*tier, run(*tier, program).answer())?;
    }
    Ok(())
}

/// Two workers of one sandbox are as foreign to each other as to everyone else.
fn siblings() -> Result<(), Failed> {
    let full = tiers().contains(&SandboxChoice::Full);
    // Inside, the folder is the own one, in which the other's file is not.
    let hidden = full.then_some((SandboxChoice::Full, [libc::EPERM, libc::ENOENT]));
    for (choice, expected) in [
        (SandboxChoice::None, [0, 0]),
        (SandboxChoice::Landlock, [libc::EPERM, libc::EACCES]),
    ]
    .into_iter()
    .chain(hidden)
    {
        let other = spawn(sandbox(choice));
        let place = ask(&other, "open('mine', 'w').write('x'); result = os.getcwd()").unwrap();
        let folder = place["ok"].as_str().unwrap();
        let program = format!(
            "def c(f, *a):\n    try: f(*a)\n    except OSError as e: return e.errno\n    return 0\n\
             result = [c(os.kill, {}, 0), c(open, '{folder}/mine')]",
            other.pid()
        );
        let outcome = run(choice, &program);
        assert_eq!(
            outcome.answer()["ok"],
            Value::from(expected.to_vec()),
            "{choice:?}"
        );
        end(other, Some(Value::Null));
    }
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    let mut all = trials("processes", ATTEMPTS);
    for (name, program) in BECOME {
        all.push(Trial::test(format!("processes::{name}"), move || {
            becomes(program)
        }));
    }
    all.push(Trial::test(
        "processes::siblings_do_not_reach_each_other",
        siblings,
    ));
    all
}
