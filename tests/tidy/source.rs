//! Source files as the rules see them: with or without comments, texts and test modules.

use std::path::{Path, PathBuf};

/// One source file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Path from the root, with slashes.
    pub(crate) path: String,
    /// The text as it is.
    pub(crate) text: String,
    /// The same with comments and the insides of text literals blanked, line for line.
    pub(crate) code: String,
}

impl Source {
    /// A file of this path and text.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: blank(text),
        }
    }

    /// How many lines come before the test module; none in a file that is one.
    pub(crate) fn lines_without_tests(&self) -> usize {
        // A file of that name is a module of the tests as a whole.
        if self.path.ends_with("/tests.rs")
            || self.path.ends_with("/testing.rs")
            || self.path.contains("/tests/")
        {
            return 0;
        }
        test_module_line(&self.code).unwrap_or_else(|| self.text.lines().count())
    }

    /// The lines of [`Source::code`] before the test module, counted from 1.
    pub(crate) fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.lines_without_tests();
        self.code
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line))
            .take_while(move |(at, _)| *at <= end)
    }
}

/// The root of the source tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Every Rust file of the four packages.
pub(crate) fn rust_files() -> Vec<Source> {
    let mut found = Vec::new();
    for package in ["protocol", "shim", "daemon", "tests"] {
        collect(&root(), &root().join(package), "rs", &mut found);
    }
    assert!(found.len() > 20, "the sources were not found");
    found
}

/// Every Python file of the daemon's runtime, its tests aside.
pub(crate) fn python_files() -> Vec<Source> {
    let mut found = Vec::new();
    collect(
        &root(),
        &root().join("daemon/python/ptc_child"),
        "py",
        &mut found,
    );
    found
}

fn collect(root: &Path, folder: &Path, end: &str, found: &mut Vec<Source>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(root, &path, end, found);
        } else if path.extension().is_some_and(|extension| extension == end) {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            found.push(Source::new(name, &std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The number of lines before `#[cfg(test)] mod …`, whatever else the test module asks for.
fn test_module_line(code: &str) -> Option<usize> {
    let lines: Vec<&str> = code.lines().collect();
    (0..lines.len()).find(|at| {
        let line = lines[*at].trim();
        (line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test,"))
            && lines.get(at + 1).is_some_and(|next| {
                next.trim_start().starts_with("mod ") && next.trim_end().ends_with('{')
            })
    })
}

/// Whether `line` holds `word` as a whole identifier.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part_of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part_of_a_word)
            && !line[at + word.len()..].starts_with(part_of_a_word)
    })
}

/// Replaces comments and the insides of text and character literals by blanks.
pub(crate) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => end_of_line(&chars, at),
            ('/', Some('*')) => end_of_block(&chars, at),
            ('r' | 'b', _) if starts_raw(&chars, at) => end_of_raw(&chars, at),
            ('"', _) => end_of_text(&chars, at),
            ('\'', _) => end_of_character(&chars, at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        out.extend(
            chars[at..end]
                .iter()
                .map(|c| if *c == '\n' { '\n' } else { ' ' }),
        );
        at = end;
    }
    out
}

fn end_of_line(chars: &[char], from: usize) -> usize {
    (from..chars.len())
        .find(|at| chars[*at] == '\n')
        .unwrap_or(chars.len())
}

fn end_of_block(chars: &[char], from: usize) -> usize {
    let mut depth = 0;
    let mut at = from;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn end_of_text(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// A character literal; a lifetime is left as it is.
fn end_of_character(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), _) => (from + 3..chars.len())
            .find(|at| chars[*at] == '\'')
            .map_or(chars.len(), |at| at + 1),
        (Some(_), Some('\'')) => from + 3,
        _ => from,
    }
}

fn starts_raw(chars: &[char], at: usize) -> bool {
    if at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') {
        return false;
    }
    let rest: String = chars[at..].iter().take(8).collect();
    let rest = rest.strip_prefix('b').unwrap_or(&rest);
    rest.strip_prefix('r')
        .is_some_and(|rest| rest.trim_start_matches('#').starts_with('"'))
}

fn end_of_raw(chars: &[char], from: usize) -> usize {
    let open = (from..chars.len())
        .find(|at| chars[*at] == '"')
        .unwrap_or(from);
    let hashes = chars[from..open].iter().filter(|c| **c == '#').count();
    let closes = |at: &usize| {
        chars[*at] == '"'
            && chars[at + 1..]
                .iter()
                .take(hashes)
                .filter(|c| **c == '#')
                .count()
                == hashes
    };
    (open + 1..chars.len())
        .find(closes)
        .map_or(chars.len(), |at| at + 1 + hashes)
}

#[test]
fn comments_and_texts_are_blanked_and_code_is_not() {
    let text = "let a = \"unsafe \\\" rmcp\"; // axum\nlet b: &'a str = r#\"todo!() \"x\" \"#;\n/* one /* two */ */ let c = '\\'';let d = b'x';\nlet e = 'é'; fn f<'b>() {}\n";
    let code = blank(text);
    assert_eq!(code.lines().count(), text.lines().count());
    for word in ["unsafe", "rmcp", "axum", "todo", "one", "two", "é"] {
        assert!(!code.contains(word), "{word} in {code}");
    }
    for part in [
        "let a =",
        "let b: &'a str =",
        "let c =",
        "let d =",
        "fn f<'b>()",
    ] {
        assert!(code.contains(part), "{part} not in {code}");
    }
}

#[test]
fn the_test_module_is_told_from_the_rest() {
    let source = Source::new(
        "x.rs",
        "//! X.\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n",
    );
    assert_eq!(source.lines_without_tests(), 3);
    assert_eq!(source.production().count(), 3);
    let linux = source.text.replace("test)", "all(test, unix))");
    assert_eq!(Source::new("x.rs", &linux).lines_without_tests(), 3);
    assert_eq!(Source::new("x.rs", "a\nb\n").lines_without_tests(), 2);
    assert_eq!(Source::new("x/tests.rs", "a\nb\n").lines_without_tests(), 0);
}
