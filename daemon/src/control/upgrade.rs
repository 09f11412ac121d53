//! `GET /v1/mcp`: from an HTTP request to a client's MCP session.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper_util::rt::TokioIo;
use ptc_protocol::{
    BUILD, HANDSHAKE_TIMEOUT, Hello, MAX_HANDSHAKE_BYTES, MAX_WANTED_VARIABLES, PROTOCOL,
    PROTOCOL_MIN, UPGRADE_TOKEN, Vars, Welcome, skew,
};
use serde::de::DeserializeOwned;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};

use super::{Control, Grant};
use crate::session::{self, ClientInfo, Until};

/// How long a connection may take to end that the same shim has replaced by another.
const REPLACED: Duration = Duration::from_secs(3);

/// Why a handshake did not end in a session.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("the shim sent no {0} line within {limit} s", limit = HANDSHAKE_TIMEOUT.as_secs())]
    Silent(&'static str),
    #[error("the {0} line is longer than {MAX_HANDSHAKE_BYTES} bytes or was cut")]
    Length(&'static str),
    #[error("the {line} line cannot be read: {fault}")]
    Shape {
        line: &'static str,
        fault: serde_json::Error,
    },
    #[error("the shim was refused: {0}")]
    Refused(String),
    #[error("the stream failed: {0}")]
    Io(#[from] std::io::Error),
}

pub(super) async fn upgrade(State(control): State<Control>, mut request: Request) -> Response {
    let asked = request.headers().get(header::UPGRADE).is_some_and(|value| {
        value
            .as_bytes()
            .eq_ignore_ascii_case(UPGRADE_TOKEN.as_bytes())
    });
    if !asked {
        let text = format!("this route wants `Upgrade: {UPGRADE_TOKEN}`\n");
        return (StatusCode::UPGRADE_REQUIRED, text).into_response();
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, upgrade).await {
            Ok(Ok(upgraded)) => {
                let stream = BufReader::new(TokioIo::new(upgraded));
                if let Err(error) = welcome(stream, control).await {
                    tracing::warn!(%error, "a client could not be served");
                }
            }
            Ok(Err(error)) => tracing::debug!(%error, "a connection was not upgraded"),
            Err(_) => tracing::debug!("a connection was not upgraded in time"),
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(UPGRADE_TOKEN));
    response
}

/// Hello, welcome, vars; then the session until its end.
async fn welcome<S>(mut stream: BufReader<S>, control: Control) -> Result<(), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let hello: Hello = read_line(&mut stream, "hello").await?;
    let protocol = match agree(&hello, control.config.as_deref()) {
        Ok(protocol) => protocol,
        Err(message) => {
            write_line(
                &mut stream,
                &Welcome::Refused {
                    message: message.clone(),
                },
            )
            .await?;
            return Err(HandshakeError::Refused(message));
        }
    };
    let mut wants = control.commands.wanted_variables();
    wants.truncate(MAX_WANTED_VARIABLES);
    let reply = Welcome::Welcome {
        protocol,
        build: BUILD.to_owned(),
        wants: wants.clone(),
    };
    write_line(&mut stream, &reply).await?;
    let vars: Vars = read_line(&mut stream, "vars").await?;
    let Grant { barred, renew } = control.commands.offer_variables(&wants, &vars);
    let project = project_of(&hello).await;
    let (seat, before) = control.roster.seat(&hello, control.end.child_token());
    if let Some(before) = before {
        // Its programs are cancelled before those of this connection start.
        let _ = tokio::time::timeout(REPLACED, before.cancelled_owned()).await;
    }
    let client = ClientInfo {
        session: hello.session.label(),
        label: hello.client,
        name: Arc::clone(&seat.name),
        project,
        barred,
    };
    tracing::info!(
        session = client.session,
        pid = hello.pid,
        build = hello.build,
        "a client came"
    );
    let until = Until {
        end: seat.end.clone(),
        renew,
        renews: hello.renews,
    };
    session::serve(stream, client, control.host, until).await;
    Ok(())
}

/// The handshake revision both speak, or why this shim is not served.
fn agree(hello: &Hello, config: Option<&str>) -> Result<u32, String> {
    let [oldest, newest] = hello.protocol;
    let Some(protocol) = skew::agree([PROTOCOL_MIN, PROTOCOL], hello.protocol) else {
        return Err(format!(
            "the shim ({}) speaks handshake {oldest} to {newest}, this daemon ({BUILD}) {PROTOCOL_MIN} to {PROTOCOL}: \
             install both from one build and run `ptcctl restart`",
            hello.build
        ));
    };
    if hello.config.as_deref() != config {
        let name = |path: Option<&str>| path.unwrap_or("the default file").to_owned();
        return Err(format!(
            "this daemon serves {}, the shim wants {}: give each configuration its own socket",
            name(config),
            name(hello.config.as_deref())
        ));
    }
    Ok(protocol)
}

/// The real path of the folder a client works for: what Claude Code names, else its working directory.
///
/// An editor started from a desktop has `/` for its working directory, which is nobody's project:
/// a server that is given the client's project must not be given the whole disk for it.
async fn project_of(hello: &Hello) -> Option<Arc<Path>> {
    for named in [&hello.project_dir, &hello.cwd].into_iter().flatten() {
        let path = Path::new(named);
        if !path.is_absolute() {
            continue;
        }
        // A folder on a disk that does not answer must not hold the client up for ever.
        let found = tokio::time::timeout(HANDSHAKE_TIMEOUT, tokio::fs::canonicalize(path)).await;
        if let Ok(Ok(real)) = found
            && real.parent().is_some()
            && real.to_str().is_some()
        {
            return Some(Arc::from(real));
        }
    }
    None
}

async fn read_line<S, T>(stream: &mut BufReader<S>, line: &'static str) -> Result<T, HandshakeError>
where
    S: AsyncRead + Unpin,
    T: DeserializeOwned,
{
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_HANDSHAKE_BYTES).unwrap_or(u64::MAX);
    let mut bounded = (&mut *stream).take(limit);
    tokio::time::timeout(HANDSHAKE_TIMEOUT, bounded.read_until(b'\n', &mut bytes))
        .await
        .map_err(|_| HandshakeError::Silent(line))??;
    if bytes.pop() != Some(b'\n') {
        return Err(HandshakeError::Length(line));
    }
    serde_json::from_slice(&bytes).map_err(|fault| HandshakeError::Shape { line, fault })
}

async fn write_line<S>(stream: &mut BufReader<S>, line: &Welcome) -> Result<(), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut bytes = serde_json::to_vec(line).map_err(|fault| HandshakeError::Shape {
        line: "welcome",
        fault,
    })?;
    bytes.push(b'\n');
    let written = async {
        stream.write_all(&bytes).await?;
        stream.flush().await
    };
    tokio::time::timeout(HANDSHAKE_TIMEOUT, written)
        .await
        .map_err(|_| HandshakeError::Silent("vars"))??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptc_protocol::SessionId;

    fn hello(protocol: [u32; 2], config: Option<&str>) -> Hello {
        Hello {
            protocol,
            build: "9".to_owned(),
            session: SessionId::from_random([1; 16]),
            client: None,
            cwd: None,
            project_dir: None,
            client_session: None,
            pid: 1,
            config: config.map(str::to_owned),
            renews: false,
        }
    }

    #[test]
    fn revisions_overlap_or_the_refusal_names_both() {
        assert_eq!(
            agree(&hello([PROTOCOL, PROTOCOL + 3], None), None),
            Ok(PROTOCOL)
        );
        let refusal = agree(&hello([PROTOCOL + 1, PROTOCOL + 3], None), None).unwrap_err();
        assert!(refusal.contains("ptcctl restart"), "{refusal}");
    }

    #[test]
    fn a_shim_of_another_configuration_is_refused_with_both_named() {
        assert_eq!(agree(&hello([1, 1], Some("/a")), Some("/a")), Ok(1));
        let refusal = agree(&hello([1, 1], Some("/a")), None).unwrap_err();
        assert!(
            refusal.contains("/a") && refusal.contains("the default file"),
            "{refusal}"
        );
    }
}
