//! Dials the daemon's socket, after making sure that it is the user's own.

use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use ptc_protocol::paths::Places;
use ptc_protocol::status::DaemonFile;
use ptc_protocol::{MAX_HANDSHAKE_BYTES, UPGRADE_TOKEN, route};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::timeout;

use crate::lines::LineReader;

/// How long one dial, and one request on it, may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer to a `GET` or `POST`, in bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// Longest `daemon.json`, in bytes.
const MAX_DAEMON_FILE_BYTES: u64 = 64 * 1024;

/// Why the daemon could not be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens on the socket.
    #[error("nothing listens on {socket}")]
    NotListening {
        /// The socket's path.
        socket: PathBuf,
    },
    /// The socket lies in a folder that others could have prepared.
    #[error(
        "the socket's folder {folder} is not safe: {fault}; it must be a folder of yours with mode 0700"
    )]
    UnsafeFolder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The process at the other end belongs to someone else.
    #[error("the process listening on {socket} belongs to user {uid}, not to you")]
    OtherUser {
        /// The socket's path.
        socket: PathBuf,
        /// The process's user.
        uid: u32,
    },
    /// The system refused.
    #[error("cannot connect to {socket}: {source}")]
    Io {
        /// The socket's path.
        socket: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It listens, and so many wait for it already that the system takes no more.
    #[error(
        "the daemon on {socket} takes no connections: as many as the system allows are waiting already, so it is stopped or hangs"
    )]
    Crowded {
        /// The socket's path.
        socket: PathBuf,
    },
    /// It listens and does not answer.
    #[error("the daemon on {socket} did not answer within {seconds} s")]
    Silent {
        /// The socket's path.
        socket: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// What answers is not HTTP as the daemon speaks it.
    #[error("what listens on {socket} does not answer as ptcd: {source}")]
    Http {
        /// The socket's path.
        socket: PathBuf,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The daemon answered with a failure.
    #[error("the daemon answered {status}: {body}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The answer's text.
        body: String,
    },
}

impl ConnectError {
    /// Whether there is no daemon, as opposed to one that cannot be used.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::NotListening { .. })
    }

    /// Whether it stays like this until someone acts.
    pub fn is_permanent(&self) -> bool {
        // A part of the path is no folder, or one that this user may not enter.
        let unreachable = |source: &io::Error| {
            matches!(
                source.kind(),
                io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
            )
        };
        matches!(self, Self::UnsafeFolder { .. } | Self::OtherUser { .. })
            || matches!(self, Self::Io { source, .. } if unreachable(source))
    }
}

/// A fresh connection to the daemon, good for one request.
#[derive(Debug)]
pub struct Peer {
    socket: PathBuf,
    pid: Option<u32>,
    stream: UnixStream,
}

/// An upgraded connection: from here on lines go both ways.
#[derive(Debug)]
pub struct Stream {
    /// The daemon's lines, at first bounded by [`MAX_HANDSHAKE_BYTES`].
    pub lines: LineReader,
    /// Where the client's lines go.
    pub writer: OwnedWriteHalf,
}

/// Connects to the daemon of these places: where `daemon.json` says, then at the computed path.
pub async fn connect(places: &Places) -> Result<Peer, ConnectError> {
    if !places.socket_named
        && let Some((_, socket)) = recorded(places)
        && socket != places.socket
    {
        match dial(&socket).await {
            // A record left from another login may name a place that is no longer the user's.
            Err(
                ConnectError::NotListening { .. }
                | ConnectError::UnsafeFolder { .. }
                | ConnectError::OtherUser { .. },
            ) => {}
            other => return other,
        }
    }
    dial(&places.socket).await
}

/// What `daemon.json` says of the daemon, if the file is nobody else's.
pub(crate) fn daemon_file(places: &Places) -> Option<DaemonFile> {
    let text = own_file(&places.daemon_file(), MAX_DAEMON_FILE_BYTES)?;
    serde_json::from_str(&text).ok()
}

/// The process id and the socket that `daemon.json` names.
pub(crate) fn recorded(places: &Places) -> Option<(u32, PathBuf)> {
    let daemon = daemon_file(places)?;
    let socket = Some(PathBuf::from(daemon.socket)).filter(|path| path.is_absolute());
    Some((daemon.pid, socket?))
}

/// The text of a regular file that is ours alone and not too large.
pub(crate) fn own_file(path: &Path, limit: u64) -> Option<String> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(no_follow.bits().cast_signed())
        .open(path)
        .ok()?;
    let about = file.metadata().ok()?;
    let ours = about.is_file() && about.uid() == own_uid() && !open_to_others(&about);
    if !ours || about.len() > limit {
        return None;
    }
    io::read_to_string(io::Read::take(file, limit)).ok()
}

/// Connects to one socket.
pub async fn dial(socket: &Path) -> Result<Peer, ConnectError> {
    check_folder(socket)?;
    let owned = || socket.to_owned();
    let stream = within(socket, REQUEST_TIMEOUT, UnixStream::connect(socket)).await?;
    let stream = stream.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ConnectError::NotListening { socket: owned() }
        }
        io::ErrorKind::WouldBlock => ConnectError::Crowded { socket: owned() },
        _ => ConnectError::Io {
            socket: owned(),
            source,
        },
    })?;
    let peer = stream.peer_cred().map_err(|source| ConnectError::Io {
        socket: owned(),
        source,
    })?;
    if peer.uid() != own_uid() {
        return Err(ConnectError::OtherUser {
            socket: owned(),
            uid: peer.uid(),
        });
    }
    Ok(Peer {
        socket: owned(),
        pid: peer.pid().and_then(|pid| u32::try_from(pid).ok()),
        stream,
    })
}

fn check_folder(socket: &Path) -> Result<(), ConnectError> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let fault = match std::fs::symlink_metadata(folder) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Err(ConnectError::NotListening {
                socket: socket.to_owned(),
            });
        }
        Err(source) => {
            return Err(ConnectError::Io {
                socket: socket.to_owned(),
                source,
            });
        }
        Ok(about) if about.is_symlink() => "it is a symbolic link",
        Ok(about) if !about.is_dir() => "it is not a folder",
        Ok(about) if about.uid() != own_uid() => "it belongs to someone else",
        Ok(about) if open_to_others(&about) => "others may enter it",
        Ok(_) => return Ok(()),
    };
    Err(ConnectError::UnsafeFolder {
        folder: folder.to_owned(),
        fault,
    })
}

pub(crate) fn open_to_others(about: &std::fs::Metadata) -> bool {
    about.mode() & 0o077 != 0
}

pub(crate) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

async fn within<T>(
    socket: &Path,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, ConnectError> {
    timeout(limit, work)
        .await
        .map_err(|_| ConnectError::Silent {
            socket: socket.to_owned(),
            seconds: limit.as_secs(),
        })
}

impl Peer {
    /// The socket that was reached.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process that listens, where the system tells; 0 is one that is not to be seen from here.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// `GET`, the answer read as JSON.
    pub async fn get<T: DeserializeOwned>(self, path: &str) -> Result<T, ConnectError> {
        self.request(Method::GET, path, REQUEST_TIMEOUT).await
    }

    /// The same for what takes longer than [`REQUEST_TIMEOUT`].
    pub async fn get_within<T: DeserializeOwned>(
        self,
        path: &str,
        limit: Duration,
    ) -> Result<T, ConnectError> {
        self.request(Method::GET, path, limit).await
    }

    /// `POST` without a body, the answer read as JSON.
    pub async fn post<T: DeserializeOwned>(self, path: &str) -> Result<T, ConnectError> {
        self.request(Method::POST, path, REQUEST_TIMEOUT).await
    }

    /// The same for what takes longer than [`REQUEST_TIMEOUT`].
    pub async fn post_within<T: DeserializeOwned>(
        self,
        path: &str,
        limit: Duration,
    ) -> Result<T, ConnectError> {
        self.request(Method::POST, path, limit).await
    }

    /// `POST` with a text as its body, the answer read as JSON; it may take as long as `limit`.
    pub async fn post_text<T: DeserializeOwned>(
        self,
        path: &str,
        text: String,
        limit: Duration,
    ) -> Result<T, ConnectError> {
        self.exchange(Method::POST, path, text.into(), limit).await
    }

    async fn request<T: DeserializeOwned>(
        self,
        method: Method,
        path: &str,
        limit: Duration,
    ) -> Result<T, ConnectError> {
        self.exchange(method, path, Bytes::new(), limit).await
    }

    async fn exchange<T: DeserializeOwned>(
        self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<T, ConnectError> {
        let socket = self.socket.clone();
        let work = async {
            let response = self.send(method, path, None, body).await?;
            let (status, body) = read_body(response)
                .await
                .map_err(|source| http(&socket, source))?;
            if !status.is_success() {
                return Err(failure(status, &body));
            }
            serde_json::from_slice(&body).map_err(|source| http(&socket, source))
        };
        within(&socket, limit, work).await?
    }

    /// Asks for the MCP stream.
    pub async fn upgrade(self) -> Result<Stream, ConnectError> {
        let socket = self.socket.clone();
        let work = async {
            let response = self
                .send(Method::GET, route::MCP, Some(UPGRADE_TOKEN), Bytes::new())
                .await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let (status, body) = read_body(response)
                    .await
                    .map_err(|source| http(&socket, source))?;
                return Err(failure(status, &body));
            }
            let upgraded = hyper::upgrade::on(response)
                .await
                .map_err(|source| http(&socket, source))?;
            let parts = upgraded
                .downcast::<TokioIo<UnixStream>>()
                .map_err(|_| http(&socket, "the connection is of another kind"))?;
            let (reader, writer) = parts.io.into_inner().into_split();
            Ok(Stream {
                lines: LineReader::new(reader, &parts.read_buf, MAX_HANDSHAKE_BYTES),
                writer,
            })
        };
        within(&socket, REQUEST_TIMEOUT, work).await?
    }

    async fn send(
        self,
        method: Method,
        path: &str,
        upgrade: Option<&str>,
        body: Bytes,
    ) -> Result<Response<hyper::body::Incoming>, ConnectError> {
        let socket = &self.socket;
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.stream))
            .await
            .map_err(|source| http(socket, source))?;
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "ptcd");
        if let Some(token) = upgrade {
            request = request
                .header(header::CONNECTION, "upgrade")
                .header(header::UPGRADE, token);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|source| http(socket, source))?;
        let response = sender.send_request(request).await;
        response.map_err(|source| http(socket, source))
    }
}

async fn read_body(
    response: Response<hyper::body::Incoming>,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
    Ok((status, body.collect().await?.to_bytes()))
}

fn http(
    socket: &Path,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ConnectError {
    ConnectError::Http {
        socket: socket.to_owned(),
        source: source.into(),
    }
}

fn failure(status: StatusCode, body: &[u8]) -> ConnectError {
    let text = String::from_utf8_lossy(body);
    ConnectError::Status {
        status: status.as_u16(),
        body: text.trim().chars().take(2000).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn places(folder: &Path) -> Places {
        let sources = ptc_protocol::paths::Sources {
            environment: ptc_protocol::paths::Environment::from_lookup(
                Some(folder.to_owned()),
                |_| None,
            ),
            ..Default::default()
        };
        Places::find(&sources).unwrap()
    }

    fn private_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        folder
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_missing_folder_socket_or_listener_is_an_absent_daemon() {
        let folder = private_folder();
        let stale = folder.path().join("stale");
        drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
        for path in [folder.path().join("no/s"), folder.path().join("s"), stale] {
            let error = dial(&path).await.unwrap_err();
            assert!(error.is_absent(), "{error}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_path_through_a_file_stays_as_it_is_until_someone_acts() {
        let folder = private_folder();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = dial(&folder.path().join("file/ptcd/s")).await.unwrap_err();
        assert!(error.is_permanent() && !error.is_absent(), "{error}");
        let error = dial(&folder.path().join("none/s")).await.unwrap_err();
        assert!(!error.is_permanent(), "{error}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_folder_that_others_may_enter_or_a_link_is_refused() {
        let folder = private_folder();
        let inner = folder.path().join("run");
        std::fs::create_dir(&inner).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(inner.join("s")).unwrap();
        std::os::unix::fs::symlink(&inner, folder.path().join("link")).unwrap();
        std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o750)).unwrap();
        for (path, fault) in [
            ("run/s", "others may enter it"),
            ("link/s", "symbolic link"),
        ] {
            let error = dial(&folder.path().join(path)).await.unwrap_err();
            assert!(error.to_string().contains(fault), "{error}");
        }
        std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o700)).unwrap();
        dial(&inner.join("s")).await.unwrap();
    }

    #[test]
    fn daemon_json_counts_only_when_it_is_ours_alone_and_no_link() {
        let folder = private_folder();
        let places = places(folder.path());
        let file = places.daemon_file();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        assert_eq!(recorded(&places), None);
        let text = r#"{"pid":1,"started_ms":1,"socket":"/x/s","build":"b","protocol":1}"#;
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(recorded(&places), None);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(recorded(&places), Some((1, "/x/s".into())));
        let real = folder.path().join("real");
        std::fs::rename(&file, &real).unwrap();
        std::os::unix::fs::symlink(&real, &file).unwrap();
        assert_eq!(recorded(&places), None);
    }
}
