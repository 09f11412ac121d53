//! The warden's fork servers: when one is started, what is told of it.

use std::io;
use std::path::Path;

use super::{Inside, SCRATCH, Warden};
use crate::sandbox::forks::{Change, Setup};
use crate::sandbox::limits::Limits;
use crate::sandbox::profile;
use crate::sandbox::scratch::Base;
use crate::sandbox::step::Step;
use crate::sandbox::wire::Report;
use crate::sandbox::worker::Making;

impl Warden {
    /// Starts a fork server; that it serves, or why there is none, is told later.
    pub(super) fn serve_forks(&mut self, limits: Limits) -> io::Result<()> {
        let started = self.prepare_forks(limits).and_then(|()| {
            let text =
                |(step, detail): (Step, String)| format!("step {} failed: {detail}", step.as_str());
            self.start_server().map_err(text)
        });
        match started {
            Ok(()) => Ok(()),
            Err(detail) => self.tell(&Report::NotServing { detail }, &[]),
        }
    }

    fn prepare_forks(&mut self, limits: Limits) -> Result<(), String> {
        let Some(ready) = &mut self.ready else {
            return Err("there is no plan".to_owned());
        };
        if !ready.plan.is_python {
            return Err("the plan's program is no Python".to_owned());
        }
        if ready.forking.is_none() {
            if self.inside.is_none() {
                // The first child of a server ends, and the second one is to be this process's.
                rustix::process::set_child_subreaper(Some(self.own_pid))
                    .map_err(|error| error.to_string())?;
            }
            let profile = ready.without.profile.as_deref().unwrap_or(profile::TEXT);
            let warden = self.own_pid.as_raw_nonzero().get();
            let setup = Setup::make(&ready.plan, profile, &ready.without, warden)?;
            ready.forking = Some((setup, limits));
        }
        Ok(())
    }

    fn start_server(&mut self) -> Result<(), (Step, String)> {
        let Some((ready, (setup, limits))) = self
            .ready
            .as_ref()
            .and_then(|ready| Some((ready, ready.forking.as_ref()?)))
        else {
            return Ok(());
        };
        let scratch = self.base.as_ref().map_or(Path::new(SCRATCH), Base::path);
        self.forks.start(Making {
            plan: &ready.plan,
            without: &ready.without,
            filters: ready.filters.as_ref().map(|_| &setup.filters),
            limits: *limits,
            scratch,
            ends: &[],
            tasks: 0,
            become_user: self.become_user,
            warden: self.own_pid,
            inside: self.inside.as_ref().map(Inside::proc),
            server: Some(setup),
        })
    }

    /// Sees what fork servers did, and starts the next one in time.
    pub(super) fn look_at_forks(&mut self) -> io::Result<()> {
        match self.forks.look() {
            None => {}
            Some(Change::Serving) => {
                let setup = self.ready.as_ref().and_then(|ready| ready.forking.as_ref());
                let filters = setup.map_or(0, |(setup, _)| setup.count);
                self.tell(&Report::Serving { filters }, &[])?;
            }
            Some(Change::Lost { detail }) => self.tell(&Report::NotServing { detail }, &[])?,
        }
        Ok(())
    }

    /// Starts another server where the one that forks has done so for long enough; until it is warm the old one goes
    /// on. Should that fail, it is tried again at the next worker.
    pub(super) fn renew_server(&mut self) {
        let renewal = self.ready.as_ref().map(|ready| ready.without.renewal());
        if self.forks.is_due(renewal.unwrap_or_default()) {
            let _ = self.start_server();
        }
    }
}
