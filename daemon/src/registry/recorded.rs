//! Prepares a call that goes to a recording, whose tool need not be there any more.

use std::sync::Arc;

use ptc_protocol::run::ToolErrorKind;

use super::error::ToolError;
use super::prepare::{PreparedCall, prepare};
use super::table::entry;
use crate::config::ToolFilter;
use crate::downstream::ToolDefinition;
use crate::downstream::json::{self, Duplicates};
use crate::policy::Policy;

/// A call with these arguments, read as every call's are, and checked against no schema.
///
/// # Errors
/// As the program gets them.
pub fn recorded(callable: &str, server: &str, arguments: &str) -> Result<PreparedCall, ToolError> {
    let definition = ToolDefinition {
        name: callable.to_owned(),
        title: None,
        description: None,
        input_schema: None,
        output_schema: None,
        annotations: None,
    };
    let policy = Policy::new(&ToolFilter::All).map_err(|error| {
        let message = format!("{callable} cannot be repeated: {error}");
        ToolError::new(ToolErrorKind::Unavailable, message).of(callable, server)
    })?;
    prepare(
        &Arc::new(entry(callable, server, &definition, &policy)),
        arguments,
        false,
    )
}

/// Whether two JSON texts are the same data, however their numbers are written; texts that are none are compared
/// as texts, and one that was cut where it was recorded by its beginning.
pub fn same_data(recorded: &str, now: &str) -> bool {
    if recorded == now {
        return true;
    }
    let read = |text| json::read(text, Duplicates::Refuse).ok();
    match (read(recorded), read(now)) {
        (Some(a), Some(b)) => json::same(&a, &b),
        (None, _) => !recorded.is_empty() && now.starts_with(recorded),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_data_is_told_from_other_data() {
        assert!(same_data(r#"{"a":3,"b":[1.0]}"#, r#"{"b":[1],"a":3.0}"#));
        assert!(!same_data(r#"{"a":3}"#, r#"{"a":4}"#));
        assert!(!same_data(r#"{"a":3}"#, r#"{"a":"3"}"#));
        assert!(same_data(r#"{"a":"xx"#, r#"{"a":"xxx"}"#));
        assert!(!same_data("", "{}"));
    }

    #[test]
    fn a_recorded_call_keeps_its_arguments_and_refuses_what_every_call_refuses() {
        let call = recorded("mcp__a__b", "a", r#"{"x": 12345678901234567890}"#).unwrap();
        assert_eq!(&*call.encoded, r#"{"x":12345678901234567890}"#);
        assert_eq!(
            (call.name.as_str(), call.server.as_str()),
            ("mcp__a__b", "a")
        );
        let error = recorded("mcp__a__b", "a", r#"{"x":1,"x":2}"#).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::InvalidArguments);
    }
}
