//! Remembers calls that were judged fine, and has calls that come at once judged once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::wire::Word;

/// How long a yes counts.
const KEPT: Duration = Duration::from_mins(10);
/// Most judgements that are remembered or under way.
const MAX: usize = 1024;

/// What was said, or why nothing was.
type Answer = Result<(Word, String), String>;

/// One judgement, under way or made.
pub(super) type Cell = Arc<OnceCell<Answer>>;

/// Judgements by their keys, each with until when it counts; those under way have no such time.
type Cells = HashMap<[u8; 32], (Cell, Option<Instant>)>;

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Cells>);

impl Memory {
    /// The judgement of this key; who comes first makes it.
    pub(super) fn cell(&self, key: [u8; 32]) -> Cell {
        let mut cells = self.lock();
        let now = Instant::now();
        cells.retain(|_, (_, until)| until.is_none_or(|until| now < until));
        if cells.len() >= MAX && !cells.contains_key(&key) {
            // What is under way goes on for those who wait for it; it is only not shared with others any more.
            cells.clear();
        }
        let (cell, _) = cells.entry(key).or_default();
        Arc::clone(cell)
    }

    /// Lets a yes count for a while.
    pub(super) fn keep(&self, cell: &Cell) {
        let until = Instant::now() + KEPT;
        for (known, kept) in self.lock().values_mut() {
            if Arc::ptr_eq(known, cell) {
                kept.get_or_insert(until);
            }
        }
    }

    /// Has the next one with its key judged anew.
    pub(super) fn forget(&self, cell: &Cell) {
        self.lock()
            .retain(|_, (known, _)| !Arc::ptr_eq(known, cell));
    }

    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_yes_counts_for_ten_minutes_and_no_call_makes_it_count_longer() {
        let memory = Memory::default();
        let cell = memory.cell([1; 32]);
        cell.get_or_init(async || Ok((Word::Allow, String::new())))
            .await;
        memory.keep(&cell);
        tokio::time::advance(Duration::from_secs(599)).await;
        let again = memory.cell([1; 32]);
        assert!(Arc::ptr_eq(&cell, &again));
        memory.keep(&again);
        assert!(memory.cell([2; 32]).get().is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.cell([1; 32]).get().is_none());
        let cell = memory.cell([2; 32]);
        memory.forget(&cell);
        assert!(!Arc::ptr_eq(&cell, &memory.cell([2; 32])));
        for key in 0..=255 {
            for more in 0..10 {
                let mut bytes = [key; 32];
                bytes[0] = more;
                memory.cell(bytes);
            }
        }
        assert!(memory.lock().len() <= MAX);
    }
}
