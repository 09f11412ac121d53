//! Makes cargo build the `ptcd` program for the suites that run it.

use std::process::Command;

#[test]
fn the_program_tells_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_ptcd"))
        .arg("--version")
        .output()
        .unwrap();
    assert!(output.status.success());
    let version = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        version.trim(),
        format!("ptcd {}", env!("CARGO_PKG_VERSION"))
    );
}
