//! Reads the event streams of streamable HTTP, and takes them up again where they broke.

use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use reqwest::{Method, Response};
use tokio::sync::oneshot;

use super::endpoint;
use super::events::{EventCutter, Piece};
use super::http::Http;
use super::inbox::Next;
use super::ladder::Spoken;
use super::outgoing::Outgoing;
use super::refusal::{Refused, is_event_stream};
use super::reply::Reply;

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Tries to reach a server again whose stream broke.
const RESUME_TRIES: usize = 3;
/// Pause before a broken stream is taken up again, where the server names none.
const RESUME_PAUSE: Duration = Duration::from_millis(250);
/// Longest such pause for the stream that only brings news.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// A stream that lasted this long was a good one.
const GOOD_STREAM: Duration = Duration::from_secs(5);
/// How long, and how much, is read of a stream after its answer, so that its connection can be used again.
const REST_LIMIT: Duration = Duration::from_millis(500);
const REST_PIECES: usize = 64;

/// How the reading of a stream ended.
enum Read {
    /// What was waited for has come, or the session wants no more.
    Done,
    /// The stream ended.
    Ended { how: String },
}

impl Http {
    /// An answer somewhere in an event stream, which may break and be taken up again.
    pub(super) async fn streamed(&self, id: i64, response: Response) -> Option<Reply> {
        let mut cutter = EventCutter::new(self.cap);
        let mut response = response;
        loop {
            let how = match self.read_stream(Some(id), response, &mut cutter).await {
                Read::Done => return None,
                Read::Ended { how } => how,
            };
            if self.spoken == Spoken::Modern || cutter.last_id().is_none() {
                return Some(Reply::Lost { how });
            }
            match self.resume(&mut cutter).await {
                Ok(resumed) => response = resumed,
                Err(why) => {
                    return Some(Reply::Lost {
                        how: format!("{how}; it could not be taken up again: {why}"),
                    });
                }
            }
        }
    }

    /// Takes a broken stream up again where it broke.
    async fn resume(&self, cutter: &mut EventCutter) -> Result<Response, String> {
        let mut why = String::new();
        for _ in 0..RESUME_TRIES {
            let pause = cutter.retry().unwrap_or_default().max(RESUME_PAUSE);
            tokio::time::sleep(pause).await;
            cutter.resume();
            match self.get(cutter.last_id()).await {
                Ok(response) if response.status().is_success() => {
                    if is_event_stream(response.headers()) {
                        return Ok(response);
                    }
                    return Err(Refused::read(response).await.words(&self.mask.0));
                }
                Ok(response) => {
                    let refused = Refused::read(response).await;
                    let lost = self.session().is_some() && refused.status().as_u16() == 404;
                    if !lost {
                        return Err(refused.words(&self.mask.0));
                    }
                    let how = self.lose_session(&refused);
                    self.link.end(how.clone());
                    return Err(how);
                }
                Err(how) => why = how,
            }
        }
        Err(why)
    }

    async fn get(&self, last_event: Option<&str>) -> Result<Response, String> {
        let mut headers = self.common_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(value) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT, value);
        }
        let url = self.endpoint.url();
        let sent = self.endpoint.send(Method::GET, url, &headers, None).await;
        sent.map_err(|unanswered| unanswered.how)
    }

    /// Reads events until the request is answered, or for ever.
    async fn read_stream(
        &self,
        waiting: Option<i64>,
        mut response: Response,
        cutter: &mut EventCutter,
    ) -> Read {
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    let how = "its event stream ended without the answer".to_owned();
                    return Read::Ended { how };
                }
                Err(error) => {
                    let cause = endpoint::cause(error);
                    let how = format!("its event stream broke: {cause}");
                    return Read::Ended { how };
                }
            };
            if !self.take_chunk(waiting, &chunk, cutter).await {
                return Read::Done;
            }
            if waiting.is_some_and(|id| !self.link.is_open(id)) {
                self.read_rest(response, cutter).await;
                return Read::Done;
            }
        }
    }

    /// Takes in a part of a stream. False when the session wants no more.
    async fn take_chunk(
        &self,
        waiting: Option<i64>,
        chunk: &[u8],
        cutter: &mut EventCutter,
    ) -> bool {
        let mut rest = chunk;
        while !rest.is_empty() {
            let (taken, piece) = cutter.feed(rest);
            rest = rest.get(taken..).unwrap_or_default();
            let goes_on = match piece {
                Some(Piece::TooLong { id }) => self.inbox.too_long(id.or(waiting)).await,
                Some(Piece::Event(event)) if event.is_message() => {
                    match self.inbox.take(event.data).await {
                        Next::GoOn => true,
                        Next::Stop => false,
                        Next::Answer(text) => {
                            self.answer_server(text);
                            true
                        }
                    }
                }
                Some(Piece::Event(_)) | None => true,
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Reads a stream to its end where that is near: its connection can then be used again.
    async fn read_rest(&self, mut response: Response, cutter: &mut EventCutter) {
        let reading = async {
            for _ in 0..REST_PIECES {
                match response.chunk().await {
                    Ok(Some(chunk)) if self.take_chunk(None, &chunk, cutter).await => {}
                    _ => return,
                }
            }
        };
        // Otherwise the connection is closed, which costs the next request a new one.
        let _ = tokio::time::timeout(REST_LIMIT, reading).await;
    }

    fn answer_server(&self, text: String) {
        if let Some(answers) = self.answers.upgrade() {
            // A full queue means that the server asks faster than it takes answers: it gets none.
            let _ = answers.try_send(Outgoing::answer(text));
        }
    }

    /// Follows the stream that brings news outside of requests, if the server has one. `opening`
    /// is dropped once the server has answered.
    pub(super) async fn follow_news(&self, opening: oneshot::Sender<()>) {
        let mut opening = Some(opening);
        let mut cutter = EventCutter::new(self.cap);
        let mut unreachable = 0;
        let mut pause = RESUME_PAUSE;
        let mut ever = false;
        loop {
            let answer = self.get(cutter.last_id()).await;
            drop(opening.take());
            match answer {
                Ok(response)
                    if response.status().is_success() && is_event_stream(response.headers()) =>
                {
                    (ever, unreachable) = (true, 0);
                    let since = Instant::now();
                    if let Read::Done = self.read_stream(None, response, &mut cutter).await {
                        return;
                    }
                    cutter.resume();
                    if since.elapsed() >= GOOD_STREAM {
                        pause = RESUME_PAUSE;
                    }
                }
                Ok(response) => {
                    // Most servers have none, and say so in many ways.
                    let refused = Refused::read(response).await;
                    if ever && self.session().is_some() && refused.loses_session() {
                        self.link.end(self.lose_session(&refused));
                    }
                    return;
                }
                Err(how) => {
                    unreachable += 1;
                    if unreachable >= RESUME_TRIES {
                        return self.link.end(how);
                    }
                }
            }
            tokio::time::sleep(cutter.retry().unwrap_or_default().max(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
