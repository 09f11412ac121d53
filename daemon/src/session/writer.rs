//! Writes lines to one client, and gives up one that does not read.

use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::requests::Unread;

/// Lines that may wait for a client that does not read.
pub(super) const QUEUE: usize = 16;
/// How long a client may read nothing while something waits for it; then it counts as gone.
const PATIENCE: Duration = Duration::from_mins(1);

/// One line with its newline.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    /// The answer's place, given back once the line is written.
    pub(super) unread: Option<Unread>,
}

/// Writes what comes until the queue is closed or the client does not read any more.
pub(super) async fn write_lines<W: AsyncWrite + Unpin>(
    mut stream: W,
    mut queue: mpsc::Receiver<Line>,
    gone: CancellationToken,
) {
    while let Some(line) = queue.recv().await {
        if !write(&mut stream, &line.bytes).await {
            break;
        }
        drop(line.unread);
    }
    gone.cancel();
}

/// False when nothing more can be written. A slow reader is patiently waited for, piece by piece.
async fn write<W: AsyncWrite + Unpin>(stream: &mut W, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match tokio::time::timeout(PATIENCE, stream.write(bytes)).await {
            Ok(Ok(count)) if count > 0 => bytes = bytes.get(count..).unwrap_or_default(),
            _ => return false,
        }
    }
    matches!(
        tokio::time::timeout(PATIENCE, stream.flush()).await,
        Ok(Ok(()))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_waited_for_and_one_that_reads_nothing_is_given_up() {
        let (server, mut client) = tokio::io::duplex(1000);
        let (sender, queue) = mpsc::channel(QUEUE);
        let gone = CancellationToken::new();
        let writing = tokio::spawn(write_lines(server, queue, gone.clone()));
        let bytes = vec![b'x'; 10_000];
        let line = |bytes: &[u8]| Line {
            bytes: bytes.to_vec(),
            unread: None,
        };
        sender.send(line(&bytes)).await.unwrap();
        let mut piece = [0; 1000];
        for _ in 0..10 {
            tokio::time::sleep(PATIENCE / 2).await;
            client.read_exact(&mut piece).await.unwrap();
        }
        assert!(!gone.is_cancelled());
        sender.send(line(&bytes)).await.unwrap();
        writing.await.unwrap();
        assert!(gone.is_cancelled());
    }
}
