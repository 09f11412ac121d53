//! Runs one program: answers what the interpreter asks, sends its calls, and knows who waits for which answer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use monty::{
    MontyRepl, ReplFunctionCall, ReplNameLookup, ReplOsCall, ReplProgress, ReplResolveFutures,
    ReplStartError,
};
use monty_types::unstable::{MontyNode, node};
use monty_types::{
    CallArgs, ExcType, ExtFunctionResult, MontyException, MontyObject, NameLookupResult,
    OsFunctionCall, PrintWriter, SourceRange,
};

use crate::calls;
use crate::frame::{Answer, AnswerError, Done, Place, Run, ToWorker};
use crate::output::Host;
use crate::reading::Reading;
use crate::report::{self, Known};
use crate::source::Source;
use crate::value;

/// Tools that are named at most as never awaited.
const MAX_UNAWAITED: usize = 50;
/// Longest sleep between two looks at the clock.
const LONGEST: Duration = Duration::from_mins(1);

type Step = Result<ReplProgress, Box<ReplStartError>>;

/// How a program came to its end.
#[derive(Debug)]
pub(crate) enum End {
    /// By itself.
    Done(Done),
    /// The daemon ended it, while it was here.
    Stopped(Vec<Place>),
}

/// One program while it runs.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) host: Host,
    run: Run,
    source: Source,
    reading: Option<Reading>,
    /// Calls that were sent and not answered: the frame's id, the interpreter's id, the tool.
    sent: BTreeMap<u64, (u32, String)>,
    /// Answers and ends of sleeps that no task has been given.
    ready: BTreeMap<u32, Result<MontyObject, MontyException>>,
    /// Sleeps that are not over.
    sleeps: BTreeMap<u32, Instant>,
    /// Calls whose answer was never taken by a task, by the interpreter's id.
    untaken: BTreeMap<u32, String>,
    /// What tools failed with, the last last.
    errors: Vec<AnswerError>,
}

impl Session {
    pub(crate) fn new(host: Host, run: Run, source: Source, reading: Option<Reading>) -> Self {
        Self {
            host,
            run,
            source,
            reading,
            sent: BTreeMap::new(),
            ready: BTreeMap::new(),
            sleeps: BTreeMap::new(),
            untaken: BTreeMap::new(),
            errors: Vec::new(),
        }
    }

    /// Runs the program in an interpreter that knows `ToolError`.
    pub(crate) fn follow(&mut self, repl: MontyRepl) -> End {
        let text = self.source.text.clone();
        let mut step = repl.feed_start(&text, Vec::new(), PrintWriter::Callback(&mut self.host));
        loop {
            let progress = match step {
                Ok(progress) => progress,
                Err(failed) => return self.failed(&failed.error),
            };
            step = match progress {
                ReplProgress::Complete { value, .. } => return self.finished(&value),
                ReplProgress::NameLookup(lookup) => self.name(lookup),
                ReplProgress::FunctionCall(call) => match self.call(call) {
                    Ok(step) => step,
                    Err(place) => return End::Stopped(place),
                },
                ReplProgress::OsCall(call) => match self.system(call) {
                    Ok(step) => step,
                    Err(place) => return End::Stopped(place),
                },
                ReplProgress::ResolveFutures(waiting) => match self.resolve(waiting) {
                    Ok(step) => step,
                    Err(place) => return End::Stopped(place),
                },
            };
        }
    }

    fn finished(&mut self, value: &MontyObject) -> End {
        let ends_in_value = self
            .reading
            .as_ref()
            .is_some_and(|reading| reading.ends_in_expression);
        let unprinted =
            ends_in_value && !matches!(node(value.as_ref()), MontyNode::None) && !self.host.used();
        End::Done(Done {
            ok: true,
            unprinted,
            ..self.done()
        })
    }

    fn failed(&mut self, error: &MontyException) -> End {
        if self.host.stopped {
            let frames = error
                .traceback()
                .iter()
                .rev()
                .filter(|frame| frame.filename.starts_with("<python-input"));
            let places = frames.map(|frame| Place {
                line: self
                    .source
                    .number(usize::try_from(frame.start.line).unwrap_or(1)),
                function: frame
                    .frame_name
                    .clone()
                    .unwrap_or_else(|| "<module>".to_owned()),
            });
            return End::Stopped(places.take(1).collect());
        }
        let known = Known {
            source: &self.source,
            reading: self.reading.as_ref(),
            errors: &self.errors,
            tools: &self.run.tools,
        };
        match report::of_error(error, &known) {
            None => End::Done(Done {
                ok: true,
                ..self.done()
            }),
            error => End::Done(Done {
                ok: false,
                error,
                ..self.done()
            }),
        }
    }

    fn done(&mut self) -> Done {
        self.host.flush();
        let mut unawaited: Vec<String> = Vec::new();
        for tool in self.untaken.values() {
            if !unawaited.contains(tool) && unawaited.len() < MAX_UNAWAITED {
                unawaited.push(tool.clone());
            }
        }
        Done {
            unawaited,
            eager: true,
            unsent_output_bytes: self.host.unsent,
            ..Done::default()
        }
    }

    fn name(&mut self, lookup: ReplNameLookup) -> Step {
        let name = lookup.name.as_str();
        let result = if lookup.object_id().is_some() {
            NameLookupResult::Undefined
        } else if self.run.tools.contains_key(name) || calls::OURS.contains(&name) {
            NameLookupResult::Value(MontyObject::function(name, None))
        } else if name == "__file__" {
            NameLookupResult::Value(MontyObject::string(crate::source::NAME))
        } else if let Some(error) = self.absent(name) {
            NameLookupResult::Error(error)
        } else {
            NameLookupResult::Undefined
        };
        lookup.resume(result, PrintWriter::Callback(&mut self.host))
    }

    /// Why a name that looks like a tool is none.
    fn absent(&self, name: &str) -> Option<MontyException> {
        let why = self.run.absent.get(name)?;
        let message = format!("name '{name}' is not defined: {why}");
        Some(MontyException::new(ExcType::NameError, Some(message)))
    }

    /// Answers a call of a name that nothing has.
    fn unknown(&mut self, call: ReplFunctionCall, name: String) -> Step {
        match self.absent(&name) {
            Some(error) => call.resume(error, self.print()),
            None => call.resume(ExtFunctionResult::NotFound(name), self.print()),
        }
    }

    /// Answers a call of one of our functions; `Err` where the daemon ended the run meanwhile.
    fn call(&mut self, call: ReplFunctionCall) -> Result<Step, Vec<Place>> {
        let name = call.function_name.clone();
        if call.object_id.is_some() {
            return Ok(call.resume(ExtFunctionResult::NotFound(name), self.print()));
        }
        let begun = match name.as_str() {
            "emit" => {
                let answer = self.emit(&call.args);
                return Ok(self.give(call, answer));
            }
            "tool_error" => {
                let answer = calls::tool_error(&call.args, &self.errors);
                return Ok(self.give(call, answer));
            }
            "exit" | "quit" => {
                let code = calls::exit_code(&call.args);
                // As in Python: `finally` runs, and only who asks for it catches it.
                let left = MontyException::new(ExcType::SystemExit, code);
                return Ok(call.resume(left, self.print()));
            }
            _ if self.run.tools.contains_key(&name) || calls::OURS.contains(&name.as_str()) => {
                self.begin(&name, &call.args)
            }
            _ => return Ok(self.unknown(call, name)),
        };
        let id = match begun {
            Ok(id) => id,
            Err(error) => return Ok(call.resume(error, self.print())),
        };
        self.sent.insert(id, (call.call_id, name.clone()));
        self.untaken.insert(call.call_id, name);
        if !call.allow_eager_await {
            return Ok(call.resume_pending(self.print()));
        }
        while !self.ready.contains_key(&call.call_id) {
            if !self.take_one(None) {
                return Err(self.place(&call.position));
            }
        }
        self.untaken.remove(&call.call_id);
        let answer = self
            .ready
            .remove(&call.call_id)
            .unwrap_or_else(|| Ok(MontyObject::none()));
        Ok(call.resume_eager(answer, self.print()))
    }

    fn give(
        &mut self,
        call: ReplFunctionCall,
        answer: Result<MontyObject, MontyException>,
    ) -> Step {
        match answer {
            Ok(value) => call.resume(value, self.print()),
            Err(error) => call.resume(error, self.print()),
        }
    }

    fn print(&mut self) -> PrintWriter<'_> {
        PrintWriter::Callback(&mut self.host)
    }

    /// Sends the frame of a call or a query; gives its id.
    fn begin(&mut self, name: &str, arguments: &CallArgs) -> Result<u64, MontyException> {
        self.host.flush();
        let (kind, rest) = match self.run.tools.get(name) {
            Some(parameters) => (
                b'C',
                calls::of_tool(name, parameters, arguments, self.run.limits.max_call_bytes)?,
            ),
            None => (b'Q', calls::of_helper(name, arguments)?),
        };
        let id = self.host.channel.take_id();
        self.host
            .channel
            .send_text(kind, format!("{{\"id\":{id},{rest}").as_bytes());
        Ok(id)
    }

    fn emit(&mut self, arguments: &CallArgs) -> Result<MontyObject, MontyException> {
        let encoded = calls::emitted(arguments, self.run.limits.max_emit_bytes)?;
        self.host
            .channel
            .send_text(b'E', format!("{{\"value\":{encoded}}}").as_bytes());
        Ok(MontyObject::none())
    }

    /// Answers what would reach the system: sleeps are waited for, all else there is not.
    fn system(&mut self, call: ReplOsCall) -> Result<Step, Vec<Place>> {
        let none = MontyObject::none;
        match &call.function_call {
            OsFunctionCall::Sleep(duration) | OsFunctionCall::SystemSleep(duration) => {
                let over = Instant::now() + *duration;
                self.sleep(over, &call.position)?;
                Ok(call.resume(none(), self.print()))
            }
            OsFunctionCall::AsyncSleep(duration) | OsFunctionCall::AsyncSystemSleep(duration) => {
                let over = Instant::now() + *duration;
                if call.allow_eager_await {
                    self.sleep(over, &call.position)?;
                    return Ok(call.resume_eager(Ok(none()), self.print()));
                }
                let id = call.call_id;
                self.sleeps.insert(id, over);
                Ok(call.resume(ExtFunctionResult::Future(id), self.print()))
            }
            // A program's environment is empty.
            OsFunctionCall::GetEnviron => Ok(call.resume(MontyObject::dict([]), self.print())),
            OsFunctionCall::Getenv(asked) => {
                let default = asked.default.clone();
                Ok(call.resume(default, self.print()))
            }
            OsFunctionCall::Import(name) => {
                let name = name.clone();
                Ok(call.resume(ExtFunctionResult::NotFound(name), self.print()))
            }
            other => {
                let message = format!("'{}' is not supported in this environment", other.name());
                Ok(call.resume(
                    MontyException::new(ExcType::RuntimeError, Some(message)),
                    self.print(),
                ))
            }
        }
    }

    /// Waits until a moment, taking what comes.
    fn sleep(&mut self, over: Instant, position: &SourceRange) -> Result<(), Vec<Place>> {
        loop {
            let left = over.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.take_one(Some(left.min(LONGEST)));
            if self.host.stopped {
                return Err(self.place(position));
            }
        }
    }

    /// Waits until a task can go on, and gives it what it waits for.
    fn resolve(&mut self, waiting: ReplResolveFutures) -> Result<Step, Vec<Place>> {
        loop {
            let now = Instant::now();
            let over: Vec<u32> = self
                .sleeps
                .iter()
                .filter(|(_, until)| **until <= now)
                .map(|(id, _)| *id)
                .collect();
            for id in over {
                self.sleeps.remove(&id);
                self.ready.insert(id, Ok(MontyObject::none()));
            }
            let mut results = Vec::new();
            for id in waiting.pending_call_ids() {
                if let Some(answer) = self.ready.remove(id) {
                    self.untaken.remove(id);
                    results.push((
                        *id,
                        answer.map_or_else(ExtFunctionResult::Error, ExtFunctionResult::Return),
                    ));
                }
            }
            if !results.is_empty() {
                return Ok(waiting.resume(results, self.print()));
            }
            let next = self
                .sleeps
                .values()
                .min()
                .map(|until| until.saturating_duration_since(now));
            self.take_one(next);
            if self.host.stopped {
                return Err(self.place(waiting.position()));
            }
        }
    }

    /// Waits for what the daemon says next; false once it ended the run.
    fn take_one(&mut self, patience: Option<Duration>) -> bool {
        self.host.flush();
        match self.host.channel.wait(patience) {
            Some(ToWorker::Answer(answer)) => self.answered(answer),
            Some(ToWorker::Stop) => self.host.stopped = true,
            // A second program.
            Some(ToWorker::Run(_)) => crate::channel::lost(),
            None => {}
        }
        !self.host.stopped
    }

    fn answered(&mut self, answer: Answer) {
        let Some((call, _)) = self.sent.remove(&answer.id) else {
            return;
        };
        let outcome = match answer.outcome {
            Ok(text) => value::decode(&text),
            Err(error) => {
                let raised = MontyException::new(ExcType::OSError, Some(error.message.clone()));
                self.errors.push(error);
                Err(raised)
            }
        };
        self.ready.insert(call, outcome);
    }

    fn place(&self, position: &SourceRange) -> Vec<Place> {
        let offset = usize::try_from(position.start).unwrap_or(0);
        let function = self
            .reading
            .as_ref()
            .map_or("<module>", |reading| reading.function_at(offset));
        vec![Place {
            line: self.source.number_at(offset),
            function: function.to_owned(),
        }]
    }
}
