//! One HTTP request over a Unix socket, by hand.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long the daemon may take for one answer.
const LIMIT: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// Body, its transfer coding undone.
    pub body: String,
}

/// Asks `METHOD route` and reads until the daemon closes.
pub fn ask(socket: &Path, method: &str, route: &str) -> std::io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    write!(
        stream,
        "{method} {route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes).ok_or_else(|| {
        std::io::Error::other(format!("no answer: {}", String::from_utf8_lossy(&bytes)))
    })
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        unchunk(body)?
    } else {
        body.to_owned()
    };
    Some(Answer {
        status,
        head: format!("{head}\r\n"),
        body,
    })
}

fn unchunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_send_a_body_are_read() {
        let plain = parse(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        assert_eq!((plain.status, plain.body.as_str()), (200, "{}"));
        let chunks = parse(
            b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        )
        .unwrap();
        assert_eq!((chunks.status, chunks.body.as_str()), (404, "abc"));
    }
}
