//! What holds for any arguments whatever.

use std::sync::LazyLock;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::table::{judged, set, sets};
use crate::{Policies, Verdict};

/// Read once, since reading a set takes longer than judging by it.
static ALL: LazyLock<Vec<Policies>> = LazyLock::new(sets);
static EMPTY: LazyLock<Policies> = LazyLock::new(|| set("empty"));
static AMOUNT: LazyLock<Policies> = LazyLock::new(|| set("amount"));
static ENTITY: LazyLock<Policies> = LazyLock::new(|| set("entity"));

/// Names that mean something to Cedar's own reading of JSON, and some that mean nothing.
const KEYS: [&str; 10] = [
    "__entity", "__extn", "__expr", "type", "id", "fn", "arg", "amount", "to", "",
];
/// Texts that are something elsewhere.
const TEXTS: [&str; 6] = [
    "Client",
    "admin",
    "Client::\"admin\"",
    "decimal",
    "501",
    "a@example.org\u{202e}\0\"\\",
];
/// Numbers at the edges.
const NUMBERS: [&str; 8] = [
    "0",
    "-0.0",
    "501",
    "500.00005",
    "9223372036854775807",
    "-9223372036854775809",
    "1e999999999",
    "1E-400",
];

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(KEYS.to_vec()).prop_map(str::to_owned),
        any::<String>().prop_map(|text| text.chars().take(8).collect()),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(NUMBERS.to_vec())
            .prop_map(|text| serde_json::from_str(text).unwrap()),
        proptest::sample::select(TEXTS.to_vec()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(key(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    btree_map(key(), value(), 0..5).prop_map(|map| map.into_iter().collect())
}

/// Whether a call with this amount may be made by the rule "not above 500", as a reader of the rule would say.
fn is_fine(amount: Option<&Value>) -> bool {
    let Some(Value::Number(number)) = amount else {
        return false;
    };
    let whole = number.as_f64().filter(|number| number.fract() == 0.0);
    whole.is_some_and(|number| number <= 500.0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every set judges, twice alike, and the empty one lets nothing through.
    #[test]
    fn no_arguments_make_the_gate_panic(arguments in arguments()) {
        for policies in ALL.iter() {
            let first = judged(policies, "bank/pay", &arguments);
            prop_assert_eq!(first, judged(policies, "bank/pay", &arguments));
        }
        let denied = matches!(judged(&EMPTY, "x/y", &arguments), Verdict::Deny { .. });
        prop_assert!(denied);
    }

    /// A forbid that cannot be evaluated is no way past it.
    #[test]
    fn no_arguments_are_allowed_by_an_error(arguments in arguments(), amount in value()) {
        let mut arguments = arguments;
        arguments.insert("amount".to_owned(), amount);
        let allowed = judged(&AMOUNT, "bank/pay", &arguments) == Verdict::Allow;
        prop_assert!(!allowed || is_fine(arguments.get("amount")), "{:?}", arguments);
    }

    /// Nothing that a program can send is equal to an entity.
    #[test]
    fn no_arguments_forge_an_entity(arguments in arguments(), who in value()) {
        let mut arguments = arguments;
        arguments.insert("who".to_owned(), who);
        let denied = matches!(judged(&ENTITY, "x/y", &arguments), Verdict::Deny { .. });
        prop_assert!(denied);
    }
}
