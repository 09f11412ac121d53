//! Which tier a configured choice means on this machine, or why none.

use ptc_protocol::run::Confinement;

use super::refusal;
use crate::config::SandboxChoice;

/// The tiers to be proved, the strongest first, or the text of a refusal. None is weaker than what was asked for.
pub(super) fn choose(choice: SandboxChoice) -> Result<Vec<Confinement>, String> {
    match choice {
        SandboxChoice::Auto => Ok(vec![Confinement::Full, Confinement::Landlock]),
        SandboxChoice::Native | SandboxChoice::Full => Ok(vec![Confinement::Full]),
        SandboxChoice::Landlock => Ok(vec![Confinement::Landlock]),
        SandboxChoice::None => Ok(vec![Confinement::None]),
        SandboxChoice::Seatbelt => Err(refusal::seatbelt_elsewhere()),
        SandboxChoice::Container => Ok(vec![Confinement::Container]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused_and_never_weakened() {
        let text = choose(SandboxChoice::Seatbelt).unwrap_err();
        assert!(text.contains("seatbelt"), "{text}");
        assert!(text.contains("sandbox: auto"), "{text}");
        for (choice, tiers) in [
            (
                SandboxChoice::Auto,
                &[Confinement::Full, Confinement::Landlock][..],
            ),
            (SandboxChoice::Native, &[Confinement::Full]),
            (SandboxChoice::Full, &[Confinement::Full]),
            (SandboxChoice::Landlock, &[Confinement::Landlock]),
            (SandboxChoice::Container, &[Confinement::Container]),
            (SandboxChoice::None, &[Confinement::None]),
        ] {
            assert_eq!(choose(choice).as_deref(), Ok(tiers));
        }
    }
}
