//! What an operator does to single servers while the daemon runs.

use ptc_protocol::status::{Done, ServerState};

use super::{Inner, lock};
use crate::config::{Config, ServerConfig};
use crate::control::ServerVerb;

impl Inner {
    /// The servers of a configuration, turned on or off as the operator last said.
    pub(super) fn servers_of(&self, config: &Config) -> Vec<ServerConfig> {
        let by_hand = lock(&self.by_hand);
        let mut servers = config.servers.clone();
        for server in &mut servers {
            if let Some(enabled) = by_hand.get(&server.name) {
                server.enabled = *enabled;
            }
        }
        servers
    }

    /// Restarts, enables or disables one server.
    pub(super) fn steer(&self, verb: ServerVerb, name: &str) -> Done {
        let config = lock(&self.loaded).config.clone();
        if !config.servers.iter().any(|server| server.name == name) {
            return refused(unknown(name, &config));
        }
        let disabled = |state: ServerState| state == ServerState::Disabled;
        let servers = self.downstream.servers();
        let state = servers
            .iter()
            .find(|server| server.name == name)
            .map(|server| server.state.state);
        match verb {
            ServerVerb::Restart if state.is_some_and(disabled) => refused(format!(
                "{name} is disabled: `ptcctl servers enable {name}` starts it"
            )),
            ServerVerb::Restart => match self.downstream.restart(name) {
                Some(0) => done(format!(
                    "{name} runs for no project now: the next call starts it anew"
                )),
                Some(many @ 2..) => done(format!(
                    "{name} is restarted for each of its {many} projects: `ptcctl servers {name}` shows how it does"
                )),
                Some(1) | None => done(format!(
                    "{name} is restarted: `ptcctl servers {name}` shows how it does"
                )),
            },
            ServerVerb::Enable => self.turn(name, true, &config),
            ServerVerb::Disable => self.turn(name, false, &config),
        }
    }

    fn turn(&self, name: &str, enabled: bool, config: &Config) -> Done {
        let word = if enabled { "enabled" } else { "disabled" };
        let written = config
            .servers
            .iter()
            .any(|server| server.name == name && server.enabled == enabled);
        {
            let mut by_hand = lock(&self.by_hand);
            if written {
                by_hand.remove(name);
            } else {
                by_hand.insert(name.to_owned(), enabled);
            }
        }
        self.put_servers();
        self.ask_clients_again();
        done(if written {
            format!("{name} is {word}, as in the configuration")
        } else {
            format!(
                "{name} is {word} until this daemon ends; `enabled: {enabled}` in the configuration makes it last"
            )
        })
    }
}

fn unknown(name: &str, config: &Config) -> String {
    let names: Vec<&str> = config
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    if names.is_empty() {
        format!("there is no server {name:?}: none is configured")
    } else {
        format!(
            "there is no server {name:?}; there are: {}",
            names.join(", ")
        )
    }
}

fn done(message: String) -> Done {
    Done {
        ok: true,
        messages: vec![message],
    }
}

fn refused(message: String) -> Done {
    Done {
        ok: false,
        messages: vec![message],
    }
}
