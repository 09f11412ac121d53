//! Restricts a worker's files, TCP ports, signals and abstract sockets with Landlock.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Below it, a file that is only readable can still be emptied.
pub(super) const LEAST_ABI: i32 = 3;

/// What a worker may reach beside its scratch folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Reach {
    /// Folders whose entries may be listed, at any depth, but not read.
    pub(super) list: Vec<PathBuf>,
    /// Files, and folders with all that is in them, that may be read.
    pub(super) read: Vec<PathBuf>,
    /// Files that may be run.
    pub(super) execute: Vec<PathBuf>,
}

impl Reach {
    /// The form in which it travels to the warden.
    pub(super) fn to_json(&self) -> Value {
        // A path that is no UTF-8 would arrive as another one; it is left out, which grants less.
        let texts = |paths: &[PathBuf]| -> Vec<String> {
            paths
                .iter()
                .filter_map(|path| path.to_str().map(str::to_owned))
                .collect()
        };
        json!({"list": texts(&self.list), "read": texts(&self.read), "execute": texts(&self.execute)})
    }
}

/// Confines this process and everything it becomes to `reach` and `scratch`.
pub(super) fn restrict(reach: &Reach, scratch: &Path) -> io::Result<()> {
    let abi = super::sys::landlock_abi()?;
    if abi < LEAST_ABI {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let abi = ABI::from(abi);
    let everything = AccessFs::from_all(abi);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(everything)
        .map_err(io::Error::other)?;
    if abi >= ABI::V4 {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(abi))
            .map_err(io::Error::other)?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset
            .scope(Scope::from_all(abi))
            .map_err(io::Error::other)?;
    }
    let mut created = ruleset.create().map_err(io::Error::other)?;
    let mut grant = |path: &Path, access: BitFlags<AccessFs>, needed: bool| -> io::Result<()> {
        // A path that has gone grants nothing.
        let Ok(file) = PathFd::new(path) else {
            if needed {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            return Ok(());
        };
        let kind = rustix::fs::fstat(&file)?;
        let folder = rustix::fs::FileType::from_raw_mode(kind.st_mode).is_dir();
        let access = if folder {
            access
        } else {
            access & AccessFs::from_file(abi)
        };
        (&mut created)
            .add_rule(PathBeneath::new(file, access))
            .map(|_| ())
            .map_err(io::Error::other)
    };
    for path in &reach.list {
        grant(path, AccessFs::ReadDir.into(), false)?;
    }
    for path in &reach.read {
        grant(path, AccessFs::ReadFile | AccessFs::ReadDir, false)?;
    }
    for path in &reach.execute {
        grant(path, AccessFs::ReadFile | AccessFs::Execute, true)?;
    }
    grant(
        Path::new("/dev/null"),
        AccessFs::ReadFile | AccessFs::WriteFile,
        true,
    )?;
    grant(scratch, in_scratch(everything), true)?;
    let status = created.restrict_self().map_err(io::Error::other)?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(())
}

/// Everything, but no programs, sockets, pipes, devices, or commands to devices.
fn in_scratch(everything: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    everything
        & !(AccessFs::Execute
            | AccessFs::MakeSock
            | AccessFs::MakeFifo
            | AccessFs::MakeChar
            | AccessFs::MakeBlock
            | AccessFs::IoctlDev)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_survives_the_way_to_the_warden() {
        let reach = Reach {
            list: vec!["/a b".into()],
            read: vec!["/c\n".into()],
            execute: vec!["/d".into()],
        };
        let text = reach.to_json().to_string();
        assert_eq!(serde_json::from_str::<Reach>(&text).unwrap(), reach);
    }

    #[test]
    fn scratch_grants_no_programs_and_no_special_files() {
        let granted = in_scratch(AccessFs::from_all(ABI::V7));
        assert!(granted.contains(AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::Truncate));
        assert!(!granted.intersects(AccessFs::Execute | AccessFs::MakeSock | AccessFs::MakeFifo));
    }
}
