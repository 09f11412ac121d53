//! Layouts of four kinds of interpreters, the words and profiles they lead to, and what those profiles answer.

use std::collections::BTreeMap;

use super::*;

const SCRATCH: &str = "/private/tmp/ptcd-0011";

/// A machine as far as paths go: what is there, and links (from, to).
fn resolve<'a>(
    there: &'a [&'a str],
    links: &'a [(&'a str, &'a str)],
) -> impl Fn(&Path) -> Option<PathBuf> + 'a {
    move |path| {
        let mut real = path.to_owned();
        for (from, to) in links {
            if let Ok(rest) = real.strip_prefix(from) {
                real = Path::new(to).join(rest);
            }
        }
        // Joining nothing leaves a slash at the end.
        let real: PathBuf = real.components().collect();
        let known = there.iter().any(|known| Path::new(known) == real);
        known.then_some(real)
    }
}

fn paths(texts: &[&str]) -> Vec<PathBuf> {
    texts.iter().map(PathBuf::from).collect()
}

/// python.org's installer.
fn of_framework() -> Layout {
    let version = "/Library/Frameworks/Python.framework/Versions/3.12";
    let at = |rest: &str| format!("{version}/{rest}");
    let there: Vec<String> = [
        "bin/python3.12",
        "Python",
        "Resources",
        "Resources/Python.app/Contents/MacOS/Python",
        "lib/python3.12",
        "lib/python3.12/site-packages",
        "lib/python3.12/test",
        "lib/libssl.3.dylib",
    ]
    .map(at)
    .to_vec();
    let there: Vec<&str> = there.iter().map(String::as_str).collect();
    let found = Found {
        python: at("bin/python3.12").into(),
        stdlib: vec![at("lib/python3.12").into(), at("lib/python312.zip").into()],
        mapped: vec![
            at("Python").into(),
            at("lib/libssl.3.dylib").into(),
            at("lib/python3.12/lib-dynload/_ssl.so").into(),
            "/usr/lib/libSystem.B.dylib".into(),
            "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation".into(),
        ],
    };
    let module = at("lib/python3.12/lib-dynload/_ssl.so");
    let there: Vec<&str> = there.into_iter().chain([module.as_str()]).collect();
    Layout::of(&found, resolve(&there, &[])).unwrap()
}

fn of_homebrew() -> Layout {
    let cellar =
        "/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12";
    let there = [
        format!("{cellar}/bin/python3.12"),
        format!("{cellar}/Python"),
        format!("{cellar}/Resources"),
        format!("{cellar}/Resources/Python.app/Contents/MacOS/Python"),
        format!("{cellar}/lib/python3.12"),
        "/opt/homebrew/Cellar/openssl@3/3.3.1/lib/libssl.3.dylib".to_owned(),
    ];
    let there: Vec<&str> = there.iter().map(String::as_str).collect();
    let links = [
        (
            "/opt/homebrew/opt/openssl@3",
            "/opt/homebrew/Cellar/openssl@3/3.3.1",
        ),
        (
            "/opt/homebrew/opt/python@3.12",
            "/opt/homebrew/Cellar/python@3.12/3.12.4",
        ),
    ];
    let opt = "/opt/homebrew/opt/python@3.12/Frameworks/Python.framework/Versions/3.12";
    let found = Found {
        python: format!("{opt}/bin/python3.12").into(),
        stdlib: vec![format!("{opt}/lib/python3.12").into()],
        mapped: paths(&["/opt/homebrew/opt/openssl@3/lib/libssl.3.dylib"]),
    };
    Layout::of(&found, resolve(&there, &links)).unwrap()
}

fn of_pyenv() -> Layout {
    let there = [
        "/Users/me/.pyenv/versions/3.13.1/bin/python3.13",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/site-packages",
    ];
    let found = Found {
        python: there[0].into(),
        stdlib: paths(&there[1..2]),
        mapped: Vec::new(),
    };
    Layout::of(&found, resolve(&there, &[])).unwrap()
}

fn of_uv() -> Layout {
    let base = "/Users/me/.local/share/uv/python/cpython-3.12.7-macos-aarch64-none";
    let there = [
        format!("{base}/bin/python3.12"),
        format!("{base}/lib/python3.12"),
        format!("{base}/lib/libpython3.12.dylib"),
    ];
    let there: Vec<&str> = there.iter().map(String::as_str).collect();
    let found = Found {
        python: there[0].into(),
        stdlib: paths(&there[1..2]),
        mapped: paths(&there[2..3]),
    };
    Layout::of(&found, resolve(&there, &[])).unwrap()
}

fn all() -> [Layout; 4] {
    [of_framework(), of_homebrew(), of_pyenv(), of_uv()]
}

/// The command line without what all have in common, one parameter a line.
fn words(layout: &Layout) -> String {
    let line = layout
        .command_line(
            Path::new(SANDBOX_EXEC),
            Path::new("/state/python.sb"),
            Path::new(SCRATCH),
            "BOOT",
        )
        .unwrap();
    let line: Vec<&str> = line.iter().map(|word| word.to_str().unwrap()).collect();
    line.join(" ").replace(" -D ", "\n")
}

#[test]
fn a_framework_is_called_with_exactly_these_words() {
    assert_eq!(
        words(&of_framework()),
        "/usr/bin/sandbox-exec -f /state/python.sb
PYTHON=/Library/Frameworks/Python.framework/Versions/3.12/bin/python3.12
PYTHON_APP=/Library/Frameworks/Python.framework/Versions/3.12/Resources/Python.app/Contents/MacOS/Python
SCRATCH=/private/tmp/ptcd-0011
READ_0=/Library/Frameworks/Python.framework/Versions/3.12/Python
READ_1=/Library/Frameworks/Python.framework/Versions/3.12/Resources
READ_2=/Library/Frameworks/Python.framework/Versions/3.12/lib/libssl.3.dylib
READ_3=/Library/Frameworks/Python.framework/Versions/3.12/lib/python3.12
HIDE_0=/Library/Frameworks/Python.framework/Versions/3.12/lib/python3.12/ensurepip
HIDE_1=/Library/Frameworks/Python.framework/Versions/3.12/lib/python3.12/site-packages
HIDE_2=/Library/Frameworks/Python.framework/Versions/3.12/lib/python3.12/test
WAY_0=/Library
WAY_1=/Library/Frameworks
WAY_2=/Library/Frameworks/Python.framework
WAY_3=/Library/Frameworks/Python.framework/Versions
WAY_4=/Library/Frameworks/Python.framework/Versions/3.12
WAY_5=/Library/Frameworks/Python.framework/Versions/3.12/Python
WAY_6=/Library/Frameworks/Python.framework/Versions/3.12/Resources
WAY_7=/Library/Frameworks/Python.framework/Versions/3.12/Resources/Python.app
WAY_8=/Library/Frameworks/Python.framework/Versions/3.12/Resources/Python.app/Contents
WAY_9=/Library/Frameworks/Python.framework/Versions/3.12/Resources/Python.app/Contents/MacOS
WAY_10=/Library/Frameworks/Python.framework/Versions/3.12/bin
WAY_11=/Library/Frameworks/Python.framework/Versions/3.12/lib
WAY_12=/Library/Frameworks/Python.framework/Versions/3.12/lib/libssl.3.dylib
WAY_13=/Library/Frameworks/Python.framework/Versions/3.12/lib/python3.12
WAY_14=/Library/Frameworks/Python.framework/Versions/3.12/lib/python3.12/lib-dynload
WAY_15=/Library/Frameworks/Python.framework/Versions/3.12/lib/python3.12/lib-dynload/_ssl.so
WAY_16=/private
WAY_17=/private/tmp /Library/Frameworks/Python.framework/Versions/3.12/bin/python3.12 \
         -I -S -B -X utf8 -c BOOT"
    );
}

#[test]
fn homebrew_is_called_with_exactly_these_words() {
    assert_eq!(
        words(&of_homebrew()),
        "/usr/bin/sandbox-exec -f /state/python.sb
PYTHON=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/bin/python3.12
PYTHON_APP=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/Resources/Python.app/Contents/MacOS/Python
SCRATCH=/private/tmp/ptcd-0011
READ_0=/opt/homebrew/Cellar/openssl@3/3.3.1/lib/libssl.3.dylib
READ_1=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/Python
READ_2=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/Resources
READ_3=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/lib/python3.12
HIDE_0=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/lib/python3.12/ensurepip
HIDE_1=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/lib/python3.12/site-packages
HIDE_2=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/lib/python3.12/test
WAY_0=/opt
WAY_1=/opt/homebrew
WAY_2=/opt/homebrew/Cellar
WAY_3=/opt/homebrew/Cellar/openssl@3
WAY_4=/opt/homebrew/Cellar/openssl@3/3.3.1
WAY_5=/opt/homebrew/Cellar/openssl@3/3.3.1/lib
WAY_6=/opt/homebrew/Cellar/python@3.12
WAY_7=/opt/homebrew/Cellar/python@3.12/3.12.4
WAY_8=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks
WAY_9=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework
WAY_10=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions
WAY_11=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12
WAY_12=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/Resources
WAY_13=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/Resources/Python.app
WAY_14=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/Resources/Python.app/Contents
WAY_15=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/Resources/Python.app/Contents/MacOS
WAY_16=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/bin
WAY_17=/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/lib
WAY_18=/opt/homebrew/opt
WAY_19=/opt/homebrew/opt/openssl@3
WAY_20=/opt/homebrew/opt/openssl@3/lib
WAY_21=/opt/homebrew/opt/openssl@3/lib/libssl.3.dylib
WAY_22=/opt/homebrew/opt/python@3.12
WAY_23=/opt/homebrew/opt/python@3.12/Frameworks
WAY_24=/opt/homebrew/opt/python@3.12/Frameworks/Python.framework
WAY_25=/opt/homebrew/opt/python@3.12/Frameworks/Python.framework/Versions
WAY_26=/opt/homebrew/opt/python@3.12/Frameworks/Python.framework/Versions/3.12
WAY_27=/opt/homebrew/opt/python@3.12/Frameworks/Python.framework/Versions/3.12/lib
WAY_28=/private
WAY_29=/private/tmp /opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12/bin/python3.12 \
         -I -S -B -X utf8 -c BOOT"
    );
}

#[test]
fn pyenv_is_called_with_exactly_these_words() {
    assert_eq!(
        words(&of_pyenv()),
        "/usr/bin/sandbox-exec -f /state/python.sb
PYTHON=/Users/me/.pyenv/versions/3.13.1/bin/python3.13
PYTHON_APP=/Users/me/.pyenv/versions/3.13.1/bin/python3.13
SCRATCH=/private/tmp/ptcd-0011
READ_0=/Users/me/.pyenv/versions/3.13.1/lib/python3.13
HIDE_0=/Users/me/.pyenv/versions/3.13.1/lib/python3.13/ensurepip
HIDE_1=/Users/me/.pyenv/versions/3.13.1/lib/python3.13/site-packages
HIDE_2=/Users/me/.pyenv/versions/3.13.1/lib/python3.13/test
WAY_0=/Users
WAY_1=/Users/me
WAY_2=/Users/me/.pyenv
WAY_3=/Users/me/.pyenv/versions
WAY_4=/Users/me/.pyenv/versions/3.13.1
WAY_5=/Users/me/.pyenv/versions/3.13.1/bin
WAY_6=/Users/me/.pyenv/versions/3.13.1/lib
WAY_7=/private
WAY_8=/private/tmp /Users/me/.pyenv/versions/3.13.1/bin/python3.13 -I -S -B -X utf8 -c BOOT"
    );
}

#[test]
fn uv_is_called_with_exactly_these_words() {
    let base = "/Users/me/.local/share/uv/python/cpython-3.12.7-macos-aarch64-none";
    assert_eq!(
        words(&of_uv()).replace(base, "BASE"),
        "/usr/bin/sandbox-exec -f /state/python.sb
PYTHON=BASE/bin/python3.12
PYTHON_APP=BASE/bin/python3.12
SCRATCH=/private/tmp/ptcd-0011
READ_0=BASE/lib/libpython3.12.dylib
READ_1=BASE/lib/python3.12
HIDE_0=BASE/lib/python3.12/ensurepip
HIDE_1=BASE/lib/python3.12/site-packages
HIDE_2=BASE/lib/python3.12/test
WAY_0=/Users
WAY_1=/Users/me
WAY_2=/Users/me/.local
WAY_3=/Users/me/.local/share
WAY_4=/Users/me/.local/share/uv
WAY_5=/Users/me/.local/share/uv/python
WAY_6=BASE
WAY_7=BASE/bin
WAY_8=BASE/lib
WAY_9=BASE/lib/libpython3.12.dylib
WAY_10=/private
WAY_11=/private/tmp BASE/bin/python3.12 -I -S -B -X utf8 -c BOOT"
    );
}

#[test]
fn odd_paths_are_refused() {
    for path in [
        "",
        "/",
        "python3",
        "./python3",
        "/a\"b",
        "/a'b",
        "/a\\b",
        "/a\nb",
        "/a\tb",
        "/a\u{7f}",
        "/a/../b",
        "/a/./b",
        "/a/.",
        "/a//b",
        "/a/",
    ] {
        let found = check_path(Path::new(path));
        assert!(matches!(found, Err(LayoutError::Path { .. })), "{path:?}");
    }
    for path in [
        "/a b/c",
        "/opt/homebrew/Cellar/python@3.12",
        "/Users/jörg/x",
        "/a(b)",
    ] {
        assert_eq!(check_path(Path::new(path)), Ok(()), "{path:?}");
    }
    let found = Found {
        python: "/a\"b/bin/python3".into(),
        stdlib: Vec::new(),
        mapped: Vec::new(),
    };
    let refused = Layout::of(&found, |path| Some(path.to_owned()));
    assert_eq!(refused, Err(LayoutError::NoLibrary));
    let quoted = Found {
        stdlib: paths(&["/lib/python3"]),
        ..found.clone()
    };
    let refused = Layout::of(&quoted, |path| Some(path.to_owned()));
    assert!(
        matches!(refused, Err(LayoutError::Path { .. })),
        "{refused:?}"
    );
    let missing = Layout::of(&found, |_| None);
    assert!(
        matches!(missing, Err(LayoutError::Missing { .. })),
        "{missing:?}"
    );
    let found = Found {
        python: "/bin/python3".into(),
        stdlib: paths(&["/lib/python3"]),
        mapped: (0..200).map(|at| format!("/lib/{at}").into()).collect(),
    };
    let many = Layout::of(&found, |path| Some(path.to_owned()));
    assert!(matches!(many, Err(LayoutError::TooMany { .. })), "{many:?}");
    let scratch = of_uv().command_line(Path::new("/s"), Path::new("/p"), Path::new("tmp"), "");
    assert!(scratch.is_err());
}

/// A profile as its reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Word(String),
    Text(String),
    List(Vec<Node>),
}

impl Node {
    fn word(&self) -> &str {
        match self {
            Self::Word(word) => word,
            other => panic!("{other:?} is no word"),
        }
    }

    fn list(&self) -> &[Node] {
        match self {
            Self::List(list) => list,
            other => panic!("{other:?} is no list"),
        }
    }
}

/// Reads expressions; panics where brackets or quotes do not match.
fn parse(text: &str) -> Vec<Node> {
    let mut open = vec![Vec::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let node = match c {
            ';' => {
                chars.by_ref().find(|c| *c == '\n');
                continue;
            }
            c if c.is_whitespace() => continue,
            '(' => {
                open.push(Vec::new());
                continue;
            }
            ')' => Node::List(open.pop().unwrap()),
            '"' => {
                let mut value = String::new();
                loop {
                    match chars.next().expect("a text ends") {
                        '"' => break,
                        '\\' => panic!("an escape"),
                        other => value.push(other),
                    }
                }
                Node::Text(value)
            }
            first => {
                let mut word = String::from(first);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !"()\";".contains(*c)) {
                    word.push(c);
                }
                Node::Word(word)
            }
        };
        open.last_mut()
            .expect("more is closed than was opened")
            .push(node);
    }
    assert_eq!(open.len(), 1, "something is not closed");
    open.remove(0)
}

/// One rule: whether it allows, its operations, its filters.
#[derive(Clone, Debug)]
struct Rule {
    allow: bool,
    operations: Vec<String>,
    filters: Vec<(String, Node)>,
}

fn rules(text: &str) -> Vec<Rule> {
    parse(text).iter().filter_map(rule).collect()
}

fn rule(node: &Node) -> Option<Rule> {
    let list = node.list();
    let allow = match list[0].word() {
        "version" => {
            assert_eq!(list[1].word(), "1");
            return None;
        }
        "allow" => true,
        "deny" => false,
        // The systems that know the operation are those that count.
        "when" => {
            assert_eq!(list[1].list()[0].word(), "defined?");
            assert_eq!(list.len(), 3);
            return rule(&list[2]);
        }
        other => panic!("{other} is no rule"),
    };
    let mut rule = Rule {
        allow,
        operations: Vec::new(),
        filters: Vec::new(),
    };
    for part in &list[1..] {
        match part {
            Node::Word(word) => rule.operations.push(word.clone()),
            Node::List(filter) => {
                assert_eq!(filter.len(), 2, "{filter:?}");
                let filter = (filter[0].word().to_owned(), filter[1].clone());
                rule.filters.push(filter);
            }
            Node::Text(text) => panic!("{text} stands alone"),
        }
    }
    Some(rule)
}

/// The value of a filter, parameters looked up.
fn value(node: &Node, parameters: &BTreeMap<String, PathBuf>) -> String {
    match node {
        Node::Text(text) => text.clone(),
        Node::Word(word) => word.clone(),
        Node::List(list) => {
            assert_eq!(list[0].word(), "param");
            let Node::Text(name) = &list[1] else {
                panic!("{list:?}")
            };
            parameters[name].to_str().unwrap().to_owned()
        }
    }
}

/// Whether `operation` on `on` is allowed: the last rule that fits decides.
fn answer(
    rules: &[Rule],
    parameters: &BTreeMap<String, PathBuf>,
    operation: &str,
    on: &str,
) -> bool {
    let covers = |named: &String| {
        named == "default"
            || named == operation
            || named
                .strip_suffix('*')
                .is_some_and(|start| operation.starts_with(start))
    };
    let fits = |(kind, node): &(String, Node)| {
        let value = value(node, parameters);
        match kind.as_str() {
            "literal" | "sysctl-name" | "target" => value == on,
            "subpath" => Path::new(on).starts_with(&value),
            "sysctl-name-prefix" => on.starts_with(&value),
            other => panic!("{other} is no filter"),
        }
    };
    rules
        .iter()
        .rev()
        .filter(|rule| rule.operations.iter().any(covers))
        .find(|rule| rule.filters.is_empty() || rule.filters.iter().any(fits))
        .is_some_and(|rule| rule.allow)
}

fn evaluated(layout: &Layout) -> (Vec<Rule>, BTreeMap<String, PathBuf>) {
    let scratch = Path::new(SCRATCH);
    let parameters = layout.parameters(scratch).into_iter().collect();
    (rules(&layout.profile(scratch)), parameters)
}

const OPERATIONS: &[&str] = &[
    "default",
    "file-clone",
    "file-ioctl",
    "file-link",
    "file-map-executable",
    "file-read*",
    "file-read-data",
    "file-read-metadata",
    "file-write*",
    "file-write-data",
    "file-write-setugid",
    "process-exec",
    "process-info*",
    "process-info-pidinfo",
    "signal",
    "sysctl-read",
];
const FILTERS: &[&str] = &[
    "literal",
    "subpath",
    "sysctl-name",
    "sysctl-name-prefix",
    "target",
];
/// Operations that may be allowed without a filter: none needs to be.
const UNFILTERED: &[&str] = &[];
/// Operations that are denied whatever they are done to.
const DENIED_ALWAYS: &[&str] = &[
    "default",
    "process-info*",
    "file-write-setugid",
    "file-link",
    "file-clone",
];
const FORBIDDEN: &[&str] = &[
    "process-fork",
    "network",
    "mach-",
    "iokit",
    "ipc-",
    "nvram",
    "user-preference",
    "/Users",
    "regex",
    "import",
    "/Library/",
    "job-creation",
    "appleevent",
    "kern.proc",
    "kern.bootargs",
    "system-",
    "distributed-notification",
    "no-sandbox",
    "process-exec*",
    "file-test-existence",
    "\"/private/var\"",
    "\"/private/tmp\"",
    "\"/private/etc",
];

#[test]
fn the_profile_is_made_of_known_parts() {
    for layout in all() {
        let (rules, _) = evaluated(&layout);
        assert_eq!(
            (rules[0].allow, &rules[0].operations[..]),
            (false, &["default".to_owned()][..])
        );
        assert!(rules[0].filters.is_empty());
        for rule in &rules {
            for operation in &rule.operations {
                assert!(OPERATIONS.contains(&operation.as_str()), "{rule:?}");
            }
            for (kind, node) in &rule.filters {
                assert!(FILTERS.contains(&kind.as_str()), "{rule:?}");
                if kind == "target" {
                    assert_eq!(node.word(), "self");
                }
            }
            let free = rule
                .operations
                .iter()
                .all(|name| UNFILTERED.contains(&name.as_str()));
            // A denial that has lost its filter would be one of everything.
            let meant = rule
                .operations
                .iter()
                .all(|name| DENIED_ALWAYS.contains(&name.as_str()));
            assert!(rule.allow || rule.filters.is_empty() == meant, "{rule:?}");
            assert!(!rule.allow || !rule.filters.is_empty() || free, "{rule:?}");
        }
    }
}

#[test]
fn the_profile_holds_no_forbidden_word() {
    let rules: Vec<&str> = PROFILE
        .lines()
        .map(|line| line.split(';').next().unwrap_or_default())
        .collect();
    let text = rules.join("\n").replace("/System/Library/", "/System/");
    for word in FORBIDDEN {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn denials_stand_last() {
    let (rules, _) = evaluated(&of_framework());
    let last_allow = rules.iter().rposition(|rule| rule.allow).unwrap();
    let denials: Vec<String> = rules[last_allow + 1..]
        .iter()
        .map(|rule| rule.operations.join(" "))
        .collect();
    assert_eq!(
        denials,
        [
            "file-read* file-map-executable",
            "file-write-setugid",
            "file-link",
            "file-clone",
            "file-map-executable",
        ]
    );
    // Before them only what everything starts from.
    let first: Vec<bool> = rules[..last_allow].iter().map(|rule| rule.allow).collect();
    assert_eq!(first.iter().filter(|allow| !**allow).count(), 2);
    assert_eq!(first[..3], [false, false, true]);
}

/// Every parameter that is asked for is given, and none that is not.
#[test]
fn parameters_and_their_uses_are_the_same() {
    fn used(node: &Node, names: &mut BTreeSet<String>) {
        if let Node::List(list) = node {
            if let [Node::Word(word), Node::Text(name)] = &list[..]
                && word == "param"
            {
                names.insert(name.clone());
            }
            for node in list {
                used(node, names);
            }
        }
    }
    for layout in all() {
        let scratch = Path::new(SCRATCH);
        let mut names = BTreeSet::new();
        for node in parse(&layout.profile(scratch)) {
            used(&node, &mut names);
        }
        let given: BTreeSet<String> = layout
            .parameters(scratch)
            .into_iter()
            .map(|one| one.0)
            .collect();
        assert_eq!(names, given);
        assert!(
            !layout.profile(scratch).contains(SCRATCH),
            "a path was written into the text"
        );
    }
}

const PYENV: &str = "/Users/me/.pyenv/versions/3.13.1";

/// What the profile for pyenv's interpreter must answer, written by hand from docs/security.md.
const EXPECTED: &[(&str, &str, bool)] = &[
    // The user's files.
    ("file-read-data", "/Users/me/.ssh/id_rsa", false),
    ("file-read-data", "/Users/me/.aws/credentials", false),
    ("file-read-data", "/Users/me/.config/ptc/config.yaml", false),
    ("file-read-data", "/Users/me/Documents/a.txt", false),
    ("file-read-metadata", "/Users/me/Documents/a.txt", false),
    (
        "file-read-data",
        "/Users/me/Library/Keychains/login.keychain-db",
        false,
    ),
    ("file-read-data", "/Users/me", false),
    ("file-read-metadata", "/Users/me", true),
    ("file-read-data", "/Users", false),
    ("file-read-data", "/Users/other/a", false),
    ("file-read-data", "/Users/me/.pyenv/shims/python", false),
    (
        "file-read-data",
        "/Users/me/.pyenv/versions/3.12.0/lib/python3.12/os.py",
        false,
    ),
    ("file-write-data", "/Users/me/.zshrc", false),
    (
        "file-write-create",
        "/Users/me/Library/LaunchAgents/x.plist",
        false,
    ),
    // The interpreter.
    (
        "process-exec",
        "/Users/me/.pyenv/versions/3.13.1/bin/python3.13",
        true,
    ),
    (
        "process-exec",
        "/Users/me/.pyenv/versions/3.13.1/bin/pip",
        false,
    ),
    ("process-exec", "/bin/sh", false),
    ("process-exec", "/usr/bin/osascript", false),
    ("process-exec", "/private/tmp/ptcd-0011/x", false),
    (
        "file-read-data",
        "/Users/me/.pyenv/versions/3.13.1/bin/python3.13",
        true,
    ),
    (
        "file-read-data",
        "/Users/me/.pyenv/versions/3.13.1/bin/pip",
        false,
    ),
    (
        "file-read-data",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/os.py",
        true,
    ),
    (
        "file-read-data",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/lib-dynload/_ssl.so",
        true,
    ),
    (
        "file-map-executable",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/lib-dynload/_ssl.so",
        true,
    ),
    (
        "file-read-data",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/site-packages/x.py",
        false,
    ),
    (
        "file-read-metadata",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/site-packages",
        false,
    ),
    (
        "file-map-executable",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/site-packages/x.so",
        false,
    ),
    (
        "file-read-data",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.130/os.py",
        false,
    ),
    (
        "file-write-data",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/os.py",
        false,
    ),
    (
        "file-write-unlink",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/os.py",
        false,
    ),
    (
        "file-write-create",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/new.py",
        false,
    ),
    (
        "file-link",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/os.py",
        false,
    ),
    (
        "file-clone",
        "/Users/me/.pyenv/versions/3.13.1/lib/python3.13/os.py",
        false,
    ),
    (
        "file-read-metadata",
        "/Users/me/.pyenv/versions/3.13.1/lib",
        true,
    ),
    (
        "file-read-data",
        "/Users/me/.pyenv/versions/3.13.1/lib",
        false,
    ),
    // Scratch.
    ("file-read-data", "/private/tmp/ptcd-0011/a", true),
    ("file-write-create", "/private/tmp/ptcd-0011/a", true),
    ("file-write-data", "/private/tmp/ptcd-0011/sub/a", true),
    ("file-write-unlink", "/private/tmp/ptcd-0011/a", true),
    ("file-map-executable", "/private/tmp/ptcd-0011/a.so", false),
    ("file-link", "/private/tmp/ptcd-0011/a", false),
    ("file-clone", "/private/tmp/ptcd-0011/a", false),
    ("file-write-setugid", "/private/tmp/ptcd-0011/a", false),
    ("file-read-data", "/private/tmp/ptcd-0022/a", false),
    ("file-write-create", "/private/tmp/ptcd-00110", false),
    ("file-read-data", "/private/tmp", false),
    ("file-write-create", "/private/tmp/x", false),
    // The system.
    ("file-read-data", "/private/etc/passwd", false),
    ("file-read-data", "/private/etc/hosts", false),
    ("file-read-metadata", "/etc", true),
    (
        "file-read-data",
        "/Library/Preferences/com.apple.x.plist",
        false,
    ),
    ("file-read-data", "/Applications/a.app/b", false),
    ("file-read-data", "/usr/lib/dyld", true),
    ("file-map-executable", "/usr/lib/libSystem.B.dylib", true),
    ("file-read-data", "/usr/local/lib/libx.dylib", false),
    ("file-read-data", "/usr/bin/env", false),
    ("file-write-data", "/usr/lib/dyld", false),
    (
        "file-read-data",
        "/System/Library/Frameworks/CoreFoundation.framework/Resources/x",
        true,
    ),
    ("file-read-data", "/System/Library/Keychains/x", false),
    ("file-read-data", "/private/var/db/timezone/tz/x", true),
    (
        "file-read-data",
        "/private/var/db/dslocal/nodes/Default/users/me.plist",
        false,
    ),
    (
        "file-read-data",
        "/private/var/folders/ab/x/T/secret",
        false,
    ),
    ("file-read-data", "/Volumes/Backup/a", false),
    ("file-read-data", "/", true),
    ("file-read-data", "/dev/urandom", true),
    ("file-write-data", "/dev/null", true),
    ("file-read-data", "/dev/disk0", false),
    ("file-read-data", "/dev/tty", false),
    ("file-ioctl", "/dev/tty", false),
    ("file-read-data", "/private/var/root/.ssh/id_rsa", false),
    ("file-read-data", "/private/var/log/system.log", false),
    ("file-read-data", "/Users/Shared/a", false),
    ("file-read-data", "/opt/homebrew/bin/git", false),
    ("file-read-data", "/usr/libexec/path_helper", false),
    ("file-read-data", "/cores/core.1", false),
    ("file-read-metadata", "/Applications", false),
    // Other processes and the kernel.
    ("sysctl-read", "hw.ncpu", true),
    ("sysctl-read", "hw.optional.arm64", true),
    ("sysctl-read", "kern.osrelease", true),
    ("sysctl-read", "kern.procargs2", false),
    ("sysctl-read", "kern.proc.all", false),
    ("sysctl-read", "kern.bootargs", false),
    ("sysctl-read", "kern.hostname", false),
    ("sysctl-write", "kern.osrelease", false),
    ("signal", "self", true),
    ("signal", "others", false),
    ("process-info-pidinfo", "self", true),
    ("process-info-pidinfo", "others", false),
    ("process-info-listpids", "others", false),
    ("process-fork", "self", false),
    ("network-outbound", "/private/var/run/mDNSResponder", false),
    ("network-outbound", "/Users/me/.ptc/run/ptcd.sock", false),
    ("network-bind", "/private/tmp/ptcd-0011/socket", false),
    ("mach-lookup", "com.apple.SecurityServer", false),
    ("mach-lookup", "com.apple.pasteboard.1", false),
    (
        "ipc-posix-shm-read-data",
        "apple.shm.notification_center",
        false,
    ),
    ("iokit-open", "IOHIDParamUserClient", false),
    ("file-test-existence", "/Users/me/.ssh", false),
];

#[test]
fn the_profile_answers_each_question_as_it_was_written_down() {
    let layout = of_pyenv();
    assert_eq!(layout.python, Path::new(PYENV).join("bin/python3.13"));
    let (rules, parameters) = evaluated(&layout);
    for (operation, on, expected) in EXPECTED {
        let found = answer(&rules, &parameters, operation, on);
        assert_eq!(found, *expected, "{operation} {on}");
    }
    let paths: BTreeSet<&str> = EXPECTED
        .iter()
        .filter(|(_, on, _)| on.starts_with('/'))
        .map(|(_, on, _)| *on)
        .collect();
    assert!(paths.len() >= 60, "{}", paths.len());
}

#[test]
fn a_framework_runs_its_two_files_and_no_other() {
    let (rules, parameters) = evaluated(&of_framework());
    let version = "/Library/Frameworks/Python.framework/Versions/3.12";
    for (path, expected) in [
        ("bin/python3.12", true),
        ("Resources/Python.app/Contents/MacOS/Python", true),
        ("bin/pip3", false),
        ("Resources/Python.app", false),
    ] {
        let path = format!("{version}/{path}");
        assert_eq!(
            answer(&rules, &parameters, "process-exec", &path),
            expected,
            "{path}"
        );
    }
}
