//! Carries one worker's records between the streams of an engine's program and the ends that ptcd holds.

use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Sender;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::sandbox::Exit;
use crate::sandbox::process::Reins;

/// Longest record, as the supervisor has it.
const LONGEST: usize = 1 << 20;
/// Bytes of the channel in one record.
const PART: usize = 1 << 16;
/// How long the word to end may take to be written.
const LAST_WORD: Duration = Duration::from_millis(500);
/// What is kept of an engine's own messages.
const TAIL: usize = 4096;

/// The ends on ptcd's side that stand for a worker's descriptors 3, 1 and 2.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) channel: UnixStream,
    pub(super) stdout: Sender,
    pub(super) stderr: Sender,
}

/// What came from a container until its end.
#[derive(Debug)]
pub(super) struct Heard {
    /// How the worker ended, if the supervisor could tell.
    pub(super) ended: Option<Exit>,
    /// Whether its channel said anything.
    pub(super) spoke: bool,
    /// Where its standard error goes.
    pub(super) stderr: Sender,
}

#[derive(Deserialize)]
struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
    cpu_micros: u64,
    peak_memory_bytes: u64,
}

/// Carries what ptcd says, and the pulls at the reins, until there is nobody who says anything.
pub(super) async fn carry_in(
    mut to: impl AsyncWrite + Unpin,
    mut channel: OwnedReadHalf,
    reins: Reins,
) {
    let mut part = vec![0; PART];
    loop {
        tokio::select! {
            biased;
            () = reins.kill.cancelled() => {
                let word = tokio::time::timeout(LAST_WORD, write_record(&mut to, b'k', &[])).await;
                if matches!(word, Ok(Ok(()))) {
                    // The end of the stream would keep the supervisor from telling how the worker ended.
                    std::future::pending::<()>().await;
                }
                return;
            }
            () = reins.interrupt.notified() => {
                if write_record(&mut to, b'i', &[]).await.is_err() {
                    return;
                }
            }
            read = channel.read(&mut part) => {
                let bytes = match read {
                    Ok(length) if length > 0 => part.get(..length).unwrap_or_default(),
                    _ => return,
                };
                tokio::select! {
                    biased;
                    written = write_record(&mut to, b'c', bytes) => if written.is_err() { return },
                    // Half a record is written: the end of the stream is all that can still be said.
                    () = reins.kill.cancelled() => return,
                }
            }
        }
    }
}

async fn write_record(
    to: &mut (impl AsyncWrite + Unpin),
    kind: u8,
    bytes: &[u8],
) -> std::io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
    let mut record = vec![kind];
    record.extend_from_slice(&length.to_le_bytes());
    record.extend_from_slice(bytes);
    to.write_all(&record).await?;
    to.flush().await
}

/// Hands on what a container says until it says no more. A record no supervisor writes ends the worker.
pub(super) async fn carry_out(
    mut from: impl AsyncRead + Unpin,
    channel: OwnedWriteHalf,
    (mut stdout, stderr): (Sender, Sender),
    reins: Reins,
) -> Heard {
    let mut heard = Heard {
        ended: None,
        spoke: false,
        stderr,
    };
    let mut channel = Some(channel);
    loop {
        let (kind, bytes) = match read_record(&mut from).await {
            Ok(Some(record)) => record,
            Ok(None) => return heard,
            Err(_) => break,
        };
        // A stream that nobody reads any more is no reason to keep from the others what is theirs.
        match kind {
            b'c' => {
                heard.spoke = true;
                if let Some(channel) = &mut channel {
                    let _ = channel.write_all(&bytes).await;
                }
            }
            b'1' => drop(stdout.write_all(&bytes).await),
            b'2' => drop(heard.stderr.write_all(&bytes).await),
            b'z' => channel = None,
            b'x' => match serde_json::from_slice::<Ended>(&bytes) {
                Ok(ended) => heard.ended = Some(ended.into()),
                Err(_) => break,
            },
            _ => break,
        }
    }
    reins.kill.cancel();
    heard
}

async fn read_record(
    from: &mut (impl AsyncRead + Unpin),
) -> std::io::Result<Option<(u8, Vec<u8>)>> {
    let mut header = [0; 5];
    match from.read_exact(&mut header).await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let [kind, length @ ..] = header;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(std::io::Error::other)?;
    if length > LONGEST {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await?;
    Ok(Some((kind, bytes)))
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Self {
        Self {
            code: ended.code,
            signal: ended.signal,
            cpu: Duration::from_micros(ended.cpu_micros),
            peak_memory_bytes: ended.peak_memory_bytes,
            scratch_exceeded: false,
        }
    }
}

/// The end of what an engine's program says.
pub(super) async fn last_words(mut from: impl AsyncRead + Unpin) -> String {
    let mut tail = Vec::new();
    let mut part = [0; 1024];
    while let Ok(length @ 1..) = from.read(&mut part).await {
        tail.extend_from_slice(part.get(..length).unwrap_or_default());
        let over = tail.len().saturating_sub(TAIL);
        tail.drain(..over);
    }
    String::from_utf8_lossy(&tail).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use tokio_util::sync::CancellationToken;

    use super::*;

    fn pipe() -> (tokio::net::unix::pipe::Receiver, Sender) {
        let (read, write): (OwnedFd, OwnedFd) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        (
            tokio::net::unix::pipe::Receiver::from_owned_fd(read).unwrap(),
            Sender::from_owned_fd(write).unwrap(),
        )
    }

    fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut record = vec![kind];
        record.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
        record.extend_from_slice(bytes);
        record
    }

    async fn hear(said: &[u8]) -> (Heard, String, String, Reins) {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut out, stdout) = pipe();
        let (_err, stderr) = pipe();
        let reins = Reins::under(&CancellationToken::new());
        let write = far.into_split().1;
        let heard = carry_out(said, write, (stdout, stderr), reins.clone()).await;
        let (mut channel, mut output) = (String::new(), String::new());
        near.into_split()
            .0
            .read_to_string(&mut channel)
            .await
            .unwrap();
        out.read_to_string(&mut output).await.unwrap();
        (heard, channel, output, reins)
    }

    #[tokio::test]
    async fn each_record_goes_where_it_belongs() {
        let said = [
            record(b'1', b"stray"),
            record(b'c', b"frame"),
            record(b'z', b""),
            record(
                b'x',
                br#"{"code":null,"signal":11,"cpu_micros":5,"peak_memory_bytes":6}"#,
            ),
        ]
        .concat();
        let (heard, channel, output, reins) = hear(&said).await;
        assert_eq!((channel.as_str(), output.as_str()), ("frame", "stray"));
        assert!(heard.spoke && !reins.kill.is_cancelled());
        assert_eq!(
            heard.ended,
            Some(Exit {
                code: None,
                signal: Some(11),
                cpu: Duration::from_micros(5),
                peak_memory_bytes: 6,
                scratch_exceeded: false,
            })
        );
    }

    #[tokio::test]
    async fn what_is_no_record_ends_the_worker() {
        for said in [
            record(b'q', b""),
            record(b'x', b"[]"),
            [&b"c"[..], &u32::MAX.to_le_bytes()].concat(),
            [&b"c"[..], &9_u32.to_le_bytes(), b"short"].concat(),
        ] {
            let (heard, _, _, reins) = hear(&said).await;
            assert!(reins.kill.is_cancelled(), "{said:?}");
            assert_eq!(heard.ended, None);
        }
    }

    #[tokio::test]
    async fn ptcds_words_and_the_reins_become_records() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let (mut said, to) = tokio::io::duplex(1024);
        let reins = Reins::under(&CancellationToken::new());
        let carrying = tokio::spawn(carry_in(to, far.into_split().0, reins.clone()));
        let mut next = async |length: usize| {
            let mut bytes = vec![0; length];
            said.read_exact(&mut bytes).await.unwrap();
            bytes
        };
        near.write_all(b"hi").await.unwrap();
        assert_eq!(next(7).await, record(b'c', b"hi"));
        reins.interrupt.notify_one();
        assert_eq!(next(5).await, record(b'i', b""));
        reins.kill.cancel();
        assert_eq!(next(5).await, record(b'k', b""));
        assert!(!carrying.is_finished());
        carrying.abort();
    }

    #[tokio::test]
    async fn only_the_end_of_long_messages_is_kept() {
        let text = format!("{}the end\n", "x".repeat(10_000));
        let tail = last_words(text.as_bytes()).await;
        assert!(tail.ends_with("the end"));
        assert!(tail.len() <= TAIL);
    }
}
