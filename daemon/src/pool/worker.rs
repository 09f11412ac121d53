//! One warm worker: its channel, its two pipes, its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ptc_protocol::run::Confinement;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::PoolError;
use super::frame::{FRAME_PROTOCOL, FrameError, FromWorker, ToWorker, read_frame};
use crate::sandbox::{Exit, WorkerProcess};

/// How long a fresh worker may take to import its modules and say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a killed worker may take to be reaped before it is left to the warden.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);
/// Frames waiting to be written to a worker that does not read.
const WRITE_QUEUE: usize = 64;
/// Bytes of a worker's frames that are read ahead, at most.
const READ_BUFFER: usize = 4096;

/// A confined process that will run one program and die.
#[derive(Debug)]
pub struct Worker {
    process: WorkerProcess,
    /// What the program says through its channel.
    pub frames: FrameReceiver,
    writer: mpsc::Sender<Vec<u8>>,
    /// What is written to descriptor 1 before the runtime lays it over descriptor 2.
    pub stdout: Receiver,
    /// What the program prints and writes to descriptors 1 and 2, and the dumps of the interpreter.
    pub stderr: Receiver,
    /// The tier it is confined by.
    pub confinement: Confinement,
    /// The interpreter's version, as its hello had it.
    pub version: String,
    tasks: [JoinHandle<()>; 2],
}

impl Worker {
    /// Waits until a spawned process is warm and checks it from outside.
    pub(super) async fn warm(
        process: WorkerProcess,
        max_emit: usize,
        confinement: Confinement,
    ) -> Result<Self, PoolError> {
        let mut worker = Self::attach(process, max_emit, confinement)?;
        match tokio::time::timeout(HELLO_TIMEOUT, worker.frames.next()).await {
            Ok(Some(Ok(FromWorker::Hello(hello)))) if hello.protocol == FRAME_PROTOCOL => {
                worker.version = hello.python;
            }
            Ok(Some(Ok(frame))) => {
                return Err(PoolError::NoHello {
                    detail: format!("it sent {frame:?}"),
                });
            }
            Ok(Some(Err(error))) => {
                return Err(PoolError::NoHello {
                    detail: error.to_string(),
                });
            }
            Ok(None) => {
                let detail = worker.last_words().await;
                return Err(PoolError::NoHello { detail });
            }
            Err(_) => {
                let detail = format!("it was silent for {} s", HELLO_TIMEOUT.as_secs());
                return Err(PoolError::NoHello { detail });
            }
        }
        Ok(worker)
    }

    fn attach(
        process: WorkerProcess,
        max_emit: usize,
        confinement: Confinement,
    ) -> Result<Self, PoolError> {
        let channel = process.channel.try_clone()?;
        let stdout = process.stdout.try_clone()?;
        let stderr = process.stderr.try_clone()?;
        channel.set_nonblocking(true)?;
        let (read, write) = tokio::net::UnixStream::from_std(channel)?.into_split();
        // A frame is a length and a body: a small one comes by one system call.
        let mut read = BufReader::with_capacity(READ_BUFFER, read);
        // One frame at a time: a worker that floods blocks itself, not the daemon.
        let (frame_sender, frames) = mpsc::channel(1);
        let reader = tokio::spawn(async move {
            loop {
                let (message, over) = match read_frame(&mut read, max_emit).await {
                    Ok(Some(frame)) => (Ok(frame), false),
                    Ok(None) => return,
                    Err(error) => (Err(error), true),
                };
                if frame_sender.send(message).await.is_err() || over {
                    return;
                }
            }
        });
        let (writer, queue) = mpsc::channel(WRITE_QUEUE);
        let writing = tokio::spawn(write_frames(write, queue));
        Ok(Self {
            process,
            frames: FrameReceiver { queue: frames },
            writer,
            stdout: Receiver::from_owned_fd(stdout)?,
            stderr: Receiver::from_owned_fd(stderr)?,
            confinement,
            version: String::new(),
            tasks: [reader, writing],
        })
    }

    /// Whether nothing speaks against giving it a program: it lives, and has said nothing.
    pub(super) fn is_idle(&mut self) -> bool {
        self.process.lives()
            && matches!(
                self.frames.queue.try_recv(),
                Err(mpsc::error::TryRecvError::Empty)
            )
    }

    /// Whether it shares its hash seed and its addresses with others.
    pub(super) fn is_forked(&self) -> bool {
        self.process.is_forked()
    }

    /// A handle that queues frames; it waits where the worker does not read.
    pub fn sender(&self) -> FrameSender {
        FrameSender {
            queue: self.writer.clone(),
            turn: Arc::default(),
        }
    }

    /// Asks the interpreter to print where it is, even inside C code.
    pub fn interrupt(&self) {
        self.process.interrupt();
    }

    /// Ends the process; it has no say in it.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Waits for the process's end and what the kernel counted; `None` past a deadline.
    pub async fn exited(&mut self) -> Option<Exit> {
        tokio::time::timeout(REAP_TIMEOUT, self.process.exited())
            .await
            .ok()
    }

    /// What a worker that never got warm left on its standard error.
    async fn last_words(&mut self) -> String {
        self.process.kill();
        let exit = self.exited().await;
        let mut buffer = vec![0_u8; 4096];
        let read = rustix::io::read(&self.stderr, &mut buffer).unwrap_or(0);
        let text = String::from_utf8_lossy(buffer.get(..read).unwrap_or_default());
        let tail = text
            .trim()
            .lines()
            .next_back()
            .unwrap_or_default()
            .to_owned();
        match (tail.is_empty(), exit) {
            (false, _) => format!("it ended: {tail}"),
            (
                true,
                Some(Exit {
                    code: Some(code), ..
                }),
            ) => format!("it exited with {code}"),
            (
                true,
                Some(Exit {
                    signal: Some(signal),
                    ..
                }),
            ) => {
                format!("it was killed by signal {signal}")
            }
            (true, _) => "it closed its channel".to_owned(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.process.kill();
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Hands out the frames of one worker.
#[derive(Debug)]
pub struct FrameReceiver {
    queue: mpsc::Receiver<Result<FromWorker, FrameError>>,
}

impl FrameReceiver {
    /// The next frame; `None` when the worker has closed its channel. May be dropped at any await.
    pub async fn next(&mut self) -> Option<Result<FromWorker, FrameError>> {
        self.queue.recv().await
    }
}

/// Queues frames for one worker.
#[derive(Clone, Debug)]
pub struct FrameSender {
    queue: mpsc::Sender<Vec<u8>>,
    /// Held while a frame is queued and noted; shared by the clones of one sender.
    turn: Arc<Mutex<()>>,
}

impl FrameSender {
    /// Queues a frame; false when the worker is gone or the frame cannot be made.
    pub async fn send(&self, frame: ToWorker) -> bool {
        let Ok(bytes) = frame.encode() else {
            return false;
        };
        self.queue.send(bytes).await.is_ok()
    }

    /// The same, with a word on it: those of several tasks are said in the order of their frames.
    pub async fn send_noting(&self, frame: ToWorker, note: impl FnOnce()) -> bool {
        let Ok(bytes) = frame.encode() else {
            return false;
        };
        let Ok(place) = self.queue.reserve().await else {
            return false;
        };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        place.send(bytes);
        note();
        true
    }

    /// Queues a small frame unless the queue is full: for the last word to a worker that may not listen.
    pub fn send_soon(&self, frame: &ToWorker) {
        if let Ok(bytes) = frame.encode() {
            let _ = self.queue.try_send(bytes);
        }
    }
}

async fn write_frames(mut stream: OwnedWriteHalf, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = queue.recv().await {
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
