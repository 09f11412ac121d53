//! What the client programs are built from.

use std::collections::{BTreeMap, BTreeSet};

/// Every locked package with the names of those it needs, tests included.
fn locked() -> BTreeMap<String, Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let text = std::fs::read_to_string(path).unwrap();
    let mut packages = BTreeMap::<String, Vec<String>>::new();
    for package in text.split("[[package]]").skip(1) {
        let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
        let name = package.lines().find(|line| line.starts_with("name = "));
        let needs = package.lines().filter(|line| line.starts_with(" \""));
        // An entry may be followed by a version; two versions of a package count as one here.
        let needs = needs.filter_map(quoted);
        let needs = needs.filter_map(|entry| entry.split(' ').next().map(str::to_owned));
        let entry = packages.entry(name.and_then(quoted).unwrap());
        entry.or_default().extend(needs);
    }
    packages
}

#[test]
fn the_clients_link_neither_the_mcp_library_nor_the_web_framework() {
    let packages = locked();
    let mut seen = BTreeSet::new();
    let mut next = vec!["ptc-shim"];
    while let Some(name) = next.pop() {
        if seen.insert(name) {
            next.extend(packages[name].iter().map(String::as_str));
        }
    }
    assert!(
        seen.contains("ptc-protocol") && seen.contains("tokio"),
        "{seen:?}"
    );
    for name in ["rmcp", "axum", "ptcd"] {
        assert!(
            packages.contains_key(name),
            "{name} is still somewhere in the workspace"
        );
        assert!(!seen.contains(name), "{name} in {seen:?}");
    }
}
