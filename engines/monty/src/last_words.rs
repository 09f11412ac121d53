//! What is told of a program whose interpreter ended in the middle of it.
//!
//! The allocator ends the process where memory is used up, and a fault of the interpreter is a panic: in neither can
//! anything be built any more, so the frames that are written then are made beforehand.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::frame;

const OUT_OF_MEMORY: &str =
    r#"{"ok":false,"unawaited":[],"error":{"type":"MemoryError","text":"MemoryError"}}"#;
const FAULT: &str = r#"{"ok":false,"unawaited":[],"error":{"type":"SystemError","text":"SystemError: the engine monty failed inside itself: write this part another way, or run the program with engine: cpython"}}"#;

static MEMORY: OnceLock<Vec<u8>> = OnceLock::new();
static INSIDE: OnceLock<Vec<u8>> = OnceLock::new();
/// Whether a frame is being written, into which nothing may be put.
static WRITING: AtomicBool = AtomicBool::new(false);
/// What is to be said at the exit: nothing, the one or the other.
static WORDS: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = 0;
const SHORT_OF_MEMORY: u8 = 1;
const FAILED: u8 = 2;

/// From now on an exit in the middle is told.
pub(crate) fn arm() {
    MEMORY.get_or_init(|| frame::encode(b'D', OUT_OF_MEMORY.as_bytes()));
    INSIDE.get_or_init(|| frame::encode(b'D', FAULT.as_bytes()));
    WORDS.store(SHORT_OF_MEMORY, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|_| {
        WORDS.store(FAILED, Ordering::Relaxed);
        std::process::exit(101);
    }));
}

/// The end was told: nothing is said at the exit.
pub(crate) fn disarm() {
    WORDS.store(NOTHING, Ordering::Relaxed);
}

/// Marks the time in which a frame is written.
pub(crate) fn writing(now: bool) {
    WRITING.store(now, Ordering::Relaxed);
}

/// Writes the last frame, called at the exit.
pub(crate) extern "C" fn say() {
    if WRITING.load(Ordering::Relaxed) {
        return;
    }
    let words = match WORDS.swap(NOTHING, Ordering::Relaxed) {
        SHORT_OF_MEMORY => MEMORY.get(),
        FAILED => INSIDE.get(),
        _ => None,
    };
    if let (Some(words), Some(channel)) = (words, crate::channel::descriptor()) {
        // Past a full channel nothing can be said; the daemon then sees a process that ended.
        let _ = rustix::io::write::<BorrowedFd<'_>>(channel, words);
    }
}
