//! The demo's MCP server: finance-like figures over stdio, a hidden mode of ptcd.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

use serde_json::{Map, Value, json};

/// The figures that ship with the program: each company's quarters, newest first, in dollars.
const FIGURES: &str = include_str!("figures.json");

/// Serves until the end of stdin. `figures` is a file to read in place of the built-in figures.
pub fn serve(figures: Option<&Path>) -> anyhow::Result<()> {
    let text = match figures {
        Some(path) => std::fs::read_to_string(path)?,
        None => FIGURES.to_owned(),
    };
    let figures: Map<String, Value> = serde_json::from_str(&text)?;
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let Some(id) = message.get("id") else {
            continue;
        };
        let mut answer = json!({"jsonrpc": "2.0", "id": id});
        let (member, value) = match handle(&message, &figures) {
            Ok(result) => ("result", result),
            Err((code, text)) => ("error", json!({"code": code, "message": text})),
        };
        if let Some(answer) = answer.as_object_mut() {
            answer.insert(member.to_owned(), value);
        }
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}

fn handle(message: &Value, figures: &Map<String, Value>) -> Result<Value, (i32, String)> {
    let params = message.get("params").cloned().unwrap_or_default();
    match message
        .get("method")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "initialize" => Ok(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "financial-data", "version": ptc_protocol::BUILD},
        })),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({"tools": [definition()]})),
        "tools/call" => Ok(query(
            params.get("arguments").unwrap_or(&Value::Null),
            figures,
        )),
        method => Err((-32601, format!("method not found: {method}"))),
    }
}

fn definition() -> Value {
    json!({
        "name": "query_financials",
        "description": "Quarterly income statements of a company, newest first (made for the demo; not for investing).",
        "inputSchema": {
            "type": "object",
            "properties": {
                "ticker": {"type": "string"},
                "statement": {"type": "string", "enum": ["income"]},
                "period": {"type": "string", "enum": ["quarter"]},
                "limit": {"type": "integer", "minimum": 1, "maximum": 4},
            },
            "required": ["ticker"],
            "additionalProperties": false,
        },
    })
}

fn query(arguments: &Value, figures: &Map<String, Value>) -> Value {
    let ticker = arguments
        .get("ticker")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(4);
    let Some(rows) = figures.get(ticker).and_then(Value::as_array) else {
        let text = format!("no figures for {ticker}");
        return json!({"content": [{"type": "text", "text": text}], "isError": true});
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let rows: Vec<Value> = rows
        .iter()
        .take(limit)
        .map(|row| statement(ticker, row))
        .collect();
    let text = Value::Array(rows).to_string();
    json!({"content": [{"type": "text", "text": text}]})
}

/// One statement with as many lines as a real service would send.
fn statement(ticker: &str, row: &Value) -> Value {
    let figure = |name: &str| row.get(name).and_then(Value::as_f64).unwrap_or_default();
    let (revenue, income) = (figure("revenue"), figure("operatingIncome"));
    json!({
        "symbol": ticker,
        "fiscalPeriod": row.get("quarter"),
        "reportedCurrency": "USD",
        "revenue": row.get("revenue"),
        "costOfRevenue": revenue * 0.46,
        "grossProfit": revenue * 0.54,
        "researchAndDevelopmentExpenses": revenue * 0.13,
        "sellingGeneralAndAdministrativeExpenses": revenue * 0.09,
        "operatingExpenses": revenue * 0.54 - income,
        "operatingIncome": row.get("operatingIncome"),
        "interestExpense": revenue * 0.004,
        "incomeBeforeTax": income * 0.99,
        "incomeTaxExpense": income * 0.17,
        "netIncome": income * 0.82,
        "link": format!("https://example.com/filings/{ticker}"),
        "note": "The figures of this demo are rounded from public quarterly reports.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_figures_answer_a_query() {
        let figures: Map<String, Value> = serde_json::from_str(FIGURES).unwrap();
        let answer = query(&json!({"ticker": "MSFT", "limit": 2}), &figures);
        let text = answer["content"][0]["text"].as_str().unwrap();
        let rows: Value = serde_json::from_str(text).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 2);
        assert_eq!(
            query(&json!({"ticker": "X"}), &figures)["isError"],
            json!(true)
        );
    }
}
