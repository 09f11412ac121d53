//! The frames between the daemon and a worker: length, kind, JSON body.
//!
//! Every frame from a worker counts as written by the program in it, so
//! decoding checks the length before it allocates and the shape before anyone
//! acts on it. `tests/frames/` holds the golden frames both halves read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Revision of the frames; the worker's hello must name it.
pub const FRAME_PROTOCOL: u32 = 1;
/// Longest call frame, in bytes: 4 MiB of arguments and room for the envelope.
const MAX_CALL: usize = 4 * 1024 * 1024 + SLACK;
/// Longest output frame, in bytes; the worker cuts its output into pieces below it.
const MAX_OUTPUT: usize = 2 * 1024 * 1024;
/// Longest done frame, in bytes.
const MAX_DONE: usize = 1024 * 1024;
/// Longest frame of the small kinds, in bytes.
const MAX_SMALL: usize = 64 * 1024;
/// Bytes of the length before a frame.
const PREFIX: usize = 4;
/// Bytes around a value in its answer, at most.
const ENVELOPE: usize = 64;
/// Deepest value that is taken; the worker's own limit is lower.
const MAX_DEPTH: usize = 126;
const TOO_DEEP: FrameError = FrameError::Meaning("a value is nested too deep");
/// Room for the envelope around a value.
const SLACK: usize = 64 * 1024;

/// Why a frame from a worker was not taken.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream failed.
    #[error("the worker's channel failed: {0}")]
    Io(#[from] std::io::Error),
    /// The stream ended inside a frame.
    #[error("the worker's channel ended inside a frame")]
    Cut,
    /// No frame of this length is taken.
    #[error("a frame of kind {kind:#04x} with {length} bytes")]
    Length {
        /// Kind byte.
        kind: u8,
        /// Announced length, the kind byte included.
        length: usize,
    },
    /// No such kind.
    #[error("a frame of the unknown kind {0:#04x}")]
    Kind(u8),
    /// The body has the right members and no meaning.
    #[error("a malformed body: {0}")]
    Meaning(&'static str),
    /// The body is not what the kind wants.
    #[error("a malformed body: {0}")]
    Body(#[from] serde_json::Error),
}

/// What the daemon says to a worker.
#[derive(Debug)]
pub enum ToWorker {
    /// The one program it will run.
    Run(Run),
    /// The answer to a call or a query.
    Answer(Answer),
    /// The run is over; say where the program waits.
    Stop {
        /// Why.
        reason: &'static str,
    },
}

/// The body of a run frame.
#[derive(Debug, Serialize)]
pub struct Run {
    /// Source text as the client sent it.
    pub program: String,
    /// Callable names, each with its parameters in schema order.
    pub tools: BTreeMap<String, Vec<String>>,
    /// Names in the program that look like tools and are none, and why; no program has all names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
    /// What the runtime checks before it sends.
    pub limits: RunLimits,
    /// What `random` is seeded with, so that a recorded run can be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether the daemon is to know which stream each printed text went to; else all stand in one pipe, in the order
    /// written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}

/// Limits that the runtime checks before it sends; the daemon checks them again.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RunLimits {
    /// Bytes of JSON an emitted value may have.
    pub max_emit_bytes: usize,
    /// Bytes of JSON one call's arguments may have.
    pub max_call_bytes: usize,
    /// Steps of its own code that are counted, and stop it where there are more; CPython 3.12 or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
}

/// The answer to a call or a query, by its id.
#[derive(Debug)]
pub struct Answer {
    /// Id of the call or query.
    pub id: u64,
    /// What the awaiting program gets; a value is JSON text.
    pub outcome: Result<Box<str>, AnswerError>,
}

/// What a program catches as `ToolError`.
#[derive(Debug, Serialize)]
pub struct AnswerError {
    /// Stable kind.
    pub kind: &'static str,
    /// Text for the model.
    pub message: String,
    /// Callable name.
    pub tool: Option<String>,
    /// Server name.
    pub server: Option<String>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// What the tool gave along with its error.
    pub data: Option<Value>,
}

/// What a worker says to the daemon.
#[derive(Debug)]
pub enum FromWorker {
    /// It is warm.
    Hello(Hello),
    /// The program calls a tool.
    Call(Call),
    /// The program asks a helper.
    Query(Query),
    /// The program printed.
    Output(Output),
    /// The program emitted a value: its JSON text, since reading it here would take some keys for numbers.
    Emit(Box<RawValue>),
    /// Where the program's tasks wait.
    Where(Vec<Place>),
    /// The program is over.
    Done(Done),
}

/// The body of a hello frame.
#[derive(Debug, Deserialize)]
pub struct Hello {
    /// See [`FRAME_PROTOCOL`].
    pub protocol: u32,
    /// The interpreter's version.
    pub python: String,
}

/// The body of a call frame.
#[derive(Debug, Deserialize)]
pub struct Call {
    /// Chosen by the worker, never used twice.
    pub id: u64,
    /// Callable name.
    pub tool: String,
    /// Arguments as JSON text.
    pub arguments: Box<RawValue>,
}

/// The body of a query frame.
#[derive(Debug, Deserialize)]
pub struct Query {
    /// Chosen by the worker, never used twice.
    pub id: u64,
    /// Which helper.
    pub helper: Helper,
    /// Its arguments as JSON text; none is as good as an empty object.
    #[serde(default)]
    pub arguments: Option<Box<RawValue>>,
}

/// The functions a program has beside its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Helper {
    /// `list_callable_tools()`
    ListCallableTools,
    /// `inspect_tool(tool_name=...)`
    InspectTool,
    /// `server_status()`
    ServerStatus,
}

/// The body of an output frame.
#[derive(Debug, Deserialize)]
pub struct Output {
    /// Which of the two.
    pub stream: Stream,
    /// What was printed.
    pub text: String,
}

/// The two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// `sys.stdout`
    Stdout,
    /// `sys.stderr`
    Stderr,
}

/// A place in the program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// Name of the function, `<module>` at the top.
    pub function: String,
}

/// The body of a done frame.
#[derive(Debug, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing of a program that is over, and any of them may hold"
)]
pub struct Done {
    /// Whether the program came to its end.
    pub ok: bool,
    /// Tools whose calls were never awaited.
    #[serde(default)]
    pub unawaited: Vec<String>,
    /// Whether calls begin where they are made, so that one never awaited was under way at the end.
    #[serde(default)]
    pub eager: bool,
    /// What it raised.
    #[serde(default)]
    pub error: Option<ProgramError>,
    /// Bytes it printed after the runtime stopped to send them.
    #[serde(default)]
    pub unsent_output_bytes: u64,
    /// Tasks that were not done when it came to its end.
    #[serde(default)]
    pub running: u64,
    /// Whether its last line is an expression whose value went nowhere.
    #[serde(default)]
    pub unprinted: bool,
    /// Steps of its own code, where they were counted.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Whether there were more than its budget.
    #[serde(default)]
    pub steps_stopped: bool,
}

/// What a program raised.
#[derive(Debug, Deserialize)]
pub struct ProgramError {
    /// Name of the exception's class.
    #[serde(rename = "type")]
    pub class: String,
    /// What a model reads: the traceback, or one line.
    pub text: String,
    /// `NameError.name`
    #[serde(default)]
    pub name: Option<String>,
}

#[derive(Deserialize)]
struct EmitBody {
    value: Box<RawValue>,
}

#[derive(Deserialize)]
struct WhereBody {
    lines: Vec<Place>,
}

impl ToWorker {
    /// The whole frame. Fails only where its length does not fit 32 bits.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        #[derive(Serialize)]
        struct StopBody {
            reason: &'static str,
        }
        match self {
            Self::Run(run) => finish(b'R', |frame| serde_json::to_writer(frame, run)),
            Self::Stop { reason } => finish(b'X', |frame| {
                serde_json::to_writer(frame, &StopBody { reason })
            }),
            Self::Answer(answer) => finish(b'r', |frame| answer.write(frame)),
        }
    }
}

impl Answer {
    /// A value can be tens of megabytes, so its text is copied into the frame
    /// once, not parsed and written anew.
    fn write(&self, frame: &mut Vec<u8>) -> serde_json::Result<()> {
        #[derive(Serialize)]
        struct Bad<'a> {
            id: u64,
            ok: bool,
            error: &'a AnswerError,
        }
        let id = self.id;
        match &self.outcome {
            Ok(value) => {
                frame.reserve(value.len() + ENVELOPE);
                frame.extend_from_slice(format!("{{\"id\":{id},\"ok\":true,\"value\":").as_bytes());
                frame.extend_from_slice(value.as_bytes());
                frame.push(b'}');
                Ok(())
            }
            Err(error) => serde_json::to_writer(
                frame,
                &Bad {
                    id,
                    ok: false,
                    error,
                },
            ),
        }
    }
}

/// A frame whose body is what `write` writes.
fn finish(
    kind: u8,
    write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0, 0, 0, 0, kind];
    write(&mut frame)?;
    let length = frame.len() - PREFIX;
    let prefix = u32::try_from(length).map_err(|_| FrameError::Length { kind, length })?;
    if let Some(place) = frame.get_mut(..PREFIX) {
        place.copy_from_slice(&prefix.to_le_bytes());
    }
    Ok(frame)
}

/// Reads one frame; `None` at the end of the stream between frames.
///
/// `max_emit` is what a program may emit, in bytes of JSON.
pub async fn read_frame<R: AsyncRead + Unpin>(
    stream: &mut R,
    max_emit: usize,
) -> Result<Option<FromWorker>, FrameError> {
    let mut head = [0_u8; 5];
    let mut have = 0;
    while have < head.len() {
        let rest = head.get_mut(have..).unwrap_or_default();
        match stream.read(rest).await? {
            0 if have == 0 => return Ok(None),
            0 => return Err(FrameError::Cut),
            more => have += more,
        }
    }
    let [a, b, c, d, kind] = head;
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    let limit = limit_of(kind, max_emit)?;
    if length == 0 || length > limit {
        return Err(FrameError::Length { kind, length });
    }
    let mut body = vec![0_u8; length - 1];
    stream
        .read_exact(&mut body)
        .await
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => FrameError::Cut,
            _ => FrameError::Io(error),
        })?;
    decode(kind, &body).map(Some)
}

fn limit_of(kind: u8, max_emit: usize) -> Result<usize, FrameError> {
    match kind {
        b'C' => Ok(MAX_CALL),
        b'O' => Ok(MAX_OUTPUT),
        b'D' => Ok(MAX_DONE),
        b'E' => Ok(max_emit.saturating_add(SLACK)),
        b'H' | b'Q' | b'W' => Ok(MAX_SMALL),
        other => Err(FrameError::Kind(other)),
    }
}

fn decode(kind: u8, body: &[u8]) -> Result<FromWorker, FrameError> {
    // An array would do for a struct of its length; a body is an object.
    if body.first() != Some(&b'{') {
        return Err(FrameError::Meaning("the body is no object"));
    }
    // All of it, members that nobody reads included, as the Python half has it.
    let body =
        std::str::from_utf8(body).map_err(|_| FrameError::Meaning("the body is not UTF-8"))?;
    Ok(match kind {
        b'H' => FromWorker::Hello(serde_json::from_str(body)?),
        b'C' => FromWorker::Call(checked_call(serde_json::from_str(body)?)?),
        b'Q' => FromWorker::Query(checked_query(serde_json::from_str(body)?)?),
        b'O' => FromWorker::Output(serde_json::from_str(body)?),
        b'E' => FromWorker::Emit(checked_value(
            serde_json::from_str::<EmitBody>(body)?.value,
        )?),
        b'W' => FromWorker::Where(serde_json::from_str::<WhereBody>(body)?.lines),
        b'D' => FromWorker::Done(checked_done(serde_json::from_str(body)?)?),
        other => return Err(FrameError::Kind(other)),
    })
}

fn checked_value(value: Box<RawValue>) -> Result<Box<RawValue>, FrameError> {
    if is_too_deep(value.get()) {
        return Err(TOO_DEEP);
    }
    Ok(value)
}

/// Whether a JSON text has more brackets open at once than its reader will follow.
fn is_too_deep(json: &str) -> bool {
    let (mut open, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' if open == MAX_DEPTH => return true,
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    false
}

fn checked_query(query: Query) -> Result<Query, FrameError> {
    match &query.arguments {
        Some(arguments) if !arguments.get().starts_with('{') => {
            Err(FrameError::Meaning("the arguments are no object"))
        }
        Some(arguments) if is_too_deep(arguments.get()) => Err(TOO_DEEP),
        _ => Ok(query),
    }
}

fn checked_call(call: Call) -> Result<Call, FrameError> {
    if call.arguments.get().starts_with('{') {
        Ok(call)
    } else {
        Err(FrameError::Meaning("the arguments are no object"))
    }
}

fn checked_done(done: Done) -> Result<Done, FrameError> {
    if done.ok == done.error.is_none() {
        Ok(done)
    } else {
        Err(FrameError::Meaning("ok and error contradict each other"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn frame(kind: u8, body: &str) -> Vec<u8> {
        finish(kind, |frame| {
            frame.extend_from_slice(body.as_bytes());
            Ok(())
        })
        .unwrap()
    }

    /// Hands out its bytes in the pieces it was given.
    struct Pieces(std::collections::VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let rest = piece.split_off(piece.len().min(buffer.remaining()));
                buffer.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            std::task::Poll::Ready(Ok(()))
        }
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<FromWorker>, FrameError> {
        let mut stream = bytes;
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(async {
                let mut frames = Vec::new();
                while let Some(frame) = read_frame(&mut stream, 1024).await? {
                    frames.push(frame);
                }
                Ok(frames)
            })
    }

    #[test]
    fn numbers_in_arguments_keep_every_digit() {
        let text =
            r#"{"id":1,"tool":"mcp__a__b","arguments":{"n":1267650600228229401496703205376}}"#;
        let frames = read_all(&frame(b'C', text)).unwrap();
        let [FromWorker::Call(call)] = frames.as_slice() else {
            panic!("{frames:?}")
        };
        assert_eq!(
            call.arguments.get(),
            r#"{"n":1267650600228229401496703205376}"#
        );
    }

    #[test]
    fn values_keep_keys_that_the_reader_has_a_use_for() {
        for value in [
            r#"{"$serde_json::private::Number":"12"}"#,
            r#"[{"$serde_json::private::RawValue":["{"]}]"#,
        ] {
            let body = format!(r#"{{"value":{value}}}"#);
            let frames = read_all(&frame(b'E', &body)).unwrap();
            let [FromWorker::Emit(text)] = frames.as_slice() else {
                panic!("{frames:?}")
            };
            assert_eq!(text.get(), value);
            let body = format!(r#"{{"id":1,"helper":"inspect_tool","arguments":{{"a":{value}}}}}"#);
            let frames = read_all(&frame(b'Q', &body)).unwrap();
            assert!(matches!(frames.as_slice(), [FromWorker::Query(_)]));
        }
        let list = r#"{"id":1,"helper":"inspect_tool","arguments":[]}"#;
        assert!(matches!(
            read_all(&frame(b'Q', list)),
            Err(FrameError::Meaning(_))
        ));
    }

    #[test]
    fn a_length_over_the_cap_is_refused_before_its_body_is_there() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.push(b'C');
        assert!(matches!(read_all(&bytes), Err(FrameError::Length { .. })));
        assert!(matches!(
            read_all(&[0, 0, 0, 0, b'C']),
            Err(FrameError::Length { .. })
        ));
    }

    #[test]
    fn unknown_kinds_and_bad_bodies_are_errors() {
        assert!(matches!(
            read_all(&frame(b'?', "{}")),
            Err(FrameError::Kind(b'?'))
        ));
        assert!(matches!(
            read_all(&frame(b'D', "{}")),
            Err(FrameError::Body(_))
        ));
        assert!(matches!(
            read_all(&frame(b'H', "{nonsense")),
            Err(FrameError::Body(_))
        ));
        assert!(matches!(
            read_all(&frame(b'H', "nonsense")),
            Err(FrameError::Meaning(_))
        ));
        let mut broken = frame(b'O', r#"{"stream":"stdout","text":"x"}"#);
        let last = broken.len() - 3;
        broken[last] = 0xff;
        assert!(matches!(read_all(&broken), Err(FrameError::Meaning(_))));
        let mut unread = frame(b'O', r#"{"stream":"stdout","text":"x","more":"y"}"#);
        let last = unread.len() - 3;
        unread[last] = 0xff;
        assert!(matches!(read_all(&unread), Err(FrameError::Meaning(_))));
        assert!(matches!(
            read_all(&frame(b'H', "{}")[..6]),
            Err(FrameError::Cut)
        ));
    }

    /// The rows of a golden file in `tests/frames/`.
    fn golden(name: &str) -> Vec<Value> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/frames")
            .join(name);
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn bytes_of(row: &Value) -> Vec<u8> {
        let hex = row["hex"].as_str().unwrap();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn to_worker(kind: &str, body: &Value) -> ToWorker {
        let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        match kind {
            "R" => ToWorker::Run(Run {
                program: body["program"].as_str().unwrap().to_owned(),
                tools: serde_json::from_value(body["tools"].clone()).unwrap(),
                absent: serde_json::from_value(
                    body.get("absent").cloned().unwrap_or(serde_json::json!({})),
                )
                .unwrap(),
                limits: RunLimits {
                    steps: None,
                    max_emit_bytes: number(&body["limits"]["max_emit_bytes"]),
                    max_call_bytes: number(&body["limits"]["max_call_bytes"]),
                },
                seed: body.get("seed").and_then(Value::as_u64),
                apart: body.get("apart") == Some(&Value::Bool(true)),
            }),
            "X" => ToWorker::Stop {
                reason: body["reason"].as_str().unwrap().to_owned().leak(),
            },
            _ if body["ok"] == Value::Bool(true) => ToWorker::Answer(Answer {
                id: body["id"].as_u64().unwrap(),
                outcome: Ok(body["value"].to_string().into()),
            }),
            _ => {
                let error = &body["error"];
                let text = |name: &str| error[name].as_str().map(str::to_owned);
                ToWorker::Answer(Answer {
                    id: body["id"].as_u64().unwrap(),
                    outcome: Err(AnswerError {
                        kind: text("kind").unwrap().leak(),
                        message: text("message").unwrap(),
                        tool: text("tool"),
                        server: text("server"),
                        retryable: error["retryable"].as_bool().unwrap(),
                        data: Some(error["data"].clone()).filter(|data| !data.is_null()),
                    }),
                })
            }
        }
    }

    #[test]
    fn the_golden_frames_to_a_worker_are_what_is_sent() {
        let rows = golden("to_worker.jsonl");
        let good: Vec<_> = rows.iter().filter(|row| row["error"].is_null()).collect();
        assert!(good.len() > 10);
        for row in good {
            let frame = to_worker(row["kind"].as_str().unwrap(), &row["body"])
                .encode()
                .unwrap();
            assert_eq!(frame, bytes_of(row), "{row}");
        }
    }

    #[test]
    fn the_golden_frames_from_a_worker_are_taken_or_refused() {
        let rows = golden("from_worker.jsonl");
        assert!(rows.len() > 30);
        for row in &rows {
            let read = read_all(&bytes_of(row));
            if row["error"] == Value::Bool(true) {
                // Nothing at all is the end of a stream, which is no fault of a frame.
                let nothing = row["note"] == "nothing" && read.as_ref().is_ok_and(Vec::is_empty);
                assert!(read.is_err() || nothing, "{row}");
            } else {
                assert_eq!(read.unwrap().len(), 1, "{row}");
            }
        }
    }

    /// A stream of frames: right ones, right ones with a wrong byte, and anything.
    fn streams() -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![
            "\\PC{0,20}".prop_map(|text| (b'O', json!({"stream": "stdout", "text": text}))),
            "[ab\"€😀]{0,9}".prop_map(|text| (b'E', json!({"value": [text, {"n": 1.5}]}))),
            any::<u64>()
                .prop_map(|id| (b'C', json!({"id": id, "tool": "t", "arguments": {"a": id}}))),
            Just((b'Q', json!({"id": 2, "helper": "server_status"}))),
            Just((b'W', json!({"lines": [{"line": 3, "function": "f"}]}))),
            Just((b'H', json!({"protocol": 1, "python": "3.12.1"}))),
        ];
        let right = body.prop_map(|(kind, body)| frame(kind, &body.to_string()));
        let wrong = (right.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(
            |(mut bytes, at, byte)| {
                let at = at.index(bytes.len());
                bytes[at] = byte;
                bytes
            },
        );
        let part =
            prop_oneof![6 => right, 2 => wrong, 1 => prop::collection::vec(any::<u8>(), 0..20)];
        prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
    }

    /// The frames of a stream that comes in pieces, and how it ends, in words.
    fn words_of(stream: &[u8], cuts: &[usize]) -> Vec<String> {
        let mut pieces = std::collections::VecDeque::new();
        let mut rest = stream;
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at((*cut).min(rest.len()));
            pieces.push_back(piece.to_vec());
            rest = tail;
        }
        let mut stream = Pieces(pieces);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut words = Vec::new();
            loop {
                match read_frame(&mut stream, 1024).await {
                    Ok(Some(frame)) => words.push(format!("{frame:?}")),
                    Ok(None) => return words,
                    Err(error) => {
                        words.push(error.to_string());
                        return words;
                    }
                }
            }
        })
    }

    proptest! {
        #[test]
        fn any_stream_gives_the_same_in_any_pieces(
            stream in streams(),
            cuts in prop::collection::vec(1_usize..30, 1..20),
        ) {
            let whole = words_of(&stream, &[stream.len().max(1)]);
            prop_assert_eq!(&words_of(&stream, &cuts), &whole);
            prop_assert_eq!(&words_of(&stream, &[1]), &whole);
        }

        #[test]
        fn an_answer_is_one_frame_that_says_what_it_was_given(id in any::<u64>(), text in any::<String>(), ok in any::<bool>()) {
            let value: Box<str> = json!([text, -0.0, null]).to_string().into();
            let error = AnswerError {
                kind: "timeout", message: text.clone(), tool: Some(text.clone()), server: None,
                retryable: ok, data: Some(json!({"t": text})),
            };
            let outcome = if ok { Ok(value) } else { Err(error) };
            let bytes = ToWorker::Answer(Answer { id, outcome }).encode().unwrap();
            let (head, body) = bytes.split_at(5);
            prop_assert_eq!(u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize, body.len() + 1);
            prop_assert_eq!(head[4], b'r');
            let body: Value = serde_json::from_slice(body).unwrap();
            let expected = if ok {
                json!({"id": id, "ok": true, "value": [text, -0.0, null]})
            } else {
                json!({"id": id, "ok": false, "error": {"kind": "timeout", "message": text, "tool": text,
                    "server": null, "retryable": false, "data": {"t": text}}})
            };
            prop_assert_eq!(body, expected);
        }

        #[test]
        fn frames_survive_any_split(cuts in prop::collection::vec(1_usize..40, 1..40), texts in prop::collection::vec(".*", 1..6)) {
            let mut bytes = Vec::new();
            for text in &texts {
                let body = serde_json::json!({"stream": "stderr", "text": text}).to_string();
                bytes.extend(frame(b'O', &body));
            }
            let mut pieces = std::collections::VecDeque::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push_back(piece.to_vec());
                rest = tail;
            }
            let mut stream = Pieces(pieces);
            let got = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
                let mut got = Vec::new();
                while let Some(frame) = read_frame(&mut stream, 1024).await.unwrap() {
                    let FromWorker::Output(output) = frame else { panic!("{frame:?}") };
                    got.push(output.text);
                }
                got
            });
            prop_assert_eq!(got, texts);
        }
    }
}
