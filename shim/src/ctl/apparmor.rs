//! `ptcctl doctor --apparmor`: a profile that lets ptcd make user namespaces.

use std::path::Path;

/// Where the profile is to be put.
const PLACE: &str = "/etc/apparmor.d/ptcd";
/// What stands for more than itself in the paths of a profile.
const SPECIAL: [char; 9] = ['\\', '*', '?', '[', ']', '{', '}', '^', '"'];

/// The profile for a program, with what to do with it. None where a path cannot be written in one.
pub(super) fn profile(program: &Path) -> Option<String> {
    let path = pattern(program)?;
    Some(format!(
        "# Lets ptcd make user namespaces, which Ubuntu keeps from programs without a profile since 23.10
# (kernel.apparmor_restrict_unprivileged_userns). ptcd confines programs with them; it gets nothing else by this.
#
# Put it into {PLACE} and load it, then start ptcd again:
#   ptcctl doctor --apparmor | sudo tee {PLACE} >/dev/null
#   sudo apparmor_parser -r {PLACE}
#   ptcctl restart
# It names the program by its path: print it anew where ptcd moves.

abi <abi/4.0>,
include <tunables/global>

profile ptcd {path} flags=(unconfined) {{
  userns,

  include if exists <local/ptcd>
}}
"
    ))
}

/// A path as a profile writes one that stands for itself alone.
fn pattern(program: &Path) -> Option<String> {
    let text = program.to_str().filter(|text| text.starts_with('/'))?;
    if text.chars().any(char::is_control) {
        return None;
    }
    let mut pattern = String::from('"');
    for c in text.chars() {
        if SPECIAL.contains(&c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('"');
    Some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_allows_user_namespaces_to_one_program_and_says_how_it_is_loaded() {
        let text = profile(Path::new("/opt/ptc/bin/ptcd")).unwrap();
        assert_eq!(text, include_str!("apparmor.golden"));
    }

    #[test]
    fn a_path_stands_for_itself_alone() {
        for (path, written) in [
            (
                "/home/me/my tools/ptcd",
                Some(r#""/home/me/my tools/ptcd""#),
            ),
            (r#"/a*b{c,d}"e/ptcd"#, Some(r#""/a\*b\{c,d\}\"e/ptcd""#)),
            (r"/a\b/@{HOME}/ptcd", Some(r#""/a\\b/@\{HOME\}/ptcd""#)),
            ("/a\nprofile b /** {}/ptcd", None),
            ("ptcd", None),
        ] {
            assert_eq!(pattern(Path::new(path)).as_deref(), written, "{path}");
        }
    }
}
