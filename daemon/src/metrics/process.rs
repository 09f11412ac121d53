//! Asks the system what a process of the daemon's takes.

use std::path::Path;

use ptc_protocol::status::ProcessFigures;

/// What this process takes. It reads its own figures, since it lets no other process look into it.
pub fn own() -> ProcessFigures {
    let pid = std::process::id();
    if cfg!(target_os = "linux") {
        return figures(pid, Path::new("/proc/self"));
    }
    ProcessFigures {
        pid,
        open_fds: entries(Path::new("/dev/fd")),
        ..ProcessFigures::default()
    }
}

/// What another process takes, as far as it lets this one see.
pub fn of(pid: u32) -> ProcessFigures {
    figures(pid, Path::new(&format!("/proc/{pid}")))
}

fn figures(pid: u32, folder: &Path) -> ProcessFigures {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let rollup = read("smaps_rollup").unwrap_or_default();
    let exact = kib(&rollup, "Rss:");
    let bytes = |kib: u64| kib.saturating_mul(1024);
    ProcessFigures {
        pid,
        open_fds: entries(&folder.join("fd")),
        // Where another process's map is closed to this one, its status is not.
        rss_bytes: exact.or_else(|| kib(&read("status")?, "VmRSS:")).map(bytes),
        pss_bytes: kib(&rollup, "Pss:").map(bytes),
    }
}

/// Entries of a folder of descriptors, without the one by which it is read.
fn entries(folder: &Path) -> Option<u64> {
    let count = std::fs::read_dir(folder).ok()?.flatten().count() as u64;
    Some(
        if folder.starts_with("/proc/self") || folder.starts_with("/dev") {
            count.saturating_sub(1)
        } else {
            count
        },
    )
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_texts_are_read() {
        let rollup = "00400000-7fff rollup\nRss:   900 kB\nPss:   417 kB\nPss_Dirty: 3 kB\n";
        assert_eq!(
            (kib(rollup, "Rss:"), kib(rollup, "Pss:")),
            (Some(900), Some(417))
        );
        assert_eq!((kib("", "Pss:"), kib("Pss: x", "Pss:")), (None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_open_file_is_one_descriptor_more() {
        let figures = own();
        assert_eq!(figures.pid, std::process::id());
        assert!(figures.rss_bytes > Some(1024 * 1024), "{figures:?}");
        assert!(figures.pss_bytes <= figures.rss_bytes && figures.pss_bytes.is_some());
        // Other tests of this process open files meanwhile; a hundred stand out.
        let files: Vec<_> = (0..500)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        let more = own().open_fds.unwrap();
        assert!(more >= figures.open_fds.unwrap() + 250, "{more}");
        drop(files);
        let gone = of(u32::MAX);
        assert_eq!(
            (gone.open_fds, gone.rss_bytes, gone.pss_bytes),
            (None, None, None)
        );
    }
}
