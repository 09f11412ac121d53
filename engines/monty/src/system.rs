//! The calls to the system that exist in no safe form.
#![expect(
    unsafe_code,
    reason = "a descriptor by its number and a signal that is ignored exist in no safe form"
)]

use std::os::fd::{FromRawFd, OwnedFd};

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
