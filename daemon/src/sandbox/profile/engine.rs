//! The seccomp profile in the form container engines read, and the gate that takes from it what only the start needs.

use serde_json::{Value, json};

use super::{Allowed, Answer, Comparison, Profile, TEXT, errno};
use crate::sandbox::SandboxError;

/// Scratch is a file system of the container's own, as in this tier.
const TIER: &str = "full";

/// What the engine's own starter does between installing the filter and becoming the interpreter, and what the
/// supervisor does: it forks the worker, hides its memory, sends it two signals. The gate takes all of it away again.
const START: &str = r#"[
    {"names": ["execve", "seccomp"], "action": "SCMP_ACT_ALLOW"},
    {"names": ["clone"], "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 0, "value": 4294967295, "valueTwo": 18874385, "op": "SCMP_CMP_MASKED_EQ"}]},
    {"names": ["clone"], "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 0, "value": 4294967295, "valueTwo": 331520, "op": "SCMP_CMP_MASKED_EQ"}]},
    {"names": ["prctl"], "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 0, "value": 4294967295, "valueTwo": 4, "op": "SCMP_CMP_MASKED_EQ"}]},
    {"names": ["kill"], "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 1, "value": 4294967295, "valueTwo": 9, "op": "SCMP_CMP_MASKED_EQ"}]},
    {"names": ["kill"], "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 1, "value": 4294967295, "valueTwo": 10, "op": "SCMP_CMP_MASKED_EQ"}]}
]"#;

impl Profile {
    /// The profile for docker and podman. What a call is answered with when its arguments do not fit is EPERM
    /// throughout: their form has no word for another error there.
    pub(in crate::sandbox) fn for_engine() -> Result<Value, SandboxError> {
        let profile = Self::read(TEXT)?;
        let mut rules = Vec::new();
        for entry in applying(&profile.allow, |entry| entry.tiers.as_ref()) {
            profile.push_allowed(entry, &mut rules)?;
        }
        for entry in applying(&profile.answers, |entry| entry.tiers.as_ref()) {
            push_answer(entry, &mut rules)?;
        }
        let start: Vec<Value> =
            serde_json::from_str(START).map_err(|source| SandboxError::Profile {
                detail: source.to_string(),
            })?;
        rules.extend(start);
        Ok(json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules}))
    }

    fn push_allowed(&self, entry: &Allowed, rules: &mut Vec<Value>) -> Result<(), SandboxError> {
        let alternatives = self.alternatives(&entry.when)?;
        let action = "SCMP_ACT_ALLOW";
        if alternatives.is_empty() {
            rules.push(rule(&entry.calls, action, entry.arch.as_deref()));
        }
        for conditions in alternatives {
            let mut made = rule(&entry.calls, action, entry.arch.as_deref());
            let args: Vec<Value> = conditions.into_iter().map(Comparison::for_engine).collect();
            set(&mut made, "args", json!(args));
            rules.push(made);
        }
        Ok(())
    }
}

impl Comparison {
    /// Engines compare 64 bits; of an argument of 32 bits the upper half is masked away.
    fn for_engine(self) -> Value {
        json!({
            "index": self.arg, "value": self.mask, "valueTwo": self.value, "op": "SCMP_CMP_MASKED_EQ",
        })
    }
}

fn applying<T>(
    entries: &[T],
    tiers: impl Fn(&T) -> Option<&Vec<String>>,
) -> impl Iterator<Item = &T> {
    entries
        .iter()
        .filter(move |entry| tiers(entry).is_none_or(|only| only.iter().any(|tier| tier == TIER)))
}

fn push_answer(entry: &Answer, rules: &mut Vec<Value>) -> Result<(), SandboxError> {
    let mut made = rule(&entry.calls, "SCMP_ACT_ERRNO", entry.arch.as_deref());
    set(&mut made, "errnoRet", json!(errno(&entry.errno)?));
    rules.push(made);
    Ok(())
}

fn rule(calls: &[String], action: &str, arch: Option<&str>) -> Value {
    let mut made = json!({"names": calls, "action": action});
    let name = match arch {
        Some("x86_64") => "amd64",
        Some("aarch64") => "arm64",
        _ => return made,
    };
    set(&mut made, "includes", json!({"arches": [name]}));
    made
}

fn set(rule: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = rule {
        fields.insert(key.to_owned(), value);
    }
}

/// One instruction: code, jump if true, jump if false, operand.
type Instruction = (u16, u8, u8, u32);

const LOAD: u16 = 0x20;
const IS: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const HAS_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const X86_64: u32 = 0xc000_003e;
const AARCH64: u32 = 0xc000_00b7;
const X32_BIT: u32 = 0x4000_0000;
const CLONE_THREAD: u32 = 0x0001_0000;
const SET_DUMPABLE: u32 = 4;

const KILL: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0001;
const ALLOW: u32 = 0x7fff_0000;

/// The numbers of execve, execveat, seccomp, kill, then prctl and clone.
const CALLS: [(u32, [u32; 6]); 2] = [
    (X86_64, [59, 322, 317, 62, 157, 56]),
    (AARCH64, [221, 281, 277, 129, 167, 220]),
];

/// The filter a worker installs before it says hello, as hexadecimal digits of the kernel's own form: no other program,
/// no other process, no signal, no further filter, no visible memory. Everything else is the engine's filter's affair.
pub(in crate::sandbox) fn gate() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (code, yes, no, operand) in instructions() {
        let bytes = code.to_le_bytes().into_iter().chain([yes, no]);
        for byte in bytes.chain(operand.to_le_bytes()) {
            // Writing into a text cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

fn instructions() -> Vec<Instruction> {
    let mut made = vec![(LOAD, 0, 0, ARCH)];
    for (arch, [execve, execveat, seccomp, kill, prctl, clone]) in CALLS {
        made.extend([
            (IS, 0, 15, arch),
            (LOAD, 0, 0, NUMBER),
            (AT_LEAST, 10, 0, X32_BIT),
            (IS, 10, 0, execve),
            (IS, 9, 0, execveat),
            (IS, 8, 0, seccomp),
            (IS, 7, 0, kill),
            (IS, 1, 0, prctl),
            (IS, 2, 6, clone),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (IS, 3, 4, SET_DUMPABLE),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (HAS_BIT, 2, 1, CLONE_THREAD),
            (RETURN, 0, 0, KILL),
            (RETURN, 0, 0, REFUSE),
            (RETURN, 0, 0, ALLOW),
        ]);
    }
    made.push((RETURN, 0, 0, KILL));
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer: runs the instructions on one call.
    fn answer(arch: u32, number: u32, argument: u32) -> u32 {
        let program = instructions();
        let (mut at, mut value) = (0, 0);
        loop {
            let (code, yes, no, operand) = program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { yes } else { no });
            match code {
                LOAD => {
                    value = match operand {
                        NUMBER => number,
                        ARCH => arch,
                        FIRST_ARGUMENT => argument,
                        other => panic!("loads {other}"),
                    }
                }
                IS => at += jump(value == operand),
                AT_LEAST => at += jump(value >= operand),
                HAS_BIT => at += jump(value & operand != 0),
                RETURN => return operand,
                other => panic!("instruction {other}"),
            }
        }
    }

    #[test]
    fn the_gate_answers_each_call_as_it_should() {
        for (arch, number, argument, expected) in [
            (X86_64, 59, 0, REFUSE),
            (X86_64, 322, 0, REFUSE),
            (X86_64, 317, 0, REFUSE),
            (X86_64, 62, 0, REFUSE),
            (X86_64, 157, 4, REFUSE),
            (X86_64, 157, 15, ALLOW),
            (X86_64, 56, 0x0120_0011, REFUSE),
            (X86_64, 56, 0x003d_0f00, ALLOW),
            (X86_64, 0, 0, ALLOW),
            (X86_64, 1, 59, ALLOW),
            (X86_64, 0x4000_0000, 0, KILL),
            (X86_64, 0x4000_003b, 0, KILL),
            (AARCH64, 221, 0, REFUSE),
            (AARCH64, 281, 0, REFUSE),
            (AARCH64, 277, 0, REFUSE),
            (AARCH64, 129, 0, REFUSE),
            (AARCH64, 167, 4, REFUSE),
            (AARCH64, 167, 15, ALLOW),
            (AARCH64, 220, 0x0120_0011, REFUSE),
            (AARCH64, 220, 0x003d_0f00, ALLOW),
            (AARCH64, 63, 0, ALLOW),
            // 32-bit programs, and processors nobody has looked at.
            (0x4000_0003, 11, 0, KILL),
            (0xc000_00f3, 221, 0, KILL),
        ] {
            let found = answer(arch, number, argument);
            assert_eq!(found, expected, "{arch:x} {number} {argument:x}");
        }
    }

    #[test]
    fn the_gate_is_written_as_the_kernel_reads_it() {
        let text = gate();
        assert!(
            text.starts_with("20000000040000001500000f3e0000c0"),
            "{text}"
        );
        assert!(text.ends_with("0600000000000080"), "{text}");
        assert_eq!(text.len(), 16 * instructions().len());
    }

    #[test]
    fn the_engine_profile_says_what_the_profile_says() {
        let whole = Profile::for_engine().unwrap();
        assert_eq!(whole["defaultAction"], "SCMP_ACT_ERRNO");
        let rules = whole["syscalls"].as_array().unwrap();
        let of = |name: &str| -> Vec<&Value> {
            let named = |rule: &&Value| {
                let names = rule["names"].as_array().unwrap();
                names.iter().any(|known| known == name)
            };
            rules.iter().filter(named).collect()
        };
        let plain = of("read");
        assert_eq!(plain.len(), 1);
        assert_eq!(plain[0]["action"], "SCMP_ACT_ALLOW");
        assert_eq!(
            of("socketpair"),
            [
                &json!({"names": ["socketpair"], "action": "SCMP_ACT_ALLOW", "args": [
                    {"index": 0, "value": 0xffff_ffff_u32, "valueTwo": 1, "op": "SCMP_CMP_MASKED_EQ"},
                    {"index": 1, "value": 0xfff7_f7ff_u32, "valueTwo": 1, "op": "SCMP_CMP_MASKED_EQ"},
                    {"index": 2, "value": 0xffff_ffff_u32, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"},
                ]})
            ]
        );
        assert_eq!(
            of("open"),
            [&json!({"names": ["open"], "action": "SCMP_ACT_ALLOW",
                     "includes": {"arches": ["amd64"]}})]
        );
        let clone3 = of("clone3");
        assert_eq!(clone3.len(), 1);
        assert_eq!(
            (&clone3[0]["action"], &clone3[0]["errnoRet"]),
            (&json!("SCMP_ACT_ERRNO"), &json!(38))
        );
        for forbidden in ["socket", "connect", "ptrace", "fork", "mount", "bpf"] {
            let found = of(forbidden);
            assert!(
                found.iter().all(|rule| rule["action"] != "SCMP_ACT_ALLOW"),
                "{forbidden}"
            );
        }
    }

    /// Engines take two conditions on one argument as alternatives.
    #[test]
    fn no_rule_looks_at_one_argument_twice() {
        for rule in Profile::for_engine().unwrap()["syscalls"]
            .as_array()
            .unwrap()
        {
            let indices: Vec<&Value> = rule["args"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|condition| &condition["index"])
                .collect();
            let mut once = indices.clone();
            once.dedup();
            assert_eq!(once, indices, "{rule}");
        }
    }

    #[test]
    fn what_only_the_start_needs_is_taken_away_by_the_gate() {
        let start: Vec<Value> = serde_json::from_str(START).unwrap();
        let mut names: Vec<&str> = start
            .iter()
            .flat_map(|rule| rule["names"].as_array().unwrap())
            .map(|name| name.as_str().unwrap())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, ["clone", "execve", "kill", "prctl", "seccomp"]);
        assert_eq!(answer(X86_64, 56, 18_874_385), REFUSE);
        assert_eq!(answer(AARCH64, 220, 18_874_385), REFUSE);
    }
}
