//! Reads what the daemon last said to its clients, for while it is not there.

use ptc_protocol::BUILD;
use ptc_protocol::paths::Places;
use ptc_protocol::said::{MAX_SAID_BYTES, Said, digest};

use crate::connect::own_file;

/// What a daemon of this build left for the configuration as it is now.
pub(crate) fn read(places: &Places) -> Option<Said> {
    let text = own_file(&places.said_file(), MAX_SAID_BYTES)?;
    let said: Said = serde_json::from_str(&text).ok()?;
    let fits = said.build == BUILD && said.config == digest(places.config.path());
    (fits && said.tools.is_array()).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptc_protocol::paths::{Environment, Sources};
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_a_file_of_this_build_and_configuration_that_is_ours_alone_counts() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        std::fs::write(&config, "tools: {expose: []}\n").unwrap();
        let places = Places::find(&Sources {
            config: Some(config.clone()),
            socket: Some(folder.path().join("s")),
            environment: Environment::from_lookup(Some(folder.path().to_owned()), |_| None),
        })
        .unwrap();
        std::fs::create_dir_all(&places.state_dir).unwrap();
        let said = Said {
            build: BUILD.to_owned(),
            config: digest(&config),
            instructions: "Do.".to_owned(),
            ttl_ms: 5,
            tools: json!([]),
        };
        let write = |said: &Said, mode: u32| {
            let file = places.said_file();
            std::fs::write(&file, serde_json::to_vec(said).unwrap()).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(read(&places), None);
        write(&said, 0o600);
        assert_eq!(read(&places), Some(said.clone()));
        write(&said, 0o644);
        assert_eq!(read(&places), None);
        let other = Said {
            build: "0.0.0".to_owned(),
            ..said.clone()
        };
        write(&other, 0o600);
        assert_eq!(read(&places), None);
        write(&said, 0o600);
        std::fs::write(&config, "tools: {expose: [inspect_tool]}\n").unwrap();
        assert_eq!(read(&places), None);
    }
}
