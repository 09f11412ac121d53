//! `ptcd demo`: the main job on the built-in server.

use std::time::Duration;

use libtest_mimic::Trial;
use ptc_tests::machine::needs_tier;
use ptc_tests::{Home, Plan, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        the_demo_prints_program_output_and_what_stayed_out,
        a_changed_figure_changes_the_output,
        another_program_can_be_given,
        a_failing_program_fails_the_demo,
        the_demo_leaves_nothing_behind,
    ]
}

const LIMIT: Duration = Duration::from_mins(1);

fn demo(home: &Home, args: &[&str]) -> (bool, String) {
    let mut all = vec!["demo"];
    all.extend(args);
    let output = home.output_of("ptcd", &all, LIMIT);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}

fn the_demo_prints_program_output_and_what_stayed_out() -> TestResult {
    needs_tier()?;
    let home = Home::new(&Plan::bare());
    let (ok, text) = demo(&home, &[]);
    assert!(ok, "{text}");
    for part in [
        "AMZN",
        "MSFT",
        "GOOG",
        "await",
        "gather",
        "bytes",
        "[Script executed successfully]",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    Ok(())
}

fn a_changed_figure_changes_the_output() -> TestResult {
    needs_tier()?;
    let home = Home::new(&Plan::bare());
    let program = home.write(
        "sum.py",
        "for t in ('AMZN', 'MSFT', 'GOOG'):\n    rows = await mcp__financial_data__query_financials(ticker=t, statement='income', period='quarter', limit=4)\n    print(t, [row['revenue'] for row in rows])\n",
    );
    let program = program.display().to_string();
    let figures = |amazon: &[u64]| {
        let rows = |list: &[u64]| -> Value {
            list.iter()
                .enumerate()
                .map(|(at, revenue)| json!({"quarter": format!("2025-Q{}", 4 - at), "revenue": revenue}))
                .collect()
        };
        let table = json!({
            "AMZN": rows(amazon), "MSFT": rows(&[20, 19, 18, 17]), "GOOG": rows(&[30, 29, 28, 27]),
        });
        home.write("figures.json", &table.to_string())
            .display()
            .to_string()
    };
    let mut texts = Vec::new();
    for amazon in [[11, 10, 9, 8], [77_000_001, 10, 9, 8]] {
        let path = figures(&amazon);
        let (ok, text) = demo(&home, &["--figures", &path, "--program", &program]);
        assert!(ok, "{text}");
        assert!(text.contains(&format!("AMZN {amazon:?}")), "{text}");
        assert!(text.contains("MSFT [20, 19, 18, 17]"), "{text}");
        texts.push(text);
    }
    assert!(!texts[0].contains("77000001"));
    Ok(())
}

fn another_program_can_be_given() -> TestResult {
    needs_tier()?;
    let home = Home::new(&Plan::bare());
    let program = home.write("own.py", "print('names', await list_callable_tools())\n");
    let (ok, text) = demo(&home, &["--program", &program.display().to_string()]);
    assert!(ok, "{text}");
    assert!(text.contains("names ['mcp__financial_data__"), "{text}");
    let (ok, text) = demo(&home, &["--program", "/no/such/file.py"]);
    assert!(!ok);
    assert!(text.contains("/no/such/file.py"), "{text}");
    Ok(())
}

fn a_failing_program_fails_the_demo() -> TestResult {
    needs_tier()?;
    let home = Home::new(&Plan::bare());
    let program = home.write("bad.py", "raise ValueError('on purpose')\n");
    let (ok, text) = demo(&home, &["--program", &program.display().to_string()]);
    assert!(!ok);
    assert!(text.contains("on purpose"), "{text}");
    Ok(())
}

fn the_demo_leaves_nothing_behind() -> TestResult {
    needs_tier()?;
    let home = Home::new(&Plan::bare());
    let (ok, text) = demo(&home, &[]);
    assert!(ok, "{text}");
    assert!(!home.socket().exists());
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    Ok(())
}
