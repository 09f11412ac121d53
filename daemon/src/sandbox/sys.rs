//! The system calls neither the standard library nor rustix offers, behind safe functions.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use seccompiler::BpfProgram;

/// What `fork` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forked {
    /// This is the child.
    Child,
    /// This is the parent; the child has this pid.
    Parent(i32),
}

/// Forks a process that has no other threads.
pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: the warden is the only caller and never starts a thread, so the child is a whole copy in which
    // allocating is as fine as in the parent.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Forks, the child in fresh namespaces of these kinds.
pub(super) fn fork_into(spaces: i32) -> io::Result<Forked> {
    let flags = i64::from(spaces | libc::SIGCHLD);
    // SAFETY: without a stack of its own and without CLONE_VM the child goes on in a copy of this memory, as after
    // `fork`; the caller has one thread, as above.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0_i64, 0_i64, 0_i64, 0_i64) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(
            i32::try_from(pid).map_err(io::Error::other)?,
        )),
    }
}

/// Sets attributes on a mount, and with `below` on all that are below it.
pub(super) fn set_mount_attributes(
    mount: &impl AsRawFd,
    attributes: rustix::mount::MountAttrFlags,
    below: bool,
) -> io::Result<()> {
    /// The kernel's `struct mount_attr`.
    #[repr(C)]
    struct Wanted {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let wanted = Wanted {
        set: u64::from(attributes.bits()),
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    let recursive = if below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, and the pointer is to a live local of the size that is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const wanted,
            size_of::<Wanted>(),
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Waits until the child `pid` has ended, and reaps it.
pub(super) fn wait_for(pid: i32) {
    let mut status = 0;
    // SAFETY: the pointer is to a live local of the type the call fills.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Leaves at once, without handlers or destructors.
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: `_exit` takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// How a child ended and what it used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reaped {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) cpu: Duration,
    pub(super) peak_memory_bytes: u64,
}

/// Reaps `pid` if it has ended.
pub(super) fn reap(pid: i32) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: `rusage` is plain data for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the types the call fills.
    let found = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    if found == 0 {
        return Ok(None);
    }
    if found < 0 {
        return Err(io::Error::last_os_error());
    }
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec.unsigned_abs())
            + Duration::from_micros(value.tv_usec.unsigned_abs())
    };
    Ok(Some(Reaped {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        peak_memory_bytes: usage.ru_maxrss.unsigned_abs().saturating_mul(1024),
    }))
}

/// Reaps a child that has just been killed.
pub(super) fn reap_soon(pid: i32) {
    for _ in 0..100 {
        match reap(pid) {
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

/// Processor time that all threads of the process `pid` have used so far, those that have ended too.
pub(super) fn processor_time(pid: i32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: the pointer is to a live local of the type the call fills.
    let code = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    // SAFETY: `timespec` is plain data for which all zeros is a value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local of the type the call fills.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_nanos(time.tv_nsec.unsigned_abs()))
}

/// Makes `number` a copy of `descriptor`, without close-on-exec.
pub(super) fn place(
    descriptor: BorrowedFd<'_>,
    number: i32,
    close_on_exec: bool,
) -> io::Result<()> {
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: takes two numbers and flags; what `number` was before is closed, which is the caller's wish.
    let done = unsafe { libc::dup3(descriptor.as_raw_fd(), number, flags) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Writes to a descriptor known by its number only, as far as that goes.
pub(super) fn write_to(number: i32, bytes: &[u8]) {
    // SAFETY: the pointer is to `len` readable bytes; a number that is no open descriptor is an error.
    unsafe { libc::write(number, bytes.as_ptr().cast(), bytes.len()) };
}

/// Closes every descriptor from `first` on.
pub(super) fn close_from(first: u32) -> io::Result<()> {
    close_between(first, u32::MAX)
}

/// Closes every descriptor from `first` to `last`.
pub(super) fn close_between(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: takes three numbers. Owners of closed descriptors are never dropped: the caller is about to
    // exec, has just started, or leaves without destructors.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Lets every signal do what it does by default and blocks none.
pub(super) fn reset_signals() {
    // SAFETY: `sigset_t` is filled before use and every pointer is to a live local; a signal that cannot be
    // changed (KILL, STOP) answers an error, which changes nothing.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Ignores the signals by which terminals and service managers ask for an end.
pub(super) fn ignore_requests_to_end() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Refuses, for good, memory that becomes executable. Older kernels do not know it.
pub(super) fn deny_new_code() -> io::Result<()> {
    const PR_SET_MDWE: i32 = 65;
    const REFUSE_EXEC_GAIN: u64 = 1;
    // SAFETY: a `prctl` of numbers only.
    let done = unsafe { libc::prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0_u64, 0_u64, 0_u64) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The version of Landlock's interface that the running kernel offers.
pub(super) fn landlock_abi() -> io::Result<i32> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no attributes and returns a number.
    let found = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    if found < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(found).map_err(io::Error::other)
}

/// Whether the kernel offers seccomp filters.
pub(super) fn has_seccomp_filters() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the operation reads one u32, which lives here.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    done == 0
}

/// Installs one filter on this process, which has one thread.
pub(super) fn install_filter(program: &BpfProgram) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: the pointer is to `length` instructions of seccompiler's type, whose layout is the kernel's
    // (`repr(C)`, the same four fields); the kernel copies them and writes nothing.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const filter,
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The arguments of one `execve`, each in pages at an address of its own that nobody can guess.
#[derive(Debug)]
pub(super) struct HiddenExec {
    path: u64,
    argv: u64,
    envp: u64,
    /// What the pages point to.
    _strings: Vec<CString>,
}

impl HiddenExec {
    /// Lays out `program` with `arguments` (the first is the name it sees) and `variables`.
    pub(super) fn new(
        program: &CStr,
        arguments: Vec<CString>,
        variables: Vec<CString>,
    ) -> io::Result<Self> {
        let pointers = |texts: &[CString]| -> Vec<u8> {
            let each = texts.iter().map(|text| text.as_ptr().addr() as u64);
            each.chain([0]).flat_map(u64::to_ne_bytes).collect()
        };
        Ok(Self {
            path: hide(program.to_bytes_with_nul())?,
            argv: hide(&pointers(&arguments))?,
            envp: hide(&pointers(&variables))?,
            _strings: arguments.into_iter().chain(variables).collect(),
        })
    }

    /// Where they lie.
    pub(super) fn addresses(&self) -> super::seccomp::ExecAddresses {
        super::seccomp::ExecAddresses {
            path: self.path,
            argv: self.argv,
            envp: self.envp,
        }
    }

    /// Becomes the program; returns only when that failed.
    pub(super) fn run(&self) -> io::Error {
        // SAFETY: the three addresses are of live mappings that hold a C string and two arrays of pointers that
        // end with null, whose strings `self` owns.
        unsafe { libc::syscall(libc::SYS_execve, self.path, self.argv, self.envp) };
        io::Error::last_os_error()
    }
}

/// Copies `bytes` into fresh pages at a random address.
fn hide(bytes: &[u8]) -> io::Result<u64> {
    // User space ends at 2^47 on x86_64 and, in the smallest usual set-up, at 2^39 on aarch64.
    let top: u64 = if cfg!(target_arch = "x86_64") {
        1 << 46
    } else {
        1 << 38
    };
    for _ in 0..64 {
        let random = getrandom::u64().map_err(io::Error::other)?;
        let address = (random % top) & !0xfff_u64;
        if address < 1 << 32 {
            continue;
        }
        // A start anywhere in the page makes the low bits unknown too.
        let inset = usize::try_from(random >> 56).unwrap_or_default() * 8;
        // SAFETY: a fresh private mapping that may not replace an existing one; an address that cannot be had
        // is an error and the next is tried.
        let page = unsafe {
            libc::mmap(
                std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or_default()),
                bytes.len() + inset,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            continue;
        }
        // SAFETY: the mapping is at least `inset + bytes.len()` long, writable, and nobody else's.
        unsafe {
            let start = page.cast::<u8>().add(inset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
            return Ok(start.expose_provenance() as u64);
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Ends the process group `group`; that it is gone already is fine.
pub(super) fn kill_group(group: i32) {
    // SAFETY: takes two numbers.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Ends the child `pid`, which has not been reaped.
pub(super) fn kill(pid: i32) {
    // SAFETY: takes two numbers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Whether `descriptor` is a socket that keeps message boundaries.
pub(super) fn is_packet_socket(descriptor: impl AsFd) -> bool {
    rustix::net::sockopt::socket_type(descriptor)
        .is_ok_and(|kind| kind == rustix::net::SocketType::SEQPACKET)
}

/// Locks `file` for reading; the lock goes with the last descriptor of this opening, in whatever process.
pub(super) fn lock_for_reading(file: impl AsFd) -> io::Result<()> {
    open_file_lock(file, libc::F_OFD_SETLK, libc::F_RDLCK).map(drop)
}

/// Whether another opening of `file` is locked for reading. Nothing is locked by asking.
pub(super) fn is_locked_for_reading(file: impl AsFd) -> io::Result<bool> {
    let found = open_file_lock(file, libc::F_OFD_GETLK, libc::F_WRLCK)?;
    Ok(i32::from(found) != libc::F_UNLCK)
}

/// Sets or asks for a lock of the kind `kind` on the first byte: gives the kind the kernel answers.
fn open_file_lock(file: impl AsFd, command: i32, kind: i32) -> io::Result<i16> {
    let kind = i16::try_from(kind).map_err(io::Error::other)?;
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind;
    lock.l_len = 1;
    // SAFETY: the descriptor is open and the structure outlives the call.
    let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(lock.l_type)
    }
}
