//! The loop of one run: frames, finished calls, the deadline, cancellation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ptc_protocol::run::CallRecord;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::Answers;
use super::budget::Budget;
use super::call::{Desk, Finished, answer_error, millis, record};
use super::output::{OutputBuffer, Pipe};
use crate::pool::frame::{
    Answer, Call, Done, FrameError, FromWorker, Output, Place, Query, Run, ToWorker,
};
use crate::pool::{FrameSender, Worker};
use crate::registry::{exact_value, unambiguous_value};

/// Calls and queries that may be under way in the daemon for one run; past it the worker waits.
const MAX_UNDER_WAY: usize = 1024;
/// Helpers of one run that are answered at once.
const HELPERS_AT_ONCE: usize = 2;
/// Notes on calls that are kept; an answer shows fewer.
const MAX_CALL_NOTES: usize = 64;
/// Bytes read from a pipe at once: what one holds.
const PIPE_READ: usize = 64 * 1024;
/// Bytes of a dump of the interpreter's stack that are kept; its first lines are what counts.
const MAX_DUMP: usize = 4 * PIPE_READ;
/// How long a program may take to say where it waits, before its interpreter is asked.
const WHERE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the interpreter may take to print its stack after a signal: it takes milliseconds, but on a busy machine it
/// waits for its turn. Only a program that hides from the signal uses it up.
const DUMP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long calls in flight may take to notice that the run is over.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(700);

/// How the loop came to its end.
#[derive(Debug)]
pub(super) enum End {
    /// The program is over by itself.
    Done(Done),
    /// The wall clock ended it, at this place.
    TimedOut(Option<Place>),
    /// The client no longer wants it.
    Cancelled,
    /// The worker closed its channel without a word.
    Died,
    /// The worker sent what is no frame.
    Corrupted(FrameError),
}

/// Everything the loop gathered.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) end: End,
    pub(super) output: OutputBuffer,
    /// Whether nothing at all came from the worker.
    pub(super) silent: bool,
    /// The output as the client gets it, once it was made ready.
    pub(super) shown: String,
    pub(super) emitted: Option<Value>,
    pub(super) calls: Vec<CallRecord>,
    pub(super) omitted: u64,
    pub(super) total: u64,
    pub(super) failed: u64,
    pub(super) result_bytes: u64,
    /// What calls that succeeded leave to be said, each once.
    pub(super) notes: BTreeSet<String>,
}

/// What one run is given.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) run: Run,
    pub(super) deadline: Instant,
    pub(super) max_calls: u64,
    pub(super) answers: Arc<dyn Answers>,
}

/// The state of one run while it runs.
#[derive(Debug)]
pub(super) struct RunLoop<'a> {
    worker: &'a mut Worker,
    sender: FrameSender,
    desk: Arc<Desk>,
    answers: Arc<dyn Answers>,
    budget: Budget,
    /// Each gives a call's id, its record and the size of its value; a query gives nothing.
    under_way: JoinSet<Option<(u64, CallRecord, usize)>>,
    in_flight: HashMap<u64, (String, Box<RawValue>, Instant)>,
    last_id: u64,
    max_records: usize,
    /// Bytes of JSON that may be emitted.
    max_emit: usize,
    /// Places for helpers that are being answered.
    places: Arc<Semaphore>,
    /// Whether descriptor 2 now carries the interpreter's dump of where it is, which is no output.
    dumping: bool,
    gathered: Gathered,
}

impl<'a> RunLoop<'a> {
    /// Runs a program to its end, however it ends. Calls still in flight are cancelled.
    pub(super) async fn run(worker: &'a mut Worker, desk: Arc<Desk>, terms: Terms) -> Gathered {
        let sender = worker.sender();
        let max_records = usize::try_from(terms.max_calls.saturating_mul(2)).unwrap_or(usize::MAX);
        let mut this = Self {
            worker,
            sender,
            desk,
            answers: terms.answers,
            budget: Budget::new(terms.max_calls),
            under_way: JoinSet::new(),
            in_flight: HashMap::new(),
            last_id: 0,
            max_records,
            max_emit: terms.run.limits.max_emit_bytes,
            places: Arc::new(Semaphore::new(HELPERS_AT_ONCE)),
            dumping: false,
            gathered: Gathered {
                end: End::Died,
                output: OutputBuffer::new(terms.run.apart),
                silent: true,
                shown: String::new(),
                emitted: None,
                calls: Vec::new(),
                omitted: 0,
                total: 0,
                failed: 0,
                result_bytes: 0,
                notes: BTreeSet::new(),
            },
        };
        let deadline = tokio::time::Instant::from_std(terms.deadline);
        this.gathered.end = if this.sender.send(ToWorker::Run(terms.run)).await {
            this.follow(deadline).await
        } else {
            End::Died
        };
        this.settle().await;
        this.gathered
    }

    async fn follow(&mut self, mut deadline: tokio::time::Instant) -> End {
        let mut waiting = self.desk.approver.waiting();
        // Since when the clock stands, because a call waits for a person.
        let mut stands: Option<tokio::time::Instant> = None;
        let (mut out, mut err) = (vec![0_u8; PIPE_READ], vec![0_u8; PIPE_READ]);
        let (mut out_open, mut err_open) = (true, true);
        let cancel = self.desk.cancel.clone();
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return End::Cancelled,
                Ok(()) = waiting.changed() => {
                    let now = tokio::time::Instant::now();
                    if *waiting.borrow_and_update() > 0 {
                        stands.get_or_insert(now);
                    } else if let Some(since) = stands.take() {
                        deadline += now - since;
                    }
                }
                () = tokio::time::sleep_until(deadline), if stands.is_none() => {
                    return End::TimedOut(self.find_place().await);
                }
                Some(finished) = self.under_way.join_next() => {
                    if let Ok(Some(finished)) = finished {
                        self.note(finished);
                    }
                }
                frame = self.worker.frames.next(), if self.under_way.len() < MAX_UNDER_WAY => {
                    match frame {
                        // Its process is gone, between two frames or in the middle of one.
                        None | Some(Err(FrameError::Io(_) | FrameError::Cut)) => return End::Died,
                        Some(Err(error)) => return End::Corrupted(error),
                        Some(Ok(frame)) => if let Some(end) = self.take(frame) {
                            return end;
                        }
                    }
                }
                read = self.worker.stdout.read(&mut out), if out_open => match read {
                    Ok(0) | Err(_) => out_open = false,
                    Ok(n) => self.gathered.output.push_bytes(Pipe::Stdout, out.get(..n).unwrap_or_default()),
                },
                read = self.worker.stderr.read(&mut err), if err_open => match read {
                    Ok(0) | Err(_) => err_open = false,
                    Ok(n) => self.gathered.output.push_bytes(Pipe::Stderr, err.get(..n).unwrap_or_default()),
                },
            }
        }
    }

    /// Acts on one frame; `Some` when it ends the run.
    fn take(&mut self, frame: FromWorker) -> Option<End> {
        self.gathered.silent = false;
        match frame {
            FromWorker::Output(output) => self.take_output(&output),
            // The runtime refuses it; whoever sends it all the same went round it.
            FromWorker::Emit(text) if text.get().len() > self.max_emit => {
                return Some(corrupted("an emitted value over its limit"));
            }
            FromWorker::Emit(text) => match unambiguous_value(text.get()) {
                Some(value) => self.gathered.emitted = Some(value),
                None => return Some(corrupted("an emitted value that cannot be read")),
            },
            FromWorker::Call(call) => return self.start_call(call),
            FromWorker::Query(query) => return self.start_query(&query),
            FromWorker::Done(done) => {
                self.gathered.output.skip(done.unsent_output_bytes);
                return Some(End::Done(done));
            }
            // A program that was not asked where it waits, or says hello twice, wrote this itself.
            FromWorker::Where(_) => return Some(corrupted("an answer to no question")),
            FromWorker::Hello(_) => return Some(corrupted("a second hello")),
        }
        None
    }

    /// Takes text that came by frame, which the runtime sends where it can no longer write to a pipe: what was
    /// written before lies in the pipes.
    fn take_output(&mut self, output: &Output) {
        self.drain();
        self.gathered
            .output
            .push(output.stream.into(), &output.text);
    }

    /// Ids only grow, so one comparison tells a reused id.
    fn take_id(&mut self, id: u64) -> Option<End> {
        if id <= self.last_id {
            return Some(corrupted("an id that was used before"));
        }
        self.last_id = id;
        None
    }

    fn start_call(&mut self, call: Call) -> Option<End> {
        if let Some(end) = self.take_id(call.id) {
            return Some(end);
        }
        self.gathered.total += 1;
        let admitted = self.budget.take();
        self.in_flight.insert(
            call.id,
            (call.tool.clone(), call.arguments.clone(), Instant::now()),
        );
        let (desk, sender) = (Arc::clone(&self.desk), self.sender.clone());
        let span = tracing::error_span!("call", call = call.id, server = Empty);
        let calling = async move {
            let Finished {
                id,
                record,
                bytes,
                outcome,
            } = desk.call(call, admitted).await;
            let answer = ToWorker::Answer(Answer { id, outcome });
            sender
                .send_noting(answer, || desk.recorder.answered(id))
                .await;
            desk.target.answered(id);
            Some((id, record, bytes))
        };
        self.under_way.spawn(calling.instrument(span));
        None
    }

    fn start_query(&mut self, query: &Query) -> Option<End> {
        if let Some(end) = self.take_id(query.id) {
            return Some(end);
        }
        let text = query.arguments.as_ref().map_or("{}", |text| text.get());
        let Some(Value::Object(arguments)) = exact_value(text) else {
            return Some(corrupted("arguments of a helper that cannot be read"));
        };
        let (id, helper) = (query.id, query.helper);
        let (answers, sender) = (Arc::clone(&self.answers), self.sender.clone());
        let places = Arc::clone(&self.places);
        self.under_way.spawn(async move {
            let _place = places.acquire().await;
            // A large schema takes a while to write, which others must not wait for.
            let work = move || {
                let answer = answers.answer(helper, &arguments);
                Box::new(
                    answer
                        .map(|value| value.to_string().into())
                        .map_err(answer_error),
                )
            };
            match tokio::task::spawn_blocking(work).await {
                Ok(outcome) => {
                    let outcome = *outcome;
                    sender.send(ToWorker::Answer(Answer { id, outcome })).await;
                }
                Err(error) => tracing::error!(%error, "a helper could not be answered"),
            }
            None
        });
        None
    }

    fn note(&mut self, (id, record, bytes): (u64, CallRecord, usize)) {
        self.in_flight.remove(&id);
        self.gathered.result_bytes += bytes as u64;
        self.desk
            .progress
            .send_modify(|progress| progress.finished += 1);
        self.add(record);
    }

    fn add(&mut self, record: CallRecord) {
        if !record.ok {
            self.gathered.failed += 1;
        }
        if let Some(note) = &record.note
            && self.gathered.notes.len() < MAX_CALL_NOTES
        {
            let lines = note.lines().map(str::to_owned);
            self.gathered.notes.extend(lines);
        }
        if self.gathered.calls.len() < self.max_records {
            self.gathered.calls.push(record);
        } else {
            self.gathered.omitted += 1;
        }
    }

    /// Where the program is: from its event loop if that lives, else from the interpreter itself.
    ///
    /// A dump is taken at any instruction, and Python 3.13 may crash over a frame that is just being made (in a busy
    /// generator, for one): the place stays unknown then, and nothing else changes.
    async fn find_place(&mut self) -> Option<Place> {
        self.desk.cancel.cancel();
        self.sender.send_soon(&ToWorker::Stop { reason: "timeout" });
        let until = tokio::time::Instant::now() + WHERE_TIMEOUT;
        let mut buffer = vec![0_u8; PIPE_READ];
        let mut err_open = true;
        // A program that stands in a write to its full pipe hears of nothing before that is read.
        let waited = tokio::time::timeout_at(until, async {
            loop {
                tokio::select! {
                    biased;
                    frame = self.worker.frames.next() => match frame {
                        Some(Ok(FromWorker::Where(places))) => return places.into_iter().next(),
                        Some(Ok(FromWorker::Output(output))) => self.take_output(&output),
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => return None,
                    },
                    read = self.worker.stderr.read(&mut buffer), if err_open => match read {
                        Ok(0) | Err(_) => err_open = false,
                        Ok(n) => self.gathered.output.push_bytes(Pipe::Stderr, buffer.get(..n).unwrap_or_default()),
                    },
                }
            }
        });
        if let Ok(place) = waited.await {
            return place;
        }
        self.drain();
        self.dumping = true;
        self.worker.interrupt();
        let until = tokio::time::Instant::now() + DUMP_TIMEOUT;
        let found = tokio::time::timeout_at(until, self.place_from_dump(&mut buffer));
        found.await.ok().flatten()
    }

    /// The place in the dump that was asked for, or in the program's own answer where that comes late.
    async fn place_from_dump(&mut self, buffer: &mut [u8]) -> Option<Place> {
        let mut dump = Vec::new();
        let mut frames_open = true;
        loop {
            let read = tokio::select! {
                frame = self.worker.frames.next(), if frames_open => {
                    match frame {
                        Some(Ok(FromWorker::Where(places))) => return places.into_iter().next(),
                        Some(Ok(FromWorker::Output(output))) => self.take_output(&output),
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => frames_open = false,
                    }
                    continue;
                }
                read = self.worker.stderr.read(buffer) => read.ok().filter(|read| *read > 0)?,
            };
            // What threads print meanwhile stands between.
            if dump.len() > MAX_DUMP {
                dump.drain(..dump.len() - PIPE_READ);
            }
            dump.extend_from_slice(buffer.get(..read).unwrap_or_default());
            let place = place_in_dump(&String::from_utf8_lossy(&dump));
            if place.is_some() {
                return place;
            }
        }
    }

    /// Ends what is still under way and takes what still lies in the pipes.
    async fn settle(&mut self) {
        if matches!(self.gathered.end, End::Corrupted(_)) {
            self.worker.kill();
        }
        self.desk.cancel.cancel();
        let until = tokio::time::Instant::now() + SETTLE_TIMEOUT;
        while !self.in_flight.is_empty() {
            match tokio::time::timeout_at(until, self.under_way.join_next()).await {
                Ok(Some(Ok(Some(finished)))) => self.note(finished),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.under_way.abort_all();
        let left: BTreeMap<_, _> = self.in_flight.drain().collect();
        for (tool, arguments, started) in left.into_values() {
            let tool = self.desk.target.mask(&tool);
            let error = super::ended(&tool);
            self.add(record(
                &tool,
                &self.desk.target.mask(arguments.get()),
                millis(started.elapsed()),
                Some(&error),
            ));
        }
        self.drain();
        self.gathered.output.flush();
        self.gathered.silent &= self.gathered.output.total() == 0;
    }

    /// Takes what the pipes hold now, without waiting.
    fn drain(&mut self) {
        drain_pipe(&self.worker.stdout, Pipe::Stdout, &mut self.gathered.output);
        if !self.dumping {
            drain_pipe(&self.worker.stderr, Pipe::Stderr, &mut self.gathered.output);
        }
    }
}

/// Takes what a pipe holds; one that is filled as fast as it is read is left at the recorded maximum.
///
/// The kernel is asked, and not the runtime, which may not have heard yet of what was written a moment ago: a frame
/// that was written after it can have been read already.
fn drain_pipe(receiver: &Receiver, pipe: Pipe, output: &mut OutputBuffer) {
    let mut buffer = vec![0_u8; PIPE_READ];
    let mut left = super::output::MAX_RECORDED;
    loop {
        let read = match rustix::io::read(receiver, &mut buffer) {
            Ok(read @ 1..) => read,
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) | Err(_) => return,
        };
        output.push_bytes(pipe, buffer.get(..read).unwrap_or_default());
        left = left.saturating_sub(read);
        if left == 0 {
            return;
        }
    }
}

fn corrupted(what: &'static str) -> End {
    End::Corrupted(FrameError::Meaning(what))
}

/// The innermost line of the program in a dump of the interpreter's stack, as far as it has come.
fn place_in_dump(dump: &str) -> Option<Place> {
    let whole = dump
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'));
    whole.into_iter().find_map(|line| {
        let rest = line
            .trim_start()
            .strip_prefix("File \"<program>\", line ")?;
        let (number, function) = rest.split_once(" in ")?;
        Some(Place {
            line: number.parse().ok()?,
            function: function.trim().to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_line_of_the_program_is_found_in_a_dump() {
        let dump = "Current thread 0x0007f (most recent call first):\n  \
                    File \"/usr/lib/python3.11/re/__init__.py\", line 166 in match\n  \
                    File \"<program>\", line 12 in fetch_all\n  \
                    File \"<program>\", line 20 in <module>\n";
        assert_eq!(
            place_in_dump(dump),
            Some(Place {
                line: 12,
                function: "fetch_all".to_owned()
            })
        );
        assert_eq!(place_in_dump("File \"<program>\", line x in f\n"), None);
        // A line that has come in part names the function in part.
        assert_eq!(place_in_dump("  File \"<program>\", line 12 in fet"), None);
    }
}
