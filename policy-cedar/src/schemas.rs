//! Says of a value's place in an input schema whether its numbers are whole ones.

use serde_json::Value;

/// Most schemas that are looked at for one place.
const MAX_SCHEMAS: usize = 64;
/// Deepest nesting of references and alternatives.
const MAX_DEPTH: usize = 8;

/// The schemas that may describe one value.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    root: Option<&'a Value>,
    schemas: Vec<&'a Value>,
}

impl<'a> Place<'a> {
    /// The arguments as a whole.
    pub(crate) fn root(schema: Option<&'a Value>) -> Self {
        Self::of(schema, schema)
    }

    fn of(root: Option<&'a Value>, schemas: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut place = Self {
            root,
            schemas: Vec::new(),
        };
        for schema in schemas {
            place.add(schema, 0);
        }
        place
    }

    /// Adds a schema with its alternatives and what it refers to.
    fn add(&mut self, schema: &'a Value, depth: usize) {
        if depth > MAX_DEPTH || self.schemas.len() >= MAX_SCHEMAS {
            return;
        }
        self.schemas.push(schema);
        for key in ["anyOf", "oneOf", "allOf"] {
            for schema in schema
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.add(schema, depth + 1);
            }
        }
        let named = schema.get("$ref").and_then(Value::as_str);
        let pointer = named.and_then(|text| text.strip_prefix('#'));
        let referred = pointer.and_then(|pointer| self.root?.pointer(pointer));
        if let Some(schema) = referred {
            self.add(schema, depth + 1);
        }
    }

    /// The value of a key.
    pub(crate) fn key(&self, key: &str) -> Self {
        let schemas = self.schemas.iter().filter_map(|schema| {
            let named = schema.get("properties").and_then(|names| names.get(key));
            named.or_else(|| schema.get("additionalProperties"))
        });
        Self::of(self.root, schemas)
    }

    /// An item of a list.
    pub(crate) fn item(&self) -> Self {
        let schemas = self.schemas.iter().filter_map(|schema| schema.get("items"));
        Self::of(self.root, schemas)
    }

    /// Whether a number here need not be a whole one.
    pub(crate) fn takes_fractions(&self) -> bool {
        let is_number = |kind: &Value| kind.as_str() == Some("number");
        self.schemas.iter().any(|schema| match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().any(is_number),
            Some(kind) => is_number(kind),
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_is_found_behind_alternatives_references_lists_and_objects() {
        let schema = json!({
            "$defs": {"Money": {"properties": {"amount": {"type": "number"}}}, "Loop": {"$ref": "#/$defs/Loop"}},
            "properties": {
                "a": {"type": "number"},
                "b": {"type": "integer"},
                "c": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                "d": {"$ref": "#/$defs/Money"},
                "e": {"type": "array", "items": {"type": ["number", "null"]}},
                "f": {"additionalProperties": {"type": "number"}},
                "g": {"$ref": "#/$defs/Loop"},
                "h": {"$ref": "https://example.org/schema"},
            },
        });
        let root = Place::root(Some(&schema));
        let fractions = [
            root.key("a"),
            root.key("c"),
            root.key("d").key("amount"),
            root.key("e").item(),
            root.key("f").key("any"),
        ];
        assert!(fractions.iter().all(Place::takes_fractions));
        let whole = [
            root.key("b"),
            root.key("d"),
            root.key("e"),
            root.key("g"),
            root.key("h"),
            root.key("none").key("such").item(),
            Place::root(None).key("a"),
        ];
        assert!(!whole.iter().any(Place::takes_fractions));
    }
}
