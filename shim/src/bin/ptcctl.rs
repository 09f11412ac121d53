//! The command line.

fn main() -> std::process::ExitCode {
    ptc_shim::ctl::main()
}
