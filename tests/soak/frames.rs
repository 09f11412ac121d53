//! The frame codec: any bytes in any pieces, and what the daemon sends.

use std::pin::Pin;
use std::task::{Context, Poll};

use fastrand::Rng;
use ptc_tests::documents::{self, Form};
use ptc_tests::reference::{self, Json};
use ptcd::pool::frame::{Answer, FrameError, FromWorker, ToWorker, read_frame};
use ptcd::registry::exact_value;
use tokio::io::{AsyncRead, ReadBuf};

use crate::mutate::{golden, kind_of, mutate};
use crate::runner::Target;

/// What a program may emit, in bytes, where the input does not say otherwise.
const MAX_EMIT: usize = 4096;
/// Texts deeper than this may be refused.
const SURE_DEPTH: usize = 100;
/// The kinds of frames a worker sends.
const KINDS: &[u8] = b"HCQOEWD";

/// An input is eight bytes that choose the pieces, then the stream.
pub(crate) struct Frames {
    corpus: Vec<Vec<u8>>,
}

impl Frames {
    pub(crate) fn new() -> Self {
        let rows = [golden("from_worker.jsonl"), golden("to_worker.jsonl")].concat();
        let corpus = rows.into_iter().map(|row| [vec![0; 8], row].concat());
        Self {
            corpus: corpus.collect(),
        }
    }
}

impl Target for Frames {
    fn name(&self) -> &'static str {
        "frames"
    }

    fn make(&self, rng: &mut Rng, kept: &[Vec<u8>]) -> Vec<u8> {
        let mut input = rng.u64(..).to_le_bytes().to_vec();
        if rng.bool() {
            for _ in 0..rng.usize(1..4) {
                input.extend(frame(rng));
            }
            if rng.bool() {
                mutate(rng, &mut input, kept);
            }
        } else {
            let at = rng.usize(..self.corpus.len() + kept.len());
            let from = self
                .corpus
                .get(at)
                .or_else(|| kept.get(at - self.corpus.len()));
            input.extend(from.into_iter().flatten().skip(8));
            mutate(rng, &mut input, kept);
            if rng.bool() {
                mend_length(&mut input);
            }
        }
        input
    }

    fn check(&self, input: &[u8]) -> Result<String, String> {
        let (head, stream) = input.split_at(input.len().min(8));
        let seed = head
            .iter()
            .fold(0, |seed, byte| seed << 8 | u64::from(*byte));
        let whole = read_all(stream, stream.len().max(1), seed);
        for most in [1, 7, 4096] {
            let pieces = read_all(stream, most, seed);
            if pieces.words() != whole.words() {
                return Err(format!(
                    "pieces of {most} bytes give {:?}, the whole {:?}",
                    pieces.words(),
                    whole.words()
                ));
            }
        }
        let mut rest = stream;
        for frame in &whole.frames {
            let (kind, body, after) = split(rest).ok_or("a frame came out of what is none")?;
            rest = after;
            compare(kind, body, frame)?;
        }
        // What was refused must be wrong in some way that the plain reader sees, too.
        if let (Some(error), Some((kind, body, _))) = (&whole.error, split(rest))
            && is_right(kind, body)
        {
            return Err(format!("a right frame is refused: {error}"));
        }
        sent(stream)?;
        let kinds: String = whole.frames.iter().map(letter).collect();
        Ok(match &whole.error {
            Some(error) => format!("{kinds} {}", kind_of(error)),
            None => kinds,
        })
    }
}

/// What came of a stream.
struct Read {
    frames: Vec<FromWorker>,
    error: Option<String>,
}

impl Read {
    fn words(&self) -> Vec<String> {
        let frames = self.frames.iter().map(|frame| format!("{frame:?}"));
        frames.chain(self.error.clone()).collect()
    }
}

fn letter(frame: &FromWorker) -> char {
    match frame {
        FromWorker::Hello(_) => 'H',
        FromWorker::Call(_) => 'C',
        FromWorker::Query(_) => 'Q',
        FromWorker::Output(_) => 'O',
        FromWorker::Emit(_) => 'E',
        FromWorker::Where(_) => 'W',
        FromWorker::Done(_) => 'D',
    }
}

/// Hands out its bytes in pieces of up to `most` bytes, and has nothing now and then.
struct Pieces<'a> {
    rest: &'a [u8],
    most: usize,
    rng: Rng,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.rng.u8(..8) == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = self.most;
        let size = self.rng.usize(1..=most);
        let size = size.min(self.rest.len()).min(buffer.remaining());
        let (piece, rest) = self.rest.split_at(size);
        buffer.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

fn read_all(stream: &[u8], most: usize, seed: u64) -> Read {
    let mut pieces = Pieces {
        rest: stream,
        most,
        rng: Rng::with_seed(seed),
    };
    let mut frames = Vec::new();
    loop {
        match now(read_frame(&mut pieces, MAX_EMIT)) {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => {
                return Read {
                    frames,
                    error: None,
                };
            }
            Err(error) => {
                let error = Some(error.to_string());
                return Read { frames, error };
            }
        }
    }
}

/// Polls a future that only ever waits for itself.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(std::task::Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// The first frame of a stream and what follows.
fn split(stream: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let length = u32::from_le_bytes(*stream.first_chunk::<4>()?);
    let kind = *stream.get(4)?;
    let end = 4 + usize::try_from(length).ok()?;
    Some((kind, stream.get(5..end)?, stream.get(end..)?))
}

/// The body as the plain reader has it; `None` where the two may differ.
fn plain(body: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(body).ok()?;
    let document = reference::read(text)?;
    let sure = !document.duplicates && !document.halves && document.depth <= SURE_DEPTH;
    sure.then_some(document.value)
}

/// Whether a frame that was taken holds what its body says.
fn compare(kind: u8, body: &[u8], frame: &FromWorker) -> Result<(), String> {
    if kind != letter(frame) as u8 {
        return Err(format!("a frame {} became {frame:?}", kind as char));
    }
    let text = std::str::from_utf8(body).map_err(|_| "broken UTF-8 was taken")?;
    let FromWorker::Call(call) = frame else {
        let document = reference::read(text).ok_or_else(|| format!("no JSON was taken: {text}"))?;
        // Half a surrogate pair may stand where nobody reads; what is read is compared.
        if document.duplicates {
            return Ok(());
        }
        return members(frame, &document.value)
            .then_some(())
            .ok_or_else(|| format!("{text} became {frame:?}"));
    };
    // The arguments are read later, from the very bytes.
    if !text.contains(call.arguments.get()) || !call.arguments.get().starts_with('{') {
        return Err(format!("{text} became {call:?}"));
    }
    match plain(body) {
        Some(body) => {
            let arguments = reference::read(call.arguments.get());
            let same = body.get("tool") == Some(&Json::Text(call.tool.clone()))
                && body.get("id") == Some(&Json::Number(call.id.to_string()))
                && body.get("arguments") == arguments.map(|read| read.value).as_ref();
            same.then_some(())
                .ok_or_else(|| format!("{text} became {call:?}"))
        }
        None => Ok(()),
    }
}

/// The part of a frame that stays text.
fn late(frame: &FromWorker) -> Option<&str> {
    match frame {
        FromWorker::Emit(value) => Some(value.get()),
        FromWorker::Query(query) => query.arguments.as_ref().map(|text| text.get()),
        _ => None,
    }
}

/// A text as the daemon reads it where it keeps every digit.
fn exact(text: &str) -> Option<Json> {
    let value = exact_value(text)?.to_string();
    reference::read(&value).map(|read| read.value)
}

fn members(frame: &FromWorker, body: &Json) -> bool {
    let text = |key: &str, value: &str| body.get(key) == Some(&Json::Text(value.to_owned()));
    let number = |key: &str, value: u64| body.get(key) == Some(&Json::Number(value.to_string()));
    match frame {
        FromWorker::Hello(hello) => {
            text("python", &hello.python) && number("protocol", hello.protocol.into())
        }
        FromWorker::Query(query) => {
            let given = late(frame).unwrap_or("{}");
            let absent = Json::Object(Vec::new());
            let stated = body
                .get("arguments")
                .filter(|stated| **stated != Json::Null);
            number("id", query.id) && exact(given).as_ref() == Some(stated.unwrap_or(&absent))
        }
        FromWorker::Output(output) => text("text", &output.text),
        FromWorker::Emit(value) => exact(value.get()).as_ref() == body.get("value"),
        FromWorker::Where(places) => match body.get("lines") {
            Some(Json::List(lines)) => {
                lines.len() == places.len()
                    && places.iter().zip(lines).all(|(place, line)| {
                        line.get("function") == Some(&Json::Text(place.function.clone()))
                            && line.get("line") == Some(&Json::Number(place.line.to_string()))
                    })
            }
            _ => false,
        },
        FromWorker::Done(done) => {
            let error = body.get("error").filter(|error| **error != Json::Null);
            body.get("ok") == Some(&Json::Bool(done.ok))
                && done.error.as_ref().map(|error| error.text.clone())
                    == error
                        .and_then(|error| error.get("text"))
                        .and_then(|text| match text {
                            Json::Text(text) => Some(text.clone()),
                            _ => None,
                        })
        }
        FromWorker::Call(_) => true,
    }
}

/// Whether the plain reader sees nothing wrong with a frame of the kinds whose rules are short.
fn is_right(kind: u8, body: &[u8]) -> bool {
    // A body begins with its bracket.
    if body.len() > MAX_EMIT || body.first() != Some(&b'{') {
        return false;
    }
    let Some(body) = plain(body) else {
        return false;
    };
    let is_id = |id: Option<&Json>| match id {
        Some(Json::Number(text)) => text.parse::<u64>().is_ok(),
        _ => false,
    };
    match kind {
        b'O' => {
            let stream = |name: &str| body.get("stream") == Some(&Json::Text(name.to_owned()));
            (stream("stdout") || stream("stderr"))
                && matches!(body.get("text"), Some(Json::Text(_)))
        }
        b'E' => body.get("value").is_some(),
        b'C' => {
            is_id(body.get("id"))
                && matches!(body.get("tool"), Some(Json::Text(_)))
                && matches!(body.get("arguments"), Some(Json::Object(_)))
        }
        b'Q' => {
            is_id(body.get("id"))
                && body.get("helper") == Some(&Json::Text("inspect_tool".to_owned()))
                && matches!(body.get("arguments"), Some(Json::Object(_)))
        }
        _ => false,
    }
}

/// An answer whose value is this text, as it is sent.
fn sent(stream: &[u8]) -> Result<(), String> {
    let Some((_, body, _)) = split(stream) else {
        return Ok(());
    };
    let (Some(value), Ok(text)) = (plain(body), String::from_utf8(body.to_vec())) else {
        return Ok(());
    };
    let id = body.len() as u64;
    let answer = ToWorker::Answer(Answer {
        id,
        outcome: Ok(text.into()),
    });
    let bytes = answer
        .encode()
        .map_err(|error: FrameError| error.to_string())?;
    let (kind, body, rest) = split(&bytes).ok_or("an answer is no frame")?;
    let body = plain(body).ok_or("an answer is no JSON")?;
    let same = kind == b'r'
        && rest.is_empty()
        && body.get("id") == Some(&Json::Number(id.to_string()))
        && body.get("ok") == Some(&Json::Bool(true))
        && body.get("value") == Some(&value);
    same.then_some(())
        .ok_or_else(|| format!("{value:?} is sent as {body:?}"))
}

/// A frame that is right, most of the time.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let form = Form {
        depth: 60,
        duplicates: rng.u8(..4) == 0,
    };
    let kind = KINDS[rng.usize(..KINDS.len())];
    let string = documents::string(rng);
    let id = rng.u64(..) >> rng.u8(..64);
    let body = match kind {
        b'H' => format!("{{\"protocol\":1,\"python\":{string}}}"),
        b'C' => format!(
            "{{\"id\":{id},\"tool\":{string},\"arguments\":{}}}",
            documents::object_text(rng, form)
        ),
        b'Q' => format!(
            "{{\"id\":{id},\"helper\":\"inspect_tool\",\"arguments\":{}}}",
            documents::object_text(rng, form)
        ),
        b'O' => {
            let stream = ["stdout", "stderr"][rng.usize(..2)];
            format!("{{\"stream\":\"{stream}\",\"text\":{string}}}")
        }
        b'E' => format!("{{\"value\":{}}}", documents::document(rng, form)),
        b'W' => format!(
            "{{\"lines\":[{{\"line\":{},\"function\":{string}}}]}}",
            rng.u16(..)
        ),
        _ if rng.bool() => "{\"ok\":true,\"unawaited\":[],\"error\":null}".to_owned(),
        _ => format!(
            "{{\"ok\":false,\"error\":{{\"type\":\"E\",\"text\":{string},\"name\":null}},\"unsent_output_bytes\":{id}}}"
        ),
    };
    let mut frame = u32::try_from(body.len() + 1)
        .unwrap()
        .to_le_bytes()
        .to_vec();
    frame.push(kind);
    frame.extend(body.into_bytes());
    frame
}

/// Makes the first frame announce all that is there, so that a change inside it counts.
fn mend_length(input: &mut [u8]) {
    let length = u32::try_from(input.len().saturating_sub(12)).unwrap_or(0);
    if let Some(place) = input.get_mut(8..12) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}
