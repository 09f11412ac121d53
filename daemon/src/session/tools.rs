//! The daemon's own tools: their definitions and the check of their arguments.

use std::fmt::Write as _;

use ptc_protocol::run::Confinement;
use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::Face;
use crate::config::{EngineName, EnginesConfig, ExposedTool};

const EXECUTE: &str = "Runs a Python program (standard library, top-level await) in which every tool \
of the user's MCP servers is an async function with keyword arguments:\n\
rows = await mcp__db__query(sql=\"select 1\")\n\
Only what is printed comes back, so loop, filter and join in the program; use asyncio.gather for \
calls that do not depend on each other. Prefer it for three or more calls. {CONFINED}\n\
- Results are parsed JSON; extra text of a server is under `_notes`.\n\
- A failing tool raises ToolError (.kind, .tool, .server, .retryable, .data, .message).\n\
- emit(value) returns one JSON value beside the printed text; the last call wins.\n\
- await list_callable_tools(), inspect_tool(tool_name=...), server_status() work inside, too.\n\
Calls, time and output are limited; an answer that hits a limit names it.";

const CONFINED: &str = "The program has no network, processes, environment or files but an empty \
scratch folder.";
const UNCONFINED: &str = "WARNING: the program is NOT confined (execution.sandbox: none): it can \
reach the user's files and the network.";

/// What a program in the engine monty cannot do, as far as programs often try: the rest is told when one tries it. The
/// definitions and the instructions together have little room.
const MONTY: &str = "\n- Engine monty lacks class bases, yield, del, methods as values, create_task, open, most \
modules; tool_error(e) for e.kind.";

const INSPECT: &str = "Returns one callable tool's description, input schema and output schema. \
Look before you call: arguments are checked by it.";

const LIST: &str = "Returns the sorted names of all tools a program can call, and which servers are \
unavailable now.";

/// The definitions offered, in the configuration's order; the same for every client.
pub(super) fn definitions(face: &Face) -> Vec<Tool> {
    face.expose
        .iter()
        .map(|tool| definition(*tool, face))
        .collect()
}

/// The definitions' length as JSON, in characters.
pub(super) fn characters(face: &Face) -> usize {
    serde_json::to_string(&definitions(face)).map_or(0, |text| text.chars().count())
}

const RUN_PYTHON: &str = "Runs a Python program (standard library only, no tools) in the sandbox and returns its exit \
status and the last 2,000 characters of each stream. For inspection, not evidence; a few work calls a session.";

const SUBMIT: &str = "Takes {deliverable, programs, witness?}: the programs are run in the sandbox and the structure is \
checked. Acceptance says that the structural checks passed; nothing verifies the deliverable afterwards. A few \
submissions a session.";

/// The schema of a submission.
fn outcome_schema() -> JsonObject {
    let mut schema = schema(Some(("outcome", "")));
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("outcome".to_owned(), super::outcome::schema());
    }
    schema
}

fn definition(tool: ExposedTool, face: &Face) -> Tool {
    let (title, text, schema) = match tool {
        ExposedTool::ExecuteProgram => (
            "Run program",
            EXECUTE,
            with_engines(schema(Some(("code", "Python source"))), &face.engines),
        ),
        ExposedTool::InspectTool => (
            "Inspect tool",
            INSPECT,
            schema(Some(("tool_name", "a name from list_callable_tools"))),
        ),
        ExposedTool::ListCallableTools => ("List tools", LIST, schema(None)),
        ExposedTool::RunPython => (
            "Run Python",
            RUN_PYTHON,
            schema(Some(("code", "Python source"))),
        ),
        ExposedTool::SubmitExecuteUnconfirmed | ExposedTool::SubmitOutcome => {
            ("Submit an outcome", SUBMIT, outcome_schema())
        }
    };
    let annotations = match tool {
        ExposedTool::RunPython
        | ExposedTool::SubmitExecuteUnconfirmed
        | ExposedTool::SubmitOutcome => {
            ToolAnnotations::from_raw(None, Some(false), Some(false), Some(false), Some(false))
        }
        ExposedTool::ExecuteProgram => {
            ToolAnnotations::from_raw(None, Some(false), Some(true), Some(false), Some(true))
        }
        _ => ToolAnnotations::from_raw(None, Some(true), None, None, Some(false)),
    };
    let confined = if face.confinement == Some(Confinement::None) {
        UNCONFINED
    } else {
        CONFINED
    };
    let mut text = text.replace("{CONFINED}", confined);
    if tool == ExposedTool::ExecuteProgram && face.engines.offers(EngineName::Monty) {
        text.push_str(MONTY);
    }
    let mut definition = Tool::new(tool.name(), text, schema);
    definition.title = Some(title.to_owned());
    definition.annotations = Some(annotations);
    if tool == ExposedTool::ExecuteProgram {
        // Claude Code saves longer results to a file unless the tool says how long they get.
        // Output and emitted value have `max_output_bytes` each; the rest is status and trace.
        let limit = face
            .max_output_bytes
            .saturating_mul(2)
            .saturating_add(8 * 1024);
        let mut meta = JsonObject::new();
        meta.insert("anthropic/maxResultSizeChars".to_owned(), json!(limit));
        definition.meta = Some(MetaObject(meta));
    }
    definition
}

fn schema(parameter: Option<(&str, &str)>) -> JsonObject {
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    let mut properties = JsonObject::new();
    if let Some((name, description)) = parameter {
        properties.insert(
            name.to_owned(),
            json!({"type": "string", "description": description}),
        );
        schema.insert("properties".to_owned(), Value::Object(properties));
        schema.insert("required".to_owned(), json!([name]));
    } else {
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}

/// Adds the choice of an engine where there is one.
fn with_engines(mut schema: JsonObject, engines: &EnginesConfig) -> JsonObject {
    if engines.offered.len() > 1
        && let Some(Value::Object(properties)) = schema.get_mut("properties")
    {
        let names: Vec<&str> = engines.offered.iter().map(|one| one.as_str()).collect();
        properties.insert(
            "engine".to_owned(),
            json!({"type": "string", "enum": names, "default": engines.default.as_str()}),
        );
    }
    schema
}

/// What a call of one of the daemon's tools gives.
#[derive(Debug)]
pub(super) struct Given {
    /// The tool's one text.
    pub(super) text: String,
    /// The engine it names.
    pub(super) engine: Option<EngineName>,
}

/// Reads the arguments of a tool, or says what is wrong with them.
pub(super) fn given(
    tool: ExposedTool,
    mut arguments: Option<JsonObject>,
    engines: &EnginesConfig,
) -> Result<Given, String> {
    let engine = engine(engines, tool, arguments.as_mut())?;
    let text = argument(tool, arguments)?;
    Ok(Given { text, engine })
}

/// The engine that the arguments name, taken out of them, or what is wrong with it.
fn engine(
    engines: &EnginesConfig,
    tool: ExposedTool,
    arguments: Option<&mut JsonObject>,
) -> Result<Option<EngineName>, String> {
    if tool != ExposedTool::ExecuteProgram || engines.offered.len() < 2 {
        return Ok(None);
    }
    let names = || {
        let names: Vec<&str> = engines.offered.iter().map(|one| one.as_str()).collect();
        names.join(" or ")
    };
    match arguments.and_then(|arguments| arguments.remove("engine")) {
        None => Ok(None),
        Some(Value::String(text)) => {
            let known = EngineName::of(&text).filter(|name| engines.offers(*name));
            known.map(Some).ok_or_else(|| {
                format!(
                    "execute_program: arguments.engine: found {:?}, required {}",
                    clip(&text),
                    names()
                )
            })
        }
        Some(other) => Err(format!(
            "execute_program: arguments.engine: found {}, required {}",
            type_name(&other),
            names()
        )),
    }
}

/// The one text argument of a tool that takes one, or what is wrong with the arguments.
fn argument(tool: ExposedTool, arguments: Option<JsonObject>) -> Result<String, String> {
    let required = match tool {
        ExposedTool::ExecuteProgram | ExposedTool::RunPython => Some("code"),
        // Its own reader names path, found and required.
        ExposedTool::SubmitExecuteUnconfirmed | ExposedTool::SubmitOutcome => {
            return Ok(String::new());
        }
        ExposedTool::InspectTool => Some("tool_name"),
        ExposedTool::ListCallableTools => None,
    };
    let mut arguments = arguments.unwrap_or_default();
    let value = required.and_then(|name| arguments.remove(name));
    let name = tool.name();
    if let Some((extra, _)) = arguments.iter().next() {
        let known = required.map_or("no arguments".to_owned(), |only| format!("only `{only}`"));
        return Err(format!(
            "{name}: arguments.{}: found an unknown argument, required {known}",
            clip(extra)
        ));
    }
    match (required, value) {
        (None, _) => Ok(String::new()),
        (Some(_), Some(Value::String(text))) => Ok(text),
        (Some(parameter), None) => Err(format!(
            "{name}: arguments.{parameter}: found nothing, required a string"
        )),
        (Some(parameter), Some(other)) => Err(format!(
            "{name}: arguments.{parameter}: found {}, required a string",
            type_name(&other)
        )),
    }
}

/// Whether a program looks as if it wanted tools.
pub(super) fn names_tools(code: &str) -> bool {
    [
        "mcp__",
        "list_callable_tools",
        "inspect_tool",
        "server_status",
    ]
    .iter()
    .any(|name| code.contains(name))
}

/// What a client is told that calls what is not offered; `meant` is the tool of a server it may have meant.
pub(super) fn unknown(face: &Face, meant: Option<&str>) -> String {
    let offered: Vec<_> = face.expose.iter().map(|tool| tool.name()).collect();
    if offered.is_empty() {
        return "unknown tool; ptcd offers none (tools.expose is empty)".to_owned();
    }
    let mut text = format!("unknown tool; ptcd offers {}", offered.join(", "));
    if let Some(tool) = meant.filter(|_| face.expose.contains(&ExposedTool::ExecuteProgram)) {
        let _ = write!(
            text,
            "; {tool} is called inside a program: execute_program with the code print(await {tool}(...))"
        );
    }
    text
}

fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

/// A JSON value's type, with its article.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_description_is_longer_than_2000_characters() {
        for confinement in [None, Some(Confinement::None)] {
            let face = Face {
                confinement,
                ..Face::default()
            };
            for tool in definitions(&face) {
                let text = tool.description.unwrap_or_default();
                assert!((1..=2000).contains(&text.chars().count()), "{}", tool.name);
            }
        }
    }

    #[test]
    fn a_tool_of_a_server_that_a_client_calls_itself_is_shown_inside_a_program() {
        let face = Face::default();
        let offered =
            "unknown tool; ptcd offers execute_program, inspect_tool, list_callable_tools";
        assert_eq!(unknown(&face, None), offered);
        assert_eq!(
            unknown(&face, Some("mcp__a__b")),
            format!(
                "{offered}; mcp__a__b is called inside a program: execute_program with the code \
                 print(await mcp__a__b(...))"
            )
        );
        let without = Face {
            expose: vec![ExposedTool::InspectTool],
            ..face
        };
        assert_eq!(
            unknown(&without, Some("mcp__a__b")),
            "unknown tool; ptcd offers inspect_tool"
        );
    }

    #[test]
    fn the_shims_list_for_an_unknown_configuration_is_that_of_the_default() {
        let ours = serde_json::to_string(&definitions(&Face::default())).unwrap();
        assert_eq!(ours, ptc_protocol::said::DEFAULT_TOOLS.trim_end());
    }

    #[test]
    fn arguments_that_do_not_fit_name_path_found_and_required() {
        let object = |value: Value| value.as_object().cloned();
        for (tool, arguments, text) in [
            (
                ExposedTool::ExecuteProgram,
                json!({}),
                "execute_program: arguments.code: found nothing, required a string",
            ),
            (
                ExposedTool::ExecuteProgram,
                json!({"code": null}),
                "execute_program: arguments.code: found null, required a string",
            ),
            (
                ExposedTool::ExecuteProgram,
                json!({"code": 5}),
                "execute_program: arguments.code: found a number, required a string",
            ),
            (
                ExposedTool::ExecuteProgram,
                json!({"code": "", "x": 1}),
                "execute_program: arguments.x: found an unknown argument, required only `code`",
            ),
            (
                ExposedTool::InspectTool,
                json!({"tool_name": []}),
                "inspect_tool: arguments.tool_name: found an array, required a string",
            ),
            (
                ExposedTool::ListCallableTools,
                json!({"a": 1}),
                "list_callable_tools: arguments.a: found an unknown argument, required no arguments",
            ),
        ] {
            assert_eq!(argument(tool, object(arguments)).unwrap_err(), text);
        }
        assert_eq!(
            argument(ExposedTool::ExecuteProgram, object(json!({"code": "x"}))).unwrap(),
            "x"
        );
        assert_eq!(argument(ExposedTool::ListCallableTools, None).unwrap(), "");
    }

    fn both() -> EnginesConfig {
        EnginesConfig {
            offered: vec![EngineName::Cpython, EngineName::Monty],
            ..EnginesConfig::default()
        }
    }

    #[test]
    fn an_engine_can_be_named_where_there_is_a_choice_and_nowhere_else() {
        let read = |engines: &EnginesConfig, arguments: Value| {
            let mut arguments = arguments.as_object().cloned();
            let engine = engine(engines, ExposedTool::ExecuteProgram, arguments.as_mut())?;
            let code = argument(ExposedTool::ExecuteProgram, arguments)?;
            Ok::<_, String>((code, engine))
        };
        let named = json!({"code": "x", "engine": "monty"});
        assert_eq!(
            read(&both(), named.clone()),
            Ok(("x".to_owned(), Some(EngineName::Monty)))
        );
        assert_eq!(
            read(&both(), json!({"code": "x"})),
            Ok(("x".to_owned(), None))
        );
        assert_eq!(
            read(&EnginesConfig::default(), named),
            Err("execute_program: arguments.engine: found an unknown argument, required only `code`".to_owned())
        );
        assert_eq!(
            read(&both(), json!({"code": "x", "engine": "pypy"})),
            Err(
                "execute_program: arguments.engine: found \"pypy\", required cpython or monty"
                    .to_owned()
            )
        );
        assert_eq!(
            read(&both(), json!({"code": "x", "engine": 1})),
            Err(
                "execute_program: arguments.engine: found a number, required cpython or monty"
                    .to_owned()
            )
        );
    }

    #[test]
    fn the_gaps_of_the_other_engine_are_told_where_it_is_offered() {
        let face = Face {
            engines: both(),
            ..Face::default()
        };
        let definition = &definitions(&face)[0];
        let text = definition.description.clone().unwrap_or_default();
        assert!(text.contains("tool_error(e)"), "{text}");
        assert!(text.chars().count() <= 2000, "{}", text.chars().count());
        assert_eq!(
            definition.input_schema["properties"]["engine"]["enum"],
            json!(["cpython", "monty"])
        );
        let plain = &definitions(&Face::default())[0];
        assert!(
            !plain
                .description
                .clone()
                .unwrap_or_default()
                .contains("monty")
        );
        assert!(plain.input_schema["properties"].get("engine").is_none());
    }
}
