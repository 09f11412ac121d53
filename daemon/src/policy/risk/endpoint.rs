//! Sends one question to an endpoint that judges, and reads its answer within bounds.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Once;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};

use super::wire::{self, Word};
use crate::config::{RiskConfig, RiskKind};

/// Longest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// How long an idle connection is kept for the next question.
const IDLE_LIMIT: Duration = Duration::from_secs(90);
/// The form of Anthropic's messages that is spoken.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Where one rubric is judged. `Debug` shows no key: it is marked as a secret.
#[derive(Debug)]
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    config: RiskConfig,
}

impl Endpoint {
    /// Makes ready to ask.
    ///
    /// # Errors
    /// What is wrong, without the key.
    pub(super) fn open(config: &RiskConfig, key: Option<&str>) -> Result<Self, String> {
        let mut url = config.base_url.clone();
        let path = match config.kind {
            RiskKind::Anthropic => "v1/messages",
            RiskKind::OpenAi => "chat/completions",
        };
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{path}"));
        Ok(Self {
            client: client(&url).map_err(|error| format!("no HTTP client: {}", cause(error)))?,
            headers: headers(config.kind, key)?,
            url,
            config: config.clone(),
        })
    }

    /// What the endpoint says. The caller sets the limit of time.
    pub(super) async fn ask(&self, system: &str, told: &str) -> Result<(Word, String), String> {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .body(wire::body(&self.config, system, told));
        let mut response = request
            .send()
            .await
            .map_err(|error| format!("it cannot be asked: {}", cause(error)))?;
        // A redirection is none either: it would tell the call and the key to somebody else.
        if response.status() != StatusCode::OK {
            return Err(format!("it answered HTTP {}", response.status().as_u16()));
        }
        let mut answer = Vec::new();
        loop {
            let piece = response.chunk().await;
            match piece.map_err(|error| format!("its answer broke off: {}", cause(error)))? {
                None => break,
                Some(piece) if answer.len() + piece.len() > MAX_ANSWER => {
                    return Err(format!("its answer has more than {MAX_ANSWER} bytes"));
                }
                Some(piece) => answer.extend_from_slice(&piece),
            }
        }
        wire::verdict(self.config.kind, &answer)
    }
}

fn headers(kind: RiskKind, key: Option<&str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if kind == RiskKind::Anthropic {
        let version = HeaderName::from_static("anthropic-version");
        headers.insert(version, HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    let Some(key) = key.map(str::trim) else {
        return Ok(headers);
    };
    let (name, value) = match kind {
        RiskKind::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
        RiskKind::OpenAi => (AUTHORIZATION, format!("Bearer {key}")),
    };
    let value = HeaderValue::from_str(&value)
        .ok()
        .filter(|_| !key.is_empty());
    let Some(mut value) = value else {
        return Err("api_key is empty, or holds what no header can".to_owned());
    };
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}

/// Proxies of the environment are not used, as with servers: a judge on this machine must not be sought through one.
fn client(url: &Url) -> reqwest::Result<Client> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let builder = Client::builder()
        .user_agent(format!("ptcd/{}", ptc_protocol::BUILD))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .pool_idle_timeout(IDLE_LIMIT)
        .tcp_nodelay(true);
    if url.scheme() == "https" {
        return builder.https_only(true).build();
    }
    // Whatever the machine's tables of names say, this name is this machine.
    let port = url.port_or_known_default().unwrap_or(80);
    let here = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    builder
        .resolve_to_addrs("localhost", &here)
        .tls_certs_only([])
        .build()
}

/// The innermost cause, which is the one that says something.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut inner: &dyn std::error::Error = &error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
