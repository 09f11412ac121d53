//! `${VAR}` in the texts of a server: the references of one text.
//!
//! `${NAME}` and `${NAME:-default}` are references; braces in a default are
//! matched, and a default may hold references. Any other dollar is itself.
//! `${` that begins no reference is a fault of the file, so that a slip never
//! reaches a server as text.

use std::collections::BTreeMap;

use ptc_protocol::is_variable_name;

/// Deepest nesting of defaults.
const MAX_DEPTH: usize = 8;
/// The reference that stands for the project folder of a client.
const PROJECT: &str = "project";

/// Why a text holds no valid references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    #[error("`${{` without its `}}`; a text that needs `${{` itself must come from a variable")]
    Open,
    #[error(
        "a reference is `${{NAME}}` or `${{NAME:-default}}`, its name of letters, digits and _"
    )]
    Form,
    #[error("`${{project}}` takes no default")]
    ProjectDefault,
    #[error("defaults are nested more than {MAX_DEPTH} deep")]
    Depth,
}

/// A text with its references found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template(pub(super) Vec<Part>);

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Itself.
    Text(String),
    /// `${name}` or `${name:-default}`.
    Variable {
        name: String,
        default: Option<Template>,
    },
    /// `${project}`.
    Project,
}

impl Template {
    /// Finds the references of a text.
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::parse_at(text, 0)
    }

    fn parse_at(text: &str, depth: usize) -> Result<Self, TemplateError> {
        if depth > MAX_DEPTH {
            return Err(TemplateError::Depth);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let (inner, after) = closing(after).ok_or(TemplateError::Open)?;
            parts.push(reference(inner, depth)?);
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Whether `${project}` occurs.
    pub(super) fn uses_project(&self) -> bool {
        self.0.iter().any(|part| match part {
            Part::Project => true,
            Part::Variable { default, .. } => default.as_ref().is_some_and(Self::uses_project),
            Part::Text(_) => false,
        })
    }

    /// Every variable, with whether it has a default here.
    pub(super) fn names(&self, names: &mut BTreeMap<String, bool>) {
        for part in &self.0 {
            if let Part::Variable { name, default } = part {
                let always = names.entry(name.clone()).or_insert(true);
                *always &= default.is_some();
                if let Some(default) = default {
                    default.names(names);
                }
            }
        }
    }
}

/// Splits after a `${` at the brace that closes it.
fn closing(text: &str) -> Option<(&str, &str)> {
    let mut open = 1usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some((text.get(..at)?, text.get(at + 1..)?));
        }
    }
    None
}

fn reference(inner: &str, depth: usize) -> Result<Part, TemplateError> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_variable_name(name) {
        return Err(TemplateError::Form);
    }
    if name == PROJECT {
        return match default {
            None => Ok(Part::Project),
            Some(_) => Err(TemplateError::ProjectDefault),
        };
    }
    Ok(Part::Variable {
        name: name.to_owned(),
        default: default
            .map(|text| Template::parse_at(text, depth + 1))
            .transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    fn variable(name: &str, default: Option<Vec<Part>>) -> Part {
        Part::Variable {
            name: name.to_owned(),
            default: default.map(Template),
        }
    }

    #[test]
    fn references_are_found_and_other_dollars_are_themselves() {
        for (input, parts) in [
            ("", vec![]),
            (
                "pa$word 5$ $$x $(y) $z{",
                vec![text("pa$word 5$ $$x $(y) $z{")],
            ),
            ("a${B}c", vec![text("a"), variable("B", None), text("c")]),
            ("$${B}", vec![text("$"), variable("B", None)]),
            ("${B:-}", vec![variable("B", Some(vec![]))]),
            ("${B:-x:-y}", vec![variable("B", Some(vec![text("x:-y")]))]),
            (
                "${B:-{\"k\": {}}}}",
                vec![variable("B", Some(vec![text("{\"k\": {}}")])), text("}")],
            ),
            (
                "${B:-${C:-d}e}",
                vec![variable(
                    "B",
                    Some(vec![variable("C", Some(vec![text("d")])), text("e")]),
                )],
            ),
            ("${project}/x", vec![Part::Project, text("/x")]),
        ] {
            assert_eq!(Template::parse(input).unwrap(), Template(parts), "{input}");
        }
    }

    #[test]
    fn malformed_references_are_errors() {
        for (input, error) in [
            ("a${", TemplateError::Open),
            ("${A", TemplateError::Open),
            ("${A:-{}", TemplateError::Open),
            ("${}", TemplateError::Form),
            ("${1BAD}", TemplateError::Form),
            ("${A-b}", TemplateError::Form),
            ("${A:b}", TemplateError::Form),
            ("${ A }", TemplateError::Form),
            ("${Ä}", TemplateError::Form),
            ("${A:-${}}", TemplateError::Form),
            ("${project:-x}", TemplateError::ProjectDefault),
        ] {
            assert_eq!(Template::parse(input).unwrap_err(), error, "{input}");
        }
        let deep = format!("{}x{}", "${A:-".repeat(20), "}".repeat(20));
        assert_eq!(Template::parse(&deep).unwrap_err(), TemplateError::Depth);
    }

    proptest! {
        #[test]
        fn no_text_is_lost(input in "[a${}:\\-]{0,24}") {
            if let Ok(template) = Template::parse(&input) {
                prop_assert_eq!(written(&template), input);
            }
        }
    }

    fn written(template: &Template) -> String {
        let parts = template.0.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Project => "${project}".to_owned(),
            Part::Variable { name, default } => match default {
                None => format!("${{{name}}}"),
                Some(default) => format!("${{{name}:-{}}}", written(default)),
            },
        });
        parts.collect()
    }
}
