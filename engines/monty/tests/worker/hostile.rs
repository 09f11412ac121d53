//! Programs that mean harm: each ends within its limits, and none by a fault of the interpreter.

use crate::party::{Limits, Party};

/// How a program may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By the limit of time: the interpreter's own, or the kernel's.
    Time,
    /// By the limit of memory.
    Memory,
    /// With an error of this class.
    Raises(&'static str),
    /// Well.
    Fine,
}
use End::{Fine, Memory, Raises, Time};

const LIMITS: Limits = Limits {
    memory: 96 << 20,
    cpu_seconds: 1,
};

/// Spins past every limit that the program could influence.
const TIME: [(&str, &str); 19] = [
    ("a loop", "while True: pass"),
    (
        "a loop that catches everything",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ),
    (
        "a loop in a finally",
        "try:\n    1 / 0\nfinally:\n    while True: pass",
    ),
    (
        "a bare except around the limit",
        "while True:\n    try: [x for x in range(10**6)]\n    except: pass",
    ),
    ("a sum without an end", "sum(range(10**12))"),
    ("any over a range", "any(x < 0 for x in range(10**12))"),
    (
        "permutations",
        "import itertools\nfor p in itertools.permutations(range(20)): pass",
    ),
    (
        "counting",
        "import itertools\nfor x in itertools.count(): pass",
    ),
    (
        "a cycle",
        "import itertools\nfor x in itertools.cycle([1]): pass",
    ),
    (
        "one multiplication after another",
        "x = 3**100000\nwhile True: x = x * x",
    ),
    ("a power modulo a giant", "pow(3, 10**60000, 10**60000 + 7)"),
    (
        "searching a list",
        "x = list(range(10**5))\nwhile True: (10**6) in x",
    ),
    (
        "key derivation",
        "import hashlib\nhashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)",
    ),
    (
        "a recursion that branches",
        "def f(n): return f(n - 1) + f(n - 1) if n else 1\nf(60)",
    ),
    (
        "an iterator of its own",
        "class I:\n    def __iter__(self): return self\n    def __next__(self): return 1\nfor x in I(): pass",
    ),
    (
        "sorting by a slow key",
        "sorted(range(10**5), key=lambda x: sum(range(10**4)))",
    ),
    ("an exec that loops", "exec('while True: pass')"),
    (
        "coroutines without an end",
        "async def f(): return 1\nwhile True: await f()",
    ),
    (
        "a prime by trial",
        "n = 2**127 - 1\ni = 3\nwhile n % i: i += 2",
    ),
];

/// Fills memory.
const MEMORY: [(&str, &str); 19] = [
    (
        "a list that grows",
        "x = []\nwhile True: x.append('a' * 1000)",
    ),
    (
        "a list that grows in spite of everything",
        "x = []\nwhile True:\n    try: x.append('a' * 100000)\n    except BaseException: x.append(1)",
    ),
    ("repeating a text", "'a' * 10**11"),
    ("repeating a list", "[0] * 10**10"),
    ("padding", "'a'.ljust(10**11)"),
    ("padding by a format", "f'{1:>100000000000}'"),
    ("joining", "','.join(['a' * 10**6] * 10**5)"),
    ("replacing", "('a' * 10**6).replace('a', 'b' * 10**6)"),
    ("zero bytes", "bytes(10**11)"),
    ("a shift", "1 << 10**10"),
    ("a power", "2 ** 10**11"),
    ("random bits", "import random\nrandom.getrandbits(10**11)"),
    (
        "a product",
        "import itertools\nlist(itertools.product(range(100), repeat=8))",
    ),
    (
        "a list of what never ends",
        "import itertools\nlist(map(str, itertools.count()))",
    ),
    ("splitting a long text", "('a,' * 10**7).split(',')"),
    (
        "doubling a dict",
        "d = {}\ni = 0\nwhile True:\n    d[i] = str(i) * 50\n    i += 1",
    ),
    (
        "a set of tuples",
        "s = set()\ni = 0\nwhile True:\n    s.add((i, str(i)))\n    i += 1",
    ),
    (
        "closures that hold on",
        "x = None\ndef hold(y):\n    return lambda: y\nwhile True: x = hold((x, 'a' * 10000))",
    ),
    (
        "printing without a line's end, held",
        "x = 'a' * 10**7\ny = [x + str(i) for i in range(10**6)]",
    ),
];

/// Nests deeper than anything should, or confuses the machinery.
const ODD: [(&str, &str, &[End]); 25] = [
    (
        "recursion",
        "def f(): return f()\nf()",
        &[Raises("RecursionError")],
    ),
    (
        "recursion through a method",
        "class A:\n    def m(self): return self.m()\nA().m()",
        &[Raises("RecursionError")],
    ),
    (
        "recursion in a repr",
        "class A:\n    def __repr__(self): return repr(self)\nprint(A())",
        &[Raises("RecursionError")],
    ),
    (
        "recursion in an eq",
        "class A:\n    def __eq__(self, o): return self == o\nA() == A()",
        &[Raises("RecursionError")],
    ),
    (
        "recursion through sorted",
        "def f(x): return sorted([x], key=f)\nf(1)",
        &[Raises("RecursionError")],
    ),
    (
        "recursion in a comprehension",
        "def f(): return [f() for _ in range(1)]\nf()",
        &[Raises("RecursionError")],
    ),
    (
        "recursion of coroutines",
        "async def f(): return await f()\nawait f()",
        &[Raises("RecursionError")],
    ),
    (
        "recursion of evals",
        "s = 'eval(s)'\neval(s)",
        &[Raises("RecursionError")],
    ),
    (
        "a list in itself, printed and compared",
        "x = []\nx.append(x)\nprint(x)\ny = []\ny.append(y)\nx == y",
        &[Raises("RecursionError"), Fine],
    ),
    (
        "a very deep list, printed",
        "x = []\nfor _ in range(200000): x = [x]\nprint(x)",
        &[Raises("RecursionError"), Fine],
    ),
    (
        "a very deep list, as JSON",
        "import json\nx = []\nfor _ in range(200000): x = [x]\njson.dumps(x)",
        &[Raises("RecursionError")],
    ),
    (
        "a very deep list, sent",
        "x = []\nfor _ in range(200000): x = [x]\nawait mcp__m__echo(text=x)",
        &[Raises("ValueError")],
    ),
    (
        "a very deep list, emitted",
        "x = []\nfor _ in range(200000): x = [x]\nemit(x)",
        &[Raises("ValueError")],
    ),
    (
        "very deep JSON, read",
        "import json\njson.loads('[' * 200000)",
        &[Raises("json.JSONDecodeError"), Raises("RecursionError")],
    ),
    (
        "a very deep tuple, hashed",
        "x = ()\nfor _ in range(100000): x = (x,)\nhash(x)",
        &[Raises("RecursionError"), Fine],
    ),
    (
        "a deep copy",
        "import copy\nx = []\nfor _ in range(100000): x = [x]\ncopy.deepcopy(x)",
        &[Raises("RecursionError")],
    ),
    (
        "catching what cannot be caught",
        "try:\n    x = 'a' * 10**11\nexcept MemoryError:\n    print('caught')\nprint('on')",
        &[Memory],
    ),
    (
        "a regular expression that backtracks",
        "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
        &[Fine, Time, Raises("re.PatternError")],
    ),
    (
        "a regular expression with lookaround that backtracks",
        "import re\nre.match('(?=(a+)+$)b', 'a' * 40 + 'b')",
        &[Fine, Time, Raises("re.PatternError")],
    ),
    (
        "a giant regular expression",
        "import re\nre.compile('(' * 5000 + ')' * 5000)",
        &[Raises("re.PatternError"), Raises("RecursionError"), Fine],
    ),
    (
        "a repetition of repetitions",
        "import re\nre.compile('((((a{1000}){1000}){1000}){1000})')",
        &[Raises("re.PatternError"), Memory],
    ),
    (
        "the interpreter's own names",
        "print(__builtins__, __loader__, __spec__)",
        &[Raises("NameError"), Fine],
    ),
    (
        "an import of what is not there",
        "__import__('os').system('id')",
        &[Raises("NotImplementedError")],
    ),
    (
        "a class by type()",
        "t = type('X', (), {})\nprint(t)",
        &[Raises("TypeError"), Raises("NotImplementedError"), Fine],
    ),
    (
        "the way up from a literal",
        "().__class__.__bases__[0].__subclasses__()",
        &[Raises("AttributeError")],
    ),
];

fn came(program: &str) -> (End, String) {
    let mut party = Party::start(LIMITS);
    party.run(program);
    let (_, last) = party.follow();
    let exit = party.end();
    let told = format!("{last:?} {exit:?}");
    let end = match &last {
        Some(('D', done)) if done["ok"] == true => Fine,
        Some(('D', done)) => match done["error"]["type"].as_str().unwrap_or_default() {
            "TimeoutError" => Time,
            "MemoryError" => Memory,
            class => Raises(String::from(class).leak()),
        },
        // SIGKILL or SIGXCPU: the kernel's limit.
        _ if matches!(exit.signal, Some(9 | 24)) => Time,
        _ => Raises("no last frame"),
    };
    (end, told)
}

#[test]
fn a_program_that_takes_time_without_an_end_is_stopped() {
    for (name, program) in TIME {
        let (end, told) = came(program);
        assert_eq!(end, Time, "{name}: {told}");
    }
}

#[test]
fn a_program_that_takes_memory_without_an_end_is_stopped() {
    for (name, program) in MEMORY {
        let (end, told) = came(program);
        // One that fills memory slowly may meet the other limit first.
        assert!(matches!(end, Memory | Time), "{name}: {told}");
    }
}

#[test]
fn a_program_that_nests_or_confuses_fails_as_a_program() {
    for (name, program, ends) in ODD {
        let (end, told) = came(program);
        assert!(ends.contains(&end), "{name}: {told}");
    }
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
