//! Says what of a value does not fit a schema, and what to write instead.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::types::JsonType;
use serde_json::{Value, json};

use super::near::near;
use super::schema::cut;
use crate::downstream::json::is_integer_text;
use crate::downstream::result::kind_of;

/// Longest value that a message shows, in characters.
pub(super) const MAX_SHOWN_CHARS: usize = 60;
/// Longest description of what is required, in characters.
pub(super) const MAX_REQUIRED_CHARS: usize = 200;
/// What is required of a value whose schema says nothing of its type.
const ANY_VALUE: &str = "a value";

/// One thing that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Where, such as `root.kids[0].v`; empty for the value itself.
    path: String,
    /// What is there.
    found: String,
    /// What the schema asks for.
    required: String,
    /// The known name or choice that may have been meant.
    nearest: Option<String>,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Missing {
        name: String,
        /// What is given that asks for it, such as `kind "user"`.
        because: Option<String>,
    },
    Unknown {
        /// The names there are, in a sentence; empty where there are none.
        known: String,
    },
    Unfit {
        /// What goes behind "must".
        must: String,
        /// What to write instead.
        repair: Option<String>,
    },
}

impl Problem {
    /// A required member that is not there; `stranger` is a given name it may be a misspelling of.
    pub(super) fn missing(
        path: String,
        name: &str,
        schema: Option<&Value>,
        stranger: Option<String>,
        because: Option<String>,
    ) -> Self {
        let required = schema
            .and_then(|schema| match schema.get("type")? {
                Value::String(one) => Some(one.clone()),
                Value::Array(many) => {
                    let names: Vec<&str> = many.iter().filter_map(Value::as_str).collect();
                    Some(names.join(" or "))
                }
                _ => None,
            })
            .map_or_else(
                || ANY_VALUE.to_owned(),
                |kinds| cut(&kinds, MAX_REQUIRED_CHARS),
            );
        Self {
            path,
            found: "missing".to_owned(),
            required,
            nearest: stranger,
            fault: Fault::Missing {
                name: cut(name, MAX_SHOWN_CHARS),
                because,
            },
        }
    }

    /// A member the schema has no place for, which has one for `known` names and for those that match a pattern;
    /// `meant` is the known name that it may be a misspelling of.
    pub(super) fn unknown(
        path: String,
        known: &[&str],
        patterns: &[&str],
        meant: Option<String>,
    ) -> Self {
        let patterns = match patterns {
            [] => String::new(),
            some => format!("names that match {}", some.join(" or ")),
        };
        let mut names = cut(&known.join(", "), MAX_REQUIRED_CHARS);
        if !patterns.is_empty() {
            let patterns = cut(&patterns, MAX_REQUIRED_CHARS);
            names = match names.as_str() {
                "" => patterns,
                names => format!("{names} or {patterns}"),
            };
        }
        Self {
            path,
            found: "a name the schema does not have".to_owned(),
            required: if names.is_empty() {
                "no further names".to_owned()
            } else {
                format!("one of {names}")
            },
            nearest: meant,
            fault: Fault::Unknown { known: names },
        }
    }

    /// Whether `other`, about a misspelt name, says the same.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        let Fault::Missing { name, .. } = &self.fault else {
            return false;
        };
        let place = |path: &str| path.rsplit_once('.').map(|(place, _)| place.to_owned());
        matches!(other.fault, Fault::Unknown { .. })
            && other.nearest.as_ref() == Some(name)
            && place(&self.path) == place(&other.path)
    }

    /// A value that fits none of several forms; each is described.
    pub(super) fn formless(path: String, found: &Value, forms: &[String]) -> Self {
        let required = cut(&forms.join(" or "), MAX_REQUIRED_CHARS);
        Self {
            path,
            found: shown(found),
            nearest: None,
            fault: Fault::Unfit {
                must: format!("be {required}"),
                repair: None,
            },
            required,
        }
    }

    /// A value that is of none of these types.
    pub(super) fn mistyped(
        path: String,
        found: &Value,
        types: &[JsonType],
        optional: bool,
    ) -> Self {
        let plain: Vec<String> = types.iter().map(ToString::to_string).collect();
        let spoken: Vec<&str> = types.iter().map(|&one| spoken(one)).collect();
        Self {
            found: shown(found),
            required: cut(&plain.join(" or "), MAX_REQUIRED_CHARS),
            nearest: None,
            fault: Fault::Unfit {
                must: cut(&format!("be {}", spoken.join(" or ")), MAX_REQUIRED_CHARS),
                repair: repair_type(&path, found, types, optional),
            },
            path,
        }
    }

    /// A value that is not what its schema asks for.
    pub(super) fn unfit(path: String, error: &ValidationError<'_>, optional: bool) -> Self {
        let found = error.instance();
        if let ValidationErrorKind::Type { kind } = error.kind() {
            return Self::mistyped(path, found, &types_of(kind), optional);
        }
        let (required, must) = demand(error);
        let (nearest, repair) = match error.kind() {
            ValidationErrorKind::Enum { options } => {
                let nearest = nearest_choice(found, options);
                let repair = nearest
                    .as_ref()
                    .map(|choice| format!("did you mean {}?", json!(choice)));
                (nearest, repair)
            }
            _ => (None, None),
        };
        Self {
            path,
            found: shown(found),
            required,
            nearest,
            fault: Fault::Unfit { must, repair },
        }
    }

    /// One sentence about the problem; `what` is the kind of thing, such as `argument`.
    pub(super) fn sentence(&self, what: &str) -> String {
        let path = &self.path;
        match &self.fault {
            Fault::Missing { name, because } => {
                let kind = match self.required.as_str() {
                    ANY_VALUE => String::new(),
                    kind => format!(" ({kind})"),
                };
                let meant = self.nearest.as_ref().map_or_else(String::new, |given| {
                    format!(": `{given}` was given, did you mean `{name}`?")
                });
                let because = because
                    .as_ref()
                    .map_or_else(String::new, |given| format!(": {given} also needs it"));
                format!("missing {what} `{path}`{kind}{because}{meant}")
            }
            Fault::Unknown { known } => {
                let instead = match &self.nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None if known.is_empty() => format!("it takes no {what}s"),
                    None => format!("it takes {known}"),
                };
                format!("unknown {what} `{path}`: {instead}")
            }
            Fault::Unfit { must, repair } => {
                let place = if path.is_empty() {
                    format!("the {what}s")
                } else {
                    format!("{what} `{path}`")
                };
                let repair = repair.as_ref().filter(|_| what == "argument");
                let repair = repair.map_or_else(String::new, |repair| format!(": {repair}"));
                format!("{place} must {must}, got {}{repair}", self.found)
            }
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "path": self.path,
            "found": self.found,
            "required": self.required,
            "nearest": self.nearest,
        })
    }
}

/// Several sentences as one.
pub(super) fn joined(sentences: &[String]) -> String {
    let mut text = String::new();
    for sentence in sentences {
        if !text.is_empty() {
            text.push_str(if text.ends_with('?') { " " } else { "; " });
        }
        text.push_str(sentence);
    }
    text
}

/// What is required, and the same as it goes behind "must".
fn demand(error: &ValidationError<'_>) -> (String, String) {
    use ValidationErrorKind as Kind;
    let be = |text: String| (text.clone(), format!("be {text}"));
    let have = |text: String| (text.clone(), format!("have {text}"));
    let (required, must) = match error.kind() {
        Kind::Enum { options } => {
            let options: Vec<String> = options
                .as_array()
                .into_iter()
                .flatten()
                .map(Value::to_string)
                .collect();
            be(format!("one of {}", options.join(", ")))
        }
        Kind::Constant { expected_value } => be(expected_value.to_string()),
        Kind::Minimum { limit } => be(format!("at least {limit}")),
        Kind::Maximum { limit } => be(format!("at most {limit}")),
        Kind::ExclusiveMinimum { limit } => be(format!("more than {limit}")),
        Kind::ExclusiveMaximum { limit } => be(format!("less than {limit}")),
        Kind::MinLength { limit } => have(format!("at least {limit} characters")),
        Kind::MaxLength { limit } => have(format!("at most {limit} characters")),
        Kind::MinItems { limit } => have(format!("at least {limit} items")),
        Kind::MaxItems { limit } => have(format!("at most {limit} items")),
        Kind::MinProperties { limit } => have(format!("at least {limit} members")),
        Kind::MaxProperties { limit } => have(format!("at most {limit} members")),
        Kind::Pattern { pattern } => be(format!("text that matches {pattern}")),
        Kind::UniqueItems => have("items that differ".to_owned()),
        Kind::FalseSchema => (
            "nothing; the schema takes no value here".to_owned(),
            "be left out".to_owned(),
        ),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            be("one of the forms the schema lists".to_owned())
        }
        Kind::OneOfMultipleValid { .. } => be("just one of the forms the schema lists".to_owned()),
        other => {
            let (keyword, text) = (other.keyword(), error.masked());
            (
                format!("what `{keyword}` says ({text})"),
                format!("fit `{keyword}` of the schema ({text})"),
            )
        }
    };
    (
        cut(&required, MAX_REQUIRED_CHARS),
        cut(&must, MAX_REQUIRED_CHARS),
    )
}

/// The types that a schema names.
pub(super) fn types_of(kind: &TypeKind) -> Vec<JsonType> {
    match kind {
        TypeKind::Single(one) => vec![*one],
        TypeKind::Multiple(many) => many.into_iter().collect(),
    }
}

fn spoken(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "a list",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

/// The choice that a text may have meant.
fn nearest_choice(found: &Value, options: &Value) -> Option<String> {
    let choices = options.as_array()?.iter().filter_map(Value::as_str);
    near(found.as_str()?, choices).into_iter().next()
}

/// What to write in place of a value of another type.
fn repair_type(path: &str, found: &Value, types: &[JsonType], optional: bool) -> Option<String> {
    let wants = |kind| types.contains(&kind);
    if found.is_null() {
        return optional.then(|| "leave it out".to_owned());
    }
    if let Value::String(text) = found
        && let Ok(inner) = serde_json::from_str::<Value>(text)
        && ((inner.is_object() && wants(JsonType::Object))
            || (inner.is_array() && wants(JsonType::Array)))
    {
        return Some("pass the value itself, not its JSON text".to_owned());
    }
    let instead = match found {
        Value::String(text) if wants(JsonType::Boolean) && is_boolean(text) => {
            if text.eq_ignore_ascii_case("true") {
                "True".to_owned()
            } else {
                "False".to_owned()
            }
        }
        Value::String(text) if wants(JsonType::Integer) || wants(JsonType::Number) => {
            let number: serde_json::Number = text.trim().parse().ok()?;
            let whole = is_integer_text(number.as_str());
            (whole || wants(JsonType::Number)).then(|| number.to_string())?
        }
        Value::Number(_) | Value::Bool(_) if wants(JsonType::String) => {
            json!(found.to_string()).to_string()
        }
        Value::String(_) | Value::Number(_) if wants(JsonType::Array) => format!("[{found}]"),
        _ => return None,
    };
    if instead.chars().count() > MAX_SHOWN_CHARS {
        return None;
    }
    let name = path.chars().all(|c| c.is_alphanumeric() || c == '_');
    Some(if name && !path.is_empty() {
        format!("write {path}={instead}")
    } else {
        format!("write {instead}")
    })
}

fn is_boolean(text: &str) -> bool {
    text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
}

/// A value in words, short.
fn shown(value: &Value) -> String {
    match value {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => {
            let text = cut(&value.to_string(), MAX_SHOWN_CHARS);
            format!("{} ({text})", kind_of(value))
        }
        _ => kind_of(value).to_owned(),
    }
}
