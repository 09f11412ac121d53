//! Starts the downstream room, with what it needs to know of variables and secrets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ptc_protocol::paths::Places;

use super::StartError;
use crate::config::Config;
use crate::config::expand::{Expanded, Variables};
use crate::config::mask::Masker;
use crate::control::socket::private_folder;
use crate::downstream::{self, Address, Downstream, Entry, Target};

/// Connects to the servers of a configuration. `umask` is what they get.
pub(super) fn connect(
    config: &Config,
    places: &Places,
    variables: &Arc<Variables>,
    masker: &Masker,
    umask: rustix::fs::Mode,
) -> Result<Downstream, StartError> {
    let log_dir = places.state_dir.join("servers");
    private_folder(&log_dir)?;
    let lists_dir = places.state_dir.join("lists");
    private_folder(&lists_dir)?;
    let (expanding, recorded, masking) =
        (Arc::clone(variables), Arc::clone(variables), masker.clone());
    let (secrets, settling) = (masker.clone(), masker.clone());
    let options = downstream::Options {
        max_result_bytes: config.execution.max_tool_result_bytes,
        expand: Arc::new(move |server, project| {
            match expanding.expand(server, project.and_then(Path::to_str), &secrets) {
                Ok(Expanded::Stdio {
                    command,
                    args,
                    env,
                    cwd,
                }) => Ok(Target::Process(Entry {
                    command,
                    args,
                    env,
                    cwd,
                })),
                Ok(Expanded::Endpoint { url, headers }) => {
                    Ok(Target::Endpoint(Address { url, headers }))
                }
                Err(error) => Err(error.to_string()),
            }
        }),
        recorded: Arc::new(move |name| recorded.recorded(name)),
        log_dir,
        lists_dir,
        idle: config.daemon.idle_server,
        mask: Arc::new(move |text| masking.mask(text).into_owned()),
        settled: Arc::new(move |text| settling.settled(text)),
        own_program: Some(own_program()),
        umask,
    };
    Downstream::start(config.servers.clone(), options).map_err(|source| StartError::Io {
        action: "starting a thread for servers",
        source,
    })
}

/// This program, whatever lies at its path by now.
fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_default()
    }
}
