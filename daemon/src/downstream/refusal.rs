//! Says what an HTTP answer means that is not the answer to its request.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};

use super::endpoint::{moved_to, shown_url};
use super::reply::{Reply, Turned};
use super::stderr::Mask;
use super::wire::{self, Outcome};

/// How much of the body of an error is read, in bytes.
const MAX_BODY: usize = 64 * 1024;
/// How long the body of an error may take.
const BODY_LIMIT: Duration = Duration::from_secs(5);
/// Longest pause that a server may ask for before the same request.
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// The beginning of an answer that was read for its words only.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    media_type: String,
    body: Vec<u8>,
    challenge: Option<String>,
    moved_to: Option<String>,
}

impl Refused {
    /// Reads what the answer says.
    pub(super) async fn read(mut response: Response) -> Self {
        let mut body = Vec::new();
        let status = response.status();
        let media_type = media_type(response.headers());
        let challenge = challenge(response.headers());
        let moved_to = moved_to(&response).map(|url| shown_url(&url));
        let reading = async {
            while body.len() < MAX_BODY {
                // A body that breaks off is told as far as it came.
                let Ok(Some(chunk)) = response.chunk().await else {
                    break;
                };
                body.extend_from_slice(&chunk);
            }
        };
        // What is too slow is told as far as it came, too.
        let _ = tokio::time::timeout(BODY_LIMIT, reading).await;
        Self {
            status,
            media_type,
            body,
            challenge,
            moved_to,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the answer can be one to a session that is no longer known.
    pub(super) fn loses_session(&self) -> bool {
        let mentions = || {
            let text = String::from_utf8_lossy(&self.body).to_lowercase();
            text.contains("session")
        };
        match self.status.as_u16() {
            404 => true,
            400 | 401 | 503 => mentions(),
            _ => false,
        }
    }

    /// What the request it answers gets.
    pub(super) fn reply(&self, mask: &Mask) -> Reply {
        let status = self.status.as_u16();
        let spoken = !matches!(status, 401 | 403 | 429) && !self.status.is_redirection();
        if spoken
            && let Some(Outcome::Error {
                code,
                message,
                data,
            }) = wire::error_in(&self.body)
        {
            return Reply::Error {
                code,
                message,
                data,
            };
        }
        let how = self.words(mask);
        let turned = match status {
            408 | 425 | 429 | 503 => Turned::Later,
            300..=399 | 401 | 403 => Turned::Barred,
            400..=499 => Turned::Unwanted,
            _ => return Reply::Fault(how),
        };
        Reply::Turned { how, turned }
    }

    /// What it says, with the remedy.
    pub(super) fn words(&self, mask: &Mask) -> String {
        let status = self.status.as_u16();
        let name = self.status.canonical_reason().unwrap_or("unknown status");
        let said = match status {
            401 => "unauthorized (HTTP 401)".to_owned(),
            403 => "forbidden (HTTP 403)".to_owned(),
            _ => format!("it answered with HTTP {status} {name}"),
        };
        let media_type = Some(&self.media_type)
            .filter(|found| self.status.is_success() && !found.is_empty())
            .map_or_else(String::new, |found| format!(" and {found}"));
        let challenge = self
            .challenge
            .as_ref()
            .map_or_else(String::new, |word| format!(", {word}"));
        let body = wire::shown(mask(&String::from_utf8_lossy(&self.body)).as_bytes());
        let body = Some(body)
            .filter(|body| !body.is_empty())
            .map_or_else(String::new, |body| format!(": {body:?}"));
        let remedy = match (status, &self.moved_to) {
            (_, Some(url)) => format!("; it has moved: write `url: {url}`"),
            (401, _) => "; check headers.Authorization".to_owned(),
            (403, _) => "; check headers.Authorization, and what its account may do on this server"
                .to_owned(),
            (404 | 405, _) => "; check url and transport (http or sse)".to_owned(),
            _ => String::new(),
        };
        [said, media_type, challenge, body, remedy].concat()
    }
}

/// The media type without its parameters, in small letters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence
        .trim()
        .chars()
        .take(80)
        .collect::<String>()
        .to_lowercase()
}

pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers) == "text/event-stream"
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let found = media_type(headers);
    found == "application/json" || (found.starts_with("application/") && found.ends_with("+json"))
}

/// The pause a server asks for before the same request, if it is one that can be kept.
pub(super) fn asked_pause(response: &Response) -> Option<Duration> {
    if !matches!(response.status().as_u16(), 429 | 503) {
        return None;
    }
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let pause = Duration::from_secs(value.trim().parse().ok()?);
    (pause <= MAX_PAUSE).then_some(pause)
}

/// The error word of a challenge, such as `invalid_token`.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(WWW_AUTHENTICATE)?.to_str().ok()?;
    let (_, rest) = value.split_once("error=")?;
    let word: String = rest
        .trim_start_matches('"')
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .take(60)
        .collect();
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use reqwest::header::HeaderValue;

    use super::*;

    fn refused(status: u16, body: &str) -> Refused {
        Refused {
            status: StatusCode::from_u16(status).unwrap(),
            media_type: "text/plain".to_owned(),
            body: body.as_bytes().to_vec(),
            challenge: None,
            moved_to: None,
        }
    }

    fn reply(status: u16, body: &str) -> Reply {
        let mask: Mask = Arc::new(|text| text.replace("hunter2", "<KEY>"));
        refused(status, body).reply(&mask)
    }

    #[test]
    fn a_status_says_what_may_come_of_another_try() {
        for (status, expected) in [
            (301, Some(Turned::Barred)),
            (400, Some(Turned::Unwanted)),
            (401, Some(Turned::Barred)),
            (403, Some(Turned::Barred)),
            (404, Some(Turned::Unwanted)),
            (405, Some(Turned::Unwanted)),
            (429, Some(Turned::Later)),
            (503, Some(Turned::Later)),
            (500, None),
            (502, None),
        ] {
            match (reply(status, "hunter2 \u{1b}[31m"), expected) {
                (Reply::Turned { how, turned }, Some(expected)) => {
                    assert_eq!(turned, expected, "{status}");
                    assert!(how.contains(&status.to_string()), "{how}");
                    assert!(how.contains("<KEY>") && !how.contains('\u{1b}'), "{how}");
                }
                (Reply::Fault(how), None) => assert!(how.contains(&status.to_string())),
                (other, _) => panic!("{status}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_error_of_the_protocol_counts_more_than_its_status() {
        let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"m","data":{"supported":[]}}}"#;
        for status in [400, 404, 500] {
            let Reply::Error { code, data, .. } = reply(status, body) else {
                panic!("{status}")
            };
            assert_eq!((code, data.is_some()), (-32022, true));
        }
        assert!(matches!(reply(401, body), Reply::Turned { .. }));
    }

    #[test]
    fn only_what_speaks_of_the_session_loses_it() {
        assert!(refused(404, "").loses_session());
        assert!(refused(400, "Bad Request: No valid Session ID").loses_session());
        assert!(refused(503, "unknown session").loses_session());
        assert!(!refused(400, "bad arguments").loses_session());
        assert!(!refused(500, "session").loses_session());
    }

    #[test]
    fn headers_are_read_without_regard_to_capitals_and_parameters() {
        let mut headers = HeaderMap::new();
        assert!(!is_json(&headers));
        for (value, json, stream) in [
            ("Application/JSON; charset=UTF-8", true, false),
            ("application/problem+json", true, false),
            ("TEXT/event-stream;x=y", false, true),
            ("text/html", false, false),
        ] {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(
                (is_json(&headers), is_event_stream(&headers)),
                (json, stream)
            );
        }
        let challenge_of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(value));
            challenge(&headers)
        };
        assert_eq!(
            challenge_of("Bearer realm=\"x\", error=\"invalid_token\", y=1").as_deref(),
            Some("invalid_token")
        );
        assert_eq!(challenge_of("Basic realm=\"x\""), None);
    }
}
