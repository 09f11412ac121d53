//! Finished runs as MCP resources: listed newest first, read with what is known of their origin.

use ptc_protocol::facts::{Kept, RunKind};
use ptc_protocol::provenance::Provenance;
use ptc_protocol::run::RunRecord;
use rmcp::model::{
    CacheScope, ListResourcesResult, ReadResourceResult, RequestId, RequestMetaObject, Resource,
    ResourceContents,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::{Session, run_text};
use crate::config::Share;
use crate::journal::{Journal, StoredRun};

/// What every URI of a run begins with.
const PREFIX: &str = "ptc://runs/";
/// Runs on one page of the list.
const PAGE: usize = 20;
/// Room for one answer, in bytes: the longest text, and what stands beside it.
const MAX_ANSWER: usize = 14 * 1024 * 1024;
/// Longest name of a model, in characters.
const MAX_MODEL: usize = 100;
/// Longest URI that is looked at, in bytes.
const MAX_URI: usize = 256;

/// What is served of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Response,
    Program,
    ProgramOutput,
    Calls,
    Provenance,
}

const SIDES: [Side; 5] = [
    Side::Response,
    Side::Program,
    Side::ProgramOutput,
    Side::Calls,
    Side::Provenance,
];

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Program => "program",
            Self::ProgramOutput => "program-output",
            Self::Calls => "calls",
            Self::Provenance => "provenance",
        }
    }

    fn mime_type(self) -> &'static str {
        match self {
            Self::Response => "text/plain",
            Self::Program => "text/x-python",
            Self::ProgramOutput | Self::Calls | Self::Provenance => "application/json",
        }
    }

    /// Whether a record of this making has it.
    fn is_kept(self, record: &RunRecord) -> bool {
        let facts = &record.facts;
        match self {
            Self::Provenance => true,
            Self::Calls => facts.ptcd.is_some(),
            Self::Response | Self::Program => facts.kept != Some(Kept::Off),
            Self::ProgramOutput => facts.ptcd.is_some() && facts.kept != Some(Kept::Off),
        }
    }

    fn uri(self, record: &RunRecord) -> String {
        format!("{PREFIX}{}/{}", record.run, self.name())
    }
}

/// Whose runs are served, and where they lie.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    pub(super) journal: Journal,
    /// The client's label or name.
    pub(super) client: String,
    /// The folder of its project.
    pub(super) project: Option<String>,
}

impl Shelf {
    /// The closed runs this client sees, newest first.
    ///
    /// Label and folder are the client's own word, so `own` keeps a list tidy and is no boundary.
    fn runs(&self) -> Vec<RunRecord> {
        let mut runs = self.journal.closed();
        if self.journal.share() == Share::Own {
            let client = self.journal.mask(&self.client);
            let project = self.project.as_deref().map(|text| self.journal.mask(text));
            runs.retain(|record| {
                record.client.as_deref() == Some(client.as_str()) && record.facts.project == project
            });
        }
        runs
    }

    /// One page of the list, from behind the run that the cursor names.
    pub(super) fn list(&self, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
        let runs = self.runs();
        let from = match cursor {
            None | Some("") => 0,
            Some(cursor) => behind(&runs, cursor).ok_or_else(|| {
                ErrorData::invalid_params("params.cursor: not one that was given out", None)
            })?,
        };
        let page = runs.get(from..).unwrap_or_default();
        let shown: Vec<&RunRecord> = page.iter().take(PAGE).collect();
        let resources = shown.iter().flat_map(|record| resources(record)).collect();
        let mut list = ListResourcesResult::with_all_items(resources);
        if page.len() > PAGE {
            list.next_cursor = shown.last().map(|record| cursor_of(record));
        }
        Ok(list)
    }

    /// What a URI names, and for what a program gave its origin too. Blocking; may be large.
    pub(super) fn read(&self, uri: &str) -> Result<ReadResourceResult, ErrorData> {
        let (record, side) = self.find(uri).ok_or_else(|| not_found(uri))?;
        let stored = match self.journal.run(&record.run) {
            Ok(Some(stored)) => stored,
            Ok(None) => return Err(not_found(uri)),
            Err(error) => {
                tracing::warn!(%error, "a run cannot be read");
                let text = format!("the record of run {} cannot be read", record.run);
                return Err(ErrorData::internal_error(text, None));
            }
        };
        let provenance = provenance_of(&stored);
        let text = match side {
            Side::Response => run_text::response(&stored, &provenance),
            Side::Program => stored.parts.program.clone(),
            Side::ProgramOutput => Some(run_text::program_output(&self.with_programs(&stored))),
            Side::Calls => Some(run_text::calls(&stored)),
            Side::Provenance => Some(run_text::json(&provenance)),
        };
        let text = text.ok_or_else(|| not_found(uri))?;
        let mut contents = vec![content(side, &record, text)];
        if matches!(side, Side::Response | Side::ProgramOutput) {
            let origin = run_text::json(&provenance);
            contents.push(content(Side::Provenance, &record, origin));
        }
        Ok(ReadResourceResult::new(contents))
    }

    /// Looks a URI up among those that are listed; no part of it ever becomes a path.
    fn find(&self, uri: &str) -> Option<(RunRecord, Side)> {
        if uri.len() > MAX_URI {
            return None;
        }
        let (run, name) = uri.strip_prefix(PREFIX)?.split_once('/')?;
        let side = SIDES.into_iter().find(|side| side.name() == name)?;
        let record = self.runs().into_iter().find(|record| record.run == run)?;
        side.is_kept(&record).then_some((record, side))
    }

    /// A submission's programs in the order given, any other run by itself.
    fn with_programs(&self, stored: &StoredRun) -> Vec<StoredRun> {
        let Some(submission) = &stored.record.facts.submission else {
            return vec![stored.clone()];
        };
        let load = |run: &String| self.journal.run(run).ok().flatten();
        submission.runs.iter().filter_map(load).collect()
    }
}

impl Session {
    /// What this client finds among the finished runs.
    pub(super) fn shelf(&self) -> Shelf {
        Shelf {
            journal: self.host.journal.clone(),
            client: self.name(),
            project: self.project(),
        }
    }

    /// The folder of the client's project, as records name it.
    pub(super) fn project(&self) -> Option<String> {
        let project = self.client.project.as_ref()?;
        Some(project.display().to_string())
    }

    /// Reads one resource, off the threads that serve others, once there is room for the answer.
    pub(super) async fn read(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        if let RequestId::Number(number) = context.id {
            tokio::select! {
                () = context.ct.cancelled() => {}
                () = self.requests.reserve(number, MAX_ANSWER) => {}
            }
        }
        let runs = self.shelf();
        let reading = tokio::task::spawn_blocking(move || runs.read(&uri));
        reading.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a resource could not be read");
            let text = "the daemon failed while it read this; its log has the reason";
            Err(ErrorData::internal_error(text, None))
        })
    }
}

/// The model, where a client names one in a request's `_meta`.
pub(super) fn model(meta: &RequestMetaObject) -> Option<String> {
    let name = meta.get("model")?.as_str()?;
    let name: String = name.chars().take(MAX_MODEL).collect();
    Some(crate::engine::output::visible(&name))
}

/// What is known of a run's origin; nothing is claimed of a record that was changed.
pub fn provenance_of(stored: &StoredRun) -> Provenance {
    let mut record = stored.record.clone();
    if stored.intact {
        return Provenance::of(&record);
    }
    record.facts.replayed = None;
    record.facts.submission = None;
    let mut provenance = Provenance::of(&record);
    provenance.reason = Some("the record on disk is not the one that was written".to_owned());
    provenance
}

/// Says of a result of the revision without a handshake how long it holds: a level may change at any time.
pub(super) fn held(ttl_ms: &mut Option<u64>, scope: &mut Option<CacheScope>) {
    *ttl_ms = Some(0);
    *scope = Some(CacheScope::Private);
}

fn resources(record: &RunRecord) -> Vec<Resource> {
    let about = about(record);
    let kept = SIDES.into_iter().filter(|side| side.is_kept(record));
    kept.map(|side| {
        let (what, name) = (what(side, record), side.name());
        Resource::new(side.uri(record), format!("{}/{name}", record.run))
            .with_description(format!("{about} {what}"))
            .with_mime_type(side.mime_type())
    })
    .collect()
}

/// What every description of a run begins with.
fn about(record: &RunRecord) -> String {
    let provenance = Provenance::of(record);
    let client = record.client.as_deref().unwrap_or("an unnamed client");
    format!(
        "{}, {}: {} of {client}, {}, {} calls.",
        record.ending.as_str(),
        provenance.level.as_str(),
        record.facts.kind.as_str(),
        run_text::utc(record.ended_ms()),
        record.calls,
    )
}

fn what(side: Side, record: &RunRecord) -> &'static str {
    match side {
        Side::Response if record.facts.kind == RunKind::Submission => {
            "The deliverable, with notes and witness."
        }
        Side::Response => "What it printed and emitted, with notes.",
        Side::Program => "The program's text.",
        Side::ProgramOutput => "Standard output and standard error apart, 64 KiB each.",
        Side::Calls => "Its tool calls, without their results.",
        Side::Provenance => "Where its output comes from and how far it is vouched for.",
    }
}

fn content(side: Side, record: &RunRecord, text: String) -> ResourceContents {
    ResourceContents::text(text, side.uri(record)).with_mime_type(side.mime_type())
}

fn not_found(uri: &str) -> ErrorData {
    let shown: String = uri.chars().take(MAX_URI).collect();
    let shown = crate::engine::output::visible(&shown).replace('\n', " ");
    ErrorData::resource_not_found(
        format!("no resource {shown}: resources/list names those there are"),
        None,
    )
}

fn cursor_of(record: &RunRecord) -> String {
    format!("{}-{}", record.ended_ms(), record.run)
}

/// The place behind the run of a cursor; where that run is gone, of the first one that ended before it.
fn behind(runs: &[RunRecord], cursor: &str) -> Option<usize> {
    let (ended, run) = cursor.split_once('-')?;
    let ended: u64 = ended.parse().ok()?;
    let at = runs.iter().position(|record| record.run == run);
    Some(at.map_or_else(
        || {
            let older = |record: &RunRecord| record.ended_ms() < ended;
            runs.iter().position(older).unwrap_or(runs.len())
        },
        |at| at + 1,
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use ptc_protocol::facts::Facts;
    use ptc_protocol::run::{Confinement, Ending};
    use serde_json::Value;

    use super::*;
    use crate::config::mask::Masker;
    use crate::config::{Config, JournalConfig};
    use crate::journal::{Ended, RunStart};

    fn journal(folder: &Path, share: Share) -> Journal {
        let config = JournalConfig {
            share,
            ..Config::default().journal
        };
        let masker = Masker::with_key([3; 32], &BTreeMap::new());
        Journal::open(&config, folder, masker).unwrap()
    }

    fn add(journal: &Journal, run: &str, client: &str, project: &str, output: &str) {
        let start = RunStart {
            run,
            session: "s",
            client: Some(client),
            request: &Value::Null,
            program: "print(1)",
        };
        let recorder = journal.begin(&start).unwrap();
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        let record = RunRecord {
            run: run.to_owned(),
            session: "s".to_owned(),
            client: Some(client.to_owned()),
            started_ms: u64::try_from(since.as_millis()).unwrap(),
            duration_ms: 1,
            ending: Ending::Finished,
            limit: None,
            confinement: Confinement::Full,
            calls: 0,
            failed_calls: 0,
            output_bytes: 2,
            result_bytes: 0,
            cpu_ms: None,
            peak_memory_bytes: None,
            error: None,
            facts: Facts {
                ptcd: Some("1".to_owned()),
                project: Some(project.to_owned()),
                ..Facts::default()
            },
        };
        let ended = Ended {
            output,
            ..Ended::default()
        };
        recorder.finish(&record, &ended).unwrap();
    }

    fn shelf(journal: &Journal, client: &str, project: &str) -> Shelf {
        Shelf {
            journal: journal.clone(),
            client: client.to_owned(),
            project: Some(project.to_owned()),
        }
    }

    fn texts(result: &ReadResourceResult) -> Vec<(String, String)> {
        let texts = result.contents.iter().map(|content| match content {
            ResourceContents::TextResourceContents { uri, text, .. } => (uri.clone(), text.clone()),
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    #[test]
    fn pages_go_from_the_newest_to_the_oldest_and_miss_none() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), Share::Own);
        for n in 0..45 {
            add(&journal, &format!("r{n}"), "c", "/p", "x");
        }
        let shelf = shelf(&journal, "c", "/p");
        let (mut cursor, mut seen, mut pages) = (None, Vec::new(), 0);
        loop {
            let page = shelf.list(cursor.as_deref()).unwrap();
            pages += 1;
            seen.extend(page.resources.iter().map(|resource| resource.uri.clone()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(pages, 3);
        let responses: Vec<&String> = seen
            .iter()
            .filter(|uri| uri.ends_with("/response"))
            .collect();
        let expected: Vec<String> = (0..45)
            .rev()
            .map(|n| format!("ptc://runs/r{n}/response"))
            .collect();
        assert_eq!(responses, expected.iter().collect::<Vec<_>>());
        assert_eq!(seen.len(), 45 * 5);
        for odd in ["x", "-", "1", "r1", "99999999999999999999999-r1"] {
            assert!(shelf.list(Some(odd)).is_err(), "{odd}");
        }
        // A run that is gone meanwhile leaves its place.
        assert!(shelf.list(Some("5-gone")).unwrap().resources.is_empty());
    }

    #[test]
    fn descriptions_begin_with_ending_and_level_and_reads_carry_the_origin() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), Share::Own);
        add(&journal, "r1", "c", "/p", "hello\n");
        let shelf = shelf(&journal, "c", "/p");
        for resource in shelf.list(None).unwrap().resources {
            let description = resource.description.unwrap();
            assert!(
                description.starts_with("finished, unverified: "),
                "{description}"
            );
        }
        let read = texts(&shelf.read("ptc://runs/r1/response").unwrap());
        assert!(read[0].1.starts_with("hello\n"), "{read:?}");
        assert_eq!(read[1].0, "ptc://runs/r1/provenance");
        let origin: Provenance = serde_json::from_str(&read[1].1).unwrap();
        assert!(origin.output_sha256.is_some());
        assert_eq!(
            texts(&shelf.read("ptc://runs/r1/program").unwrap()).len(),
            1
        );
        // A repeated run says so from then on.
        let hash = origin.output_sha256.unwrap();
        assert!(journal.replayed("r1", &hash).unwrap());
        let description = shelf.list(None).unwrap().resources[0].description.clone();
        assert!(description.unwrap().starts_with("finished, replayed: "));
    }

    #[test]
    fn a_record_that_was_changed_vouches_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), Share::Own);
        add(&journal, "r1", "c", "/p", "hello\n");
        let shelf = shelf(&journal, "c", "/p");
        let stored = journal.run("r1").unwrap().unwrap();
        journal
            .replayed("r1", &stored.record.facts.output_sha256.unwrap())
            .unwrap();
        let parts = folder.path().join("journal/runs/r1.parts");
        let text = std::fs::read_to_string(&parts)
            .unwrap()
            .replace("hello", "hullo");
        std::fs::write(&parts, text).unwrap();
        let read = texts(&shelf.read("ptc://runs/r1/response").unwrap());
        let origin: Provenance = serde_json::from_str(&read[1].1).unwrap();
        assert_eq!(origin.level, ptc_protocol::provenance::Level::Unverified);
        assert!(
            origin
                .reason
                .unwrap()
                .contains("not the one that was written")
        );
    }

    #[test]
    fn own_runs_are_those_of_the_same_label_and_folder_and_all_are_all() {
        for (share, seen) in [(Share::Own, 1), (Share::All, 3)] {
            let folder = tempfile::tempdir().unwrap();
            let journal = journal(folder.path(), share);
            add(&journal, "r1", "c", "/p", "x");
            add(&journal, "r2", "d", "/p", "x");
            add(&journal, "r3", "c", "/q", "x");
            let shelf = shelf(&journal, "c", "/p");
            let listed = shelf.list(None).unwrap().resources;
            assert_eq!(listed.len(), seen * 5);
            assert_eq!(
                shelf.read("ptc://runs/r2/response").is_ok(),
                share == Share::All
            );
        }
    }

    #[test]
    fn no_part_of_a_uri_reaches_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), Share::All);
        add(&journal, "r1", "c", "/p", "x");
        let runs = folder.path().join("journal/runs");
        std::fs::write(folder.path().join("journal/secret.json"), "{}").unwrap();
        std::os::unix::fs::symlink(runs.join("r1.json"), runs.join("r2.json")).unwrap();
        std::os::unix::fs::symlink(runs.join("r1.parts"), runs.join("r2.parts")).unwrap();
        let shelf = shelf(&journal, "c", "/p");
        let long = format!("ptc://runs/{}/response", "r1".repeat(5000));
        for uri in [
            "ptc://runs/../secret/response",
            "ptc://runs/r1/../r1/response",
            "ptc://runs/%2e%2e%2fsecret/response",
            "ptc://runs/r1%2fresponse",
            "ptc://runs/r1\0/response",
            "ptc://runs/r1/response\0",
            "ptc://runs/r1/response/",
            "ptc://runs//r1/response",
            "ptc://runs/r1.json/response",
            "ptc://runs/R1/response",
            "ptc://runs/r2/response",
            "PTC://runs/r1/response",
            "file:///etc/passwd",
            "ptc://runs/r1/response?x",
            "",
            long.as_str(),
        ] {
            let error = shelf.read(uri).unwrap_err();
            assert_eq!(error.code.0, -32002, "{uri:?}");
            assert!(error.message.chars().count() < 600, "{uri:?}");
        }
        // A link in the place of a listed run's files is not followed.
        let parts = runs.join("r1.parts");
        std::fs::rename(&parts, folder.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &parts).unwrap();
        assert!(shelf.read("ptc://runs/r1/response").is_err());
        drop(shelf);
        drop(journal);
        // Nor is a link in the store taken for a run by the next daemon.
        let journal = super::tests::journal(folder.path(), Share::All);
        let runs = journal.closed();
        assert_eq!(
            runs.iter()
                .map(|record| record.run.as_str())
                .collect::<Vec<_>>(),
            ["r1"]
        );
    }

    #[test]
    fn what_was_not_kept_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let config = JournalConfig {
            record: crate::config::Record::Off,
            ..Config::default().journal
        };
        let masker = Masker::with_key([3; 32], &BTreeMap::new());
        let journal = Journal::open(&config, folder.path(), masker).unwrap();
        add(&journal, "r1", "c", "/p", "hello\n");
        let shelf = shelf(&journal, "c", "/p");
        let listed = shelf.list(None).unwrap().resources;
        let uris: Vec<String> = listed.into_iter().map(|resource| resource.uri).collect();
        assert_eq!(uris, ["ptc://runs/r1/calls", "ptc://runs/r1/provenance"]);
        assert!(shelf.read("ptc://runs/r1/response").is_err());
        assert!(shelf.read("ptc://runs/r1/calls").is_ok());
    }
}
