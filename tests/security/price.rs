//! Measures, for `tests/security/price`, what each tier costs: warming a worker, and running a program in it.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use ptcd::config::SandboxChoice;

use crate::lab::{end, sandbox, spawn, tiers};

/// Rounds; the tiers take turns in each, so that a busy machine slows them alike.
const ROUNDS: usize = 60;
/// Programs and what they are called.
const PROGRAMS: [(&str, &str); 2] = [
    ("trivial run", "result = 1"),
    (
        "10000 calls of the system",
        "for _ in range(5000): os.fstat(1); os.getppid()",
    ),
];

fn line(lines: &mut impl BufRead) -> String {
    let mut text = String::new();
    lines.read_line(&mut text).unwrap();
    text
}

/// How long it took to be ready, and to run the program, and the processor time of the worker from its fork to its end.
fn once(choice: SandboxChoice, program: &str) -> [Duration; 3] {
    let start = Instant::now();
    let worker = spawn(sandbox(choice));
    let mut channel = worker.channel.try_clone().unwrap();
    let mut lines = BufReader::new(worker.channel.try_clone().unwrap());
    assert_eq!(line(&mut lines), "ready\n");
    let warm = start.elapsed();
    let mut message = u32::try_from(program.len()).unwrap().to_le_bytes().to_vec();
    message.extend_from_slice(program.as_bytes());
    let start = Instant::now();
    channel.write_all(&message).unwrap();
    assert!(line(&mut lines).starts_with("{\"ok\""));
    let run = start.elapsed();
    let used = end(worker, Some(1.into())).exit.cpu;
    [warm, run, used]
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Least and middle of some times, in milliseconds.
fn least_and_middle(times: &mut [Duration]) -> (f64, f64) {
    times.sort_unstable();
    (millis(times[0]), millis(times[times.len() / 2]))
}

pub(crate) fn measure() {
    let choices: Vec<SandboxChoice> = [SandboxChoice::None]
        .iter()
        .chain(tiers())
        .copied()
        .collect();
    let mut out = std::io::stdout().lock();
    for (what, program) in PROGRAMS {
        let mut times = vec![[const { Vec::new() }; 3]; choices.len()];
        for _ in 0..ROUNDS {
            for (choice, times) in choices.iter().zip(&mut times) {
                for (one, times) in once(*choice, program).into_iter().zip(times) {
                    times.push(one);
                }
            }
        }
        writeln!(
            out,
            "{what}, {ROUNDS} rounds, milliseconds: least and middle (more than none)"
        )
        .unwrap();
        let mut none = None;
        for (choice, times) in choices.iter().zip(&mut times) {
            let found = times.each_mut().map(|times| least_and_middle(times));
            let base = *none.get_or_insert(found);
            write!(out, "  {:9}", choice.as_str()).unwrap();
            for (at, word) in ["warming", "run", "user and system"].iter().enumerate() {
                let ((least, middle), base) = (found[at], base[at]);
                write!(
                    out,
                    "  {word} {least:.2} {middle:.2} ({:+.2} {:+.2})",
                    least - base.0,
                    middle - base.1
                )
                .unwrap();
            }
            writeln!(out).unwrap();
        }
    }
}
