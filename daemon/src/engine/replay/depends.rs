//! Finds in a program's text what no recording can give again: clock, entropy, the order of sets.

/// What stands in a program, and what it depends on with it.
const WORDS: &[(&[&str], &str)] = &[
    (
        &[
            "time.time",
            "time.time_ns",
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.perf_counter_ns",
            "time.process_time",
            "time.ctime",
            "time.localtime",
            "time.gmtime",
            "time.strftime",
            "datetime.now",
            "datetime.utcnow",
            "datetime.today",
            "date.today",
            "monotonic",
            "perf_counter",
            "wait_for",
            "asyncio.timeout",
            "loop.time",
        ],
        "the clock",
    ),
    (
        &[
            "os.urandom",
            "urandom",
            "getrandom",
            "secrets",
            "SystemRandom",
            "uuid1",
            "uuid4",
            "random.seed",
            "Random",
        ],
        "entropy",
    ),
    (
        &["set", "frozenset", "hash"],
        "the order of sets and hashes, which differs from process to process",
    ),
    (
        &["id", "getpid", "getrusage"],
        "what differs from process to process",
    ),
    (
        &["threading", "Thread", "ThreadPoolExecutor", "to_thread"],
        "the order in which threads run",
    ),
];

/// What a program depends on that differs from run to run, each with the line it stands in.
pub(super) fn depends(program: &str) -> Vec<String> {
    let code = without_texts(program);
    let mut found = Vec::new();
    for (words, what) in WORDS {
        let first = words
            .iter()
            .filter_map(|word| Some((place(&code, word)?, *word)))
            .min();
        if let Some((at, word)) = first {
            found.push(format!("{what} ({word}, line {})", line(&code, at)));
        }
    }
    if let Some(at) = set_display(&code) {
        let what = "the order of sets";
        if !found.iter().any(|text| text.starts_with(what)) {
            found.push(format!("{what} ({{...}}, line {})", line(&code, at)));
        }
    }
    found
}

fn line(code: &str, at: usize) -> usize {
    code.get(..at).unwrap_or_default().matches('\n').count() + 1
}

/// Where a word stands by itself; one without a dot may stand behind one.
fn place(code: &str, word: &str) -> Option<usize> {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = code.get(..*at).and_then(|text| text.chars().next_back());
        let after = code
            .get(at + word.len()..)
            .and_then(|text| text.chars().next());
        let called = !matches!(word, "set" | "frozenset" | "hash" | "id") || after == Some('(');
        let own = matches!(word, "set" | "frozenset" | "hash" | "id") && before == Some('.');
        called && !own && !before.is_some_and(of_name) && !after.is_some_and(of_name)
    })
}

/// Where a display of a set begins: braces with something in them and no colon or stars on their own level.
fn set_display(code: &str) -> Option<usize> {
    let mut open: Vec<(usize, char, bool, bool)> = Vec::new();
    for (at, c) in code.char_indices() {
        match c {
            '{' | '(' | '[' => {
                if let Some(top) = open.last_mut() {
                    top.3 = true;
                }
                open.push((at, c, false, false));
            }
            '}' | ')' | ']' => {
                let (start, bracket, dict, filled) = open.pop()?;
                if bracket == '{' && filled && !dict {
                    return Some(start);
                }
            }
            ':' | '*' => {
                if let Some(top) = open.last_mut() {
                    top.2 = true;
                }
            }
            c if !c.is_whitespace() => {
                if let Some(top) = open.last_mut() {
                    top.3 = true;
                }
            }
            _ => {}
        }
    }
    None
}

/// The program with comments and the insides of texts blanked; every line stays where it is.
///
/// What an f-string computes is blanked too: a dependence inside one may be missed, and is only told as a plain
/// difference then.
fn without_texts(program: &str) -> String {
    let mut out = String::with_capacity(program.len());
    let mut rest = program;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '\'' | '"' => text_length(rest, c),
            _ => {
                out.push(c);
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
                continue;
            }
        };
        let (text, after) = rest.split_at(length);
        if c != '#' {
            // Something stands there, in a list or a set.
            out.push('0');
        }
        out.extend(text.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    out
}

/// The length of the text that begins here, its quotes included.
fn text_length(text: &str, quote: char) -> usize {
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    let (mark, many) = if text.starts_with(&triple) {
        (triple.as_str(), true)
    } else {
        (text.get(..1).unwrap_or_default(), false)
    };
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(mark.len()) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' if !many => return at,
            _ if text.get(at..).is_some_and(|rest| rest.starts_with(mark)) => {
                return at + mark.len();
            }
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_record_gives_again_is_found_with_its_line() {
        for (program, found) in [
            (
                "import time\nx = 1\nprint(time.time())",
                Some("the clock (time.time, line 3)"),
            ),
            (
                "from datetime import datetime\nprint(datetime.now())",
                Some("the clock (datetime.now, line 2)"),
            ),
            (
                "import uuid\nprint(uuid.uuid4())",
                Some("entropy (uuid4, line 2)"),
            ),
            (
                "for w in set(words): print(w)",
                Some(
                    "the order of sets and hashes, which differs from process to process (set, line 1)",
                ),
            ),
            (
                "for w in {'a', 'b'}: print(w)",
                Some("the order of sets ({...}, line 1)"),
            ),
            (
                "s = {x for x in y}",
                Some("the order of sets ({...}, line 1)"),
            ),
            ("import random\nprint(random.random())", None),
            ("d = {'a': 1, **e}\nprint({}, {'k': {'n': 2}})", None),
            (
                "print('time.time()') # set(x)\n\"\"\"uuid4\n{a}\"\"\"",
                None,
            ),
            ("x.set(3)\nreset(1)\nrow_id = 3\nsettings = hash_of", None),
        ] {
            let all = depends(program);
            assert_eq!(all.first().map(String::as_str), found, "{program}: {all:?}");
            assert!(all.len() <= 1, "{program}: {all:?}");
        }
    }
}
