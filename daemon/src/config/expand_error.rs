//! Says why a server's texts cannot be expanded, and what to do about it.

use std::fmt::Write as _;

use ptc_protocol::Unsendable;

/// Why a server's texts cannot be expanded now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// Variables without a default that neither the recorded environment nor a client has.
    #[error("{}", missing(.names, .own, .unsendable))]
    Missing {
        /// Their names, sorted.
        names: Vec<String>,
        /// Those of them that no client can send, because a text other than `env` and `headers` needs them.
        own: Vec<String>,
        /// Those of them that a client has and could not send.
        unsendable: Vec<(String, Unsendable)>,
    },
    /// `${project}` without a project.
    #[error("no client has named a project folder for ${{project}}")]
    NoProject,
    /// A text that [`super::parse`] would have refused.
    #[error("{key}: malformed reference to a variable")]
    Malformed {
        /// The key of the text.
        key: String,
    },
}

fn missing(names: &[String], own: &[String], unsendable: &[(String, Unsendable)]) -> String {
    let held = |name: &String| {
        !own.contains(name) && unsendable.iter().any(|(unsendable, _)| unsendable == name)
    };
    let unset: Vec<String> = names.iter().filter(|name| !held(name)).cloned().collect();
    let mut text = String::new();
    if !unset.is_empty() {
        let (what, remedy) = (named(&unset), remedy(&unset, own));
        let _ = write!(text, "environment {what} not set: {remedy}");
    }
    let left = |name: &String| names.contains(name) && held(name);
    for (name, why) in unsendable.iter().filter(|(name, _)| left(name)) {
        if !text.is_empty() {
            text.push_str("; ");
        }
        let _ = write!(
            text,
            "environment variable ${{{name}}} is set in a client's environment and cannot be sent: {why}; give it a \
             value that can be, or start `ptcd serve` with it set"
        );
    }
    text
}

fn named(names: &[String]) -> String {
    let list: Vec<_> = names.iter().map(|name| format!("${{{name}}}")).collect();
    match list.len() {
        1 => format!("variable {} is", list.join("")),
        _ => format!("variables {} are", list.join(", ")),
    }
}

fn remedy(names: &[String], own: &[String]) -> String {
    let it = if names.len() == 1 { "it" } else { "them" };
    if own.is_empty() {
        return format!("start a client that has {it} in its environment");
    }
    format!(
        "clients send variables for env and headers only; move {} there, or start `ptcd serve` with {it} set",
        own.iter()
            .map(|name| format!("${{{name}}}"))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_be_sent_is_not_called_unset() {
        let error = |names: &[&str], own: &[&str]| {
            let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            ExpandError::Missing {
                names: texts(names),
                own: texts(own),
                unsendable: vec![
                    ("A".to_owned(), Unsendable::TooLong),
                    ("Z".to_owned(), Unsendable::NotText),
                ],
            }
            .to_string()
        };
        let long = "environment variable ${A} is set in a client's environment and cannot be sent: it is longer than \
                    32768 bytes; give it a value that can be, or start `ptcd serve` with it set";
        assert_eq!(error(&["A"], &[]), long);
        let unset =
            "environment variable ${B} is not set: start a client that has it in its environment";
        assert_eq!(error(&["A", "B"], &[]), format!("{unset}; {long}"));
        // What no client may send anyway is nobody's fault.
        assert!(
            error(&["A"], &["A"]).starts_with("environment variable ${A} is not set: clients send")
        );
    }
}
