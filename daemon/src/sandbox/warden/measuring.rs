//! Measures the files of workers that have no file system of their own, a moment at a time.

use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use super::{MEASURE, Warden, Worker};
use crate::sandbox::sys;
use crate::sandbox::usage::{Measuring, Usage};

impl Worker {
    /// Begins to measure its files, unless it did not run since the last time, and so wrote nothing.
    fn measure(&mut self, pid: i32) -> Option<Measuring> {
        let scratch = self.scratch.as_ref()?;
        let ran = sys::processor_time(pid).ok();
        if self.scratch_exceeded || (ran.is_some() && ran == self.ran) {
            return None;
        }
        self.ran = ran;
        let (limit, largest) = (self.limits.scratch_bytes, self.limits.file_bytes());
        Some(scratch.measure(pid, limit, largest))
    }
}

impl Warden {
    /// How long the next round of measuring may wait, if there is one to come.
    pub(super) fn until_measured(&self) -> Option<Duration> {
        if self.workers.is_empty() || self.base.is_none() {
            let retried = self.unswept && self.sweeper.is_none();
            return retried.then_some(MEASURE);
        }
        Some(MEASURE.saturating_sub(self.measured.elapsed()))
    }

    /// Measures for a moment, one worker after the other, and ends those whose files are over their limit. Rounds
    /// begin four times a second, or as soon as the last is over.
    pub(super) fn measure(&mut self) {
        if self.measuring.is_none() {
            if self.unmeasured.is_empty() && self.measured.elapsed() >= MEASURE {
                self.measured = Instant::now();
                self.unmeasured.extend(self.workers.keys());
            }
            let workers = &mut self.workers;
            self.measuring = std::iter::from_fn(|| self.unmeasured.pop_front())
                .find_map(|pid| Some((pid, workers.get_mut(&pid)?.measure(pid)?)));
        }
        let Some((pid, measuring)) = &mut self.measuring else {
            return;
        };
        let Some(usage) = measuring.go_on() else {
            return;
        };
        if usage == Usage::Over
            && let Some(worker) = self.workers.get_mut(pid)
        {
            worker.scratch_exceeded = true;
            let _ = pidfd_send_signal(&worker.pidfd, Signal::KILL);
        }
        self.measuring = None;
    }
}
