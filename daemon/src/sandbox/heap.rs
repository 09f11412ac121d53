//! Keeps the allocator from holding on to memory that was freed.

/// From this size on an allocation has pages of its own, which go back to the system when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const OWN_PAGES: libc::c_int = 256 * 1024;

/// Has the memory of large answers go back to the system as soon as it is freed. For the whole process, at its start.
///
/// glibc raises the size above which it does so by itself to that of the largest allocation that
/// was freed, up to 32 MiB, and keeps what is below in an arena for each thread: after some results
/// of 8 MB a daemon would hold 100 MB for ever. A size that is set is not raised.
pub fn give_large_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes two numbers and changes a setting of the allocator, under its own lock.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES) };
}
