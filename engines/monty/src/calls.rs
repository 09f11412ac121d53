//! What a call of a tool, a helper or `emit` sends, and what a wrong one explains.

use monty_types::unstable::{MontyNode, node};
use monty_types::{CallArgs, ExcType, MontyException, MontyObject};

use crate::frame::AnswerError;
use crate::value::{self, quote};

/// The functions a program has beside its tools.
pub(crate) const OURS: [&str; 7] = [
    "emit",
    "exit",
    "quit",
    "list_callable_tools",
    "inspect_tool",
    "server_status",
    "tool_error",
];
/// Parameters that an explanation shows.
const SHOWN: usize = 12;
/// Far longer than any name, and in JSON still short of what the daemon reads of a question.
const MAX_NAME: usize = 8_000;
const ONE_VALUE: &str =
    "emit takes one value: write emit(value), or emit({\"a\": ..., \"b\": ...}) for several";
/// Words of Python that are no names.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// The body of a call frame after its id.
pub(crate) fn of_tool(
    name: &str,
    parameters: &[String],
    arguments: &CallArgs,
    most: usize,
) -> Result<String, MontyException> {
    if arguments.args().len() > 0 {
        return Err(type_error(positional(name, parameters, arguments)));
    }
    let encoded = value::encode_arguments(arguments.kwargs())?;
    if encoded.len() > most {
        let message = format!(
            "the arguments of {name} are {} bytes of JSON, over the limit of {most} bytes",
            encoded.len()
        );
        return Err(MontyException::new(ExcType::ValueError, Some(message)));
    }
    let mut rest = String::from("\"tool\":");
    quote(name, &mut rest);
    rest.push_str(",\"arguments\":");
    rest.push_str(&encoded);
    rest.push('}');
    Ok(rest)
}

/// The body of a query frame after its id.
pub(crate) fn of_helper(name: &str, arguments: &CallArgs) -> Result<String, MontyException> {
    let given: Vec<_> = arguments
        .args()
        .chain(arguments.kwargs().map(|(_, value)| value))
        .collect();
    let mut asked = String::from("{");
    if name == "inspect_tool" {
        let named = arguments
            .kwargs()
            .all(|(key, _)| key.as_str() == Some("tool_name"));
        let tool = match given.as_slice() {
            [one] if named => one.as_str(),
            _ => None,
        };
        let Some(tool) = tool else {
            return Err(type_error(
                "inspect_tool takes the name of one tool as text: write await inspect_tool(tool_name=\"mcp__SERVER__TOOL\")".to_owned(),
            ));
        };
        if tool.len() > MAX_NAME {
            let message = format!(
                "no tool can be called by a name of {} characters",
                tool.chars().count()
            );
            return Err(MontyException::new(ExcType::OSError, Some(message)));
        }
        asked.push_str("\"tool_name\":");
        quote(tool, &mut asked);
    } else if !given.is_empty() {
        return Err(type_error(format!(
            "{name} takes no arguments: write await {name}()"
        )));
    }
    Ok(format!("\"helper\":\"{name}\",\"arguments\":{asked}}}}}"))
}

/// The JSON text of what is emitted.
pub(crate) fn emitted(arguments: &CallArgs, most: usize) -> Result<String, MontyException> {
    let named = arguments
        .kwargs()
        .all(|(key, _)| key.as_str() == Some("value"));
    let mut given = arguments
        .args()
        .chain(arguments.kwargs().map(|(_, value)| value));
    let (Some(value), None, true) = (given.next(), given.next(), named) else {
        return Err(type_error(ONE_VALUE.to_owned()));
    };
    let encoded = value::encode(value, "value")?;
    if encoded.len() > most {
        let message = format!(
            "emit: the value is {} bytes of JSON, over the limit of {most} bytes (execution.max_output_bytes); emit less, \
             such as totals or the first rows",
            encoded.len()
        );
        return Err(MontyException::new(ExcType::ValueError, Some(message)));
    }
    Ok(encoded)
}

/// The code that a program leaves with; `None` for success.
pub(crate) fn exit_code(arguments: &CallArgs) -> Option<String> {
    let code = arguments.arg(0)?;
    match node(code) {
        MontyNode::None | MontyNode::Int(0) | MontyNode::Bool(false) => None,
        MontyNode::Bool(true) => Some("1".to_owned()),
        MontyNode::String(text) => Some(text.clone()),
        _ => Some(code.py_repr()),
    }
}

/// What is known of an error of a tool, found by its text, since the interpreter's errors carry nothing else.
pub(crate) fn tool_error(
    arguments: &CallArgs,
    errors: &[AnswerError],
) -> Result<MontyObject, MontyException> {
    let usage =
        || type_error("tool_error takes a caught ToolError: write tool_error(e)".to_owned());
    let caught = arguments.arg(0).ok_or_else(usage)?;
    let MontyNode::Exception { arg, .. } = node(caught) else {
        return Err(usage());
    };
    let message = arg.as_deref().unwrap_or_default();
    let found = errors
        .iter()
        .rev()
        .find(|error| error.message == message)
        .ok_or_else(usage)?;
    let text = |value: &Option<String>| {
        value
            .as_ref()
            .map_or_else(MontyObject::none, MontyObject::string)
    };
    let data = match &found.data {
        Some(data) => value::decode(data.get())?,
        None => MontyObject::none(),
    };
    let entries = [
        ("kind", MontyObject::string(&found.kind)),
        ("message", MontyObject::string(&found.message)),
        ("tool", text(&found.tool)),
        ("server", text(&found.server)),
        ("retryable", MontyObject::bool(found.retryable)),
        ("data", data),
    ];
    Ok(MontyObject::dict(
        entries.map(|(key, value)| (MontyObject::string(key), value)),
    ))
}

fn positional(name: &str, parameters: &[String], arguments: &CallArgs) -> String {
    let names: Vec<String> = parameters
        .iter()
        .take(SHOWN)
        .map(|parameter| shown(parameter))
        .collect();
    let known = if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", names.join(", "))
    };
    let only: &[String] = &["name".to_owned()];
    let example = usage(
        name,
        if parameters.is_empty() {
            only
        } else {
            parameters
        },
    );
    let dict = arguments.args().len() == 1
        && arguments.kwargs().len() == 0
        && arguments
            .arg(0)
            .is_some_and(|first| matches!(node(first), MontyNode::Dict(_)));
    let unpack = if dict {
        format!(", or unpack the dict: await {name}(**{{...}})")
    } else {
        String::new()
    };
    format!("{name} takes keyword arguments only{known}: write {example}{unpack}")
}

fn shown(parameter: &str) -> String {
    if is_plain(parameter) {
        parameter.to_owned()
    } else {
        format!("{parameter:?}")
    }
}

fn usage(name: &str, parameters: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let (plain, quoted): (Vec<_>, Vec<_>) = parameters
        .iter()
        .take(SHOWN)
        .partition(|parameter| is_plain(parameter));
    parts.extend(plain.iter().map(|parameter| format!("{parameter}=...")));
    if !quoted.is_empty() {
        let inner: Vec<String> = quoted
            .iter()
            .map(|parameter| format!("{parameter:?}: ..."))
            .collect();
        parts.push(format!("**{{{}}}", inner.join(", ")));
    }
    if parameters.len() > SHOWN {
        parts.push("...".to_owned());
    }
    format!("await {name}({})", parts.join(", "))
}

fn is_plain(parameter: &str) -> bool {
    let mut characters = parameter.chars();
    characters
        .next()
        .is_some_and(|first| first == '_' || first.is_ascii_alphabetic())
        && characters.all(|other| other == '_' || other.is_ascii_alphanumeric())
        && !KEYWORDS.contains(&parameter)
}

fn type_error(message: String) -> MontyException {
    MontyException::new(ExcType::TypeError, Some(message))
}
