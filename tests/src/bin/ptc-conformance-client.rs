//! The conformance suite starts it with the address of a server as its last argument.

use anyhow::Context as _;
use ptc_tests::conformance::client;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().next_back().context("an address")?;
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").ok();
    let state = tempfile::tempdir()?;
    let told = client::run(&url, context.as_deref(), state.path()).await?;
    for line in told {
        say(&line);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the suite keeps it beside its verdict")]
fn say(line: &str) {
    println!("{line}");
}
