//! The form of an attempt: a program that succeeds unconfined and is refused when confined.

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use ptcd::sandbox::Sandbox;
use serde_json::Value;

use crate::container;
use crate::lab::{run_in, sandbox, sandbox_of_fresh_interpreters, tiers};

/// What the answer of a program must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    /// It ran to its end.
    Succeeds,
    /// It ran to its end and `result` is this JSON.
    Gives(&'static str),
    /// One of these error numbers.
    Errno(&'static [i32]),
    /// An exception of this type.
    Raises(&'static str),
    /// It ran to its end and `result` is another JSON.
    Differs(&'static str),
    /// It ran to its end and `result` is a list that begins with this JSON.
    Begins(&'static str),
    /// An answer that is not one of these error numbers.
    OtherThan(&'static [i32]),
}

/// One promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    /// Python; see `boot.py` for what it has.
    pub(crate) program: &'static str,
    /// What it does without confinement.
    pub(crate) control: Expect,
    /// What it does with it.
    pub(crate) confined: Expect,
}

pub(crate) const DENIED: Expect = Expect::Errno(&[libc::EPERM, libc::EACCES]);
pub(crate) const EPERM: Expect = Expect::Errno(&[libc::EPERM]);
pub(crate) const EACCES: Expect = Expect::Errno(&[libc::EACCES]);

impl Expect {
    /// The same in `tier`: where nothing else is to be seen, a path that is refused elsewhere is not there at all, or on
    /// a file system that cannot be written.
    pub(crate) fn holds_in(self, tier: SandboxChoice, answer: &Value) -> Result<(), Failed> {
        const HIDDEN: &[i32] = &[libc::EACCES, libc::EPERM, libc::ENOENT, libc::EROFS];
        match self {
            // An engine's filter has one error for all that is refused by argument.
            Self::Errno(codes)
                if tier == SandboxChoice::Container
                    && [&[libc::EINVAL][..], &[libc::ENOTTY]].contains(&codes) =>
            {
                self.check(answer).or_else(|_| EPERM.check(answer))
            }
            Self::Gives(text) if tier == SandboxChoice::Container => {
                let expected = of_an_engine(&serde_json::from_str(text)?);
                self.check(answer).or_else(|error| {
                    let holds = answer.get("ok").map(of_an_engine) == Some(expected);
                    if holds { Ok(()) } else { Err(error) }
                })
            }
            Self::Errno(codes)
                if matches!(tier, SandboxChoice::Full | SandboxChoice::Container)
                    && codes.contains(&libc::EACCES) =>
            {
                self.check(answer)
                    .or_else(|_| Self::Errno(HIDDEN).check(answer))
            }
            other => other.check(answer),
        }
    }

    pub(crate) fn check(self, answer: &Value) -> Result<(), Failed> {
        let errno = answer["errno"]
            .as_i64()
            .and_then(|code| i32::try_from(code).ok());
        let holds = match self {
            Self::Succeeds => answer.get("ok").is_some(),
            Self::Gives(text) => answer.get("ok") == Some(&serde_json::from_str(text)?),
            Self::Errno(codes) => errno.is_some_and(|code| codes.contains(&code)),
            Self::Differs(text) => {
                let other = serde_json::from_str::<Value>(text)?;
                answer.get("ok").is_some_and(|result| *result != other)
            }
            Self::Begins(text) => answer["ok"][0] == serde_json::from_str::<Value>(text)?,
            Self::Raises(name) => answer["error"] == name,
            Self::OtherThan(codes) => errno.is_none_or(|code| !codes.contains(&code)),
        };
        if holds {
            Ok(())
        } else {
            Err(format!("expected {self:?}, got {answer}").into())
        }
    }
}

/// The error numbers that an engine's filter may give, where they are the only thing that a list holds, as the one that
/// it gives where it reads none from its profile (docker 20.10, podman 4.3).
fn of_an_engine(result: &Value) -> Value {
    const REFUSALS: &[i32] = &[libc::EINVAL, libc::ENOTTY, libc::ENOSYS, libc::EOPNOTSUPP];
    let one = |code: &Value| {
        let refusal = REFUSALS.iter().any(|refusal| *code == *refusal);
        if refusal {
            libc::EPERM.into()
        } else {
            code.clone()
        }
    };
    match result {
        Value::Array(codes) => codes.iter().map(one).collect(),
        other => other.clone(),
    }
}

/// The sandboxes of a tier, one for each way in which its workers are made.
fn producers(choice: SandboxChoice) -> Vec<&'static Sandbox> {
    let mut all = vec![sandbox(choice)];
    let fresh = sandbox_of_fresh_interpreters(choice);
    if !std::ptr::eq(all[0], fresh) {
        all.push(fresh);
    }
    all
}

impl Attempt {
    fn prove(&self) -> Result<(), Failed> {
        let confined = tiers().iter().map(|tier| (*tier, self.confined));
        for (choice, expect) in [(SandboxChoice::None, self.control)]
            .into_iter()
            .chain(confined)
        {
            // What the documentation says of the tier is held to, too.
            let shown = choice == SandboxChoice::Container
                && (container::SHOWN.contains(&self.name)
                    || container::engine() == "docker"
                        && container::SHOWN_BY_DOCKER.contains(&self.name));
            let expect = if shown { self.control } else { expect };
            for sandbox in producers(choice) {
                let outcome = run_in(sandbox, self.program);
                expect
                    .holds_in(choice, outcome.answer())
                    .map_err(|error| format!("in tier {}: {error:?}", choice.as_str()))?;
            }
        }
        Ok(())
    }
}

/// One test an attempt.
pub(crate) fn trials(group: &str, attempts: &'static [Attempt]) -> Vec<Trial> {
    attempts
        .iter()
        .map(|attempt| Trial::test(format!("{group}::{}", attempt.name), || attempt.prove()))
        .collect()
}
