//! Compiles the seccomp filters a worker installs, in the order it installs them.

use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, compile_from_json, sock_filter,
};
use serde_json::Value;

use super::SandboxError;
use super::profile::Profile;
use super::sys;

/// Numbers from here on are x86_64's 32-bit form of a call; every filter that does not look is blind to them.
const X32_BIT: u32 = 0x4000_0000;

/// The filters that are the same for each worker of a tier.
#[derive(Debug)]
pub(super) struct Filters {
    programs: Vec<BpfProgram>,
    arch: TargetArch,
}

/// Where the three arguments of the one permitted `execve` lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecAddresses {
    pub(super) path: u64,
    pub(super) argv: u64,
    pub(super) envp: u64,
}

impl Filters {
    /// Compiles a profile for this machine in `tier`.
    pub(super) fn compile(profile: &str, tier: &str) -> Result<Self, SandboxError> {
        Self::compile_for(std::env::consts::ARCH, profile, tier)
    }

    fn compile_for(name: &str, profile: &str, tier: &str) -> Result<Self, SandboxError> {
        let arch = TargetArch::try_from(name).map_err(|_| SandboxError::Architecture {
            name: name.to_owned(),
        })?;
        let selection = Profile::read(profile)?.select(name, tier)?;
        let mut programs = Vec::new();
        if name == "x86_64" {
            programs.push(kill_x32());
        }
        // Of several filters that answer with an error the last one installed wins, so the allow-list, whose
        // answer is EPERM, goes before those with another.
        programs.push(translate(&selection.allow, arch)?);
        for rules in selection.answers.values() {
            programs.push(translate(rules, arch)?);
        }
        Ok(Self { programs, arch })
    }

    /// How many filters a worker ends up with: these and the gate.
    pub(super) fn count(&self) -> usize {
        self.programs.len() + 1
    }

    /// Installs all of them; afterwards nothing is left to do but the one `execve`.
    pub(super) fn install(&self, exec: ExecAddresses) -> io::Result<()> {
        let gate = gate(self.arch, exec).map_err(io::Error::other)?;
        for program in self.programs.iter().chain([&gate]) {
            sys::install_filter(program)?;
        }
        Ok(())
    }
}

/// The last filter: no further filter, and `execve` only with exactly these pointers.
fn gate(arch: TargetArch, exec: ExecAddresses) -> Result<BpfProgram, SandboxError> {
    let differs = |arg, address| -> Result<SeccompRule, seccompiler::BackendError> {
        SeccompRule::new(vec![SeccompCondition::new(
            arg,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::Ne,
            address,
        )?])
    };
    let build = || -> Result<BpfProgram, seccompiler::BackendError> {
        let rules = [
            (
                libc::SYS_execve,
                vec![
                    differs(0, exec.path)?,
                    differs(1, exec.argv)?,
                    differs(2, exec.envp)?,
                ],
            ),
            (libc::SYS_seccomp, Vec::new()),
        ];
        SeccompFilter::new(
            rules.into_iter().collect(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM.unsigned_abs()),
            arch,
        )?
        .try_into()
    };
    build().map_err(|source| SandboxError::Profile {
        detail: source.to_string(),
    })
}

/// Ends the process at the first call by a 32-bit number: no such call is meant, and none is on any list.
fn kill_x32() -> BpfProgram {
    let step = |code: u32, jt, jf, k| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_BIT),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn translate(rules: &Value, arch: TargetArch) -> Result<BpfProgram, SandboxError> {
    let text = rules.to_string();
    let compiled = compile_from_json(text.as_bytes(), arch);
    compiled
        .map_err(|source| SandboxError::Profile {
            detail: source.to_string(),
        })?
        .remove("filter")
        .ok_or_else(|| SandboxError::Profile {
            detail: "it compiles to nothing".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::super::profile::TEXT;
    use super::*;

    #[test]
    fn every_name_is_a_call_of_its_architecture() {
        for arch in ["x86_64", "aarch64"] {
            for tier in ["landlock", "full"] {
                Filters::compile_for(arch, TEXT, tier).unwrap();
            }
        }
    }

    #[test]
    fn the_number_of_filters_is_that_of_the_programs_and_the_gate() {
        let filters = Filters::compile_for("x86_64", TEXT, "landlock").unwrap();
        assert_eq!(filters.count(), 8);
    }

    #[test]
    fn another_architecture_is_refused() {
        let error = Filters::compile_for("s390x", TEXT, "landlock").unwrap_err();
        assert!(matches!(error, SandboxError::Architecture { name } if name == "s390x"));
    }
}
