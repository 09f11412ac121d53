//! What may happen to a shim, drawn by chance.

use proptest::prelude::*;

/// The methods of requests.
pub(crate) const METHODS: [&str; 7] = [
    "tools/call",
    "tools/list",
    "ping",
    "initialize",
    "server/discover",
    "subscriptions/listen",
    "something/else",
];

/// One thing that happens. What cannot happen where it comes is passed over.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Request {
        method: usize,
        id: usize,
        modern: bool,
    },
    Cancel(usize),
    Initialized,
    Garbage,
    /// The client answers the daemon's question with this number.
    Reply(usize),
    Eof,
    /// The daemon answers one of the requests it has.
    Answer {
        nth: usize,
        error: bool,
    },
    Acknowledge(usize),
    /// The daemon answers what nobody asked.
    Stray(usize),
    Notice,
    /// The daemon wants to be connected to anew.
    Renew,
    Question(usize),
    Up,
    Lost,
    Failed,
    Blocked,
    Refused,
    Told(bool),
    Remember(bool),
    Tick,
}

/// Any of them, those that move a connection on more often.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let small = 0..4_usize;
    prop_oneof![
        8 => (0..METHODS.len(), 0..5_usize, any::<bool>())
            .prop_map(|(method, id, modern)| Event::Request { method, id, modern }),
        2 => (0..5_usize).prop_map(Event::Cancel),
        1 => Just(Event::Initialized),
        1 => Just(Event::Garbage),
        1 => small.clone().prop_map(Event::Reply),
        6 => (small.clone(), any::<bool>()).prop_map(|(nth, error)| Event::Answer { nth, error }),
        2 => small.clone().prop_map(Event::Acknowledge),
        1 => (0..5_usize).prop_map(Event::Stray),
        1 => Just(Event::Notice),
        2 => Just(Event::Renew),
        1 => small.prop_map(Event::Question),
        6 => Just(Event::Up),
        3 => Just(Event::Lost),
        2 => Just(Event::Failed),
        1 => Just(Event::Blocked),
        1 => Just(Event::Refused),
        3 => any::<bool>().prop_map(Event::Told),
        1 => any::<bool>().prop_map(Event::Remember),
        3 => Just(Event::Tick),
        1 => Just(Event::Eof),
    ]
}
