//! The daemon's socket: its folder, its modes, the lock that says whose it is.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// Connections the kernel holds for us while we are busy.
const BACKLOG: i32 = 128;

/// How often the lock is tried before it counts as another daemon's, and the pause in between.
const LOCK_LOOKS: u32 = 3;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Why the socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A folder is not safe to use.
    #[error("{path} {fault}; ptcd uses only folders that belong to its user and to nobody else")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// Something that is no socket stands at the socket's path.
    #[error("{path} is {what}, not a socket; nothing was removed")]
    Occupied {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Another program answers at the path.
    #[error(
        "something answers at {path} that does not hold this daemon's lock; nothing was removed"
    )]
    Answers {
        /// The path.
        path: PathBuf,
    },
    /// What the service manager handed over has no place in the file system.
    #[error("the socket that the service manager handed over has no path")]
    Unnamed,
    /// The system refused.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

fn io_error<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> SocketError + 'a {
    move |source| SocketError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Makes a folder of mode 0700, or checks that the one there is ours alone.
pub fn private_folder(path: &Path) -> Result<(), SocketError> {
    let fault = |fault| SocketError::Folder {
        path: path.to_owned(),
        fault,
    };
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error("cannot make", path)(error)),
    }
    let found = path
        .symlink_metadata()
        .map_err(io_error("cannot look at", path))?;
    if found.file_type().is_symlink() {
        return Err(fault("is a symbolic link"));
    }
    if !found.is_dir() {
        return Err(fault("is not a folder"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(fault("belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        // It is ours: closing it to others takes nothing away that was ours to give.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
            .map_err(io_error("cannot close", path))?;
    }
    Ok(())
}

/// The lock of one configuration's daemon, held as long as this lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; `None` when another daemon holds it.
    pub fn take(path: &Path) -> Result<Option<Self>, SocketError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(io_error("cannot open", path))?;
        for look in 0..LOCK_LOOKS {
            if look > 0 {
                // A client that looks whether a daemon lives has the lock for a moment.
                std::thread::sleep(LOCK_PAUSE);
            }
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _file: file })),
                Err(std::fs::TryLockError::WouldBlock) => {}
                Err(std::fs::TryLockError::Error(error)) => {
                    return Err(io_error("cannot lock", path)(error));
                }
            }
        }
        Ok(None)
    }
}

/// A bound socket that is removed again, if it is still the same file.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Socket {
    /// Binds the socket with mode 0600. Only the holder of the lock may call
    /// this: it removes a stale socket, but only after nobody answered on it.
    pub fn bind(path: &Path, _lock: &Lock) -> Result<(UnixListener, Self), SocketError> {
        if let Some(folder) = path.parent() {
            private_folder(folder)?;
        }
        remove_stale(path)?;
        let error = |action| move |error: rustix::io::Errno| io_error(action, path)(error.into());
        let address = SocketAddrUnix::new(path).map_err(error("cannot name"))?;
        // Not every system sets both in one call; nothing is started before ptcd has its socket.
        let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)
            .map_err(error("cannot make"))?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).map_err(error("cannot set"))?;
        rustix::io::ioctl_fionbio(&fd, true).map_err(error("cannot set"))?;
        rustix::net::bind(&fd, &address).map_err(error("cannot bind"))?;
        // Before anyone can connect: the mode counts from the first connection on.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(io_error("cannot close", path))?;
        rustix::net::listen(&fd, BACKLOG).map_err(error("cannot listen on"))?;
        let found = path
            .symlink_metadata()
            .map_err(io_error("cannot look at", path))?;
        let socket = Self {
            path: path.to_owned(),
            identity: Some((found.dev(), found.ino())),
        };
        Ok((UnixListener::from(fd), socket))
    }
}

impl Socket {
    /// Whether the path still leads to this socket.
    pub fn is_in_place(&self) -> bool {
        self.path
            .symlink_metadata()
            .is_ok_and(|found| Some((found.dev(), found.ino())) == self.identity)
    }

    /// Leaves alone whatever stands at the path from now on.
    pub fn forget(&mut self) {
        self.identity = None;
    }
}

/// Takes over a socket that the service manager has bound and goes on holding: says where it
/// lies, and closes its folder and itself to others. It is never removed.
pub fn adopt(listener: &UnixListener) -> Result<PathBuf, SocketError> {
    let address = listener.local_addr().ok();
    let Some(path) = address.and_then(|address| address.as_pathname().map(Path::to_owned)) else {
        return Err(SocketError::Unnamed);
    };
    if let Some(folder) = path.parent() {
        private_folder(folder)?;
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .map_err(io_error("cannot close", &path))?;
    listener
        .set_nonblocking(true)
        .map_err(io_error("cannot set", &path))?;
    Ok(path)
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_in_place() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), SocketError> {
    use std::os::unix::fs::FileTypeExt as _;
    let found = match path.symlink_metadata() {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("cannot look at", path)(error)),
    };
    let occupied = |what| {
        Err(SocketError::Occupied {
            path: path.to_owned(),
            what,
        })
    };
    if found.is_symlink() {
        return occupied("a symbolic link");
    }
    if found.is_dir() {
        return occupied("a folder");
    }
    if !found.is_socket() {
        return occupied("a file");
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::Answers {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(io_error("cannot remove the stale", path))
        }
        Err(error) => Err(io_error("cannot try", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("run");
        private_folder(&path).unwrap();
        (temp, path)
    }

    #[test]
    fn the_socket_is_ours_alone_and_goes_with_its_owner() {
        let (temp, run) = folder();
        assert_eq!(run.metadata().unwrap().mode() & 0o777, 0o700);
        let lock = Lock::take(&temp.path().join("lock")).unwrap().unwrap();
        let path = run.join("s");
        let (listener, socket) = Socket::bind(&path, &lock).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        drop((listener, socket));
        assert!(!path.exists());
    }

    #[test]
    fn only_one_holds_the_lock() {
        let (temp, _run) = folder();
        let path = temp.path().join("lock");
        let held = Lock::take(&path).unwrap();
        assert!(held.is_some());
        assert!(Lock::take(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::take(&path).unwrap().is_some());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let (temp, run) = folder();
        let lock = Lock::take(&temp.path().join("lock")).unwrap().unwrap();
        let path = run.join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, _socket) = Socket::bind(&path, &lock).unwrap();
        assert!(matches!(
            Socket::bind(&path, &lock),
            Err(SocketError::Answers { .. })
        ));
    }

    #[test]
    fn nothing_that_is_no_socket_is_removed() {
        let (temp, run) = folder();
        let lock = Lock::take(&temp.path().join("lock")).unwrap().unwrap();
        let precious = run.join("precious");
        std::fs::write(&precious, "x").unwrap();
        let link = run.join("link");
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        let sub = run.join("sub");
        std::fs::create_dir(&sub).unwrap();
        for path in [&precious, &link, &sub] {
            assert!(matches!(
                Socket::bind(path, &lock),
                Err(SocketError::Occupied { .. })
            ));
        }
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "x");
    }

    #[test]
    fn a_folder_behind_a_link_is_refused_and_an_open_one_is_closed() {
        let temp = tempfile::tempdir().unwrap();
        let open = temp.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        private_folder(&open).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o700);
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(matches!(
            private_folder(&link),
            Err(SocketError::Folder { .. })
        ));
    }

    #[test]
    fn an_adopted_socket_is_closed_to_others_and_one_without_a_path_refused() {
        let (_temp, run) = folder();
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = run.join("s");
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(adopt(&listener).unwrap(), path);
        assert_eq!(run.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        drop(listener);
        assert!(path.exists());
        let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::listen(&fd, 1).unwrap_or_default();
        assert!(matches!(
            adopt(&UnixListener::from(fd)),
            Err(SocketError::Unnamed)
        ));
    }

    #[test]
    fn the_socket_of_a_successor_is_left_alone() {
        let (temp, run) = folder();
        let lock = Lock::take(&temp.path().join("lock")).unwrap().unwrap();
        let path = run.join("s");
        let (_first, socket) = Socket::bind(&path, &lock).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        drop(socket);
        assert!(path.exists());
    }
}
