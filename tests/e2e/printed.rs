//! What a program prints or emits: its order, whole, and nothing in it that steers a terminal.

use std::fmt::Write as _;

use libtest_mimic::Trial;
use ptc_tests::{Plan, TestResult, machine, party};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        stdout_and_stderr_keep_their_order,
        a_program_that_stands_in_a_write_is_told_of_at_its_line,
        terminal_sequences_are_made_visible,
        what_is_emitted_steers_no_terminal,
    ]
}

fn stdout_and_stderr_keep_their_order() -> TestResult {
    let mut words = vec!["none"];
    if machine::tier().is_ok() {
        words.push("auto");
        if cfg!(target_os = "linux") {
            words.push("landlock");
        }
    }
    for word in words {
        let (_home, _daemon, mut client) = party(Plan::new().set("execution.sandbox", word));
        let run = client.run(
            "import os, sys\n\
             for n in range(500):\n    \
                 print(n)\n    \
                 os.write(1, b'out\\n')\n    \
                 print('err', file=sys.stderr)\n    \
                 os.write(2, b'{\"id\": 1}\\n')\n    \
                 sys.stdout.write('no end, ')\n    \
                 os.write(2, b'raw\\n')\n\
             print('a')\n\
             os.close(1)\n\
             os.close(2)\n\
             print('b')",
        );
        let mut order = String::new();
        for n in 0..500 {
            write!(order, "{n}\nout\nerr\n{{\"id\": 1}}\nno end, raw\n")?;
        }
        // Where the descriptors are closed, the rest comes by frames.
        order.push_str("a\nb\n");
        assert_eq!(run.structured["output"], order, "{word}");
    }
    Ok(())
}

fn a_program_that_stands_in_a_write_is_told_of_at_its_line() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new().set("execution.timeout_seconds", 2));
    let run = client.run("print('begun')\nwhile True:\n    print('x' * 50_000)");
    let error = run.structured["error"].as_str().unwrap_or_default();
    // It stands in the write, or goes round once more when the pipe was read just then.
    let at = |line: u8| error.starts_with(&format!("timed out after 2 s at line {line} "));
    assert!(at(3) || at(2), "{error}");
    let output = run.structured["output"].as_str().unwrap_or_default();
    assert!(output.starts_with("begun\nxxx"), "{}", &output[..20]);
    Ok(())
}

fn terminal_sequences_are_made_visible() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("print('a\\x1b]0;title\\x07b\\x9b31mc\\ttab')\nprint('s\\ud800t')");
    assert!(!run.is_error, "{}", run.text);
    let steering = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!run.text.contains(steering), "{:?}", run.text);
    assert!(
        run.text.contains("title") && run.text.contains("\ttab"),
        "{:?}",
        run.text
    );
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

fn what_is_emitted_steers_no_terminal() -> TestResult {
    let (home, _daemon, mut client) = party(Plan::new());
    let code = "emit({'\\x9b2J': ['\\x7f\\u202e\\u2066\\u200f\\u061c', 'ü']})";
    let shown = r#"{"\u009b2J":["\u007f\u202e\u2066\u200f\u061c","ü"]}"#;
    let value = json!({"\u{9b}2J": ["\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}", "ü"]});
    for (code, ends) in [
        (code.to_owned(), format!("--- result ---\n{shown}")),
        (
            format!("{code}\nraise ValueError('\\x9b')"),
            format!("--- result emitted before the error ---\n{shown}"),
        ),
    ] {
        let run = client.run(&code);
        assert!(run.text.ends_with(&ends), "{:?}", run.text);
        assert_eq!(run.structured["result"], value);
    }
    let file = home.write("steers.py", &format!("print('\\x9b')\n{code}"));
    let (exit, out, err) = home.ctl(&["run", &file.to_string_lossy()]);
    assert_eq!((exit, out), (0, format!("\\x9b\n{shown}\n")), "{err}");
    let (exit, out, err) = home.ctl(&["--json", "run", &file.to_string_lossy()]);
    assert_eq!(exit, 0, "{err}");
    assert!(!out.contains(['\u{9b}', '\u{202e}']), "{out:?}");
    let read: serde_json::Value = serde_json::from_str(&out)?;
    assert_eq!(read["result"], value);
    Ok(())
}
