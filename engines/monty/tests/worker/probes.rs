//! The golden list of everyday constructs and what comes of them.

use std::fmt::Write as _;

use crate::party::{Limits, Party};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probes.txt");
const TITLE: &str = "\n#### ";
const OUTCOME: &str = "\n#---- ";

/// What came of a program, in a few lines.
fn outcome(program: &str) -> String {
    let mut party = Party::start(Limits::default());
    party.run(program);
    let (heard, last) = party.follow();
    let exit = party.end();
    let mut lines = Vec::new();
    for (kind, body) in heard {
        match kind {
            'C' => lines.push(format!("call {} {}", body["tool"], body["arguments"])),
            'Q' => lines.push(format!("asks {} {}", body["helper"], body["arguments"])),
            'E' => lines.push(format!("emits {}", body["value"])),
            _ => {}
        }
    }
    lines.push(exit.output);
    match last {
        Some(('D', done)) if done["ok"] == true => {
            let unprinted = if done["unprinted"] == true {
                ", the last value went nowhere"
            } else {
                ""
            };
            lines.push(format!("ok{unprinted}"));
        }
        Some((_, body)) => lines.push(
            body["error"]["text"]
                .as_str()
                .unwrap_or("no text")
                .to_owned(),
        ),
        None => lines.push(format!("no last frame: {:?} {:?}", exit.code, exit.signal)),
    }
    lines.retain(|line| !line.is_empty());
    lines
        .iter()
        .map(|line| line.trim_end())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn everyday_constructs_do_what_the_golden_list_says() {
    let known = std::fs::read_to_string(FILE).unwrap();
    let mut blocks = known.split(TITLE);
    let mut found = blocks.next().unwrap().to_owned();
    let mut count = 0;
    for block in blocks {
        let (title, rest) = block.split_once('\n').unwrap();
        let program = rest.split(OUTCOME).next().unwrap().trim_end();
        let came = outcome(program);
        let _ = write!(found, "{TITLE}{title}\n{program}{OUTCOME}gives\n{came}\n");
        count += 1;
    }
    assert!(count > 140, "{count} probes");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(FILE, found).unwrap();
        return;
    }
    for (mine, theirs) in found.split(TITLE).zip(known.split(TITLE)) {
        assert_eq!(mine.trim_end(), theirs.trim_end());
    }
}
