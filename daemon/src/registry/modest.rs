//! Tells schemas that can be checked within bounds from those that exhaust the stack or the clock.

use std::collections::HashMap;

use serde_json::Value;

use super::schema::{MAPS, PARTS};

/// Most schemas that may be applied to one value, one inside the other: each is
/// a frame of the stack, times the depth of the value.
const MAX_DEPTH: usize = 32;
/// Most schemas that may be applied to one value in all.
const MAX_COST: u64 = 10_000;
/// Most schemas in one schema.
const MAX_SCHEMAS: usize = 50_000;
/// Keywords whose schemas apply to the same value as the schema itself.
const IN_PLACE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];

/// Says why a schema is not used, if it must not be.
pub(super) fn immodest(schema: &Value) -> Option<String> {
    let mut weights = Weights {
        root: schema,
        known: HashMap::new(),
    };
    let mut open = vec![schema];
    let mut count = 0usize;
    while let Some(here) = open.pop() {
        count += 1;
        if count > MAX_SCHEMAS {
            return Some(format!("it has more than {MAX_SCHEMAS} parts"));
        }
        let weight = weights.weigh(here, 0);
        if weight.height > MAX_DEPTH {
            return Some(format!(
                "more than {MAX_DEPTH} schemas apply to one value, one inside the other"
            ));
        }
        if weight.cost > MAX_COST {
            return Some(format!("more than {MAX_COST} schemas apply to one value"));
        }
        open.extend(parts(here));
    }
    None
}

/// The schemas written inside a schema.
fn parts(schema: &Value) -> Vec<&Value> {
    let Value::Object(schema) = schema else {
        return Vec::new();
    };
    let mut found: Vec<&Value> = Vec::new();
    for key in MAPS {
        if let Some(Value::Object(map)) = schema.get(key) {
            found.extend(map.values());
        }
    }
    for key in PARTS {
        match schema.get(key) {
            Some(Value::Array(list)) => found.extend(list),
            Some(part) => found.push(part),
            None => {}
        }
    }
    found
}

/// What applying one schema to a value takes.
#[derive(Clone, Copy)]
struct Weight {
    /// Schemas applied in all.
    cost: u64,
    /// Schemas applied one inside the other.
    height: usize,
}

const LIGHT: Weight = Weight { cost: 1, height: 1 };

struct Weights<'a> {
    root: &'a Value,
    /// By address; `None` while the schema is being looked at, which is how a loop shows.
    known: HashMap<*const Value, Option<Weight>>,
}

impl<'a> Weights<'a> {
    /// The weight of a schema, looked at from `depth` others; not exact past the bounds.
    fn weigh(&mut self, schema: &'a Value, depth: usize) -> Weight {
        let Value::Object(map) = schema else {
            return LIGHT;
        };
        if let Some(known) = self.known.get(&std::ptr::from_ref(schema)) {
            return known.unwrap_or(LIGHT);
        }
        if depth > MAX_DEPTH {
            return Weight {
                cost: 1,
                height: MAX_DEPTH + 1,
            };
        }
        self.known.insert(schema, None);
        let mut inside: Vec<&'a Value> = Vec::new();
        for key in IN_PLACE {
            match map.get(key) {
                Some(Value::Array(list)) => inside.extend(list),
                Some(part) => inside.push(part),
                None => {}
            }
        }
        if let Some(Value::Object(dependent)) = map.get("dependentSchemas") {
            inside.extend(dependent.values());
        }
        let target = map.get("$ref").and_then(Value::as_str);
        let pointer = target.and_then(|target| target.strip_prefix('#'));
        inside.extend(pointer.and_then(|pointer| self.root.pointer(pointer)));
        let weight = inside.into_iter().fold(LIGHT, |whole, part| {
            let part = self.weigh(part, depth + 1);
            Weight {
                cost: whole.cost.saturating_add(part.cost),
                height: whole.height.max(part.height.saturating_add(1)),
            }
        });
        self.known.insert(schema, Some(weight));
        weight
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// A chain of schemas, each of which applies the next one `times` times.
    fn chain(length: usize, times: usize) -> Value {
        let mut definitions = Map::new();
        for index in 0..length {
            let next = json!({"$ref": format!("#/$defs/a{}", index + 1)});
            let list = vec![next; times];
            definitions.insert(format!("a{index}"), json!({"allOf": list}));
        }
        definitions.insert(format!("a{length}"), json!({"type": "object"}));
        json!({"$defs": definitions, "$ref": "#/$defs/a0"})
    }

    #[test]
    fn ordinary_and_recursive_schemas_are_modest() {
        for schema in [
            json!(true),
            chain(8, 2),
            json!({"$ref": "#"}),
            json!({"properties": {"kids": {"items": {"$ref": "#"}}}, "oneOf": [{"required": ["a"]}, {}]}),
        ] {
            assert_eq!(immodest(&schema), None, "{schema}");
        }
    }

    #[test]
    fn schemas_that_would_exhaust_the_stack_or_the_clock_are_told() {
        let deep = immodest(&chain(100_000, 1)).unwrap();
        assert!(deep.contains("one inside the other"), "{deep}");
        let mut hidden = chain(1000, 1);
        hidden.as_object_mut().unwrap().remove("$ref");
        let backwards = json!({"$defs": hidden["$defs"].clone(), "items": {"$ref": "#/$defs/a0"}});
        assert!(immodest(&backwards).is_some());
        let doubling = immodest(&chain(14, 3)).unwrap();
        assert!(doubling.contains("apply to one value"), "{doubling}");
        let wide = json!({"allOf": vec![json!({}); 60_000]});
        assert!(immodest(&wide).is_some());
    }
}
