//! What the socket lets a client do to the daemon.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use ptc_protocol::Vars;
use ptc_protocol::approval::WaitingList;
use ptc_protocol::detail::{Replay, RunDetail};
use ptc_protocol::doctor::Checks;
use ptc_protocol::policy::{PolicyChecked, TrialCall};
use ptc_protocol::run::{MAX_LISTED_CALLS, RequestCalls, RunRecord, SentCall};
use ptc_protocol::status::{ClientStatus, ConfigShown, Done, Processes, SCHEMA, Status, ToolList};

use serde_json::Value;

use super::{Inner, Workshop, lock, modified, reload};
use crate::config;
use crate::control::{Commands, Grant, ServerVerb};
use crate::engine::Answer;
use crate::journal::{JournalError, LoggedRun};
use crate::metrics::{Extra, MetricsError, process};
use crate::status;

impl Commands for Inner {
    fn status(&self, clients: Vec<ClientStatus>) -> Status {
        let (loaded, shop) = self.in_force();
        let Workshop {
            sandbox,
            pool,
            monty,
            ..
        } = shop;
        let policies = loaded.config.policy.cedar.as_deref();
        let changed_on_disk = modified(&self.places, policies) != loaded.modified;
        // In this order: the tools of what is ready here have been listed by then.
        let servers = self.downstream.servers();
        let counts = self.registry.counts();
        status::compute(status::Snapshot {
            uptime: self.started.elapsed(),
            draining: self.stop.is_cancelled(),
            socket: self.places.socket.display().to_string(),
            state_dir: self.places.state_dir.display().to_string(),
            config_path: self.places.config.path().to_owned(),
            config: &loaded.config,
            read_ago: loaded.read_at.elapsed(),
            faults: {
                let ready = sandbox.state().ok();
                let uncounted = reload::uncounted(&loaded.config.execution, ready.as_ref());
                loaded.faults.into_iter().chain(uncounted).collect()
            },
            changed_on_disk,
            missing_variables: self.variables.missing(&loaded.config),
            policy: self.policy_status(),
            sandbox: sandbox.state(),
            warm: pool.warm(),
            forked: sandbox.is_forking(),
            pool_fault: pool.fault(),
            journal_fault: self.journal.fault(),
            engines: monty.status(&loaded.config.execution).into_iter().collect(),
            runs: self.engine.counts(),
            totals: self.engine.totals(),
            today: self.engine.today(),
            processes: Processes {
                daemon: process::own(),
                warden: sandbox.warden_pid().map(process::of),
            },
            clients,
            servers: servers
                .into_iter()
                .map(|mut server| {
                    let visible = counts.get(&server.name).copied().unwrap_or_default();
                    server.state.tools = server.state.tools.map(|_| visible);
                    server.state
                })
                .collect(),
            notes: {
                let mut notes = self.registry.notes();
                notes.extend(self.shortage.note());
                notes
            },
        })
    }

    fn metrics(&self, clients: Vec<ClientStatus>) -> Result<String, MetricsError> {
        let status = self.status(clients);
        let made = lock(&self.workshop).pool.made();
        let (journal_bytes, journal_failures) = self.journal.figures();
        let extra = Extra {
            workers_started: made.started,
            workers_failed: made.failed,
            journal_bytes,
            journal_failures,
        };
        let text = self.metrics.text(&status, &extra)?;
        Ok(self.masker.mask(&text).into_owned())
    }

    fn tools(&self) -> ToolList {
        let listing = self.registry.list();
        ToolList {
            schema: SCHEMA,
            unavailable: listing.unavailable,
            effects: self
                .registry
                .effects()
                .into_iter()
                .filter(|(name, _)| listing.tools.contains(name))
                .map(|(name, effect)| (name, effect.as_str().to_owned()))
                .collect(),
            tools: listing.tools,
        }
    }

    fn tool(&self, name: &str) -> Result<Value, String> {
        self.registry
            .inspect(name)
            .map_err(|unknown| unknown.to_string())
    }

    fn config(&self) -> ConfigShown {
        let loaded = lock(&self.loaded).clone();
        let path = self.places.config.path();
        ConfigShown {
            schema: SCHEMA,
            path: path.exists().then(|| path.display().to_string()),
            config: config::show(&loaded.config, &|text| self.masker.mask(text).into_owned()),
            faults: loaded.faults,
        }
    }

    fn check_config(&self, path: Option<&str>) -> Done {
        let own = &self.places.config;
        let checked = match path {
            Some(path) => config::load(Path::new(path)),
            None => config::load_choice(own),
        };
        let shown = path.map_or_else(|| own.path().display().to_string(), str::to_owned);
        match reload::with_policy(checked, &self.keys()) {
            Ok((config, _)) => Done {
                ok: true,
                messages: vec![reload::sound(&shown, &config)],
            },
            Err(faults) => Done {
                ok: false,
                messages: faults.lines(),
            },
        }
    }

    fn check_policy(&self, call: Option<&TrialCall>) -> PolicyChecked {
        self.policy_checked(call)
    }

    fn pin_tools(&self, verb: &str, pattern: &str) -> Done {
        Self::pin_tools(self, verb, pattern)
    }

    fn approvals(&self) -> WaitingList {
        WaitingList {
            schema: SCHEMA,
            waiting: self.engine.approvals().list(),
        }
    }

    fn answer_approval(&self, id: &str, word: &str) -> Done {
        let (answer, said) = match word {
            "once" => (Answer::Once, "the call may be made"),
            "tool" => (
                Answer::Tool,
                "the call may be made, and others of its tool by the same program",
            ),
            _ => {
                let why = "whoever answers `ptcctl approvals` said no".to_owned();
                (Answer::No(why), "the call is denied")
            }
        };
        let ok = self.engine.approvals().answer(id, answer);
        let message = if ok {
            said.to_owned()
        } else {
            format!("no call waits as {id}")
        };
        Done {
            ok,
            messages: vec![message],
        }
    }

    fn server(&self, verb: ServerVerb, name: &str) -> Done {
        self.steer(verb, name)
    }

    fn reset_names(&self) -> Done {
        self.registry.reset_names();
        Done {
            ok: true,
            messages: vec![
                "the names are forgotten; every tool has the name that the rule gives it now"
                    .to_owned(),
            ],
        }
    }

    fn runs(&self) -> Vec<RunRecord> {
        self.journal.runs()
    }

    fn run(&self, run: &str, whole: bool) -> Result<Option<RunDetail>, JournalError> {
        self.run_detail(run, whole)
    }

    fn replay(
        &self,
        run: String,
        code: Option<String>,
    ) -> Pin<Box<dyn Future<Output = Result<Replay, String>> + Send + '_>> {
        let repeated = self.repeat(run, code);
        Box::pin(async move { repeated.await.map_err(|error| error.to_string()) })
    }

    fn calls(&self, session: &str, request: &Value) -> Result<RequestCalls, JournalError> {
        let logged = self.journal.calls_of(session, request)?;
        Ok(logged.map(request_calls).unwrap_or_default())
    }

    fn reload(&self, forget_sent: bool) -> Pin<Box<dyn Future<Output = Done> + Send + '_>> {
        Box::pin(self.reload_all(forget_sent))
    }

    fn doctor(&self, server: Option<String>) -> Pin<Box<dyn Future<Output = Checks> + Send + '_>> {
        Box::pin(self.examine(server))
    }

    fn stop(&self) -> Vec<String> {
        let drain = lock(&self.loaded).config.daemon.drain;
        let (running, queued) = self.engine.counts();
        self.told_by.get_or_init(|| "stop");
        self.stop.cancel();
        stopping(running + queued, drain)
    }

    fn stop_if_idle(&self) -> Done {
        let ok = self.engine.close_if_idle();
        if ok {
            self.stop.cancel();
            return Done {
                ok,
                messages: stopping(0, Duration::ZERO),
            };
        }
        let (running, queued) = self.engine.counts();
        Done {
            ok,
            messages: vec![format!(
                "programs run ({running}) or wait ({queued}): the daemon stays"
            )],
        }
    }

    fn wanted_variables(&self) -> Vec<String> {
        self.wants(&lock(&self.loaded).config)
    }

    fn offer_variables(&self, asked: &[String], sent: &Vars) -> Grant {
        self.grant(asked, sent)
    }
}

/// What a daemon that was told to end says it waits for.
fn stopping(programs: usize, drain: Duration) -> Vec<String> {
    let seconds = drain.as_secs();
    let programs = match programs {
        0 => None,
        1 => Some("1 program runs: it is".to_owned()),
        count => Some(format!("{count} programs run: they are")),
    };
    let begun = "the daemon takes nothing more and will end".to_owned();
    let waits = programs.map(|programs| {
        format!("{programs} waited for, at most {seconds} s (daemon.drain_seconds)")
    });
    std::iter::once(begun).chain(waits).collect()
}

/// The last calls of a run, which are those in doubt when its daemon ended, and how many came before.
fn request_calls(logged: LoggedRun) -> RequestCalls {
    let earlier = logged.calls.len().saturating_sub(MAX_LISTED_CALLS);
    let calls = logged.calls.into_iter().skip(earlier);
    let calls = calls.map(|call| SentCall {
        tool: call.tool,
        server: call.server,
        ok: call.ok,
    });
    RequestCalls {
        run: Some(logged.run),
        ending: logged.ending,
        earlier,
        calls: calls.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::LoggedCall;

    #[test]
    fn a_daemon_that_ends_says_which_programs_it_waits_for_and_how_long() {
        let begun = "the daemon takes nothing more and will end";
        let drain = Duration::from_secs(30);
        assert_eq!(stopping(0, drain), [begun]);
        let one = "1 program runs: it is waited for, at most 30 s (daemon.drain_seconds)";
        assert_eq!(stopping(1, drain), [begun, one]);
        let two = "2 programs run: they are waited for, at most 30 s (daemon.drain_seconds)";
        assert_eq!(stopping(2, drain), [begun, two]);
    }

    #[test]
    fn of_many_calls_the_last_are_listed_and_the_others_counted() {
        let call = |call: u64| LoggedCall {
            call,
            tool: format!("mcp__a__t{call}"),
            server: "a".to_owned(),
            ok: (call < 102).then_some(true),
        };
        let told = request_calls(LoggedRun {
            run: "r".to_owned(),
            ending: None,
            calls: (0..103).map(call).collect(),
        });
        assert_eq!((told.earlier, told.calls.len()), (3, MAX_LISTED_CALLS));
        let ends = (&told.calls[0], &told.calls[99]);
        assert_eq!(
            (ends.0.tool.as_str(), ends.0.ok),
            ("mcp__a__t3", Some(true))
        );
        assert_eq!((ends.1.tool.as_str(), ends.1.ok), ("mcp__a__t102", None));
    }
}
