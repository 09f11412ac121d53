//! `ptcctl runs`: lists finished runs, or shows one with its calls on the run's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use ptc_protocol::detail::RunDetail;
use ptc_protocol::provenance::Provenance;
use ptc_protocol::route;
use ptc_protocol::run::{Ending, RunRecord};
use ptc_protocol::status::SCHEMA;
use serde_json::json;

use super::output::{print, print_json};
use super::run_view::{detail_text, width};
use super::table::{Column, Lean, lay_out};
use super::words::{ago, bytes, count, duration, plain};
use super::{Context, Exit, request};
use crate::connect::ConnectError;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Show this run in full
    #[arg(conflicts_with_all = ["client", "failed", "since", "limit"])]
    run: Option<String>,
    /// Only runs of clients whose label or name contains this
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Only runs that did not come to their end
    #[arg(long)]
    failed: bool,
    /// Only runs that ended within this time, such as 90s, 30m, 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = span_ms)]
    since: Option<u64>,
    /// At most so many, the newest first
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u64,
}

/// Longest time that can be asked for, which is the longest that the journal can be told to keep runs.
const LONGEST_DAYS: u64 = 1_000_000;
const LONGEST_AGO: u64 = LONGEST_DAYS * 86_400;

/// Milliseconds of a time such as `2h`.
fn span_ms(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("write a number and s, m, h or d, such as 30m".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{number:?} is no whole number, or too large a one"))?;
    let seconds = number.saturating_mul(seconds);
    if seconds > LONGEST_AGO {
        return Err(format!(
            "{text} is longer than anything is kept: at most {LONGEST_DAYS}d"
        ));
    }
    Ok(seconds * 1000)
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    match &arguments.run {
        Some(run) => one(context, run).await,
        None => list(context, arguments).await,
    }
}

async fn list(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let now = now_ms();
    let since = arguments
        .since
        .map(|ago| now.saturating_sub(ago).to_string());
    let limit = arguments.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    if let Some(client) = &arguments.client {
        query.push(("client", client));
    }
    if arguments.failed {
        query.push(("failed", "true"));
    }
    if let Some(since) = &since {
        query.push(("since_ms", since));
    }
    let path = request(route::RUNS, &query)?;
    let runs: Vec<RunRecord> = context.connect().await?.get(&path).await?;
    if context.output.json {
        let runs: Vec<_> = runs.iter().map(listed).collect();
        print_json(&json!({"schema": SCHEMA, "runs": runs}))?;
        return Ok(Exit::Ok);
    }
    if runs.is_empty() {
        context.output.message("no finished run is kept that fits");
        return Ok(Exit::Ok);
    }
    print(&lay_out(columns(&runs, now), width(), false).join("\n"))?;
    Ok(Exit::Ok)
}

/// A record with the level it supports.
fn listed(record: &RunRecord) -> serde_json::Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    let level = Provenance::of(record).level;
    if let Some(value) = value.as_object_mut() {
        value.insert("level".to_owned(), json!(level));
    }
    value
}

fn columns(runs: &[RunRecord], now: u64) -> Vec<Column> {
    let column = |title, lean, drop, cell: &dyn Fn(&RunRecord) -> String| Column {
        title,
        lean,
        least: 0,
        drop,
        cells: runs.iter().map(cell).collect(),
    };
    let ended = |record: &RunRecord| ago(now.saturating_sub(record.ended_ms()) / 1000);
    vec![
        column("RUN", Lean::Left, None, &|record| plain(&record.run)),
        column("ENDED", Lean::Right, None, &ended),
        column("KIND", Lean::Left, Some(0), &|record| {
            record.facts.kind.as_str().to_owned()
        }),
        column("ENDING", Lean::Left, None, &|record| {
            record.ending.as_str().to_owned()
        }),
        column("LEVEL", Lean::Left, Some(2), &|record| {
            Provenance::of(record).level.as_str().to_owned()
        }),
        column("CALLS", Lean::Right, Some(3), &|record| {
            record.calls.to_string()
        }),
        column("FAIL", Lean::Right, Some(1), &|record| {
            record.failed_calls.to_string()
        }),
        column("TIME", Lean::Right, None, &|record| {
            duration(record.duration_ms)
        }),
        column("OUTPUT", Lean::Right, Some(1), &|record| {
            bytes(record.output_bytes)
        }),
        column("CLIENT", Lean::Left, None, &|record| {
            plain(record.client.as_deref().unwrap_or("-"))
        }),
    ]
}

async fn one(context: &Context, run: &str) -> anyhow::Result<Exit> {
    let path = request(route::RUN, &[("id", run)])?;
    let detail = match context.connect().await?.get::<RunDetail>(&path).await {
        Ok(detail) => detail,
        Err(ConnectError::Status { status: 404, .. }) => {
            let text = format!(
                "there is no record of a run {:?}: `ptcctl runs` lists those that are kept",
                plain(run)
            );
            return Ok(context.output.failure(&text, Exit::Failure));
        }
        Err(error) => bail!(error),
    };
    if context.output.json {
        print_json(&serde_json::to_value(&detail)?)?;
        return Ok(Exit::Ok);
    }
    print(&detail_text(&detail, width()).join("\n"))?;
    if detail.record.ending != Ending::Finished && detail.record.failed_calls > 0 {
        let text = format!("{} failed", count(detail.record.failed_calls, "call"));
        context.output.detail(&text);
    }
    Ok(Exit::Ok)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        assert_eq!(span_ms("90s"), Ok(90_000));
        assert_eq!(span_ms("2h"), Ok(7_200_000));
        assert_eq!(span_ms("7d"), Ok(604_800_000));
        assert_eq!(span_ms("1000000d"), Ok(86_400_000_000_000));
        assert_eq!(span_ms("0s"), Ok(0));
        let long = [
            "1000001d",
            "1000000000000d",
            "18446744073709551615s",
            "99999999999999999999s",
        ];
        for odd in ["", "5", "h", "-1h", "1.5h", "1w", "1hh", "٣h"]
            .into_iter()
            .chain(long)
        {
            assert!(span_ms(odd).is_err(), "{odd}");
        }
    }
}
