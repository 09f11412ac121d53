//! Programs that mean harm: each ends within its limits, and none by a fault of the interpreter.

use serde::Deserialize;

use crate::party::{Limits, Party};

const LIMITS: Limits = Limits {
    memory: 96 << 20,
    cpu_seconds: 1,
};
/// For what ends by itself, however slow the machine is.
const PATIENT: Limits = Limits {
    cpu_seconds: 60,
    ..LIMITS
};

/// A program, and how it may end: `time` (the interpreter's own limit, or the kernel's), `memory`, `fine`, or with an error
/// of the class that is named. The end-to-end tests run some of them through the daemon.
#[derive(Deserialize)]
struct Hostile {
    name: String,
    program: String,
    ends: Vec<String>,
}

fn programs() -> Vec<Hostile> {
    serde_json::from_str(include_str!("../hostile.json")).unwrap()
}

fn came(program: &str, limits: Limits) -> (String, String) {
    let mut party = Party::start(limits);
    party.run(program);
    let (_, last) = party.follow();
    let exit = party.end();
    let told = format!("{last:?} {exit:?}");
    let end = match &last {
        Some(('D', done)) if done["ok"] == true => "fine",
        Some(('D', done)) => match done["error"]["type"].as_str().unwrap_or_default() {
            "TimeoutError" => "time",
            "MemoryError" => "memory",
            class => class,
        },
        // SIGKILL or SIGXCPU: the kernel's limit.
        _ if matches!(exit.signal, Some(9 | 24)) => "time",
        _ => "no last frame",
    };
    (end.to_owned(), told)
}

/// Each that is to end so first of all; whether there were any.
fn each_ends(which: fn(&str) -> bool) -> bool {
    let mut programs = programs();
    programs.retain(|one| which(&one.ends[0]));
    for Hostile {
        name,
        program,
        ends,
    } in &programs
    {
        let takes_time = ends.iter().any(|end| end == "time");
        let (end, told) = came(program, if takes_time { LIMITS } else { PATIENT });
        assert!(ends.contains(&end), "{name}: {told}");
    }
    !programs.is_empty()
}

#[test]
fn a_program_that_takes_time_without_an_end_is_stopped() {
    assert!(each_ends(|end| end == "time"));
}

#[test]
fn a_program_that_takes_memory_without_an_end_is_stopped() {
    assert!(each_ends(|end| end == "memory"));
}

#[test]
fn a_program_that_nests_or_confuses_fails_as_a_program() {
    assert!(each_ends(|end| !matches!(end, "time" | "memory")));
}

/// Texts that a parser would follow into the depths.
#[test]
fn a_text_nested_deeper_than_any_is_a_syntax_error() {
    let n = 20_000;
    let texts = [
        "(".repeat(n) + &")".repeat(n),
        "[".repeat(n) + &"]".repeat(n),
        "{1:".repeat(n) + "1" + &"}".repeat(n),
        "-".repeat(n) + "1",
        "not ".repeat(n) + "1",
        format!("x = 1\nx{}", ".a".repeat(n)),
        format!("x = 1{}", " + 1".repeat(n)),
        format!("x = 1{}", " if 1 else 1".repeat(n)),
        "lambda: ".repeat(n) + "1",
        format!("if 0: pass\n{}", "elif 0: pass\n".repeat(n)),
        (0..300)
            .map(|depth| " ".repeat(depth) + "if 1:\n")
            .collect::<String>()
            + &" ".repeat(300)
            + "pass",
        "f'{".repeat(200) + "1" + &"}'".repeat(200),
        format!("match 1:\n  case {}1{}: pass", "[".repeat(n), "]".repeat(n)),
        "a = ".repeat(n) + "1",
        "x: ".to_owned() + &"list[".repeat(n) + &"]".repeat(n),
        format!("print({})", "1,".repeat(n)),
        "\u{0}".repeat(100),
        "\\\n".repeat(n),
        "'''".to_owned() + &"a".repeat(100_000),
        "async ".repeat(n),
    ];
    for text in texts {
        let shown: String = text.chars().take(30).collect();
        let mut party = Party::start(LIMITS);
        party.run(&text);
        let (_, last) = party.follow();
        let exit = party.end();
        let Some(('D', done)) = &last else {
            panic!("{shown}: {last:?} {exit:?}")
        };
        let class = done["error"]["type"].as_str().unwrap_or("none");
        let known = [
            "SyntaxError",
            "RecursionError",
            "MemoryError",
            "AttributeError",
            "TimeoutError",
            "IndentationError",
            "NotImplementedError",
            "none",
        ];
        assert!(known.contains(&class), "{shown}: {done}");
    }
}

/// Compiling takes far more memory than the text, so the limits are armed before.
#[test]
fn a_text_too_long_is_refused_before_it_is_read() {
    let mut party = Party::start(LIMITS);
    party.run(&"x = 1\n".repeat(60_000));
    let (_, last) = party.follow();
    let (kind, done) = last.unwrap();
    assert_eq!((kind, done["ok"].as_bool()), ('D', Some(false)));
    let text = done["error"]["text"].as_str().unwrap();
    assert!(
        text.contains("a program of 360000 bytes is too long for the engine monty"),
        "{text}"
    );
    party.end();
    let mut party = Party::start(Limits {
        memory: 40 << 20,
        ..LIMITS
    });
    party.run(&"x = [1, 2, {'a': (3, 4)}]\n".repeat(9_000));
    let (_, last) = party.follow();
    let exit = party.end();
    let class = last.as_ref().map(|(_, done)| done["error"]["type"].clone());
    assert!(
        matches!(class, Some(class) if class == "MemoryError" || class.is_null()),
        "{last:?} {exit:?}"
    );
}
