//! Works out which files, folders and links an interpreter has to see to run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::root::RootPlan;

/// Links followed on the way to one file.
const MOST_LINKS: usize = 40;

/// The root for an interpreter that needs `paths`, files and folders by the names it looks them up by; the folders
/// `hide` in these are emptied. Links are made as they are on the machine.
pub(super) fn plan(paths: &[PathBuf], hide: Vec<PathBuf>) -> RootPlan {
    let mut links = BTreeMap::new();
    let mut show = BTreeSet::new();
    for path in paths {
        // What is not there need not be seen.
        if let Some((real, followed)) = trace(path) {
            show.insert(real);
            links.extend(followed);
        }
    }
    link_top(&show, &mut links);
    link_neighbours(&show, &mut links);
    // What lies in a folder that is shown is seen already.
    let inner = |path: &PathBuf| path.ancestors().skip(1).any(|above| show.contains(above));
    RootPlan {
        show: show.iter().filter(|path| !inner(path)).cloned().collect(),
        hide,
        links: links.into_iter().filter(|(link, _)| !inner(link)).collect(),
    }
}

/// Follows a path as the kernel would: where it leads, and each link on the way with what it says.
fn trace(path: &Path) -> Option<(PathBuf, Vec<(PathBuf, PathBuf)>)> {
    let mut rest: Vec<PathBuf> = vec![path.to_owned()];
    let mut real = PathBuf::from("/");
    let mut links = Vec::new();
    while let Some(next) = rest.pop() {
        let mut parts = next.components();
        let Some(part) = parts.next() else {
            continue;
        };
        let behind = parts.as_path();
        if behind != Path::new("") {
            rest.push(behind.to_owned());
        }
        match part {
            Component::RootDir => real = PathBuf::from("/"),
            Component::ParentDir => {
                real.pop();
            }
            Component::Normal(name) => {
                let at = real.join(name);
                let found = fs::symlink_metadata(&at).ok()?;
                if found.is_symlink() {
                    if links.len() == MOST_LINKS {
                        return None;
                    }
                    let target = fs::read_link(&at).ok()?;
                    rest.push(target.clone());
                    links.push((at, target));
                } else {
                    real = at;
                }
            }
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some((real, links))
}

/// Notes links near the root, such as /lib, that lead to a folder above something that is shown: the loader's cache
/// and the interpreter name libraries by them.
fn link_top(show: &BTreeSet<PathBuf>, links: &mut BTreeMap<PathBuf, PathBuf>) {
    for folder in ["/", "/usr"] {
        for (link, target) in links_in(Path::new(folder)) {
            let Ok(real) = link.canonicalize() else {
                continue;
            };
            if real != Path::new("/") && show.iter().any(|path| path.starts_with(&real)) {
                links.insert(link, target);
            }
        }
    }
}

/// Notes links beside a file that lead to it: a library is looked up by a shorter name than its own.
fn link_neighbours(show: &BTreeSet<PathBuf>, links: &mut BTreeMap<PathBuf, PathBuf>) {
    let folders: BTreeSet<&Path> = show
        .iter()
        .filter(|path| !path.is_dir())
        .filter_map(|path| path.parent())
        .collect();
    for folder in folders {
        for (link, target) in links_in(folder) {
            if link.canonicalize().is_ok_and(|real| show.contains(&real)) {
                links.insert(link, target);
            }
        }
    }
}

/// The links of a folder and what they say.
fn links_in(folder: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        if !entry.file_type().ok()?.is_symlink() {
            return None;
        }
        let path = entry.path();
        let target = fs::read_link(&path).ok()?;
        Some((path, target))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_on_the_way_and_beside_are_kept_and_what_is_inside_is_not_shown_twice() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let at = |name: &str| base.join(name);
        fs::create_dir_all(at("real/lib/site-packages")).unwrap();
        fs::create_dir(at("bin")).unwrap();
        fs::write(at("bin/lib.so.1.2"), "").unwrap();
        fs::write(at("bin/other"), "").unwrap();
        fs::write(at("real/lib/os.py"), "").unwrap();
        symlink("lib.so.1.2", at("bin/lib.so.1")).unwrap();
        symlink("other", at("bin/unrelated")).unwrap();
        symlink("real", at("named")).unwrap();
        symlink("nowhere", at("broken")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let plan = plan(
            &[
                at("bin/lib.so.1.2"),
                at("named/lib/os.py"),
                at("broken"),
                at("loop"),
                at("named/lib"),
            ],
            vec![at("real/lib/site-packages")],
        );
        assert_eq!(plan.show, [at("bin/lib.so.1.2"), at("real/lib")]);
        assert_eq!(plan.hide, [at("real/lib/site-packages")]);
        let links: Vec<_> = plan
            .links
            .iter()
            .filter(|(link, _)| link.starts_with(&base))
            .cloned()
            .collect();
        let pair = |link: &str, target: &str| (at(link), PathBuf::from(target));
        assert_eq!(
            links,
            [pair("bin/lib.so.1", "lib.so.1.2"), pair("named", "real"),]
        );
    }
}
