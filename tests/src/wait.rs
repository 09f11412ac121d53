//! Waits with a limit.

use std::time::{Duration, Instant};

/// How long a test waits for what must happen soon. Generous, since the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `look` has something, and panics with `what` after `limit`.
#[track_caller]
pub fn eventually<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Looks until `look` is true, and panics with `what` after `limit`.
#[track_caller]
pub fn until(what: &str, limit: Duration, mut look: impl FnMut() -> bool) {
    eventually(what, limit, || look().then_some(()));
}
