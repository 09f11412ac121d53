//! Sends single HTTP requests to a server, with its headers and to no other origin.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Once;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::spawn::LaunchError;

/// Limit of a connection, its TLS handshake included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept for the next request.
const IDLE_LIMIT: Duration = Duration::from_secs(90);
/// Pause between the probes by which a peer that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Most redirections of one request.
const MAX_HOPS: usize = 5;

/// An HTTP server as it is configured, its variables replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Where it listens.
    pub url: String,
    /// Headers of every request.
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both may hold secrets.
        formatter
            .debug_struct("Address")
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

/// One server's endpoint. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("at", &self.shown())
            .finish_non_exhaustive()
    }
}

/// No answer came to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unanswered {
    /// What happened.
    pub(super) how: String,
    /// Whether there was no connection at all, so that nothing can have been done.
    pub(super) unsent: bool,
}

impl Endpoint {
    pub(super) fn new(address: &Address) -> Result<Self, LaunchError> {
        let refused = |cause: String| LaunchError::Address { cause };
        let url = Url::parse(&address.url).map_err(|error| refused(format!("its url: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(refused("its url is not one of http or https".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(
                "its url holds a user or a password: write `headers: {Authorization: ...}`"
                    .to_owned(),
            ));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &address.headers {
            let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
            let value = HeaderValue::from_str(value.trim()).ok();
            let (Some(parsed), Some(mut value)) = (parsed, value) else {
                return Err(refused(format!(
                    "its header {name} holds what no header can: a line end, a control character"
                )));
            };
            value.set_sensitive(true);
            headers.insert(parsed, value);
        }
        let client = client(url.scheme() == "https")
            .map_err(|error| refused(format!("no HTTPS on this machine: {}", cause(error))))?;
        Ok(Self {
            client,
            url,
            headers,
        })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The address for people: its query may hold a secret.
    pub(super) fn shown(&self) -> String {
        shown_url(&self.url)
    }

    /// Sends a request and gives the beginning of the answer, whatever its
    /// status. A redirection is followed within the same origin only, and only
    /// where the method stays what it is.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        own: &HeaderMap,
        body: Option<&str>,
    ) -> Result<Response, Unanswered> {
        let mut url = url.clone();
        for _ in 0..MAX_HOPS {
            let mut request = self
                .client
                .request(method.clone(), url.clone())
                .headers(self.headers.clone())
                .headers(own.clone());
            if let Some(body) = body {
                request = request
                    .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                    .body(body.to_owned());
            }
            let response = request
                .send()
                .await
                .map_err(|error| self.unanswered(error))?;
            match self.follow(&method, &response) {
                Some(next) => url = next,
                None => return Ok(response),
            }
        }
        Err(Unanswered {
            how: format!("it redirects more than {MAX_HOPS} times"),
            unsent: true,
        })
    }

    /// Why there is nobody at the address now, if that is so.
    pub(super) async fn absence(&self) -> Option<String> {
        let host = self.url.host_str()?.trim_matches(['[', ']']);
        let port = self.url.port_or_known_default()?;
        let connecting = tokio::net::TcpStream::connect((host, port));
        // A host that is only slow is not known to be gone.
        let connected = tokio::time::timeout(CONNECT_LIMIT, connecting).await.ok()?;
        let cause = connected.err()?;
        Some(format!("cannot connect to {}: {cause}", self.shown()))
    }

    fn follow(&self, method: &Method, response: &Response) -> Option<Url> {
        let next = moved_to(response)?;
        let keeps_method = matches!(
            response.status(),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        ) || *method == Method::GET;
        (keeps_method && next.origin() == self.url.origin()).then_some(next)
    }

    fn unanswered(&self, error: reqwest::Error) -> Unanswered {
        let unsent = error.is_connect() || error.is_builder();
        let cause = cause(error);
        let advice = if cause.contains("invalid peer certificate") {
            "; its certificate must be one that this machine trusts: add its authority to the \
             system's certificates, or name its file in SSL_CERT_FILE"
        } else {
            ""
        };
        let at = self.shown();
        let how = if unsent {
            format!("cannot connect to {at}: {cause}{advice}")
        } else {
            format!("its connection broke before it answered: {cause}")
        };
        Unanswered { how, unsent }
    }
}

/// Where a redirection leads, whether or not it is followed.
pub(super) fn moved_to(response: &Response) -> Option<Url> {
    if !response.status().is_redirection() {
        return None;
    }
    let target = response.headers().get(LOCATION)?.to_str().ok()?;
    response.url().join(target).ok()
}

/// A URL without what may be secret in it.
pub(super) fn shown_url(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(url.query().map(|_| "..."));
    shown.set_fragment(None);
    // Neither can fail for a URL with a host.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.to_string()
}

/// The innermost cause, which is the one that says something.
pub(super) fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let timed_out = error.is_timeout();
    let mut inner: &dyn std::error::Error = &error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    if timed_out {
        format!("no connection within {} s", CONNECT_LIMIT.as_secs())
    } else {
        inner.to_string()
    }
}

/// Proxies of the environment are not used: it is that of whoever started the
/// daemon, and a local server must not be sought through a company's proxy.
fn client(tls: bool) -> reqwest::Result<Client> {
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
        .connect_timeout(CONNECT_LIMIT)
        .pool_idle_timeout(IDLE_LIMIT)
        .tcp_keepalive(KEEP_ALIVE)
        .tcp_nodelay(true);
    if tls {
        return builder.https_only(true).build();
    }
    // A machine without certificates can reach a server on its own all the same.
    builder.tls_certs_only([]).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str, headers: &[(&str, &str)]) -> Address {
        Address {
            url: url.to_owned(),
            headers: headers
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_a_value_of_it() {
        for (address, part) in [
            (address("hunter2", &[]), "its url"),
            (address("file:///hunter2", &[]), "http or https"),
            (
                address("https://me:hunter2@h/", &[]),
                "a user or a password",
            ),
            (
                address("http://h/", &[("X", "hunter2\nY: z")]),
                "its header X",
            ),
            (
                address("http://h/", &[("X", "hunter2\u{e9}\u{7f}")]),
                "its header X",
            ),
        ] {
            let error = Endpoint::new(&address).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
            assert!(!format!("{address:?}").contains("hunter2"));
        }
    }

    #[test]
    fn what_may_be_secret_in_a_url_is_not_shown() {
        let endpoint = Endpoint::new(&address("http://h:81/mcp?key=hunter2#x", &[])).unwrap();
        assert_eq!(endpoint.shown(), "http://h:81/mcp?...");
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        let url = Url::parse("https://me:hunter2@h/x").unwrap();
        assert_eq!(shown_url(&url), "https://h/x");
    }

    #[tokio::test]
    async fn nobody_at_an_address_is_told_from_somebody() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let endpoint = Endpoint::new(&address(&url, &[])).unwrap();
        assert_eq!(endpoint.absence().await, None);
        drop(listener);
        let how = endpoint.absence().await.unwrap();
        assert!(
            how.starts_with(&format!("cannot connect to {url}: ")),
            "{how}"
        );
    }
}
