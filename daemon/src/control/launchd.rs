//! Takes the listening socket that launchd holds for the daemon.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;

/// The key under `Sockets` in `launchd/ptcd.plist`.
const NAME: &CStr = c"Listeners";

unsafe extern "C" {
    /// `launch.h`: fills in an array of descriptors that the caller frees; answers an errno.
    fn launch_activate_socket(
        name: *const c_char,
        fds: *mut *mut c_int,
        count: *mut usize,
    ) -> c_int;
}

/// The socket; `None` where launchd did not start this process, or holds no socket for it.
pub(crate) fn listener() -> io::Result<Option<UnixListener>> {
    let mut fds: *mut c_int = std::ptr::null_mut();
    let mut count = 0_usize;
    // SAFETY: the name ends in NUL, and both places are this function's own for the call's time.
    let answer = unsafe { launch_activate_socket(NAME.as_ptr(), &raw mut fds, &raw mut count) };
    match answer {
        0 => {}
        libc::ESRCH | libc::ENOENT => return Ok(None),
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    if fds.is_null() {
        return Ok(None);
    }
    // SAFETY: launchd says that so many descriptors stand there; they are read before they are freed.
    let all = unsafe { std::slice::from_raw_parts(fds, count) }.to_vec();
    // SAFETY: the array came from malloc, as launch.h says, and nothing refers to it any more.
    unsafe { libc::free(fds.cast()) };
    let owned = all.into_iter().map(|fd| {
        // SAFETY: each descriptor was made for this process by the call above and has no other owner.
        unsafe { OwnedFd::from_raw_fd(fd) }
    });
    let Some(fd) = owned.collect::<Vec<_>>().into_iter().next() else {
        return Ok(None);
    };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(Some(UnixListener::from(fd)))
}
