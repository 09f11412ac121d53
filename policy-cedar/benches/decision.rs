//! Measures what one decision costs: `cargo bench -p ptc-policy-cedar`.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ptc_policy_cedar::{Call, Client, Hints, Policies, Program, Source, Tool};
use serde_json::{Map, Value, json};

/// Tools that are called by turns.
const TOOLS: usize = 600;
/// Decisions of one round.
const DECISIONS: u32 = 2000;
/// Rounds, of which the least and the median are told: what else the machine does only ever adds.
const ROUNDS: usize = 15;

const POLICIES: &str = r#"
    permit(principal, action, resource);
    @message("destructive tools are off") forbid(principal, action, resource in Server::"many")
    when { resource.effect == "destructive" };
    @message("at most 500 in one call") forbid(principal, action, resource == Tool::"bank/tool1")
    when { context.arguments.amount > 500 };
    @message("the arguments hold a key") forbid(principal, action, resource)
    when { context.arguments_json like "*PRIVATE KEY*" };
"#;

fn main() {
    let source = Source {
        file: "policies".to_owned(),
        prefix: None,
        text: POLICIES.to_owned(),
    };
    let policies = match Policies::load(&[source], &[]) {
        Ok(policies) => policies,
        Err(faults) => {
            for fault in faults {
                println!("{fault}");
            }
            return;
        }
    };
    let small =
        json!({"amount": 20, "to": "someone@example.org", "words": ["a", "b"], "deep": {"x": 1.5}});
    let large = json!({"text": "x".repeat(100_000)});
    for (name, arguments) in [("usual arguments", small), ("100 KB of text", large)] {
        let Value::Object(arguments) = arguments else {
            continue;
        };
        let (least, median) = measure(&policies, &arguments);
        println!("{name}: {least:.1} us a decision at least, {median:.1} us in the median");
    }
}

/// Microseconds a decision: the least round's, and the median round's.
fn measure(policies: &Policies, arguments: &Map<String, Value>) -> (f64, f64) {
    let names: Vec<String> = (0..TOOLS).map(|number| format!("tool{number}")).collect();
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            for (name, number) in names.iter().cycle().zip(0..DECISIONS) {
                let call = call(name, arguments, u64::from(number));
                black_box(policies.judge(black_box(&call)));
            }
            started.elapsed() / DECISIONS
        })
        .collect();
    rounds.sort_unstable();
    let micros = |round: Option<&Duration>| round.map_or(0.0, Duration::as_secs_f64) * 1e6;
    (micros(rounds.first()), micros(rounds.get(ROUNDS / 2)))
}

fn call<'a>(name: &'a str, arguments: &'a Map<String, Value>, index: u64) -> Call<'a> {
    Call {
        client: Client {
            name: "editor",
            version: "1.0",
            transport: "socket",
        },
        tool: Tool {
            server: "bank",
            name,
            callable: name,
            effect: "destructive",
            hints: Hints::default(),
            input_schema: None,
        },
        arguments,
        program: Program {
            engine: "cpython",
            run: "0123456789abcdef",
            call_index: index,
            calls_to_tool: index,
        },
    }
}
