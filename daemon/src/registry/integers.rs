//! Writes whole floats as integers where a schema asks for integers.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use super::schema::Schema;

/// Longest integer that a whole float is written out as, in digits.
const MAX_DIGITS: i64 = 400;
/// Schemas that may apply to one value at once; more are passed over.
const MAX_SCHEMAS: usize = 256;
/// Values that may be in one that is evaluated: what is said of each takes a few hundred bytes.
const MAX_EVALUATED: usize = 2_000;
/// Keywords that put a question to a value and ask nothing of it.
const QUESTIONS: [&str; 4] = ["if", "not", "contains", "propertyNames"];

/// Changes `20.0` to `20` wherever the schema takes an integer and not any number.
///
/// Which parts of a schema apply is for the validator to say. Where the value does not fit as
/// it is (in draft 4 no float is an integer), or is too large for that, what the schema says
/// directly counts: `properties`, `items`, `additionalProperties`, references within it and
/// the combining keywords.
pub(super) fn normalise(value: &mut Value, schema: &Schema) {
    let mut left = MAX_EVALUATED;
    if !has_whole_float(value, &mut left) {
        return;
    }
    let evaluated = if left > 0 {
        schema.evaluated(value)
    } else {
        None
    };
    match evaluated {
        Some(unit) => {
            let mut asked = BTreeMap::new();
            gather(&unit, schema.source(), false, &mut asked);
            for (place, asked) in asked {
                if (asked.integer || asked.maybe_integer && !asked.number)
                    && let Some(Value::Number(number)) = value.pointer_mut(&place)
                    && let Some(integer) = whole(number.as_str())
                {
                    *number = integer;
                }
            }
        }
        None => walk(value, &[schema.source()], schema.source()),
    }
}

/// Whether a number is written as a whole float; `left` counts down with the values, to 0 where they are too many.
fn has_whole_float(value: &Value, left: &mut usize) -> bool {
    *left = left.saturating_sub(1);
    let mut found = false;
    // All are looked at, since all are counted.
    match value {
        Value::Number(number) => found = whole(number.as_str()).is_some(),
        Value::Array(items) => {
            for item in items {
                found |= has_whole_float(item, left);
            }
        }
        Value::Object(members) => {
            for member in members.values() {
                found |= has_whole_float(member, left);
            }
        }
        _ => {}
    }
    found
}

/// What the schemas that apply to one value ask for.
#[derive(Debug, Default)]
struct Asked {
    integer: bool,
    /// One of several forms asks for an integer.
    maybe_integer: bool,
    number: bool,
}

/// Collects, by the place of the value, the types that valid parts of an evaluation name.
fn gather(unit: &Value, source: &Value, in_form: bool, asked: &mut BTreeMap<String, Asked>) {
    let text = |name: &str| unit.get(name).and_then(Value::as_str).unwrap_or_default();
    let path = text("evaluationPath");
    let (parent, keyword) = path.rsplit_once('/').unwrap_or_default();
    // What stands there is the name of a member.
    let is_name = ["properties", "patternProperties"]
        .contains(&parent.rsplit('/').next().unwrap_or_default());
    if unit.get("valid") != Some(&Value::Bool(true)) {
        return;
    }
    let details = unit.get("details").and_then(Value::as_array);
    if !is_name && QUESTIONS.contains(&keyword) {
        // What a true answer asks for, `then` or `else`, stands below the question, with a path of its own.
        for one in details.into_iter().flatten() {
            let below = one.get("evaluationPath").and_then(Value::as_str);
            if below.is_some_and(|below| !below.starts_with(path)) {
                gather(one, source, in_form, asked);
            }
        }
        return;
    }
    if keyword == "type"
        && let Some(named) = pointed(source, text("schemaLocation"))
    {
        let names = |name: &str| match named {
            Value::String(one) => one == name,
            Value::Array(many) => many.iter().any(|one| one == name),
            _ => false,
        };
        let place = asked
            .entry(text("instanceLocation").to_owned())
            .or_default();
        if names("number") {
            place.number = true;
        } else if names("integer") {
            *(if in_form {
                &mut place.maybe_integer
            } else {
                &mut place.integer
            }) = true;
        }
    }
    let in_form = in_form || keyword == "anyOf";
    for one in details.into_iter().flatten() {
        gather(one, source, in_form, asked);
    }
}

/// The part of a schema that a location names: a pointer, or the whole schema's own name with one behind it.
fn pointed<'a>(source: &'a Value, location: &str) -> Option<&'a Value> {
    let pointer = match location.split_once('#') {
        Some((name, pointer)) => {
            let own = source.get("$id").or_else(|| source.get("id"))?.as_str()?;
            (own.trim_end_matches('#') == name).then_some(pointer)?
        }
        None => location,
    };
    source.pointer(pointer)
}

fn walk(value: &mut Value, schemas: &[&Value], root: &Value) {
    let schemas = applying(schemas, root);
    if schemas.is_empty() {
        return;
    }
    match value {
        Value::Number(number) => {
            if wants_integer(&schemas)
                && let Some(integer) = whole(number.as_str())
            {
                *number = integer;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let below: Vec<&Value> = schemas
                    .iter()
                    .filter_map(|schema| item_schema(schema, index))
                    .collect();
                walk(item, &below, root);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                let below: Vec<&Value> = schemas
                    .iter()
                    .filter_map(|schema| member_schema(schema, key))
                    .collect();
                walk(member, &below, root);
            }
        }
        _ => {}
    }
}

/// The schemas themselves and those they refer to or combine, as objects.
pub(super) fn applying<'a>(schemas: &[&'a Value], root: &'a Value) -> Vec<&'a Map<String, Value>> {
    let mut open: Vec<&Value> = schemas.to_vec();
    let mut found: Vec<&Map<String, Value>> = Vec::new();
    while let Some(schema) = open.pop() {
        let Value::Object(schema) = schema else {
            continue;
        };
        if found.len() >= MAX_SCHEMAS || found.iter().any(|known| std::ptr::eq(*known, schema)) {
            continue;
        }
        found.push(schema);
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            open.extend(resolve(target, root));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            if let Some(Value::Array(list)) = schema.get(key) {
                open.extend(list);
            }
        }
        open.extend(["then", "else"].iter().filter_map(|key| schema.get(*key)));
        if let Some(Value::Object(dependent)) = schema.get("dependentSchemas") {
            open.extend(dependent.values());
        }
    }
    found
}

fn resolve<'a>(target: &str, root: &'a Value) -> Option<&'a Value> {
    match target.strip_prefix('#')? {
        "" => Some(root),
        pointer => root.pointer(pointer),
    }
}

fn wants_integer(schemas: &[&Map<String, Value>]) -> bool {
    let names = |name: &str| {
        schemas.iter().any(|schema| match schema.get("type") {
            Some(Value::String(one)) => one == name,
            Some(Value::Array(many)) => many.iter().any(|one| one == name),
            _ => false,
        })
    };
    names("integer") && !names("number")
}

fn item_schema(schema: &Map<String, Value>, index: usize) -> Option<&Value> {
    if let Some(Value::Array(first)) = schema.get("prefixItems")
        && let Some(found) = first.get(index)
    {
        return Some(found);
    }
    match schema.get("items") {
        Some(Value::Array(first)) => first.get(index).or_else(|| schema.get("additionalItems")),
        other => other,
    }
}

fn member_schema<'a>(schema: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    schema
        .get("properties")
        .and_then(|properties| properties.get(key))
        .or_else(|| {
            // A pattern might apply instead, and patterns are not matched here.
            let patterns = schema.contains_key("patternProperties");
            schema.get("additionalProperties").filter(|_| !patterns)
        })
}

/// The integer that a number written with a point or an exponent stands for, exactly.
fn whole(text: &str) -> Option<Number> {
    if !text.contains(['.', 'e', 'E']) {
        return None;
    }
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (rest, 0),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let after = after.trim_end_matches('0');
    let mut digits = format!("{before}{after}");
    let zeros = exponent.checked_sub(i64::try_from(after.len()).ok()?)?;
    if zeros >= 0 {
        if zeros > MAX_DIGITS {
            return None;
        }
        digits.push_str(&"0".repeat(usize::try_from(zeros).ok()?));
    } else {
        let kept = digits.len().checked_sub(usize::try_from(-zeros).ok()?)?;
        let (head, cut) = digits.split_at_checked(kept)?;
        if cut.bytes().any(|digit| digit != b'0') {
            return None;
        }
        digits = head.to_owned();
    }
    let digits = match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits if negative => format!("-{digits}"),
        digits => digits.to_owned(),
    };
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn normalised(schema: &Value, value: &str) -> String {
        let mut value: Value = serde_json::from_str(value).unwrap();
        normalise(&mut value, &Schema::compile(schema, "input schema"));
        value.to_string()
    }

    /// What becomes of a value of which the validator says nothing.
    fn walked(schema: &Value, value: &str) -> String {
        let mut value: Value = serde_json::from_str(value).unwrap();
        walk(&mut value, &[schema], schema);
        value.to_string()
    }

    #[test]
    fn whole_floats_become_integers_exactly() {
        for (text, integer) in [
            ("20.0", Some("20")),
            ("1e3", Some("1000")),
            ("1.50e1", Some("15")),
            ("1200e-2", Some("12")),
            ("-0.0", Some("0")),
            ("0.000", Some("0")),
            ("-7.0", Some("-7")),
            ("9007199254740993.0", Some("9007199254740993")),
            ("0.5", None),
            ("12e-3", None),
            ("20", None),
            ("1e999999999999", None),
            ("1e-999999999999", None),
        ] {
            let whole = whole(text).map(|number| number.to_string());
            assert_eq!(whole.as_deref(), integer, "{text}");
        }
    }

    #[test]
    fn only_values_for_which_the_schema_wants_integers_are_changed() {
        let schema = json!({
            "$defs": {"n": {"type": ["integer", "null"]}, "loop": {"$ref": "#/$defs/loop"}},
            "properties": {
                "i": {"type": "integer"},
                "f": {"type": "number"},
                "both": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
                "ref": {"$ref": "#/$defs/n"},
                "list": {"items": {"oneOf": [{"type": "integer"}, {"type": "string"}]}},
                "pair": {"prefixItems": [{}, {"type": "integer"}]},
                "old": {"items": [{"type": "integer"}]},
                "loop": {"$ref": "#/$defs/loop"},
            },
            "additionalProperties": {"type": "integer"},
        });
        assert_eq!(
            walked(
                &schema,
                r#"{"i":2.0,"f":2.0,"both":2.0,"ref":2.0,"list":[2.0,"x",0.5],"pair":[2.0,2.0],"old":[2.0,2.0],"loop":2.0,"more":2.0,"half":0.5}"#
            ),
            r#"{"i":2,"f":2.0,"both":2.0,"ref":2,"list":[2,"x",0.5],"pair":[2.0,2],"old":[2,2.0],"loop":2.0,"more":2,"half":0.5}"#
        );
        assert_eq!(normalised(&json!(true), "[2.0]"), "[2.0]");
        let tree =
            json!({"properties": {"v": {"type": "integer"}, "kids": {"items": {"$ref": "#"}}}});
        assert_eq!(
            normalised(&tree, r#"{"kids":[{"kids":[{"v":1.0}]}]}"#),
            r#"{"kids":[{"kids":[{"v":1}]}]}"#
        );
    }

    #[test]
    fn every_part_of_a_schema_that_applies_counts() {
        let n = json!({"type": "integer"});
        for (schema, value, expected) in [
            (
                json!({"patternProperties": {"^n_": n, "^f_": {"type": "number"}}}),
                r#"{"n_a":2.0,"f_a":2.0,"x":2.0}"#,
                r#"{"n_a":2,"f_a":2.0,"x":2.0}"#,
            ),
            (
                json!({"properties": {"kind": {}}, "if": {"properties": {"kind": {"const": "count"}}},
                       "then": {"properties": {"v": n}}, "else": {"properties": {"v": {"type": "number"}}}}),
                r#"{"kind":"count","v":2.0}"#,
                r#"{"kind":"count","v":2}"#,
            ),
            (
                json!({"if": {"properties": {"kind": {"const": "count"}}},
                       "then": {"properties": {"v": n}}, "else": {"properties": {"v": {"type": "number"}}}}),
                r#"{"kind":"share","v":2.0}"#,
                r#"{"kind":"share","v":2.0}"#,
            ),
            (
                json!({"if": {"properties": {"v": n}}, "then": {}}),
                r#"{"v":2.0}"#,
                r#"{"v":2.0}"#,
            ),
            (
                json!({"dependentSchemas": {"a": {"properties": {"b": n}}}}),
                r#"{"a":1.5,"b":2.0}"#,
                r#"{"a":1.5,"b":2}"#,
            ),
            (
                json!({"properties": {"not": n, "if": {"items": n}}}),
                r#"{"if":[2.0],"not":2.0}"#,
                r#"{"if":[2],"not":2}"#,
            ),
            (
                json!({"dependentSchemas": {"a": {"properties": {"b": n}}}}),
                r#"{"b":2.0}"#,
                r#"{"b":2.0}"#,
            ),
            (
                json!({"$schema": "https://json-schema.org/draft/2020-12/schema",
                       "properties": {"s": {"type": "string"}}, "unevaluatedProperties": n}),
                r#"{"s":"x","m":-3.0}"#,
                r#"{"s":"x","m":-3}"#,
            ),
        ] {
            assert_eq!(normalised(&schema, value), expected, "{schema}");
        }
    }

    #[test]
    fn what_is_said_along_the_way_to_a_value_counts() {
        let n = json!({"type": "integer"});
        for (schema, value, expected) in [
            (
                json!({"anyOf": [
                    {"properties": {"kind": {"const": "a"}, "v": n}},
                    {"properties": {"kind": {"const": "b"}, "v": {"type": ["string", "number"]}}}]}),
                r#"{"kind":"b","v":2.0}"#,
                r#"{"kind":"b","v":2.0}"#,
            ),
            (
                json!({"allOf": [{"properties": {"v": {"type": "number"}}}, {"properties": {"v": n}}]}),
                r#"{"v":2.0}"#,
                r#"{"v":2}"#,
            ),
            (
                json!({"$id": "https://example.com/t", "$defs": {"n": n}, "properties": {"v/~": {"$ref": "#/$defs/n"}}}),
                r#"{"v/~":1e2}"#,
                r#"{"v/~":100}"#,
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"v": n}}),
                r#"{"v":2.0}"#,
                r#"{"v":2}"#,
            ),
            (
                json!({"not": {"properties": {"v": {"type": "string"}}}, "properties": {"w": {"contains": n}}}),
                r#"{"v":2.0,"w":[2.0]}"#,
                r#"{"v":2.0,"w":[2.0]}"#,
            ),
        ] {
            assert_eq!(normalised(&schema, value), expected, "{schema}");
        }
        let many = format!("[{}]", vec!["1.0"; MAX_EVALUATED + 1].join(","));
        assert_eq!(
            normalised(&json!({"items": {"type": "integer"}}), &many),
            many.replace("1.0", "1")
        );
    }

    proptest! {
        #[test]
        fn what_is_changed_has_the_same_value(number in -1.0e15f64..1.0e15, scale in 0i32..6) {
            let text = format!("{:?}", (number * 10f64.powi(-scale)).trunc());
            let whole = whole(&text).unwrap();
            let (after, before): (f64, f64) = (whole.as_str().parse().unwrap(), text.parse().unwrap());
            prop_assert!((before + 0.0).total_cmp(&after).is_eq());
        }
    }
}
