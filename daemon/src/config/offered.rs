//! Judges which servers a client may use, by the values of variables that it offered.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use ptc_protocol::{MAX_VARIABLE_BYTES, Unsendable, Vars};
use tokio::sync::watch;

use super::ServerConfig;
use super::expand::{Variables, sent_names};

/// Tells one value of a variable, the first argument, from another without keeping it.
pub type Digest<'d> = &'d dyn Fn(&str, &str) -> String;

/// What one client said of the variables it was asked for: digests, never values.
#[derive(Clone, Debug, Default)]
pub struct Offered(BTreeMap<String, Said>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// It does not have it.
    Nothing,
    /// The digest of its value.
    Value(String),
    /// It has a value that it cannot send.
    Unsendable(Unsendable),
}

impl Offered {
    /// What a client sent when it was `asked`.
    pub fn new(asked: &[String], sent: &Vars, digest: Digest<'_>) -> Self {
        let said = |name: &String| match usable(name, sent) {
            None => Said::Nothing,
            Some(Ok(value)) => Said::Value(digest(name, value)),
            Some(Err(why)) => Said::Unsendable(why),
        };
        Self(
            asked
                .iter()
                .map(|name| (name.clone(), said(name)))
                .collect(),
        )
    }

    /// Whether the client was asked for all of these.
    pub fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.0.contains_key(name))
    }
}

/// The value of a variable that a client sent, or why it cannot be used; `None` where it has none.
pub(super) fn usable<'s>(name: &str, sent: &'s Vars) -> Option<Result<&'s str, Unsendable>> {
    let Some(value) = sent.get(name) else {
        let word = sent.get(&Unsendable::key(name))?;
        return Some(Err(Unsendable::of_word(word).unwrap_or(Unsendable::NotText)));
    };
    if value.len() > MAX_VARIABLE_BYTES {
        return Some(Err(Unsendable::TooLong));
    }
    if value.contains('\0') {
        return Some(Err(Unsendable::Nul));
    }
    Some(Ok(value))
}

impl Variables {
    /// Why a client with these values may not use a server with those in use; `None` where it may. The words
    /// follow the server's name.
    ///
    /// A client that has no value of a variable may use what runs with another's: it wants no other. One that was
    /// never asked may not, nor one whose value is another, or cannot be known.
    pub fn why_barred(
        &self,
        server: &ServerConfig,
        offered: &Offered,
        digest: Digest<'_>,
    ) -> Option<String> {
        let values = self.read();
        sent_names(server).into_iter().find_map(|(name, optional)| {
            if values.recorded.contains_key(&name) {
                return None;
            }
            let in_use = values.sent.get(&name);
            match (offered.0.get(&name), in_use) {
                (Some(Said::Nothing), _) | (None | Some(Said::Unsendable(_)), None) => None,
                (Some(Said::Value(own)), Some(used)) if *own == digest(&name, used) => None,
                // Without a default the server has failed, which says more.
                (Some(Said::Value(_)), None) if !optional => None,
                (Some(Said::Value(_)), None) => Some(format!(
                    "runs with the default of ${{{name}}}, since the values that clients sent are forgotten; start \
                     this client anew to have its own used"
                )),
                (Some(Said::Value(_)), Some(_)) => Some(format!(
                    "runs with another value of ${{{name}}} than this client has; `ptcctl reload --env` lets the \
                     next client's value count"
                )),
                (Some(Said::Unsendable(why)), Some(_)) => Some(format!(
                    "runs with another client's value of ${{{name}}}; this client's own cannot be sent: {why}"
                )),
                (None, Some(_)) => Some(format!(
                    "runs with another client's value of ${{{name}}}, for which this client was not asked yet: it \
                     is, as soon as it waits for nothing"
                )),
            }
        })
    }
}

/// What judges for one client.
pub trait Judge: Debug + Send + Sync {
    /// Why the client may not use a server now; `None` where it may.
    fn why_barred(&self, server: &str) -> Option<String>;
    /// Changes whenever the judgement may.
    fn changed(&self) -> watch::Receiver<u64>;
}

/// The servers that one client may not use, judged anew each time.
#[derive(Clone, Debug, Default)]
pub struct Barred(Option<Arc<dyn Judge>>);

impl Barred {
    /// What `judge` says.
    pub fn by(judge: Arc<dyn Judge>) -> Self {
        Self(Some(judge))
    }

    /// Whether the client may not use a server now.
    pub fn contains(&self, server: &str) -> bool {
        self.why(server).is_some()
    }

    /// Why not; the words follow the server's name.
    pub fn why(&self, server: &str) -> Option<String> {
        self.0.as_ref()?.why_barred(server)
    }

    /// Waits until the client may not use a server, and gives the reason.
    pub async fn until(&self, server: &str) -> String {
        let Some(judge) = &self.0 else {
            return std::future::pending().await;
        };
        let mut changed = judge.changed();
        loop {
            changed.mark_unchanged();
            if let Some(why) = judge.why_barred(server) {
                return why;
            }
            if changed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn config() -> Config {
        let text = "servers:\n\
            - {name: a, command: b, args: ['${ARG:-x}'], env: {X: '${A}'}}\n\
            - {name: d, command: b, env: {X: '${D:-default}'}}\n\
            - {name: n, command: b}\n";
        crate::config::parse(text, std::path::Path::new("/c/config.yaml")).unwrap()
    }

    fn map(pairs: &[(&str, &str)]) -> Vars {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(pair).collect()
    }

    fn digest(name: &str, value: &str) -> String {
        format!("{name}/{}", value.len())
    }

    /// The servers barred for a client that was asked for `asked` and sent this.
    fn barred(variables: &Variables, asked: &[&str], sent: &[(&str, &str)]) -> Vec<String> {
        let asked: Vec<String> = asked.iter().map(|&name| name.to_owned()).collect();
        let offered = Offered::new(&asked, &map(sent), &digest);
        let config = config();
        let why = |server: &ServerConfig| {
            let why = variables.why_barred(server, &offered, &digest)?;
            Some(format!("{} {why}", server.name))
        };
        config.servers.iter().filter_map(why).collect()
    }

    #[test]
    fn a_client_uses_what_runs_with_its_own_values_and_nothing_with_others() {
        let variables = Variables::default();
        let names = ["A", "D"];
        let wanted = names.map(str::to_owned);
        variables.take(&wanted, &map(&[("A", "one"), ("D", "xx")]));
        let none: [String; 0] = [];
        assert_eq!(
            barred(&variables, &names, &[("A", "one"), ("D", "xx")]),
            none
        );
        let other = barred(&variables, &names, &[("A", "other"), ("D", "xx")]);
        assert_eq!(other.len(), 1);
        assert!(
            other[0].starts_with("a runs with another value of ${A} than"),
            "{other:?}"
        );
        // One that has none wants no other; one that nobody asked may have one.
        assert_eq!(barred(&variables, &names, &[]), none);
        let unasked = barred(&variables, &[], &[]);
        assert_eq!(unasked.len(), 2);
        assert!(
            unasked.iter().all(|why| why.contains("not asked yet")),
            "{unasked:?}"
        );
        let long = "x".repeat(MAX_VARIABLE_BYTES + 1);
        for sent in [("A", long.as_str()), ("!A", "too_long")] {
            let barred = barred(&variables, &names, &[sent]);
            assert_eq!(barred.len(), 1);
            assert!(
                barred[0].ends_with("it is longer than 32768 bytes"),
                "{barred:?}"
            );
        }
    }

    #[test]
    fn what_is_forgotten_is_judged_by_what_is_in_use_then() {
        let variables = Variables::default();
        let names = ["A", "D"];
        let wanted = names.map(str::to_owned);
        let (first, second) = ([("A", "one"), ("D", "xx")], [("A", "other"), ("D", "xx")]);
        variables.take(&wanted, &map(&first));
        variables.forget_sent();
        // Nobody's value is in use: a server that needs one has failed, the other runs with its default.
        let forgotten = barred(&variables, &names, &first);
        assert_eq!(forgotten.len(), 1);
        assert!(
            forgotten[0].starts_with("d runs with the default of ${D}"),
            "{forgotten:?}"
        );
        variables.take(&wanted, &map(&second));
        assert_eq!(barred(&variables, &names, &first).len(), 1);
        let none: [String; 0] = [];
        assert_eq!(barred(&variables, &names, &second), none);
    }

    #[test]
    fn the_recorded_environments_values_are_everybodys() {
        let variables = Variables::new(map(&[("A", "recorded"), ("D", "recorded")]));
        let none: [String; 0] = [];
        assert_eq!(barred(&variables, &[], &[]), none);
        assert_eq!(barred(&variables, &["A"], &[("A", "other")]), none);
    }

    #[derive(Debug)]
    struct After(watch::Sender<u64>);

    impl Judge for After {
        fn why_barred(&self, server: &str) -> Option<String> {
            (*self.0.borrow() > 0 && server == "a").then(|| "is closed".to_owned())
        }

        fn changed(&self) -> watch::Receiver<u64> {
            self.0.subscribe()
        }
    }

    #[tokio::test]
    async fn a_change_is_told_to_who_waits_for_it() {
        let judge = Arc::new(After(watch::Sender::new(0)));
        let barred = Barred::by(Arc::clone(&judge) as Arc<dyn Judge>);
        assert!(!barred.contains("a"));
        let waiting = tokio::spawn({
            let barred = barred.clone();
            async move { barred.until("a").await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        judge.0.send_modify(|version| *version += 1);
        assert_eq!(waiting.await.unwrap(), "is closed");
        assert!(barred.contains("a") && !barred.contains("b"));
        assert!(!Barred::default().contains("a"));
    }
}
