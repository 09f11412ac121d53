//! The text a worker's interpreter is started with: the embedded Python runtime as one program.

/// The modules of `ptc_child`, each after those it needs.
const MODULES: [(&str, &str); 20] = [
    ("preload", include_str!("../../python/ptc_child/preload.py")),
    ("frames", include_str!("../../python/ptc_child/frames.py")),
    (
        "encoding",
        include_str!("../../python/ptc_child/encoding.py"),
    ),
    ("source", include_str!("../../python/ptc_child/source.py")),
    ("values", include_str!("../../python/ptc_child/values.py")),
    ("syntax", include_str!("../../python/ptc_child/syntax.py")),
    (
        "awaiting",
        include_str!("../../python/ptc_child/awaiting.py"),
    ),
    ("shapes", include_str!("../../python/ptc_child/shapes.py")),
    ("hints", include_str!("../../python/ptc_child/hints.py")),
    ("absent", include_str!("../../python/ptc_child/absent.py")),
    ("tools", include_str!("../../python/ptc_child/tools.py")),
    ("report", include_str!("../../python/ptc_child/report.py")),
    ("channel", include_str!("../../python/ptc_child/channel.py")),
    ("output", include_str!("../../python/ptc_child/output.py")),
    ("helpers", include_str!("../../python/ptc_child/helpers.py")),
    ("loops", include_str!("../../python/ptc_child/loops.py")),
    ("waiting", include_str!("../../python/ptc_child/waiting.py")),
    (
        "leftovers",
        include_str!("../../python/ptc_child/leftovers.py"),
    ),
    ("repeat", include_str!("../../python/ptc_child/repeat.py")),
    ("runner", include_str!("../../python/ptc_child/runner.py")),
];

/// What turns the texts into modules and starts the worker.
const BOOTSTRAP: &str = include_str!("../../python/ptc_child/bootstrap.py");

/// The program for `python -I -S -B -X utf8 -c`: under 124 KiB, the same in every build of one source.
pub fn boot_source() -> String {
    let mut text = String::from("SOURCES = {\n");
    for (name, source) in MODULES {
        push_literal(&mut text, name);
        text.push_str(": ");
        push_literal(&mut text, &without_comments(source));
        text.push_str(",\n");
    }
    text.push_str("}\n");
    text.push_str(BOOTSTRAP);
    text
}

/// A module without the lines that are comments, which stay as empty lines: an argument is bounded, and nobody reads
/// them there.
fn without_comments(source: &str) -> String {
    let lines = source.lines();
    let kept = lines.map(|line| if is_comment(line) { "" } else { line });
    let mut text = kept.collect::<Vec<_>>().join("\n");
    text.push('\n');
    text
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// Appends `value` as a Python string literal on one line.
fn push_literal(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            other => text.push(other),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux takes no argument of 128 KiB or more.
    const MAX_BOOT_BYTES: usize = 124 * 1024;

    #[test]
    fn the_text_fits_into_one_argument() {
        let size = boot_source().len();
        assert!(size < MAX_BOOT_BYTES, "{size} bytes");
    }

    #[test]
    fn the_text_is_one_an_argument_can_carry() {
        let text = boot_source();
        assert!(!text.contains('\0'));
        // Each module is one line, so that a fault in the bootstrap names a useful line.
        let lines: Vec<&str> = text.lines().take(MODULES.len() + 2).collect();
        assert_eq!(lines.first(), Some(&"SOURCES = {"));
        assert_eq!(lines.last(), Some(&"}"));
    }

    #[test]
    fn a_literal_gives_its_text_back() {
        let mut text = String::new();
        push_literal(&mut text, "a\\n\"b\"\nü\r");
        assert_eq!(text, r#""a\\n\"b\"\nü\r""#);
        let back: String = serde_json::from_str(&text).unwrap();
        assert_eq!(back, "a\\n\"b\"\nü\r");
    }

    #[test]
    fn every_module_of_the_folder_is_in_the_text_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/python/ptc_child");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".py").map(str::to_owned))
            .filter(|name| name != "__init__" && name != "bootstrap")
            .collect();
        let mut named: Vec<String> = MODULES.iter().map(|(name, _)| (*name).to_owned()).collect();
        found.sort();
        named.sort();
        assert_eq!(named, found);
    }

    #[test]
    fn no_text_of_several_lines_has_a_line_that_looks_like_a_comment() {
        for (name, source) in MODULES {
            let mut quotes = 0;
            for line in source.lines() {
                assert!(
                    !is_comment(line) || quotes % 2 == 0,
                    "{name}: {line}, inside a text"
                );
                quotes += line.matches("\"\"\"").count() + line.matches("'''").count();
            }
        }
        let lines = |text: &str| text.lines().count();
        let (_, source) = MODULES[0];
        assert_eq!(lines(&without_comments(source)), lines(source));
    }

    #[test]
    fn each_module_comes_after_those_it_needs() {
        for (at, (name, source)) in MODULES.iter().enumerate() {
            for line in source.lines() {
                let needed: Vec<&str> =
                    if let Some(rest) = line.strip_prefix("from ptc_child import ") {
                        rest.split(", ").collect()
                    } else if let Some(rest) = line.strip_prefix("from ptc_child.") {
                        rest.split(' ').take(1).collect()
                    } else {
                        continue;
                    };
                for one in needed {
                    let place = MODULES.iter().position(|(other, _)| *other == one);
                    assert!(place.is_some_and(|place| place < at), "{name} needs {one}");
                }
            }
        }
    }
}
