//! What a program may read it may not change, even where nothing but the confinement stands in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use libtest_mimic::{Failed, Trial};
use ptc_protocol::run::Confinement;
use ptcd::config::SandboxChoice;
use ptcd::sandbox::testing::Without;

use crate::attempt::Expect;
use crate::lab::{RUNTIME, ask, end, ground, lack_of_full, run};

/// Ways to change a file that everybody may write, as far as its mode says.
const CHANGES: [&str; 7] = [
    "os.close(os.open(p, os.O_RDONLY | os.O_TRUNC))",
    "os.truncate(p, 0)",
    "open(p, 'a').close()",
    "os.rename(p, p + '2')",
    "os.unlink(p)",
    "open(os.path.dirname(p) + '/new', 'w').close()",
    "import mmap; f = os.open(p, os.O_RDWR); mmap.mmap(f, 1)[0] = 65",
];

fn what_is_shown_is_not_changed() -> Result<(), Failed> {
    let folder = tempfile::Builder::new()
        .prefix("ptc-shown-")
        .tempdir_in("/var/tmp")?;
    let file = folder.path().join("file");
    let restore = || -> std::io::Result<()> {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        fs::write(&file, "text")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666))
    };
    restore()?;
    let shown = Without {
        shown: vec![folder.path().to_owned()],
        ..Without::default()
    };
    let full = lack_of_full().is_none().then_some(Confinement::Full);
    for tier in [Some(Confinement::Landlock), full].into_iter().flatten() {
        let weak = RUNTIME.block_on(ground().unproved(tier, &shown))?;
        for change in CHANGES {
            let program = format!(
                "p = {:?}\nbefore = open(p).read()\n{change}",
                file.to_str().ok_or("no text")?
            );
            let worker = RUNTIME
                .block_on(weak.spawn())
                .map_err(|error| error.to_string())?;
            let answer = ask(&worker, &program);
            let outcome = end(worker, answer);
            Expect::Errno(&[libc::EACCES, libc::EROFS, libc::EPERM])
                .check(outcome.answer())
                .map_err(|error| format!("{tier:?}: {change}: {error:?}"))?;
            assert_eq!(fs::read_to_string(&file)?, "text", "{change}");
            // Unconfined it does what it says.
            let control = run(SandboxChoice::None, &program);
            Expect::Succeeds
                .check(control.answer())
                .map_err(|error| format!("{change}: {error:?}"))?;
            for left in fs::read_dir(folder.path())? {
                fs::remove_file(left?.path())?;
            }
            restore()?;
        }
    }
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    vec![Trial::test(
        "shown::what_may_be_read_is_not_changed",
        what_is_shown_is_not_changed,
    )]
}
