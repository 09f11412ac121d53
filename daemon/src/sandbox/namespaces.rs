//! Puts the warden, and each worker of it, into namespaces of their own.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::interpreter::NOBODY;
use super::root::{RootPlan, build};
use super::sys::{self, Forked};
use super::without::{Layer, Without};

/// The one user and group inside.
pub(super) const INSIDE: u32 = 1000;
/// The name of the machine inside.
const HOST_NAME: &[u8] = b"sandbox";

/// The warden's namespaces.
const WARDEN_SPACES: [(i32, Layer); 6] = [
    (libc::CLONE_NEWUSER, Layer::WardenUser),
    (libc::CLONE_NEWPID, Layer::WardenPid),
    (libc::CLONE_NEWNS, Layer::WardenMount),
    (libc::CLONE_NEWNET, Layer::WardenNetwork),
    (libc::CLONE_NEWIPC, Layer::WardenIpc),
    (libc::CLONE_NEWUTS, Layer::WardenUts),
];
/// A worker's; the others are its warden's.
const WORKER_SPACES: [(i32, Layer); 4] = [
    (libc::CLONE_NEWUSER, Layer::WorkerUser),
    (libc::CLONE_NEWPID, Layer::WorkerPid),
    (libc::CLONE_NEWNS, Layer::WorkerMount),
    (libc::CLONE_NEWIPC, Layer::WorkerIpc),
];

/// What the warden has of the machine once it is inside.
#[derive(Debug)]
pub(super) struct Inside {
    /// The machine's /proc, through which a worker says who it is inside; nothing else of it is used.
    proc: OwnedFd,
    /// Ends when the process that waits outside does.
    pub(super) leash: OwnedFd,
    /// The root that was built, and cannot be changed.
    root: Option<RootPlan>,
}

/// How [`enter`] came back.
pub(super) enum Entered {
    /// This is the child, inside.
    Inside(Inside),
    /// This is the parent, outside; the child has ended.
    Outside,
}

/// Forks a child into fresh namespaces, and waits outside until it has ended. `release` is called in the parent once
/// the child is on its own: what the two share has to be closed there.
///
/// # Errors
/// In the parent: the child could not be made, and is gone. In the child: it is not where it should be.
pub(super) fn enter(release: impl FnOnce(), without: &Without) -> io::Result<Entered> {
    let root = rustix::process::geteuid().is_root();
    let (user, group) = if root && !without.lacks(Layer::Identity) {
        set_thread_groups(&[])?;
        (NOBODY, NOBODY)
    } else {
        (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        )
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = openat(CWD, "/proc", flags, Mode::empty())?;
    let (leash, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::fork_into(without.keep(&WARDEN_SPACES))? {
        Forked::Parent(pid) => {
            drop(leash);
            let let_go = || -> io::Result<()> {
                if !without.lacks(Layer::WardenUser) {
                    map(&proc, &pid.to_string(), (user, group))?;
                }
                File::from(held.try_clone()?).write_all(&[1])
            };
            if let Err(error) = let_go() {
                sys::kill(pid);
                sys::reap_soon(pid);
                return Err(error);
            }
            release();
            sys::wait_for(pid);
            drop(held);
            Ok(Entered::Outside)
        }
        Forked::Child => {
            drop(held);
            let mut word = [0];
            let reading = leash.try_clone()?;
            File::from(reading).read_exact(&mut word)?;
            if root {
                let (user, group) = (Uid::from_raw(INSIDE), Gid::from_raw(INSIDE));
                set_thread_res_gid(group, group, group)?;
                set_thread_res_uid(user, user, user)?;
            }
            // A change of user makes a process nobody's, and its workers could not say who they are.
            set_dumpable_behavior(DumpableBehavior::Dumpable)?;
            // Any change of user undoes this. Its parent may have died before; the leash tells.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            mount_change(
                "/",
                MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
            )?;
            rustix::system::sethostname(HOST_NAME)?;
            Ok(Entered::Inside(Inside {
                proc,
                leash,
                root: None,
            }))
        }
    }
}

impl Inside {
    /// Makes the root that every worker sees, the first time; it stays for good.
    pub(super) fn build(&mut self, plan: &RootPlan) -> io::Result<()> {
        match &self.root {
            Some(built) if built == plan => Ok(()),
            Some(_) => Err(io::Error::other(
                "its root is built for another interpreter",
            )),
            None => {
                build(plan)?;
                self.root = Some(plan.clone());
                Ok(())
            }
        }
    }

    /// The machine's /proc, for [`settle`].
    pub(super) fn proc(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }
}

/// Forks a worker into namespaces of its own, in which it has to [`settle`].
pub(super) fn fork_worker(without: &Without) -> io::Result<Forked> {
    sys::fork_into(without.keep(&WORKER_SPACES))
}

/// Says who this process, a fresh worker, is inside its own user namespace: who it was before.
pub(super) fn settle(proc: BorrowedFd<'_>, without: &Without) -> io::Result<()> {
    if without.lacks(Layer::WorkerUser) {
        return Ok(());
    }
    map(proc, "self", (INSIDE, INSIDE))
}

/// Makes `outside` (user, group) the one user and group of a process's user namespace.
fn map(proc: impl AsFd, process: &str, outside: (u32, u32)) -> io::Result<()> {
    let write = |name: &str, text: String| -> io::Result<()> {
        let path = format!("{process}/{name}");
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&proc, path, flags, Mode::empty())?;
        // The kernel takes such a file in one piece only.
        File::from(file).write_all(text.as_bytes())
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{INSIDE} {} 1\n", outside.0))?;
    write("gid_map", format!("{INSIDE} {} 1\n", outside.1))
}
