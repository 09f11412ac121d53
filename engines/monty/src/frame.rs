//! The frames between the daemon and a worker: little-endian length, kind, JSON body.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Revision of the frames.
pub(crate) const PROTOCOL: u32 = 1;
/// Longest frame that is taken, in bytes.
pub(crate) const MAX_FRAME: usize = 64 * 1024 * 1024;
/// Bytes before a body: the length, which counts the kind, and the kind.
pub(crate) const HEADER: usize = 5;

/// What the daemon says that is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What the daemon says.
#[derive(Debug)]
pub(crate) enum ToWorker {
    /// The one program.
    Run(Box<Run>),
    /// The answer to a call or a query.
    Answer(Answer),
    /// The run is over: where does the program wait?
    Stop,
}

/// The body of a run frame.
#[derive(Debug, Deserialize)]
pub(crate) struct Run {
    /// Source text as the client sent it.
    pub(crate) program: String,
    /// Callable names, each with its parameters.
    pub(crate) tools: BTreeMap<String, Vec<String>>,
    /// Names in the program that look like tools and are none, and why.
    #[serde(default)]
    pub(crate) absent: BTreeMap<String, String>,
    pub(crate) limits: Limits,
    /// What `random` starts from.
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    /// Whether output goes by frames that name its stream.
    #[serde(default)]
    pub(crate) apart: bool,
}

/// Limits that are checked before anything is sent, in bytes of JSON.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Limits {
    pub(crate) max_emit_bytes: usize,
    pub(crate) max_call_bytes: usize,
}

/// The body of an answer frame.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Id of the call or query.
    pub(crate) id: u64,
    /// The value as JSON text, or the error.
    pub(crate) outcome: Result<String, AnswerError>,
}

/// What a program catches as `ToolError`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct AnswerError {
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) tool: Option<String>,
    pub(crate) server: Option<String>,
    pub(crate) retryable: bool,
    pub(crate) data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct AnswerBody {
    id: u64,
    ok: bool,
    #[serde(default)]
    value: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<AnswerError>,
}

/// A place in the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Name of the function, `<module>` at the top.
    pub(crate) function: String,
}

/// The body of a done frame.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Done {
    pub(crate) ok: bool,
    /// Tools whose calls were never awaited; here they were started.
    pub(crate) unawaited: Vec<String>,
    /// Whether calls begin where they are made, not where they are awaited.
    pub(crate) eager: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ProgramError>,
    pub(crate) unsent_output_bytes: u64,
    /// Whether its last line is an expression whose value went nowhere.
    pub(crate) unprinted: bool,
}

/// What a program raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ProgramError {
    #[serde(rename = "type")]
    pub(crate) class: String,
    pub(crate) text: String,
    pub(crate) line: Option<usize>,
    pub(crate) name: Option<String>,
}

/// One whole frame.
pub(crate) fn encode(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 1).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.push(kind);
    frame.extend_from_slice(body);
    frame
}

/// Length of the body and the kind that a header announces.
pub(crate) fn header(bytes: [u8; HEADER]) -> Result<(usize, u8), Malformed> {
    let [a, b, c, d, kind] = bytes;
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).map_err(|_| Malformed)?;
    if length == 0 || length > MAX_FRAME || !b"RrX".contains(&kind) {
        return Err(Malformed);
    }
    Ok((length - 1, kind))
}

/// The meaning of one frame.
pub(crate) fn decode(kind: u8, body: &[u8]) -> Result<ToWorker, Malformed> {
    let body = std::str::from_utf8(body).map_err(|_| Malformed)?;
    // An array would do for a struct of its length.
    if !body.starts_with('{') {
        return Err(Malformed);
    }
    match kind {
        b'R' => serde_json::from_str(body)
            .map(|run| ToWorker::Run(Box::new(run)))
            .map_err(|_| Malformed),
        b'r' => {
            let AnswerBody {
                id,
                ok,
                value,
                error,
            } = serde_json::from_str(body).map_err(|_| Malformed)?;
            let outcome = match (ok, value, error) {
                (true, value, _) => Ok(value.map_or_else(
                    || "null".to_owned(),
                    |value| String::from(Box::<str>::from(value)),
                )),
                (false, _, Some(error)) => Err(error),
                (false, _, None) => return Err(Malformed),
            };
            Ok(ToWorker::Answer(Answer { id, outcome }))
        }
        b'X' => serde_json::from_str::<serde::de::IgnoredAny>(body)
            .map(|_| ToWorker::Stop)
            .map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn decode_whole(bytes: &[u8]) -> Result<ToWorker, Malformed> {
        let head = bytes
            .get(..HEADER)
            .and_then(|head| head.try_into().ok())
            .ok_or(Malformed)?;
        let (length, kind) = header(head)?;
        let body = bytes.get(HEADER..).unwrap_or_default();
        if body.len() == length {
            decode(kind, body)
        } else {
            Err(Malformed)
        }
    }

    /// The same frames that the daemon and the other runtime read.
    #[test]
    fn the_golden_frames_mean_here_what_they_mean_everywhere() {
        let golden = include_str!("../../../tests/frames/to_worker.jsonl");
        let mut count = 0;
        for line in golden.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let found = decode_whole(&bytes(case["hex"].as_str().unwrap()));
            if case["error"] == true {
                assert!(found.is_err(), "{line}");
            } else {
                let body = &case["body"];
                match found.unwrap_or_else(|_| panic!("{line}")) {
                    ToWorker::Run(run) => {
                        assert_eq!(run.program, body["program"].as_str().unwrap());
                    }
                    ToWorker::Answer(answer) => {
                        assert_eq!(answer.id, body["id"].as_u64().unwrap());
                        match answer.outcome {
                            Ok(text) => assert_eq!(
                                serde_json::from_str::<serde_json::Value>(&text).unwrap(),
                                body["value"]
                            ),
                            Err(error) => assert_eq!(
                                error.message,
                                body["error"]["message"].as_str().unwrap()
                            ),
                        }
                    }
                    ToWorker::Stop => assert_eq!(case["kind"], "X"),
                }
            }
            count += 1;
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn a_frame_has_its_length_its_kind_and_its_body() {
        assert_eq!(encode(b'E', b"{}"), b"\x03\x00\x00\x00E{}");
    }
}
