//! Turns a fresh child of the warden into a confined interpreter, step by step, each of which may end it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::forks::{self, Setup};
use super::limits::Limits;
use super::seccomp::Filters;
use super::step::Step;
use super::sys::{self, HiddenExec};
use super::wire::Plan;
use super::without::{Layer, Without};
use super::{canary, landlock, namespaces, root};
use rustix::process::{Pid, Signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// Where the report of a failure goes until the interpreter starts.
const REPORT: i32 = 4;

/// What a worker is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making<'a> {
    pub(super) plan: &'a Plan,
    /// What it lacks; nothing but in tests.
    pub(super) without: &'a Without,
    /// The filters of the plan's tier; `None` for no confinement.
    pub(super) filters: Option<&'a Filters>,
    pub(super) limits: Limits,
    pub(super) scratch: &'a Path,
    /// Channel, stdout, stderr.
    pub(super) ends: &'a [OwnedFd],
    /// Tasks the worker's user has already.
    pub(super) tasks: u64,
    /// The user to become.
    pub(super) become_user: Option<u32>,
    /// The parent this process must have.
    pub(super) warden: Pid,
    /// The machine's /proc, where the worker is in namespaces of its own.
    pub(super) inside: Option<BorrowedFd<'a>>,
    /// What makes it a fork server in place of a worker. It stays in the warden's namespaces, and its children get
    /// their own.
    pub(super) server: Option<&'a Setup>,
}

/// Runs in the child and never returns: it becomes the interpreter, or says where it failed and ends.
pub(super) fn run(making: &Making<'_>, report: &OwnedFd) -> ! {
    let (step, error) = prepare(making, report.as_fd());
    let detail = format!("{}\n{error}", step.as_str());
    // The report is descriptor 4 once descriptors are placed, and where it was before.
    let placed = !matches!(
        step,
        Step::Namespaces | Step::Scratch | Step::Session | Step::Descriptors
    );
    let to = if placed { REPORT } else { report.as_raw_fd() };
    // Where not even this can be said, the warden sees an interpreter that ended at once.
    sys::write_to(to, detail.as_bytes());
    sys::leave(70);
}

fn prepare(making: &Making<'_>, report: BorrowedFd<'_>) -> (Step, io::Error) {
    let confined = making.filters.is_some();
    let has = |layer| !making.without.lacks(layer);
    let mut step = Step::Namespaces;
    let mut go = || -> io::Result<()> {
        if let Some(proc) = making.inside.filter(|_| making.server.is_none()) {
            namespaces::settle(proc, making.without)?;
            step = Step::Scratch;
            root::mount_scratch(making.limits)?;
        }
        step = Step::Session;
        sys::reset_signals();
        rustix::process::setsid()?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        std::env::set_current_dir(making.scratch)?;
        step = Step::Descriptors;
        place_descriptors(making.ends, report)?;
        if !has(Layer::Descriptors) {
            leave_descriptors_open()?;
        }
        step = Step::Limits;
        if !has(Layer::Limits) {
            // A test looks at what happens then.
        } else if making.server.is_some() {
            making.limits.apply_to_server()?;
        } else {
            making.limits.apply(making.tasks)?;
        }
        give_up_rights(making, &mut step)?;
        if confined {
            step = Step::Landlock;
            // A process that Landlock holds mounts nothing, and a fork server's children mount their scratch.
            let mounts = making.server.is_some() && making.inside.is_some();
            if making.plan.landlock && !mounts {
                landlock::restrict(&making.plan.reach, making.scratch)?;
            }
            step = Step::Memory;
            // Kernels before 6.3 do not know it; the filters refuse the same, call by call.
            match has(Layer::Memory).then(sys::deny_new_code).transpose() {
                Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
                _ => {}
            }
        }
        step = Step::Exec;
        let variables = if has(Layer::Environment) {
            &[][..]
        } else {
            &[c"LEFT=1"]
        };
        let exec = interpreter(making, variables)?;
        if let Some(filters) = making.filters.filter(|_| has(Layer::Seccomp)) {
            step = Step::Seccomp;
            filters.install(exec.addresses())?;
        }
        step = Step::Exec;
        Err(exec.run())
    };
    match go() {
        Ok(()) => (step, io::Error::from_raw_os_error(libc::ECANCELED)),
        Err(error) => (step, error),
    }
}

/// What a process gives up for good, but for files and calls.
fn give_up_rights(making: &Making<'_>, step: &mut Step) -> io::Result<()> {
    let has = |layer| !making.without.lacks(layer);
    *step = Step::NoNewPrivileges;
    if has(Layer::NoNewPrivileges) {
        set_no_new_privs(true)?;
    }
    *step = Step::BoundingSet;
    let may_narrow = making.become_user.is_some() || making.inside.is_some();
    if may_narrow && has(Layer::BoundingSet) {
        drop_bounding_set()?;
    }
    *step = Step::Identity;
    if let Some(id) = making.become_user.filter(|_| has(Layer::Identity)) {
        become_user(id)?;
    }
    *step = Step::Capabilities;
    if has(Layer::Capabilities) {
        drop_capabilities()?;
    }
    *step = Step::ParentDeath;
    if !has(Layer::ParentDeath) {
        // A test looks at what happens then.
    } else if making.inside.is_some() && making.server.is_none() {
        // Its parent has no number here; the kernel ends it with the first process of the warden's namespace.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    } else {
        follow_parent(making.warden)?;
    }
    Ok(())
}

/// 0 reads nothing, 1 and 2 are the pipes, 3 the channel, 4 the report, which closes when the interpreter starts.
fn place_descriptors(ends: &[OwnedFd], report: BorrowedFd<'_>) -> io::Result<()> {
    let [channel, stdout, stderr] = ends else {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    };
    // Copies above the places, so that placing one does not close another.
    let null = File::open("/dev/null")?;
    let above = |descriptor: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(descriptor, 16);
    let copies = [
        above(null.as_fd())?,
        above(stdout.as_fd())?,
        above(stderr.as_fd())?,
        above(channel.as_fd())?,
        above(report)?,
    ];
    for (number, copy) in (0..).zip(&copies) {
        sys::place(copy.as_fd(), number, number == REPORT)?;
    }
    sys::close_from(REPORT.unsigned_abs() + 1)?;
    // What they owned is closed already.
    std::mem::forget(copies);
    std::mem::forget(null);
    Ok(())
}

/// For tests: one more descriptor than the four stays with the interpreter.
fn leave_descriptors_open() -> io::Result<()> {
    std::mem::forget(rustix::io::dup(io::stdin())?);
    std::mem::forget(rustix::io::dup(io::stdin())?);
    Ok(())
}

fn drop_bounding_set() -> io::Result<()> {
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(capability) {
            // The kernel knows no capability of this number.
            Err(rustix::io::Errno::INVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

fn become_user(id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    if rustix::process::geteuid().is_root() || rustix::process::getuid().is_root() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    Ok(())
}

fn drop_capabilities() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}

/// Has the kernel see to it that a warden ends after ptcd, also where somebody stopped it: who waits outside has nothing
/// to clear up, and the warden inside goes with it; any other has to wake up and find its socket closed.
pub(super) fn follow_ptcd(outside: bool) -> io::Result<()> {
    let at_death = if outside { Signal::KILL } else { Signal::CONT };
    Ok(rustix::process::set_parent_process_death_signal(Some(
        at_death,
    ))?)
}

/// Makes this process end with `warden`, its parent. To be called after any change of user, which would undo it.
pub(super) fn follow_parent(warden: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before that sends nothing any more.
    if rustix::process::getppid() == Some(warden) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

fn interpreter(making: &Making<'_>, variables: &[&CStr]) -> io::Result<HiddenExec> {
    let plan = making.plan;
    let path = CString::new(plan.python.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let mut arguments = vec![path.clone()];
    let options: &[&str] = if plan.is_python {
        &["-I", "-S", "-B", "-X", "utf8", "-c"]
    } else {
        &[]
    };
    let texts = match making.server {
        Some(setup) => vec![forks::TEXT, &plan.boot, canary::TEXT, &setup.text],
        None if plan.boot.is_empty() && !plan.is_python => Vec::new(),
        None => vec![&*plan.boot],
    };
    for text in options.iter().copied().chain(texts) {
        arguments.push(CString::new(text).map_err(io::Error::other)?);
    }
    let variables = variables.iter().copied().map(CStr::to_owned).collect();
    HiddenExec::new(&path, arguments, variables)
}

/// Reads what a failed worker left: its step and the reason.
pub(super) fn read_failure(text: &str) -> Option<(Step, String)> {
    let (name, detail) = text.split_once('\n')?;
    let step = serde_json::from_value(serde_json::Value::from(name)).ok()?;
    Some((step, detail.to_owned()))
}

/// Writes `bytes` into a nameless file that is read from its start by whoever gets it.
pub(super) fn nameless_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let descriptor = rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(descriptor);
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(OwnedFd::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_step() {
        assert_eq!(
            read_failure("landlock\nOperation not supported (os error 95)"),
            Some((
                Step::Landlock,
                "Operation not supported (os error 95)".to_owned()
            ))
        );
        assert_eq!(read_failure("elsewhere\nx"), None);
    }
}
