//! One connection: requests in, answers out.

use std::io::{BufReader, Read, Write};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use super::{Answer, Body, Mock, Request};

/// Longest header line and longest body that is read.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Serves until the client goes or an answer ends the connection.
pub(super) fn serve<S: Read + Write>(mock: &Mock, stream: S) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream) {
        if mock.state().closed {
            return;
        }
        mock.state().requests.push(request.clone());
        let scripted = (mock.inner.script)(&request, mock);
        let answer = scripted.unwrap_or_else(|| mock.behave(&request));
        if write(mock, stream.get_mut(), answer).is_none() {
            return;
        }
    }
}

fn read(stream: &mut impl Read) -> Option<Request> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.extend_from_slice(&byte);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect::<std::collections::BTreeMap<_, _>>();
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0usize);
    let mut body = vec![0; length.min(MAX_BODY)];
    stream.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        path,
        headers,
        message: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

/// Writes an answer. `None` when the connection is of no more use.
fn write(mock: &Mock, stream: &mut impl Write, answer: Answer) -> Option<()> {
    let mut lines = vec![format!("HTTP/1.1 {} Any\r\n", answer.status)];
    let headers = answer.headers.iter();
    lines.extend(headers.map(|(name, value)| format!("{name}: {value}\r\n")));
    let head = lines.concat();
    match answer.body {
        Body::Whole(body) => {
            let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
            put(stream, head.as_bytes())?;
            put(stream, &body)
        }
        Body::Pieces { pieces, cut } => {
            put(stream, chunked(&head).as_bytes())?;
            for piece in pieces {
                chunk(stream, &piece)?;
            }
            if cut {
                return None;
            }
            put(stream, b"0\r\n\r\n")
        }
        Body::Open { first } => {
            // Before the client can know of the stream: nothing that is pushed is lost.
            let (sender, receiver) = channel();
            mock.state().streams.push(sender);
            put(stream, chunked(&head).as_bytes())?;
            if !first.is_empty() {
                chunk(stream, &first)?;
            }
            forward(stream, &receiver)
        }
        Body::Silence => loop {
            std::thread::park();
        },
        Body::Cut => None,
    }
}

fn forward(stream: &mut impl Write, pieces: &Receiver<Vec<u8>>) -> Option<()> {
    for piece in pieces {
        chunk(stream, &piece)?;
    }
    put(stream, b"0\r\n\r\n")
}

fn chunked(head: &str) -> String {
    format!("{head}Transfer-Encoding: chunked\r\n\r\n")
}

fn chunk(stream: &mut impl Write, bytes: &[u8]) -> Option<()> {
    put(stream, format!("{:x}\r\n", bytes.len()).as_bytes())?;
    put(stream, bytes)?;
    put(stream, b"\r\n")
}

fn put(stream: &mut impl Write, bytes: &[u8]) -> Option<()> {
    stream.write_all(bytes).and_then(|()| stream.flush()).ok()
}
