//! Moves lines between the shim's own stdin and stdout and its event loop, in threads.
//!
//! Threads with plain reads and writes work with whatever the client gave as
//! stdin and stdout, and leave the files' flags, which others may share, alone.

use std::io;
use std::os::fd::AsFd;
use std::thread;

use ptc_protocol::MAX_LINE_BYTES;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

use crate::lines::{Frame, Splitter};

/// Lines that wait between a thread and the loop.
const QUEUE: usize = 2;
/// Bytes asked for in one read.
const CHUNK_BYTES: usize = 32 * 1024;
/// Enough for these small loops; the default of 2 MiB is address space only, but shows in some monitors.
const STACK_BYTES: usize = 128 * 1024;

/// The loop's end of the threads.
#[derive(Debug)]
pub struct Stdio {
    /// The client's lines; closed at the end of stdin.
    pub input: mpsc::Receiver<Frame>,
    /// Lines for the client, without their newlines; dropping it lets the writer end.
    pub output: mpsc::Sender<Vec<u8>>,
    /// Says once that nobody reads stdout any more.
    pub gone: oneshot::Receiver<()>,
    /// Says once that everything given to `output` is written, after `output` was dropped.
    pub written: oneshot::Receiver<()>,
}

/// Starts the threads.
pub fn open() -> io::Result<Stdio> {
    let (lines, input) = mpsc::channel(QUEUE);
    let (output, queue) = mpsc::channel(QUEUE);
    let (all_written, written) = oneshot::channel();
    let (lost, gone) = oneshot::channel();
    spawn("stdin", move || read(&lines))?;
    spawn("stdout", move || {
        if write(queue).is_ok() {
            // Nobody listens when the loop has ended for another reason.
            let _ = all_written.send(());
        }
    })?;
    spawn("reader-watch", move || {
        if watch().is_ok() {
            let _ = lost.send(());
        }
    })?;
    Ok(Stdio {
        input,
        output,
        gone,
        written,
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// Cuts stdin into frames until it ends, cannot be read, or nobody takes them.
fn read(lines: &mpsc::Sender<Frame>) {
    let stdin = io::stdin();
    let mut splitter = Splitter::new(MAX_LINE_BYTES);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = match rustix::io::read(stdin.as_fd(), &mut chunk) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => match wait(stdin.as_fd(), PollFlags::IN) {
                Ok(_) => continue,
                Err(_) => 0,
            },
            Err(_) => 0,
        };
        let Some(bytes) = chunk.get(..count).filter(|_| count > 0) else {
            break;
        };
        splitter.push(bytes);
        while let Some(frame) = splitter.next_frame() {
            if lines.blocking_send(frame).is_err() {
                return;
            }
        }
    }
    if let Some(frame) = splitter.finish() {
        let _ = lines.blocking_send(frame);
    }
}

/// Writes every line with its newline at once.
fn write(mut queue: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let stdout = io::stdout();
    while let Some(mut line) = queue.blocking_recv() {
        line.push(b'\n');
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(stdout.as_fd(), rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    wait(stdout.as_fd(), PollFlags::OUT)?;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

/// Returns once stdout has nobody who could read it.
fn watch() -> io::Result<()> {
    let lost = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    loop {
        if wait(io::stdout().as_fd(), PollFlags::empty())?.intersects(lost) {
            return Ok(());
        }
    }
}

fn wait(fd: std::os::fd::BorrowedFd<'_>, events: PollFlags) -> io::Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    loop {
        match poll(&mut fds, None) {
            Ok(_) => return Ok(fds.first().map_or(PollFlags::empty(), PollFd::revents)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
