//! Builds the read-only root that workers see in the full tier: the interpreter, its library, and nothing else.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, fstat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
    unmount,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::limits::{Limits, MAX_SCRATCH_ENTRIES};
use super::namespaces::INSIDE;
use super::sys;

/// Where scratch is.
pub(super) const SCRATCH: &str = "/tmp";
/// The made-up lists of users.
pub(super) const USERS: [&str; 2] = ["/etc/passwd", "/etc/group"];
/// Folders that every Linux has, one of which the new root is mounted on until it is the root.
const STEPS: [&str; 4] = ["/tmp", "/run", "/var", "/usr"];

/// What holds for the interpreter and its library.
const READABLE: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY
    .union(MountAttrFlags::MOUNT_ATTR_NOSUID)
    .union(MountAttrFlags::MOUNT_ATTR_NODEV);
/// What holds for everything else.
const BARE: MountAttrFlags = READABLE.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);
/// What holds for a device.
const DEVICE: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY
    .union(MountAttrFlags::MOUNT_ATTR_NOSUID)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// What the root holds beside what every root has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct RootPlan {
    /// Files and folders of the machine, in their places.
    pub(super) show: Vec<PathBuf>,
    /// Folders in these that are to be empty.
    pub(super) hide: Vec<PathBuf>,
    /// Links: where, and what they say.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
}

impl RootPlan {
    /// The form in which it travels to the warden. Paths that are no UTF-8 are left out.
    pub(super) fn to_json(&self) -> Value {
        let texts = |paths: &[PathBuf]| -> Vec<String> {
            paths
                .iter()
                .filter_map(|path| path.to_str().map(str::to_owned))
                .collect()
        };
        let links: Vec<(&str, &str)> = self
            .links
            .iter()
            .filter_map(|(link, target)| Some((link.to_str()?, target.to_str()?)))
            .collect();
        json!({"show": texts(&self.show), "hide": texts(&self.hide), "links": links})
    }
}

/// Builds the root and makes it this process's own.
pub(super) fn build(plan: &RootPlan) -> io::Result<()> {
    // Taken before anything covers them.
    let mut trees = Vec::new();
    for path in &plan.show {
        if path.starts_with(SCRATCH) {
            return Err(named(path, &io::Error::other("scratch would lie over it")));
        }
        match tree(path) {
            Ok(tree) => trees.push((path.as_path(), tree)),
            // What has gone since the look at the interpreter shows nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(named(path, &error)),
        }
    }
    let null = tree(Path::new("/dev/null"))?;
    let step = STEPS
        .into_iter()
        .find(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()))
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    let root = memory(&[("size", "1m"), ("nr_inodes", "4k"), ("mode", "0755")])?;
    attach(&root, step)?;
    std::env::set_current_dir(step)?;
    for (link, target) in &plan.links {
        make_parents(link)?;
        match std::os::unix::fs::symlink(target, inner(link)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(|error| named(link, &error))?,
        }
    }
    fs::create_dir(inner(Path::new(SCRATCH)))?;
    for (path, tree) in &trees {
        sys::set_mount_attributes(tree, READABLE, true)?;
        place(tree, path).map_err(|error| named(path, &error))?;
    }
    // A device works on a mount that is read-only, but not on one without devices.
    sys::set_mount_attributes(&null, DEVICE, true)?;
    place(&null, Path::new("/dev/null"))?;
    for path in &plan.hide {
        if fs::symlink_metadata(inner(path)).is_ok_and(|found| found.is_dir()) {
            // The empty folder that scratch lies on is what shows.
            let empty = tree(inner(Path::new(SCRATCH)))?;
            sys::set_mount_attributes(&empty, BARE, true)?;
            attach(&empty, inner(path))?;
        }
    }
    write_users()?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    sys::set_mount_attributes(&root, BARE, false)
}

/// Mounts a worker's scratch: memory that is gone with the worker.
pub(super) fn mount_scratch(limits: Limits) -> io::Result<()> {
    let options = format!(
        "size={},nr_inodes={},mode=0700",
        limits.scratch_bytes,
        MAX_SCRATCH_ENTRIES + 1
    );
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("scratch", SCRATCH, "tmpfs", flags, options.as_c_str())?;
    Ok(())
}

/// A made-up list of users, without which the library does not know a home folder.
fn write_users() -> io::Result<()> {
    fs::create_dir_all("etc")?;
    let texts = [
        format!("user:x:{INSIDE}:{INSIDE}::{SCRATCH}:/bin/false\n"),
        format!("user:x:{INSIDE}:\n"),
    ];
    for (path, text) in USERS.into_iter().zip(texts) {
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(inner(Path::new(path)))?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// A path below the working directory, which is the new root until it has become the root.
fn inner(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn make_parents(path: &Path) -> io::Result<()> {
    let Some(parent) = inner(path)
        .parent()
        .filter(|parent| *parent != Path::new(""))
    else {
        return Ok(());
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(parent)
        .map_err(|error| named(path, &error))
}

/// Makes an empty file or folder for `tree` and puts it there.
fn place(tree: &OwnedFd, path: &Path) -> io::Result<()> {
    make_parents(path)?;
    let place = inner(path);
    // A folder shown before may have it already.
    if fs::symlink_metadata(place).is_err() {
        let found = fstat(tree)?;
        if FileType::from_raw_mode(found.st_mode).is_dir() {
            fs::create_dir(place)?;
        } else {
            File::create_new(place)?;
        }
    }
    attach(tree, place)
}

/// A detached copy of the mount that `path` lies on, from there on.
fn tree(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    Ok(open_tree(CWD, path, flags)?)
}

/// A file system in memory.
fn memory(options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )?)
}

fn attach(mount: &OwnedFd, at: impl AsRef<Path>) -> io::Result<()> {
    Ok(move_mount(
        mount,
        "",
        CWD,
        at.as_ref(),
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_way_to_the_warden() {
        let plan = RootPlan {
            show: vec!["/a b".into()],
            hide: vec!["/c\n".into()],
            links: vec![("/lib".into(), "usr/lib".into())],
        };
        let text = plan.to_json().to_string();
        assert_eq!(serde_json::from_str::<RootPlan>(&text).unwrap(), plan);
    }
}
