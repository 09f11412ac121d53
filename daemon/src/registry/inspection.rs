//! Says what the author of a program should know about one tool beside its schemas.

use ptc_protocol::status::ServerState;
use serde_json::{Value, json};

use super::table::{Entry, Table, server_words};
use super::{prepare, problem, schema};

/// Most names that a note on how to pass them has.
const MAX_ODD_NAMES: usize = 12;

/// Notes on a tool, a sentence or two each.
pub(super) fn notes(entry: &Entry, table: &Table, barred: Option<&str>) -> Vec<String> {
    let mut notes = Vec::new();
    if entry.definition.output_schema.is_none() {
        notes.push(
            "No output schema defined by the upstream server. Inspect the return value in your \
             script: text that is a JSON object, list, number, true, false or null arrives as \
             that value, other text as a string."
                .to_owned(),
        );
    }
    let wrapped = |schema: &Value| schema.get("x-fastmcp-wrap-result") == Some(&Value::Bool(true));
    if entry.definition.output_schema.as_ref().is_some_and(wrapped) {
        notes.push(
            "The server wraps its result; a program gets the value of `result` itself.".to_owned(),
        );
    }
    let odd = entry
        .parameters
        .iter()
        .filter(|name| !prepare::is_keyword_name(name));
    let odd: Vec<String> = odd
        .take(MAX_ODD_NAMES)
        .map(|name| format!("{}: ...", json!(name)))
        .collect();
    if !odd.is_empty() {
        notes.push(format!(
            "Pass names that Python cannot write as **{{{}}}.",
            odd.join(", ")
        ));
    }
    if !entry
        .callable
        .ends_with(&format!("__{}", entry.definition.name))
    {
        notes.push(format!(
            "The server's own name of this tool is {}.",
            schema::cut(&entry.definition.name, problem::MAX_SHOWN_CHARS)
        ));
    }
    let input = entry.definition.input_schema.as_ref();
    if input.is_some_and(prepare::takes_misspelt) {
        notes.push(
            "Names that the input schema does not have are sent, too: mind the spelling."
                .to_owned(),
        );
    }
    let schemas = [entry.input(), entry.output()];
    notes.extend(
        schemas
            .into_iter()
            .flatten()
            .filter_map(|schema| schema.note.clone()),
    );
    if let Some(why) = barred {
        notes.push(format!(
            "A call fails, since server {} is not for this client: it {why}.",
            entry.server
        ));
    } else if let Some(server) = table.server(&entry.server)
        && server.state.state != ServerState::Ready
    {
        notes.push(format!("For now, {}.", server_words(server)));
    }
    notes
}
