//! Counts finished runs: all since the daemon's start, and those of today.

use chrono::{DateTime, Local, NaiveDate};
use ptc_protocol::facts::RunKind;
use ptc_protocol::run::{Ending, RunRecord};
use ptc_protocol::status::Totals;

/// The counts.
#[derive(Debug)]
pub(super) struct Tally {
    since_start: Totals,
    today: Totals,
    /// The day that `today` is of.
    day: NaiveDate,
}

impl Tally {
    /// Nothing since the start; today's runs of earlier daemons are in these records.
    pub(super) fn with(records: &[RunRecord], now: DateTime<Local>) -> Self {
        let mut tally = Self {
            since_start: Totals::default(),
            today: Totals::default(),
            day: now.date_naive(),
        };
        for record in records.iter().filter(|record| is_run(record)) {
            // Counted on the day it ended, as this daemon counts its own.
            let ended = record.started_ms.saturating_add(record.duration_ms);
            if day_of(ended) == Some(tally.day) {
                // What went back to the client is not recorded; it is at most what was printed.
                add(&mut tally.today, record, record.output_bytes);
            }
        }
        tally
    }

    /// Counts a run that has just ended, of whose output `returned` bytes went to its client.
    pub(super) fn count(&mut self, record: &RunRecord, returned: u64, now: DateTime<Local>) {
        self.turn(now);
        add(&mut self.since_start, record, returned);
        add(&mut self.today, record, returned);
    }

    /// Counts since the start.
    pub(super) fn since_start(&self) -> Totals {
        self.since_start
    }

    /// Counts since midnight.
    pub(super) fn today(&mut self, now: DateTime<Local>) -> Totals {
        self.turn(now);
        self.today
    }

    /// Begins anew on another day.
    fn turn(&mut self, now: DateTime<Local>) {
        let day = now.date_naive();
        if day != self.day {
            self.day = day;
            self.today = Totals::default();
        }
    }
}

/// Whether something ran: a submission has a record of its own beside those of its programs.
fn is_run(record: &RunRecord) -> bool {
    record.facts.kind != RunKind::Submission || record.facts.part_of.is_some()
}

/// The day, where this machine is, of a time in milliseconds since the Unix epoch.
fn day_of(ms: u64) -> Option<NaiveDate> {
    let time = DateTime::from_timestamp_millis(i64::try_from(ms).ok()?)?;
    Some(time.with_timezone(&Local).date_naive())
}

fn add(totals: &mut Totals, record: &RunRecord, returned: u64) {
    totals.runs += 1;
    totals.failed_runs += u64::from(record.ending != Ending::Finished);
    totals.result_bytes += record.result_bytes;
    totals.output_bytes += returned;
    totals.kept_out_bytes += record.result_bytes.saturating_sub(returned);
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;
    use ptc_protocol::facts::Facts;
    use ptc_protocol::run::Confinement;

    use super::*;

    fn at(day: u32, hour: u32) -> DateTime<Local> {
        Local.with_ymd_and_hms(2026, 3, day, hour, 0, 0).unwrap()
    }

    fn record(ended: DateTime<Local>, ending: Ending) -> RunRecord {
        let ended = u64::try_from(ended.timestamp_millis()).unwrap();
        RunRecord {
            run: "r".to_owned(),
            session: "s".to_owned(),
            client: None,
            started_ms: ended - 2000,
            duration_ms: 2000,
            ending,
            limit: None,
            confinement: Confinement::Full,
            calls: 1,
            failed_calls: 0,
            output_bytes: 10,
            result_bytes: 1000,
            cpu_ms: None,
            peak_memory_bytes: None,
            error: None,
            facts: Facts::default(),
        }
    }

    #[test]
    fn a_submission_is_counted_by_its_programs() {
        let of = |part_of: Option<&str>| RunRecord {
            facts: Facts {
                kind: RunKind::Submission,
                part_of: part_of.map(str::to_owned),
                ..Facts::default()
            },
            ..record(at(3, 1), Ending::Finished)
        };
        let earlier = [of(Some("r0")), of(Some("r0")), of(None)];
        let mut tally = Tally::with(&earlier, at(3, 12));
        assert_eq!(tally.today(at(3, 12)).runs, 2);
    }

    #[test]
    fn today_begins_at_midnight_and_knows_the_runs_of_earlier_daemons() {
        let earlier = [
            record(at(2, 23), Ending::Finished),
            record(at(3, 1), Ending::Finished),
        ];
        let mut tally = Tally::with(&earlier, at(3, 12));
        assert_eq!(tally.since_start(), Totals::default());
        assert_eq!(tally.today(at(3, 12)).runs, 1);
        tally.count(&record(at(3, 13), Ending::ScriptError), 4, at(3, 13));
        let want = Totals {
            runs: 2,
            failed_runs: 1,
            result_bytes: 2000,
            output_bytes: 14,
            kept_out_bytes: 990 + 996,
        };
        assert_eq!(tally.today(at(3, 23)), want);
        assert_eq!(tally.since_start().runs, 1);
        assert_eq!(tally.today(at(4, 0)), Totals::default());
        tally.count(&record(at(4, 1), Ending::Finished), 1, at(4, 1));
        assert_eq!(tally.today(at(4, 2)).runs, 1);
        assert_eq!(tally.since_start().runs, 2);
    }
}
