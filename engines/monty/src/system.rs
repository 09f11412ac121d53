//! The calls to the system that exist in no safe form.
#![expect(
    unsafe_code,
    reason = "a descriptor by its number, a signal that is ignored, the plain poll and what a canary tries exist in no safe form"
)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Takes the descriptor `number` as this process's own; to be called once for each number. `None` where there is none.
pub(crate) fn take_descriptor(number: i32) -> Option<OwnedFd> {
    // SAFETY: fcntl with F_GETFD touches no memory, and any number may be asked for.
    let open = unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
    // SAFETY: the descriptor is open, and nothing else in this process owns it: it is taken once, at the start.
    open.then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// Lets the signal by which other workers are asked where they are pass: here the channel is asked, and by itself the
/// signal would end the process.
pub(crate) fn ignore_interrupts() {
    // SAFETY: no handler of ours is installed, so nothing of ours can run inside a signal.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
}

/// Has `words` called when the process exits, whoever ends it but a signal.
pub(crate) fn at_exit(words: extern "C" fn()) -> bool {
    // SAFETY: a function without arguments that never unwinds is what the C library wants.
    unsafe { libc::atexit(words) == 0 }
}

/// Starts a process that ends at once.
pub(crate) fn start_a_process() -> io::Result<()> {
    // SAFETY: the child does nothing but end.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: it runs no handler and touches nothing that the parent has.
        0 => unsafe { libc::_exit(0) },
        child => {
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            Ok(())
        }
    }
}

/// Takes hold of a process as a debugger does, without stopping it, so that an attempt that succeeds does no harm.
pub(crate) fn trace(process: i32) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: this request takes neither of the two pointers.
    match unsafe { libc::ptrace(libc::PTRACE_SEIZE, process, none, none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// Something can be read, or the other side is gone.
    pub(crate) read: bool,
    /// Something can be written.
    pub(crate) write: bool,
}

impl Ready {
    pub(crate) const TO_READ: Self = Self {
        read: true,
        write: false,
    };
    pub(crate) const BOTH: Self = Self {
        read: true,
        write: true,
    };
}

/// Waits until a descriptor is ready for one of `wanted`, at most for `patience`; without one for ever. The sandbox
/// knows the call of the C library's `poll`, which on some processors is not the one with a finer clock.
pub(crate) fn wait(descriptor: BorrowedFd<'_>, wanted: Ready, patience: Option<Duration>) -> Ready {
    let mut events = 0;
    if wanted.read {
        events |= libc::POLLIN;
    }
    if wanted.write {
        events |= libc::POLLOUT;
    }
    let mut asked = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events,
        revents: 0,
    };
    // Rounded up, so that the end of a wait never finds it too early.
    let milliseconds = patience.map_or(-1, |patience| {
        let whole = patience.as_micros().div_ceil(1000);
        i32::try_from(whole).unwrap_or(i32::MAX)
    });
    // SAFETY: the one entry lives through the call, and the count is one.
    let found = unsafe { libc::poll(&raw mut asked, 1, milliseconds) };
    let gone = libc::POLLHUP | libc::POLLERR;
    Ready {
        read: found > 0 && asked.revents & (libc::POLLIN | gone) != 0,
        write: found > 0 && asked.revents & (libc::POLLOUT | gone) != 0,
    }
}
