//! Knows what each connected client offered, and has it asked again where a configuration wants more.

use std::sync::{Arc, Mutex, Weak};

use ptc_protocol::Vars;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Inner, lock};
use crate::config::Config;
use crate::config::offered::{Barred, Judge, Offered};
use crate::control::Grant;

/// The clients that are connected now.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Vec<Weak<Client>>>);

/// One of them.
#[derive(Debug)]
struct Client {
    daemon: Weak<Inner>,
    offered: Offered,
    /// Cancelled when it is to be asked for other variables.
    renew: CancellationToken,
}

impl Judge for Client {
    fn why_barred(&self, server: &str) -> Option<String> {
        let Some(daemon) = self.daemon.upgrade() else {
            return Some("ends with the daemon".to_owned());
        };
        // A reload holds this from the change of a value to that of the servers, so none is judged by half of it.
        let loaded = lock(&daemon.loaded);
        let mut servers = loaded.config.servers.iter();
        let server = servers.find(|known| known.name == server)?;
        let digest = |name: &str, value: &str| daemon.digest(name, value);
        daemon.variables.why_barred(server, &self.offered, &digest)
    }

    fn changed(&self) -> watch::Receiver<u64> {
        match self.daemon.upgrade() {
            Some(daemon) => daemon.variables.changed(),
            None => watch::channel(0).1,
        }
    }
}

impl Inner {
    /// The variables to ask clients for, servers that were turned on or off by hand included.
    pub(super) fn wants(&self, config: &Config) -> Vec<String> {
        self.variables.wants(&self.servers_of(config))
    }

    /// Takes what a client sent of the variables it was asked for.
    pub(super) fn grant(&self, asked: &[String], sent: &Vars) -> Grant {
        let digest = |name: &str, value: &str| self.digest(name, value);
        let client = Arc::new(Client {
            daemon: self.me.clone(),
            offered: Offered::new(asked, sent, &digest),
            renew: CancellationToken::new(),
        });
        let renew = client.renew.clone();
        {
            let mut clients = lock(&self.clients.0);
            clients.retain(|client| client.strong_count() > 0);
            clients.push(Arc::downgrade(&client));
        }
        let loaded = lock(&self.loaded);
        let wants = self.wants(&loaded.config);
        let wanted: Vec<String> = wants
            .iter()
            .filter(|name| asked.contains(name))
            .cloned()
            .collect();
        if self.variables.take(&wanted, sent) {
            // Only servers whose entry now expands to something else start anew.
            self.downstream.reload(self.servers_of(&loaded.config));
        }
        drop(loaded);
        // A reload may have come between the question and now.
        if !client.offered.covers(&wants) {
            renew.cancel();
        }
        Grant {
            barred: Barred::by(client),
            renew,
        }
    }

    /// Has every client asked again that was not asked for all that the configuration in force wants.
    pub(super) fn ask_clients_again(&self) {
        let wants = self.wants(&lock(&self.loaded).config);
        for client in lock(&self.clients.0).iter().filter_map(Weak::upgrade) {
            if !client.offered.covers(&wants) {
                client.renew.cancel();
            }
        }
    }

    /// Tells one value of a variable from another, without keeping it.
    fn digest(&self, name: &str, value: &str) -> String {
        self.masker
            .keyed_hash(&format!("variable {name}"), value.as_bytes())
    }

    /// Puts the servers of the configuration in force in place, as they are turned on or off now.
    pub(super) fn put_servers(&self) {
        let loaded = lock(&self.loaded);
        self.downstream.reload(self.servers_of(&loaded.config));
    }
}
