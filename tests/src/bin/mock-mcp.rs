//! Starts the scripted MCP server.

fn main() -> std::process::ExitCode {
    ptc_tests::mock::main()
}
