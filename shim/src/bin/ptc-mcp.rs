//! The stdio shim.

use std::io::Write as _;
use std::process::ExitCode;

use ptc_protocol::BUILD;
use ptc_shim::forward;
use ptc_shim::options::{self, HELP, Options, Request};

fn main() -> ExitCode {
    match options::parse(std::env::args_os().skip(1)) {
        Ok(Request::Serve(options)) => match serve(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&error.to_string(), 1),
        },
        Ok(Request::Help) => print(HELP),
        Ok(Request::Version) => print(&format!("ptc-mcp {BUILD}\n")),
        Err(error) => complain(&error.to_string(), 2),
    }
}

fn serve(options: Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(forward::serve(options))?;
    Ok(())
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    // Without a stderr there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "ptc-mcp: {text}");
    ExitCode::from(code)
}
