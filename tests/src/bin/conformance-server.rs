//! Serves the conformance suite: its fixtures on the daemon's session layer, or a running daemon.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use ptc_tests::conformance::fixture::Fixture;
use ptc_tests::conformance::front::{self, Source};

const USAGE: &str = "conformance-server fixture | conformance-server ptcd SOCKET CONFIG";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context(USAGE);
    let source = match next()?.as_str() {
        "fixture" => Source::Fixture(Fixture::default()),
        "ptcd" => Source::Daemon {
            socket: PathBuf::from(next()?),
            config: PathBuf::from(next()?).canonicalize()?,
        },
        _ => bail!(USAGE),
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    say(&format!(
        "http://localhost:{}/mcp",
        listener.local_addr()?.port()
    ));
    front::serve(listener, source).await?;
    Ok(())
}

#[expect(
    clippy::print_stdout,
    reason = "whoever started it wants to know where it is"
)]
fn say(url: &str) {
    println!("{url}");
}
