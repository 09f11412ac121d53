//! What an operator reads when programs cannot run: one text a cause, each with what to do.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::{SandboxError, Step};

/// Asked for macOS's tier elsewhere.
pub(super) fn seatbelt_elsewhere() -> String {
    "cannot confine programs: execution.sandbox is seatbelt, which only macOS has; write 'sandbox: auto'".to_owned()
}

/// Asked for a tier of Linux elsewhere.
#[cfg(not(target_os = "linux"))]
pub(super) fn linux_elsewhere(tier: &str, system: &str) -> String {
    format!(
        "cannot confine programs: execution.sandbox is {tier}, which only Linux has, and this is {system}; write \
         'sandbox: auto'"
    )
}

/// An operating system without a tier of its own.
#[cfg(not(target_os = "linux"))]
pub(super) fn no_tier_here(system: &str) -> String {
    format!(
        "cannot confine programs: {system} has no tier of its own; write 'sandbox: container' with docker or podman, \
         or run ptcd on Linux or macOS"
    )
}

/// The program that applies profiles is gone.
#[cfg(any(not(target_os = "linux"), test))]
pub(super) fn no_sandbox_exec(program: &Path) -> String {
    with_word_of_none(&format!(
        "cannot confine programs: there is no {}, which this macOS should have; update ptcd, or write 'sandbox: \
         container' with docker or podman",
        program.display()
    ))
}

/// An interpreter that the profile cannot describe.
#[cfg(any(not(target_os = "linux"), test))]
pub(super) fn no_layout(python: &Path, detail: &str) -> String {
    format!(
        "cannot confine programs: the profile cannot describe {}: {detail}; name another CPython 3.11 or later in \
         execution.python",
        python.display()
    )
}

/// A worker under the profile does not start.
#[cfg(any(not(target_os = "linux"), test))]
pub(super) fn seatbelt_fails(words: &str) -> String {
    format!(
        "cannot confine programs: a test worker could not be made under seatbelt: {}; name another CPython 3.11 or later \
         in execution.python, or write 'sandbox: container' with docker or podman",
        one_line(words)
    )
}

/// The kernel lacks Landlock, or offers too little of it.
pub(super) fn landlock(found: &io::Result<i32>, least: i32) -> String {
    let (cause, remedy) = match found {
        Ok(abi) => (
            format!("the kernel's Landlock has version {abi}, and {least} is needed"),
            "use Linux 6.2 or later",
        ),
        Err(error) if error.raw_os_error() == Some(95) => (
            "Landlock is built into the kernel but switched off".to_owned(),
            "add 'landlock' to the lsm= list on the kernel's command line",
        ),
        Err(error) if error.raw_os_error() == Some(38) => (
            "the kernel has no Landlock".to_owned(),
            "use Linux 6.2 or later with CONFIG_SECURITY_LANDLOCK",
        ),
        Err(error) => (
            format!(
                "Landlock cannot be used here ({error}); a container's own filter may forbid it"
            ),
            "allow the landlock_* calls in the filter around ptcd",
        ),
    };
    with_word_of_none(&format!("cannot confine programs: {cause}; {remedy}"))
}

/// The kernel has no seccomp filters.
pub(super) fn seccomp() -> String {
    with_word_of_none(
        "cannot confine programs: the kernel has no seccomp filters; use one with CONFIG_SECCOMP_FILTER",
    )
}

/// No profile for this processor.
pub(super) fn architecture(name: &str) -> String {
    with_word_of_none(&format!(
        "cannot confine programs: there is no seccomp profile for {name}; use x86_64 or aarch64"
    ))
}

/// A step of making a worker, or of looking at it, failed.
pub(super) fn worker(error: &SandboxError) -> String {
    with_word_of_none(&format!(
        "cannot confine programs: a test worker could not be made: {error}; {}",
        remedy(error)
    ))
}

/// The tier `full` cannot be had.
pub(super) fn full(error: &SandboxError) -> String {
    let detail = error.to_string();
    let read =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let is = |name: &str, value: &str| read(name).trim() == value;
    let (cause, remedy) = if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        (
            ", since AppArmor keeps user namespaces from programs without a profile that allows them \
             (kernel.apparmor_restrict_unprivileged_userns is 1)",
            "give ptcd such a profile: `ptcctl doctor --apparmor` prints it",
        )
    } else if is("user/max_user_namespaces", "0") {
        (
            ", since user namespaces are switched off (user.max_user_namespaces is 0)",
            "raise it",
        )
    } else if is("kernel/unprivileged_userns_clone", "0") {
        (
            ", since user namespaces are kept from ordinary users (kernel.unprivileged_userns_clone is 0)",
            "set it to 1",
        )
    } else if detail.contains("namespaces: ") || detail.contains("root: ") {
        (
            ", perhaps because a container's filter or a security module around ptcd forbids namespaces and mounts",
            "allow them",
        )
    } else {
        ("", remedy(error))
    };
    format!("the tier full cannot be had: {detail}{cause}; {remedy}, or write 'sandbox: landlock'")
}

/// An unconfined worker could not be made.
pub(super) fn plain_worker(error: &SandboxError) -> String {
    format!(
        "cannot run programs: a worker could not be made: {error}; {}",
        remedy(error)
    )
}

fn remedy(error: &SandboxError) -> &'static str {
    match error {
        SandboxError::SetUp { step, .. } => match step {
            Step::BoundingSet | Step::Identity | Step::Capabilities => {
                "ptcd runs as root and may not become another user here, so run it as an ordinary user"
            }
            Step::Limits => "raise the limits ptcd is started with, or lower those of execution",
            Step::Landlock => {
                "allow the landlock_* calls in the filter around ptcd, or use Linux 6.2 or later"
            }
            Step::NoNewPrivileges | Step::Memory | Step::Seccomp => {
                "allow prctl and seccomp in the filter around ptcd"
            }
            Step::Exec => "name in execution.python an interpreter that can be run",
            Step::Scratch => "make room under /run or /tmp",
            Step::Namespaces => "allow user namespaces and mounts in the filter around ptcd",
            Step::Fork | Step::Session | Step::Descriptors | Step::ParentDeath => {
                "look for exhausted processes or descriptors, then restart ptcd"
            }
        },
        SandboxError::WardenStart { .. } | SandboxError::WardenLost => {
            "check that the file of ptcd can be run, then restart it"
        }
        SandboxError::Plan { .. } => "make /run or /tmp writable, then restart ptcd",
        SandboxError::Unconfined { .. } => {
            "look which filter or security module around ptcd is in the way"
        }
        _ => "restart ptcd",
    }
}

/// The test program got out, or could not try.
pub(super) fn canary(detail: &str) -> String {
    with_word_of_none(&format!(
        "cannot confine programs: the test of the confinement failed: {detail}"
    ))
}

/// `execution.python` is not there.
pub(super) fn named_missing(named: &Path) -> String {
    format!(
        "cannot run programs: execution.python is {}, which is not on PATH; write its absolute path",
        named.display()
    )
}

/// `execution.python` cannot be reached by the user programs run as.
pub(super) fn named_unreachable(named: &Path, user: u32) -> String {
    format!(
        "cannot run programs: ptcd runs as root, so programs run as uid {user}, which cannot reach \
         execution.python {} (a folder above it is closed to others); name a Python outside that folder, or run \
         ptcd as an ordinary user",
        named.display()
    )
}

/// `execution.python` does not start, or is none.
pub(super) fn named_unusable(named: &Path, error: &io::Error) -> String {
    format!(
        "cannot run programs: execution.python {} does not run: {error}; name a CPython 3.11 or later",
        named.display()
    )
}

/// `execution.python` is too old, or another implementation.
pub(super) fn named_too_old(
    named: &Path,
    implementation: &str,
    version: (u32, u32, u32),
) -> String {
    let (major, minor, micro) = version;
    format!(
        "cannot run programs: execution.python {} is {implementation} {major}.{minor}.{micro}; name a CPython 3.11 \
         or later",
        named.display()
    )
}

/// No interpreter on PATH will do.
pub(super) fn no_python(notes: &[String], failed: &[String]) -> String {
    let mut text = "cannot run programs: no CPython 3.11 or later was found on PATH".to_owned();
    for detail in notes.iter().chain(failed) {
        text.push_str("; ");
        text.push_str(detail);
    }
    text.push_str("; install one, or name one in execution.python");
    text
}

/// Interpreters that were not taken because programs could not start them.
pub(super) fn passed_over(paths: &BTreeSet<PathBuf>, user: Option<u32>) -> String {
    let list: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let who = user.map_or("this user".to_owned(), |uid| {
        format!("uid {uid}, which programs run as,")
    });
    format!(
        "passed over because {who} cannot reach it: {}",
        list.join(", ")
    )
}

/// Each start would compile the standard library anew.
pub(super) fn not_compiled(python: &Path) -> String {
    format!(
        "the standard library of {0} has no compiled files, so workers start slowly; run '{0} -m compileall' on it",
        python.display()
    )
}

/// No image for containers is named.
pub(super) fn no_image() -> String {
    "cannot confine programs: execution.sandbox is container and no image is named; write 'execution.container.image: \
     NAME@sha256:DIGEST', an image on this machine that holds CPython 3.11 or later"
        .to_owned()
}

/// The image can be another one tomorrow.
pub(super) fn no_digest(image: &str) -> String {
    format!(
        "cannot confine programs: execution.container.image is {image}, which has no digest, so it can be another image \
         tomorrow; write NAME@sha256:DIGEST as 'docker images --digests' or 'podman images --digests' shows it, or \
         sha256:ID for one that was built here"
    )
}

/// No engine is installed.
pub(super) fn no_engine(names: &[&str]) -> String {
    format!(
        "cannot confine programs: execution.sandbox is container and {} is not on PATH; install it, put its folder on \
         the PATH ptcd is started with, or write 'sandbox: auto'",
        names.join(" or ")
    )
}

/// Engines are installed, and none answers.
pub(super) fn engine_silent(silent: &[(&str, String)]) -> String {
    let list: Vec<String> = silent
        .iter()
        .map(|(name, words)| format!("{name} does not answer ({})", one_line(words)))
        .collect();
    format!(
        "cannot confine programs: {}; start it, let this user use it, or write 'sandbox: auto'",
        list.join("; ")
    )
}

/// The image is not on the machine.
pub(super) fn image_missing(engine: &str, image: &str, words: &str) -> String {
    format!(
        "cannot confine programs: {engine} has no image {image} ({}); ptcd never fetches one, so run \
         '{engine} pull {image}'",
        one_line(words)
    )
}

/// The image's Python is too old.
pub(super) fn image_too_old(image: &str, version: &str) -> String {
    format!(
        "cannot run programs: the Python of {image} is {version}; name in execution.container.image an image with \
         CPython 3.11 or later, or in execution.python another interpreter inside it"
    )
}

/// The engine does not start a worker, or not one that is confined.
pub(super) fn engine_fails(engine: &str, words: &str) -> String {
    format!(
        "cannot confine programs: a test worker could not be made by {engine}: {}; mend what it names (the image \
         needs python3 with ctypes, the engine must allow limits and a seccomp profile), or write 'sandbox: auto'",
        one_line(words)
    )
}

/// The folder for a tier's files cannot be used.
pub(super) fn folder_unusable(folder: &Path, error: &io::Error) -> String {
    format!(
        "cannot confine programs: what this tier needs cannot be kept in {}: {error}; make that folder writable",
        folder.display()
    )
}

/// There is no folder for a tier's files.
pub(super) fn no_folder() -> String {
    "cannot confine programs: there is no state folder for what this tier needs; start ptcd with one".to_owned()
}

/// Another program's words, short and on one line.
fn one_line(words: &str) -> String {
    const MOST: usize = 400;
    let joined = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let over = joined.chars().count().saturating_sub(MOST);
    let mut text: String = joined.chars().skip(over).collect();
    if over > 0 {
        text.insert(0, '…');
    }
    text
}

fn with_word_of_none(text: &str) -> String {
    format!("{text}; 'sandbox: none' runs programs without any confinement")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_landlock_has_its_own_cause_and_remedy() {
        let error = |code| Err(io::Error::from_raw_os_error(code));
        let texts: BTreeSet<String> = [Ok(1), error(95), error(38), error(1)]
            .iter()
            .map(|found| landlock(found, 3))
            .collect();
        assert_eq!(texts.len(), 4);
        for text in texts {
            assert!(text.starts_with("cannot confine programs: "), "{text}");
            assert!(text.ends_with("without any confinement"), "{text}");
        }
    }
}
