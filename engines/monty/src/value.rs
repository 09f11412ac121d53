//! Values on their way between a program and JSON, every digit kept, nothing changed in silence.

use std::collections::BTreeSet;

use jiter::JsonValue;
use monty_types::unstable::{MontyGraph, MontyNode, NodeId, child, node, object_from_graph};
use monty_types::{ExcType, MontyException, MontyObject, ObjectRef};

/// Deepest value that is sent.
const MAX_DEPTH: usize = 100;
/// Characters of a path, a name or a text that an error shows.
const SHOWN: usize = 200;

/// The JSON text of a value. A value JSON cannot hold is a `TypeError` or `ValueError` that names the path to it, which
/// starts with `root`.
pub(crate) fn encode(value: ObjectRef<'_>, root: &str) -> Result<String, MontyException> {
    let mut text = String::new();
    write(value, &mut Path::new(root), 0, &mut text)?;
    Ok(text)
}

/// The JSON text of keyword arguments.
pub(crate) fn encode_arguments<'a>(
    arguments: impl Iterator<Item = (ObjectRef<'a>, ObjectRef<'a>)>,
) -> Result<String, MontyException> {
    let mut text = String::new();
    write_pairs(arguments, &mut Path::new("arguments"), 0, &mut text)?;
    Ok(text)
}

/// The value of a JSON text.
pub(crate) fn decode(text: &str) -> Result<MontyObject, MontyException> {
    let fault = || {
        MontyException::new(
            ExcType::ValueError,
            Some("a result of a tool could not be read".to_owned()),
        )
    };
    let json = JsonValue::parse(text.as_bytes(), false).map_err(|_| fault())?;
    let mut graph = MontyGraph::new();
    let root = push(json, &mut graph);
    object_from_graph(graph, root).map_err(|_| fault())
}

fn push(json: JsonValue<'_>, graph: &mut MontyGraph) -> NodeId {
    let made = match json {
        JsonValue::Null => MontyNode::None,
        JsonValue::Bool(value) => MontyNode::Bool(value),
        JsonValue::Int(value) => MontyNode::Int(value),
        JsonValue::BigInt(value) => MontyNode::BigInt(value),
        JsonValue::Float(value) => MontyNode::Float(value),
        JsonValue::Str(value) => MontyNode::String(value.into_owned()),
        JsonValue::Array(items) => {
            let items = std::sync::Arc::unwrap_or_clone(items);
            MontyNode::List(items.into_iter().map(|item| push(item, graph)).collect())
        }
        JsonValue::Object(items) => {
            let items = std::sync::Arc::unwrap_or_clone(items);
            let pairs = items.into_iter().map(|(key, item)| {
                let key = graph.push(MontyNode::String(key.into_owned()));
                (key, push(item, graph))
            });
            MontyNode::Dict(pairs.collect())
        }
    };
    graph.push(made)
}

/// Where a value stands in another.
struct Path {
    text: String,
}

impl Path {
    fn new(root: &str) -> Self {
        Self {
            text: root.to_owned(),
        }
    }

    fn with<T>(&mut self, step: &str, go: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.text.len();
        self.text.push_str(step);
        let outcome = go(self);
        self.text.truncate(length);
        outcome
    }

    fn shown(&self) -> String {
        shortened(&self.text)
    }
}

fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= SHOWN {
        return text.to_owned();
    }
    let head: String = text.chars().take(100).collect();
    let tail: String = text.chars().skip(count - 40).collect();
    format!("{head}...{tail}")
}

fn write(
    value: ObjectRef<'_>,
    path: &mut Path,
    depth: usize,
    text: &mut String,
) -> Result<(), MontyException> {
    match node(value) {
        MontyNode::None => text.push_str("null"),
        MontyNode::Bool(true) => text.push_str("true"),
        MontyNode::Bool(false) => text.push_str("false"),
        MontyNode::Int(number) => text.push_str(&number.to_string()),
        MontyNode::BigInt(number) => text.push_str(&number.to_string()),
        MontyNode::Float(number) => text.push_str(&float(*number, path)?),
        MontyNode::String(string) => quote(string, text),
        MontyNode::List(items)
        | MontyNode::Tuple(items)
        | MontyNode::NamedTuple { values: items, .. } => {
            check_depth(path, depth)?;
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                path.with(&format!("[{at}]"), |path| {
                    write(child(value, *item), path, depth + 1, text)
                })?;
            }
            text.push(']');
        }
        MontyNode::Dict(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(key, item)| (child(value, *key), child(value, *item)));
            write_pairs(pairs, path, depth, text)?;
        }
        MontyNode::Cycle(_) => {
            return Err(raise(
                ExcType::ValueError,
                format!(
                    "{} contains itself (a cycle): JSON cannot hold it",
                    path.shown()
                ),
            ));
        }
        _ => {
            return Err(raise(
                ExcType::TypeError,
                format!(
                    "{} is {}, which JSON cannot hold{}",
                    path.shown(),
                    described(value),
                    remedy(value)
                ),
            ));
        }
    }
    Ok(())
}

fn write_pairs<'a>(
    pairs: impl Iterator<Item = (ObjectRef<'a>, ObjectRef<'a>)>,
    path: &mut Path,
    depth: usize,
    text: &mut String,
) -> Result<(), MontyException> {
    check_depth(path, depth)?;
    let mut names: BTreeSet<String> = BTreeSet::new();
    text.push('{');
    for (at, (key, item)) in pairs.enumerate() {
        if at > 0 {
            text.push(',');
        }
        let (name, step) = key_of(key, path)?;
        quote(&name, text);
        if names.contains(&name) {
            let place = path.shown();
            let shown = shortened(&name);
            return Err(raise(
                ExcType::ValueError,
                format!("{place} has two keys that are {shown:?} in JSON: keep one of them"),
            ));
        }
        names.insert(name);
        text.push(':');
        path.with(&step, |path| write(item, path, depth + 1, text))?;
    }
    text.push('}');
    Ok(())
}

/// A key's text in JSON, and the step in a path that it is.
fn key_of(key: ObjectRef<'_>, path: &Path) -> Result<(String, String), MontyException> {
    Ok(match node(key) {
        MontyNode::String(name) if is_word(name) => (name.clone(), format!(".{name}")),
        MontyNode::String(name) => {
            let shown: String = name.chars().take(60).collect();
            (name.clone(), format!("[{shown:?}]"))
        }
        MontyNode::None => ("null".to_owned(), "[None]".to_owned()),
        MontyNode::Bool(value) => (
            value.to_string(),
            format!("[{}]", if *value { "True" } else { "False" }),
        ),
        MontyNode::Int(number) => (number.to_string(), format!("[{number}]")),
        MontyNode::BigInt(number) => (number.to_string(), format!("[{number}]")),
        MontyNode::Float(number) => {
            let number = float(*number, &Path::new(&format!("a key of {}", path.text)))?;
            let step = format!("[{number}]");
            (number, step)
        }
        _ => {
            return Err(raise(
                ExcType::TypeError,
                format!(
                    "a key of {} is {}: keys must be text",
                    path.shown(),
                    described(key)
                ),
            ));
        }
    })
}

fn check_depth(path: &Path, depth: usize) -> Result<(), MontyException> {
    if depth < MAX_DEPTH {
        return Ok(());
    }
    Err(raise(
        ExcType::ValueError,
        format!("{} is nested deeper than {MAX_DEPTH} levels", path.shown()),
    ))
}

fn float(number: f64, path: &Path) -> Result<String, MontyException> {
    if number.is_finite() {
        return Ok(format!("{number:?}"));
    }
    let name = if number.is_nan() {
        "nan"
    } else if number > 0.0 {
        "inf"
    } else {
        "-inf"
    };
    Err(raise(
        ExcType::ValueError,
        format!(
            "{} is {name}: JSON has no such number; write None or leave it out",
            path.shown()
        ),
    ))
}

/// Appends a text as a JSON string.
pub(crate) fn quote(string: &str, text: &mut String) {
    match serde_json::to_string(string) {
        Ok(quoted) => text.push_str(&quoted),
        Err(_) => text.push_str("\"\""),
    }
}

fn is_word(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|first| first == '_' || first.is_alphabetic())
        && characters.all(|other| other == '_' || other.is_alphanumeric())
}

/// A kind of value with its article.
fn described(value: ObjectRef<'_>) -> String {
    if let MontyNode::Repr(repr) = node(value) {
        if repr.starts_with("<coroutine") || repr.contains("future") {
            return "a call that was not awaited".to_owned();
        }
        return format!("the object {}", shortened(repr));
    }
    let name = value.type_name();
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {name}")
}

/// What to write instead, for what programs send by mistake.
fn remedy(value: ObjectRef<'_>) -> &'static str {
    match node(value) {
        MontyNode::Set(_) | MontyNode::FrozenSet(_) => ": use list(...)",
        MontyNode::Bytes(_) => ": use .decode() or base64",
        MontyNode::Date(_) | MontyNode::DateTime(_) | MontyNode::Time(_) => ": use .isoformat()",
        MontyNode::Decimal(_) => ": use str(...) or float(...)",
        MontyNode::Path(_) | MontyNode::TimeDelta(_) => ": use str(...)",
        MontyNode::Repr(repr) if repr.starts_with("<coroutine") || repr.contains("future") => {
            ": write await before it"
        }
        MontyNode::Repr(_) => ": use list(...), or values of it",
        _ => "",
    }
}

fn raise(kind: ExcType, message: String) -> MontyException {
    MontyException::new(kind, Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back_and_forth(text: &str) -> String {
        encode(decode(text).unwrap().as_ref(), "value").unwrap()
    }

    fn fault(value: &MontyObject) -> String {
        encode(value.as_ref(), "value").unwrap_err().summary()
    }

    #[test]
    fn values_keep_every_digit_both_ways() {
        for text in [
            "null",
            "[true,false,0,-1,1.5,1e300,\"\",{}]",
            "{\"b\":1,\"a\":[18446744073709551616,1267650600228229401496703205376]}",
            "\"text é 😀 \\u0000 \u{2028}\"",
            "1.0",
        ] {
            assert_eq!(back_and_forth(text), text);
        }
    }

    #[test]
    fn what_json_cannot_hold_is_refused_with_its_path() {
        let nested =
            |inner| MontyObject::dict([(MontyObject::string("a b"), MontyObject::list([inner]))]);
        assert_eq!(
            fault(&nested(MontyObject::float(f64::NAN))),
            "ValueError: value[\"a b\"][0] is nan: JSON has no such number; write None or leave it out"
        );
        assert_eq!(
            fault(&nested(MontyObject::set([MontyObject::int(1)]))),
            "TypeError: value[\"a b\"][0] is a set, which JSON cannot hold: use list(...)"
        );
        assert_eq!(
            fault(&nested(MontyObject::bytes(vec![1]))),
            "TypeError: value[\"a b\"][0] is a bytes, which JSON cannot hold: use .decode() or base64"
        );
        assert_eq!(
            fault(&MontyObject::dict([(
                MontyObject::tuple([]),
                MontyObject::none()
            )])),
            "TypeError: a key of value is a tuple: keys must be text"
        );
        let twins = [
            (MontyObject::int(1), MontyObject::none()),
            (MontyObject::string("1"), MontyObject::none()),
        ];
        assert_eq!(
            fault(&MontyObject::dict(twins)),
            "ValueError: value has two keys that are \"1\" in JSON: keep one of them"
        );
    }

    #[test]
    fn a_value_too_deep_is_refused() {
        let deep = (0..=MAX_DEPTH).fold(MontyObject::none(), |inner, _| MontyObject::list([inner]));
        assert!(
            fault(&deep).ends_with("is nested deeper than 100 levels"),
            "{}",
            fault(&deep)
        );
        let most = (0..MAX_DEPTH).fold(MontyObject::none(), |inner, _| MontyObject::list([inner]));
        assert!(encode(most.as_ref(), "value").is_ok());
    }
}
