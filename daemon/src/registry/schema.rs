//! Checks values against the schemas that servers declare.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value, json};

use super::integers::applying;
use super::modest::immodest;
use super::near::near;
use super::problem::{MAX_REQUIRED_CHARS, MAX_SHOWN_CHARS, Problem, types_of};

/// Most faults of one value that are named.
const MAX_PROBLEMS: usize = 5;
/// Keywords whose value maps names to schemas.
pub(super) const MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// Keywords whose value is a schema or a list of schemas.
pub(super) const PARTS: [&str; 16] = [
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "allOf",
    "anyOf",
    "oneOf",
    "contentSchema",
];

/// A schema made ready for use, or set aside.
#[derive(Debug)]
pub(super) struct Schema {
    validator: Option<Validator>,
    /// The schema as it is checked.
    source: Value,
    /// What an author should know about it.
    pub(super) note: Option<String>,
}

impl Schema {
    /// Compiles a schema; `what` names it in notes.
    ///
    /// Nothing is ever fetched. A pattern that cannot be compiled is left out;
    /// a schema that cannot be used otherwise is set aside as a whole.
    pub(super) fn compile(schema: &Value, what: &str) -> Self {
        if let Some(cause) = immodest(schema) {
            return Self::set_aside(what, &cause);
        }
        let first = match build(schema) {
            Ok(validator) => {
                return Self {
                    validator: Some(validator),
                    source: schema.clone(),
                    note: None,
                };
            }
            Err(cause) => cause,
        };
        let mut source = schema.clone();
        let dropped = drop_patterns(&mut source);
        if dropped > 0
            && let Ok(validator) = build(&source)
        {
            return Self {
                validator: Some(validator),
                source,
                note: Some(format!(
                    "Of the {what}, {dropped} pattern(s) that cannot be compiled are not checked."
                )),
            };
        }
        Self::set_aside(what, &first)
    }

    fn set_aside(what: &str, cause: &str) -> Self {
        Self {
            validator: None,
            source: Value::Null,
            note: Some(format!(
                "The {what} cannot be used and is not checked: {}.",
                cut(cause, MAX_REQUIRED_CHARS)
            )),
        }
    }

    /// Whether values can be checked against it.
    pub(super) fn is_usable(&self) -> bool {
        self.validator.is_some()
    }

    /// The schema as it is checked; null if it is set aside.
    pub(super) fn source(&self) -> &Value {
        &self.source
    }

    /// Whether a value fits. Everything fits a schema that is set aside.
    pub(super) fn takes(&self, value: &Value) -> bool {
        self.problems(value).is_empty()
    }

    /// What each part of the schema says of a value that fits, as nested output units of JSON Schema.
    pub(super) fn evaluated(&self, value: &Value) -> Option<Value> {
        let evaluation = self.validator.as_ref()?.evaluate(value);
        evaluation.is_valid().then_some(())?;
        serde_json::to_value(evaluation.hierarchical()).ok()
    }

    /// What of a value does not fit, at most five things.
    pub(super) fn problems(&self, value: &Value) -> Vec<Problem> {
        let Some(validator) = &self.validator else {
            return Vec::new();
        };
        if validator.is_valid(value) {
            return Vec::new();
        }
        let problems: Vec<Problem> = validator
            .iter_errors(value)
            .filter(|error| !is_engine_failure(error.kind()))
            .flat_map(|error| self.explain(&error, value))
            .take(2 * MAX_PROBLEMS)
            .collect();
        let repeated = |one: &Problem| problems.iter().any(|other| one.repeats(other));
        let told = problems.iter().filter(|one| !repeated(one));
        told.take(MAX_PROBLEMS).cloned().collect()
    }

    fn explain(&self, error: &ValidationError<'_>, root: &Value) -> Vec<Problem> {
        let path = path_text(error.instance_path().as_str(), root);
        let instance = error.instance();
        let properties = self.properties(error);
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let given = instance.as_object().map(Map::keys).into_iter().flatten();
                let strangers = given
                    .map(String::as_str)
                    .filter(|key| properties.is_none_or(|known| !known.contains_key(*key)));
                let nearest = near(name, strangers).into_iter().next();
                let schema = properties.and_then(|known| known.get(name));
                let because = self.asking(error);
                let path = join(&path, name);
                vec![Problem::missing(path, name, schema, nearest, because)]
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let (known, patterns) = self.names(error);
                // What is given already was not meant.
                let free = |name: &&str| instance.get(*name).is_none();
                unexpected
                    .iter()
                    .map(|name| {
                        let meant = near(name, known.iter().copied().filter(free));
                        let meant = meant.into_iter().next();
                        Problem::unknown(join(&path, name), &known, &patterns, meant)
                    })
                    .collect()
            }
            ValidationErrorKind::AnyOf { context }
            | ValidationErrorKind::OneOfNotValid { context } => {
                self.explain_forms(context, error, path, root)
            }
            _ => vec![Problem::unfit(path, error, self.is_optional(error))],
        }
    }

    /// What does not fit where a schema lists forms, such as a type and null.
    ///
    /// Where the value is of the type of one form alone, or is near to one
    /// alone, that form says it best; else the forms do.
    fn explain_forms(
        &self,
        forms: &[Vec<ValidationError<'_>>],
        error: &ValidationError<'_>,
        path: String,
        root: &Value,
    ) -> Vec<Problem> {
        let place = error.instance_path().as_str();
        let mut types = Vec::new();
        let mut near = Vec::new();
        for form in forms {
            let other = form.iter().find_map(|fault| match fault.kind() {
                ValidationErrorKind::Type { kind } if fault.instance_path().as_str() == place => {
                    Some(types_of(kind))
                }
                _ => None,
            });
            match other {
                Some(other) => types.extend(other),
                None => near.push(form),
            }
        }
        if let Some(form) = nearest(&near) {
            return form
                .iter()
                .flat_map(|fault| self.explain(fault, root))
                .collect();
        }
        let optional = self.is_optional(error);
        let described = self.source.pointer(error.schema_path().as_str());
        let described = described.and_then(|forms| form_words(forms, &self.source));
        match described {
            Some(words) => vec![Problem::formless(path, error.instance(), &words)],
            None if near.is_empty() && !types.is_empty() => {
                let mut once: Vec<_> = Vec::new();
                for one in types {
                    if !once.contains(&one) {
                        once.push(one);
                    }
                }
                vec![Problem::mistyped(path, error.instance(), &once, optional)]
            }
            None => vec![Problem::unfit(path, error, optional)],
        }
    }

    /// What of a value asks for a member that is missing: the one constant of the form it is of.
    fn asking(&self, error: &ValidationError<'_>) -> Option<String> {
        let given = error.instance().as_object()?;
        self.properties(error)?.iter().find_map(|(name, schema)| {
            let value = given.get(name)?;
            (constant(schema)? == value).then(|| cut(&format!("{name} {value}"), MAX_SHOWN_CHARS))
        })
    }

    /// The names, and the patterns of names, that count where an error says that others do not.
    fn names(&self, error: &ValidationError<'_>) -> (Vec<&str>, Vec<&str>) {
        let at = error.schema_path().as_str();
        let parent = at.rsplit_once('/').map_or("", |(parent, _)| parent);
        let schema = self.source.pointer(parent);
        let schemas = match error.kind() {
            // What the parts of a schema name counts for this keyword, too.
            ValidationErrorKind::UnevaluatedProperties { .. } => {
                let mut all = applying(schema.as_slice(), &self.source);
                all.reverse();
                all
            }
            _ => schema.and_then(Value::as_object).into_iter().collect(),
        };
        let of = |keyword: &str| {
            let mut names: Vec<&str> = Vec::new();
            for schema in &schemas {
                let more = schema.get(keyword).and_then(Value::as_object);
                for name in more.into_iter().flat_map(Map::keys) {
                    if !names.contains(&name.as_str()) {
                        names.push(name);
                    }
                }
            }
            names
        };
        (of("properties"), of("patternProperties"))
    }

    /// The properties of the schema at the place of an error.
    fn properties(&self, error: &ValidationError<'_>) -> Option<&Map<String, Value>> {
        let at = error.schema_path().as_str();
        let parent = at.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.source.pointer(parent)?.get("properties")?.as_object()
    }

    /// Whether the value at the place of an error is a member that may be left out.
    fn is_optional(&self, error: &ValidationError<'_>) -> bool {
        let at = error.schema_path().as_str();
        let mut parts = at.rsplitn(4, '/').skip(1);
        let (Some(name), Some("properties"), Some(parent)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        let name = name.replace("~1", "/").replace("~0", "~");
        let required = self
            .source
            .pointer(parent)
            .and_then(|schema| schema.get("required"))
            .and_then(Value::as_array);
        required.is_none_or(|names| !names.iter().any(|one| *one == name))
    }
}

/// The form that was meant: the only one whose constants the value has, else the only one with the fewest faults.
fn nearest<'a, 'i>(forms: &[&'a Vec<ValidationError<'i>>]) -> Option<&'a Vec<ValidationError<'i>>> {
    let other = |fault: &ValidationError<'_>| {
        matches!(
            fault.kind(),
            ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. }
        )
    };
    let of_kind: Vec<_> = forms
        .iter()
        .copied()
        .filter(|form| !form.is_empty() && !form.iter().any(other))
        .collect();
    match of_kind.as_slice() {
        [] => match forms {
            [only] if !only.is_empty() => Some(only),
            _ => None,
        },
        [only] => Some(only),
        several => {
            let fewest = several.iter().map(|form| form.len()).min()?;
            let mut fewest = several.iter().filter(|form| form.len() == fewest);
            let first = fewest.next()?;
            fewest.next().is_none().then_some(*first)
        }
    }
}

/// Forms of which one at least is an object with members, each in words.
fn form_words(forms: &Value, root: &Value) -> Option<Vec<String>> {
    let forms = forms.as_array()?;
    let mut members = false;
    let mut words: Vec<String> = Vec::new();
    for form in forms {
        let target = form.get("$ref").and_then(Value::as_str);
        let pointer = target.and_then(|target| target.strip_prefix('#'));
        let form = pointer
            .and_then(|pointer| root.pointer(pointer))
            .unwrap_or(form);
        let kind = form.get("type").and_then(Value::as_str);
        let of_object = object_words(form);
        members |= of_object.is_some();
        let one = match (of_object, kind) {
            (Some(words), _) => words,
            (None, Some("null")) => "null".to_owned(),
            (None, Some("array")) => "a list".to_owned(),
            (None, Some(kind @ ("integer" | "object"))) => format!("an {kind}"),
            (None, Some(kind)) => format!("a {kind}"),
            (None, None) => return None,
        };
        if !words.contains(&one) {
            words.push(one);
        }
    }
    members.then_some(words)
}

/// An object by the members it must have, else by those it may have.
fn object_words(form: &Value) -> Option<String> {
    let properties = form.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = form
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let names: Vec<&str> = if required.is_empty() {
        properties?.keys().map(String::as_str).collect()
    } else {
        required
    };
    if names.is_empty() {
        return None;
    }
    let shown = names.iter().map(|name| {
        let of = properties.and_then(|properties| constant(properties.get(*name)?));
        of.map_or_else(|| (*name).to_owned(), |value| format!("{name} {value}"))
    });
    Some(format!(
        "an object with {}",
        shown.collect::<Vec<_>>().join(", ")
    ))
}

/// The one value that a schema takes.
fn constant(schema: &Value) -> Option<&Value> {
    if let Some(value) = schema.get("const") {
        return Some(value);
    }
    match schema.get("enum")?.as_array()?.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

fn build(schema: &Value) -> Result<Validator, String> {
    jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .build(schema)
        .map_err(|error| error.to_string())
}

/// Takes out patterns that do not compile. Returns how many.
fn drop_patterns(schema: &mut Value) -> usize {
    let Value::Object(schema) = schema else {
        return 0;
    };
    let mut dropped = 0;
    let broken = |pattern: &str| build(&json!({"pattern": pattern})).is_err();
    if schema
        .get("pattern")
        .and_then(Value::as_str)
        .is_some_and(broken)
    {
        schema.remove("pattern");
        dropped += 1;
    }
    if let Some(Value::Object(patterns)) = schema.get_mut("patternProperties") {
        let before = patterns.len();
        patterns.retain(|pattern, _| !broken(pattern));
        dropped += before - patterns.len();
    }
    for key in MAPS {
        if let Some(Value::Object(map)) = schema.get_mut(key) {
            dropped += map.values_mut().map(drop_patterns).sum::<usize>();
        }
    }
    for key in PARTS {
        dropped += match schema.get_mut(key) {
            Some(Value::Array(list)) => list.iter_mut().map(drop_patterns).sum(),
            Some(part) => drop_patterns(part),
            None => 0,
        };
    }
    dropped
}

/// Whether the pattern engine gave up, which is no fault of the value.
fn is_engine_failure(kind: &ValidationErrorKind) -> bool {
    matches!(
        kind,
        ValidationErrorKind::BacktrackLimitExceeded { .. }
            | ValidationErrorKind::RegexEngineFailure { .. }
    )
}

/// A JSON pointer as an author would write it.
fn path_text(pointer: &str, root: &Value) -> String {
    let mut text = String::new();
    let mut here = Some(root);
    for token in pointer.split('/').skip(1) {
        let name = token.replace("~1", "/").replace("~0", "~");
        match here {
            Some(Value::Array(items)) => {
                text.push('[');
                text.push_str(&name);
                text.push(']');
                here = name.parse().ok().and_then(|index: usize| items.get(index));
            }
            other => {
                text = join(&text, &name);
                here = other.and_then(|value| value.get(&name));
            }
        }
    }
    text
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        cut(name, MAX_SHOWN_CHARS)
    } else {
        format!("{path}.{}", cut(name, MAX_SHOWN_CHARS))
    }
}

pub(super) fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let head: String = text.chars().take(limit).collect();
    format!("{head}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(schema: &Value) -> Schema {
        Schema::compile(schema, "input schema")
    }

    fn sentences(schema: &Value, value: &Value) -> Vec<String> {
        compile(schema)
            .problems(value)
            .iter()
            .map(|problem| problem.sentence("argument"))
            .collect()
    }

    #[test]
    fn problems_name_path_found_required_and_the_nearest_name() {
        let schema = json!({
            "type": "object",
            "properties": {"limit": {"type": "integer"}, "cursor": {"type": ["string", "null"]}},
            "required": ["limit"],
            "additionalProperties": false,
        });
        assert_eq!(
            sentences(&schema, &json!({"limits": 3, "cursor": 7})),
            [
                "argument `cursor` must be null or a string, got an integer (7): write cursor=\"7\"",
                "unknown argument `limits`: did you mean `limit`?",
            ]
        );
        assert_eq!(
            sentences(&schema, &json!({"limit": 0.5})),
            ["argument `limit` must be an integer, got a number (0.5)"]
        );
    }

    #[test]
    fn of_several_forms_the_one_that_was_meant_is_explained() {
        let schema = json!({"properties": {
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "at": {"oneOf": [
                {"type": "object", "required": ["line"]}, {"type": "object", "required": ["page"]},
            ]},
            "who": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "user"}, "id": {"type": "integer"}},
                 "required": ["kind", "id"], "additionalProperties": false},
                {"type": "object", "properties": {"kind": {"const": "team"}, "slug": {"type": "string"}},
                 "required": ["kind", "slug"], "additionalProperties": false},
            ]},
        }});
        for (value, sentence) in [
            (
                json!({"limit": "3"}),
                "argument `limit` must be an integer or null, got a string (\"3\"): write limit=3",
            ),
            (
                json!({"tags": ["a", 1]}),
                "argument `tags[1]` must be a string, got an integer (1): write \"1\"",
            ),
            (
                json!({"tags": "a"}),
                "argument `tags` must be a list or null, got a string (\"a\"): write tags=[\"a\"]",
            ),
            (
                json!({"at": {}}),
                "argument `at` must be an object with line or an object with page, got an object",
            ),
            (
                json!({"at": "3"}),
                "argument `at` must be an object with line or an object with page, got a string (\"3\")",
            ),
            (
                json!({"who": {"kind": "user"}}),
                "missing argument `who.id` (integer): kind \"user\" also needs it",
            ),
            (
                json!({"who": {"kind": "team", "slgu": "a"}}),
                "unknown argument `who.slgu`: did you mean `slug`?",
            ),
            (
                json!({"who": {"kind": "all"}}),
                "argument `who` must be an object with kind \"user\", id or an object with kind \"team\", slug, got an object",
            ),
        ] {
            assert_eq!(sentences(&schema, &value), [sentence]);
        }
        assert!(compile(&schema).takes(&json!({"limit": null, "tags": ["a"]})));
    }

    #[test]
    fn recursion_and_nested_paths_are_followed() {
        let schema = json!({
            "$defs": {"N": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
                "required": ["v"],
            }},
            "properties": {"root": {"$ref": "#/$defs/N"}},
        });
        let fits = json!({"root": {"v": 1, "kids": [{"v": 2, "kids": []}]}});
        assert!(compile(&schema).takes(&fits));
        assert_eq!(
            sentences(&schema, &json!({"root": {"v": 1, "kids": [{"kids": []}]}})),
            ["missing argument `root.kids[0].v` (integer)"]
        );
    }

    #[test]
    fn each_dialect_is_checked_by_its_own_rules() {
        let tuple = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"P": {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": false}},
            "properties": {"p": {"$ref": "#/definitions/P"}},
        });
        let tuple = compile(&tuple);
        assert!(tuple.takes(&json!({"p": ["a", 1]})) && !tuple.takes(&json!({"p": [1, "a"]})));
        let old = compile(&json!({
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "http://example.invalid/x",
            "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}},
        }));
        assert!(old.takes(&json!({"n": 1})) && !old.takes(&json!({"n": 0})));
        let newest = compile(&json!({"prefixItems": [{"type": "string"}], "items": false}));
        assert!(newest.takes(&json!(["a"])) && !newest.takes(&json!(["a", 1])));
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_set_aside_with_a_note() {
        for schema in [
            json!({"properties": {"a": {"type": "unknown"}}}),
            json!({"properties": {"a": {"$ref": "#/$defs/Missing"}}}),
            json!({"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}),
            json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}),
            json!({"$schema": "http://example.invalid/dialect"}),
            json!({"type": 7}),
        ] {
            let compiled = compile(&schema);
            assert!(!compiled.is_usable(), "{schema}");
            assert!(compiled.takes(&json!({"a": 1})));
            let note = compiled.note.unwrap();
            assert!(
                note.starts_with("The input schema cannot be used"),
                "{note}"
            );
            assert!(
                !note.contains("root:"),
                "nothing is read from files: {note}"
            );
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_compiled_is_left_out_and_the_rest_counts() {
        let schema = compile(&json!({
            "properties": {
                "id": {"type": "string", "pattern": "(?P<year>[0-9]{4})"},
                "url": {"type": "string", "pattern": "^https\\:\\/\\/"},
                "br": {"type": "string", "pattern": "[a-z"},
                "la": {"type": "string", "pattern": "^(?!tmp).*$"},
                "uni": {"type": "string", "pattern": "^\\p{L}+$"},
            },
            "patternProperties": {"(": {"type": "integer"}},
        }));
        let note = schema.note.as_ref().unwrap();
        assert!(note.contains("2 pattern(s)"), "{note}");
        assert!(
            schema.takes(
                &json!({"id": "2026", "url": "https://x", "br": "q", "la": "ok", "uni": "ü"})
            )
        );
        assert!(!schema.takes(&json!({"id": 5})));
        assert!(!schema.takes(&json!({"br": 5})));
    }

    #[test]
    fn formats_are_never_a_fault_and_numbers_are_exact() {
        let schema = compile(&json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {
                "n": {"type": "integer", "format": "uint64", "maximum": 18_446_744_073_709_551_615_u64},
                "d": {"format": "date-time"},
            },
        }));
        let fits = r#"{"n":18446744073709551615,"d":"not a date"}"#;
        assert!(schema.takes(&serde_json::from_str(fits).unwrap()));
        assert!(!schema.takes(&serde_json::from_str(r#"{"n":18446744073709551616}"#).unwrap()));
        assert!(schema.takes(&serde_json::from_str(r#"{"n":1.0}"#).unwrap()));
    }

    #[test]
    fn schemas_that_refer_to_themselves_or_to_slow_patterns_come_to_an_end() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
            json!({"properties": {"a": {"pattern": "^(?!x)(a|a)*\\1?$"}}}),
        ] {
            let value = json!({"a": format!("{}!", "a".repeat(60))});
            assert!(compile(&schema).takes(&value));
        }
    }

    #[test]
    fn roots_that_are_no_object_are_schemas_too() {
        let list = compile(&json!({"type": "array", "items": {"type": "integer"}}));
        assert!(list.takes(&json!([1, 2])) && !list.takes(&json!(["a"])));
        let any = compile(&json!({"anyOf": [
            {"type": "object", "required": ["ok"]}, {"type": "object", "required": ["err"]},
        ]}));
        assert!(any.takes(&json!({"err": 1})) && !any.takes(&json!({})));
        assert!(compile(&json!({"type": ["null", "array"]})).takes(&Value::Null));
    }
}
