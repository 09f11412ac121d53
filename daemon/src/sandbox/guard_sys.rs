//! What the system knows of a guard's worker and no safe call tells.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Processor time and peak resident memory of the children that have ended and been waited for.
pub(super) fn used_by_children() -> (Duration, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole rusage, which is plain numbers, and is only written to.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
            return (Duration::ZERO, 0);
        }
        usage.assume_init()
    };
    let time = |value: libc::timeval| {
        Duration::from_secs(u64::try_from(value.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(value.tv_usec).unwrap_or(0))
    };
    // macOS counts bytes, others kilobytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    let peak = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    (
        time(usage.ru_utime) + time(usage.ru_stime),
        peak.saturating_mul(unit),
    )
}

/// Memory a process has to itself now, which resource limits do not hold on macOS.
#[cfg(target_os = "macos")]
pub(super) fn footprint(pid: i32) -> Option<u64> {
    let mut usage = MaybeUninit::<libc::rusage_info_v2>::zeroed();
    // SAFETY: the version asked for is that of the structure the pointer is to, which is plain numbers.
    let usage = unsafe {
        let found = libc::proc_pid_rusage(
            pid,
            libc::RUSAGE_INFO_V2,
            usage.as_mut_ptr().cast::<libc::rusage_info_t>(),
        );
        if found != 0 {
            return None;
        }
        usage.assume_init()
    };
    Some(usage.ri_phys_footprint)
}

/// Unknown elsewhere.
#[cfg(not(target_os = "macos"))]
pub(super) fn footprint(_: i32) -> Option<u64> {
    None
}

/// Closes every descriptor from `first` on.
#[cfg(not(target_os = "linux"))]
pub(super) fn close_from(first: i32) {
    const MOST: u64 = 1 << 16;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let end = limit.current.unwrap_or(MOST).min(MOST);
    for descriptor in first..i32::try_from(end).unwrap_or(i32::MAX) {
        // SAFETY: this process has opened nothing yet, so nobody here owns what is closed.
        unsafe { libc::close(descriptor) };
    }
}
