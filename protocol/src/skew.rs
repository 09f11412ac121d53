//! Tells whether two builds can talk, and which of them is the newer.

/// The newest handshake revision that both sides speak, each given as oldest and newest.
pub fn agree(ours: [u32; 2], theirs: [u32; 2]) -> Option<u32> {
    let oldest = ours[0].max(theirs[0]);
    let newest = ours[1].min(theirs[1]);
    (oldest <= newest).then_some(newest)
}

/// Whether one build came before another; false for what cannot be compared.
///
/// The three numbers count. What follows them, as in `1.2.0-rc.1`, says nothing of the order here:
/// for a build that may be as new as ours nobody is asked to restart.
pub fn is_older(build: &str, than: &str) -> bool {
    matches!((numbers(build), numbers(than)), (Some(one), Some(other)) if one < other)
}

fn numbers(build: &str) -> Option<[u64; 3]> {
    let end = build.find(['-', '+']).unwrap_or(build.len());
    let mut parts = build.get(..end)?.split('.').map(str::parse);
    let numbers = [parts.next()?, parts.next()?, parts.next()?];
    let [Ok(major), Ok(minor), Ok(patch)] = numbers else {
        return None;
    };
    parts.next().is_none().then_some([major, minor, patch])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_talks_with_those_one_revision_away_and_no_others() {
        // Each build speaks its own revision and the one before.
        let speaks = |newest: u32| [newest.saturating_sub(1).max(1), newest];
        assert_eq!(agree(speaks(5), speaks(5)), Some(5));
        assert_eq!(agree(speaks(5), speaks(4)), Some(4));
        assert_eq!(agree(speaks(4), speaks(5)), Some(4));
        assert_eq!(agree(speaks(5), speaks(3)), None);
        assert_eq!(agree(speaks(3), speaks(5)), None);
        assert_eq!(agree(speaks(1), speaks(2)), Some(1));
        // A range that is none.
        assert_eq!(agree(speaks(1), [9, 0]), None);
    }

    #[test]
    fn builds_are_ordered_by_their_numbers() {
        for (build, than) in [
            ("0.1.9", "0.1.10"),
            ("0.9.0", "1.0.0"),
            ("1.2.2-rc.1", "1.2.3"),
        ] {
            assert!(is_older(build, than), "{build} {than}");
            assert!(!is_older(than, build), "{than} {build}");
        }
        for (build, than) in [
            ("1.2.3", "1.2.3"),
            ("1.2.3-rc.1", "1.2.3"),
            ("", "1.0.0"),
            ("1.0", "2.0.0"),
            ("1.0.0.0", "2.0.0"),
            ("nightly", "2.0.0"),
        ] {
            assert!(!is_older(build, than), "{build} {than}");
        }
    }
}
