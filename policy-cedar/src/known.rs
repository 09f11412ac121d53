//! Keeps who calls what in Cedar's form, which takes as long to make as a judgement and is the same for every call of a
//! tool by one client.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cedar_policy::{Entities, EntityUid};

use crate::facts::{Call, Client, Hints, Tool};

/// Most that is kept; each takes about 3 KiB.
const MAX_KNOWN: usize = 1024;
/// Longest names that are kept, all of a call's together, in bytes.
const MAX_KEY: usize = 2048;

/// The two parties of a call.
#[derive(Debug)]
pub(crate) struct Parties {
    pub(crate) principal: EntityUid,
    pub(crate) resource: EntityUid,
    /// Both with their attributes, and the tool's server.
    pub(crate) entities: Entities,
}

/// The parties of calls that were judged.
#[derive(Default)]
pub(crate) struct Known(Mutex<HashMap<Vec<u8>, Arc<Parties>>>);

impl fmt::Debug for Known {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Known")
    }
}

impl Known {
    /// The parties of a call: those of an earlier one with the same facts, else what `anew` makes of them.
    pub(crate) fn parties(
        &self,
        call: &Call<'_>,
        anew: impl FnOnce() -> Result<Parties, String>,
    ) -> Result<Arc<Parties>, String> {
        let key = key(call);
        if key.len() > MAX_KEY {
            return anew().map(Arc::new);
        }
        if let Some(parties) = self.lock().get(&key) {
            return Ok(Arc::clone(parties));
        }
        let made = Arc::new(anew()?);
        let mut known = self.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key, Arc::clone(&made));
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<Parties>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every fact that goes into the parties. Each text has its length before it, so that no two calls share a key by
/// where one text ends and the next begins.
fn key(call: &Call<'_>) -> Vec<u8> {
    // Taken apart whole, so that a fact that is new must find its place here.
    let Client {
        name: client,
        version,
        transport,
    } = call.client;
    let Tool {
        server,
        name,
        callable,
        effect,
        hints,
        input_schema: _,
    } = call.tool;
    let Hints {
        read_only,
        destructive,
        idempotent,
        open_world,
    } = hints;
    let mut key = Vec::with_capacity(256);
    for text in [client, version, transport, server, name, callable, effect] {
        key.extend_from_slice(&text.len().to_le_bytes());
        key.extend_from_slice(text.as_bytes());
    }
    key.extend([read_only, destructive, idempotent, open_world].map(u8::from));
    key
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::{Map, Value};

    use super::*;
    use crate::facts::Program;

    fn parties() -> Parties {
        Parties {
            principal: r#"Client::"a""#.parse().unwrap(),
            resource: r#"Tool::"a/b""#.parse().unwrap(),
            entities: Entities::empty(),
        }
    }

    fn call<'a>(client: &'a str, arguments: &'a Map<String, Value>) -> Call<'a> {
        Call {
            client: Client {
                name: client,
                version: "1",
                transport: "socket",
            },
            tool: Tool {
                server: "s",
                name: "t",
                callable: "mcp__s__t",
                effect: "read",
                hints: Hints::default(),
                input_schema: None,
            },
            arguments,
            program: Program {
                engine: "cpython",
                run: "r1",
                call_index: 0,
                calls_to_tool: 0,
            },
        }
    }

    #[test]
    fn a_fact_that_differs_makes_other_parties_and_nothing_else_does() {
        let (known, made) = (Known::default(), Cell::new(0));
        let (none, one) = (Map::new(), Map::from_iter([("a".to_owned(), 1.into())]));
        let call = call("ab", &none);
        let is_new = |call: &Call<'_>| {
            let before = made.get();
            let anew = || {
                made.set(before + 1);
                Ok(parties())
            };
            known.parties(call, anew).unwrap();
            made.get() > before
        };
        assert!(is_new(&call) && !is_new(&call));
        let mut same = call;
        same.arguments = &one;
        same.program.run = "r2";
        same.program.call_index = 7;
        assert!(!is_new(&same));
        let changes: [fn(&mut Call<'_>); 11] = [
            |call| call.client.name = "a",
            |call| (call.client.name, call.client.version) = ("a", "b1"),
            |call| call.client.transport = "x",
            |call| call.tool.server = "x",
            |call| call.tool.name = "x",
            |call| call.tool.callable = "x",
            |call| call.tool.effect = "write",
            |call| call.tool.hints.read_only = true,
            |call| call.tool.hints.destructive = false,
            |call| call.tool.hints.idempotent = true,
            |call| call.tool.hints.open_world = false,
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut other = call;
            change(&mut other);
            assert!(is_new(&other) && !is_new(&other), "{index}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_cannot_be_made_is_not_kept() {
        let known = Known::default();
        let none = Map::new();
        let judge = |name: &str, made: Result<Parties, String>| {
            let call = call(name, &none);
            known.parties(&call, || made).map(|_| ())
        };
        assert!(judge("a", Err("no".to_owned())).is_err());
        assert_eq!(known.lock().len(), 0);
        judge(&"x".repeat(MAX_KEY), Ok(parties())).unwrap();
        assert_eq!(known.lock().len(), 0);
        for number in 0..=MAX_KNOWN {
            judge(&number.to_string(), Ok(parties())).unwrap();
            assert!(known.lock().len() <= MAX_KNOWN);
        }
    }
}
