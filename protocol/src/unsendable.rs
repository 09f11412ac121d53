//! Says in the line of variables why the value of one is not in it.

use std::fmt;

use crate::{MAX_HANDSHAKE_BYTES, MAX_VARIABLE_BYTES};

/// Why a shim that has a variable does not send its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsendable {
    /// It is longer than [`MAX_VARIABLE_BYTES`].
    TooLong,
    /// It is not UTF-8.
    NotText,
    /// The values before it have filled the line, which is at most [`MAX_HANDSHAKE_BYTES`].
    NoRoom,
    /// It holds a NUL, which no process can be given.
    Nul,
}

impl Unsendable {
    /// The key under which [`crate::Vars`] tells of the variable `name`: no variable's own name is like it, so a
    /// daemon that does not know such keys passes over them.
    pub fn key(name: &str) -> String {
        format!("!{name}")
    }

    /// The word that stands for it in [`crate::Vars`].
    pub fn word(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::NotText => "not_text",
            Self::NoRoom => "no_room",
            Self::Nul => "nul",
        }
    }

    /// What a word stands for.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::TooLong, Self::NotText, Self::NoRoom, Self::Nul]
            .into_iter()
            .find(|why| why.word() == word)
    }
}

impl fmt::Display for Unsendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "it is longer than {MAX_VARIABLE_BYTES} bytes"),
            Self::NotText => f.write_str("it is not UTF-8 text"),
            Self::NoRoom => write!(
                f,
                "together with others it is longer than {MAX_HANDSHAKE_BYTES} bytes"
            ),
            Self::Nul => f.write_str("it holds a NUL"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_word_of_its_own_under_a_key_that_is_no_variables_name() {
        for why in [
            Unsendable::TooLong,
            Unsendable::NotText,
            Unsendable::NoRoom,
            Unsendable::Nul,
        ] {
            assert_eq!(Unsendable::of_word(why.word()), Some(why));
        }
        assert_eq!(Unsendable::of_word("other"), None);
        assert!(!crate::is_variable_name(&Unsendable::key("A")));
    }
}
