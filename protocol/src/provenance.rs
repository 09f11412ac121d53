//! What is known of where a run's output comes from, never more than its record supports.

use serde::{Deserialize, Serialize};

use crate::facts::{Kept, RunKind, Witness};
use crate::run::{Confinement, Ending, RunRecord};

/// How far a run is vouched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It was repeated from its record and gave the same output.
    Replayed,
    /// A submission whose structural checks passed; nothing verified its deliverable.
    Checked,
    /// Nothing vouches for it but that it ran.
    Unverified,
}

impl Level {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Checked => "checked",
            Self::Unverified => "unverified",
        }
    }
}

/// Where a run's output comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The run's id.
    pub run: String,
    /// How it ended.
    pub ending: Ending,
    /// What it was for.
    pub kind: RunKind,
    /// How far it is vouched for.
    pub level: Level,
    /// Why it is not more.
    pub reason: Option<String>,
    /// What the level does not say.
    pub caveat: Option<String>,
    /// The structural checks that passed.
    pub checks: Vec<String>,
    /// The witness, with whether a program printed it again.
    pub witness: Option<Witness>,
    /// The submission whose program this is.
    pub part_of: Option<String>,
    /// When it was repeated last with the same output, milliseconds since the Unix epoch.
    pub replayed_ms: Option<u64>,
    /// SHA-256 of the program as kept (after masking).
    pub program_sha256: Option<String>,
    /// SHA-256 of the output as kept.
    pub output_sha256: Option<String>,
    /// SHA-256 of the emitted value or the deliverable as kept.
    pub deliverable_sha256: Option<String>,
    /// The client's label or name, self-declared.
    pub client: Option<String>,
    /// The model, as far as the client tells.
    pub model: Option<String>,
    /// Version of ptcd.
    pub ptcd: Option<String>,
    /// What ran it.
    pub engine: Option<String>,
    /// Version of Python.
    pub python: Option<String>,
    /// The tier it was confined by.
    pub confinement: Confinement,
    /// What was kept of its values.
    pub kept: Option<Kept>,
    /// Calls it made.
    pub calls: u64,
    /// Of these, failed.
    pub failed_calls: u64,
    /// Start, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// End, milliseconds since the Unix epoch.
    pub ended_ms: u64,
}

/// What is said beside `checked`.
pub const CHECKED_CAVEAT: &str = "the structural checks passed; nothing verified the deliverable";
const REPLAYED_CAVEAT: &str = "the recorded run was repeated against its recorded tool results and gave the same \
output; whether the output is right was not checked";

impl Provenance {
    /// What the record supports.
    pub fn of(record: &RunRecord) -> Self {
        let facts = &record.facts;
        let checked = facts.submission.as_ref().filter(|found| found.passed);
        let replayed = facts.replayed.as_ref().filter(|replayed| {
            facts.output_sha256.as_deref() == Some(replayed.output_sha256.as_str())
        });
        let (level, reason, caveat) = if facts.kind == RunKind::Submission && checked.is_some() {
            (Level::Checked, None, Some(CHECKED_CAVEAT))
        } else if replayed.is_some() {
            (Level::Replayed, None, Some(REPLAYED_CAVEAT))
        } else {
            (Level::Unverified, Some(reason(record)), None)
        };
        Self {
            run: record.run.clone(),
            ending: record.ending,
            kind: facts.kind,
            level,
            reason,
            caveat: caveat.map(str::to_owned),
            checks: checked
                .map(|found| found.checks.clone())
                .unwrap_or_default(),
            witness: facts
                .submission
                .as_ref()
                .and_then(|found| found.witness.clone()),
            part_of: facts.part_of.clone(),
            replayed_ms: replayed.map(|replayed| replayed.time_ms),
            program_sha256: facts.program_sha256.clone(),
            output_sha256: facts.output_sha256.clone(),
            deliverable_sha256: facts.result_sha256.clone(),
            client: record.client.clone(),
            model: facts.model.clone(),
            ptcd: facts.ptcd.clone(),
            engine: facts.engine.clone(),
            python: facts.python.clone(),
            confinement: record.confinement,
            kept: facts.kept,
            calls: record.calls,
            failed_calls: record.failed_calls,
            started_ms: record.started_ms,
            ended_ms: record.ended_ms(),
        }
    }
}

/// Why nothing vouches for a run.
fn reason(record: &RunRecord) -> String {
    let facts = &record.facts;
    if facts.ptcd.is_none() {
        return "recorded by an older version of ptcd, whose records have no hashes".to_owned();
    }
    if facts.submission.as_ref().is_some_and(|found| !found.passed) {
        return "the structural checks did not pass".to_owned();
    }
    if facts.kind == RunKind::Inspection {
        return "run for inspection; it is no evidence".to_owned();
    }
    if facts.output_sha256.is_none() {
        return "no output was kept (journal.record: off), so nothing can be compared".to_owned();
    }
    match record.ending {
        Ending::Finished => "the run was not repeated; nothing checked its output".to_owned(),
        other => format!(
            "the run ended as {}; nothing checked its output",
            other.as_str()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, Replayed, Submission};

    fn record(facts: Facts) -> RunRecord {
        RunRecord {
            run: "r1".to_owned(),
            session: "s".to_owned(),
            client: None,
            started_ms: 1,
            duration_ms: 2,
            ending: Ending::Finished,
            limit: None,
            confinement: Confinement::Full,
            calls: 0,
            failed_calls: 0,
            output_bytes: 0,
            result_bytes: 0,
            cpu_ms: None,
            peak_memory_bytes: None,
            error: None,
            facts,
        }
    }

    fn known() -> Facts {
        Facts {
            ptcd: Some("1".to_owned()),
            output_sha256: Some("aa".to_owned()),
            ..Facts::default()
        }
    }

    fn replayed(hash: &str) -> Replayed {
        Replayed {
            time_ms: 9,
            output_sha256: hash.to_owned(),
        }
    }

    #[test]
    fn a_plain_program_is_never_more_than_replayed_and_only_by_the_same_output() {
        let level = |facts| Provenance::of(&record(facts)).level;
        assert_eq!(level(known()), Level::Unverified);
        let same = Facts {
            replayed: Some(replayed("aa")),
            ..known()
        };
        assert_eq!(level(same), Level::Replayed);
        let other = Facts {
            replayed: Some(replayed("bb")),
            ..known()
        };
        assert_eq!(level(other), Level::Unverified);
        let none = Facts {
            output_sha256: None,
            replayed: Some(replayed("aa")),
            ..known()
        };
        assert_eq!(level(none), Level::Unverified);
        // A check that stands in the record of a plain program vouches for nothing.
        let forged = Facts {
            submission: Some(Submission {
                passed: true,
                checks: Vec::new(),
                witness: None,
                runs: Vec::new(),
            }),
            ..known()
        };
        assert_eq!(level(forged), Level::Unverified);
    }

    #[test]
    fn a_submission_is_checked_where_its_checks_passed_and_says_what_that_is_not() {
        let of = |passed| {
            Provenance::of(&record(Facts {
                kind: RunKind::Submission,
                submission: Some(Submission {
                    passed,
                    checks: vec!["shape".to_owned()],
                    witness: None,
                    runs: Vec::new(),
                }),
                ..known()
            }))
        };
        let passed = of(true);
        assert_eq!((passed.level, passed.reason), (Level::Checked, None));
        assert_eq!(passed.checks, ["shape"]);
        assert!(
            passed
                .caveat
                .is_some_and(|text| text.contains("nothing verified"))
        );
        let failed = of(false);
        assert_eq!(failed.level, Level::Unverified);
        assert!(failed.checks.is_empty());
    }

    #[test]
    fn an_older_record_claims_nothing() {
        let text = r#"{"run":"r0","session":"s","started_ms":1,"duration_ms":2,"ending":"finished",
            "confinement":"full","calls":0,"failed_calls":0,"output_bytes":0,"result_bytes":0}"#;
        let old: RunRecord = serde_json::from_str(text).unwrap();
        let provenance = Provenance::of(&old);
        assert_eq!(provenance.level, Level::Unverified);
        assert!(
            provenance
                .reason
                .is_some_and(|text| text.contains("older version"))
        );
        assert_eq!((provenance.ptcd, provenance.model), (None, None));
    }
}
