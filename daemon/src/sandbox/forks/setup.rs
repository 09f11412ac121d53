//! What a fork server and each of its children are told of how they are confined.

use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::landlock::Rules;
use crate::sandbox::limits::Limits;
use crate::sandbox::namespaces;
use crate::sandbox::profile::Who;
use crate::sandbox::root;
use crate::sandbox::seccomp::Filters;
use crate::sandbox::wire::Plan;
use crate::sandbox::without::{Layer, Without};

/// What servers of one plan are made from.
#[derive(Debug)]
pub(in crate::sandbox) struct Setup {
    /// The filters of a server.
    pub(in crate::sandbox) filters: Filters,
    /// seccomp filters that a worker has in the end: the server's and its own.
    pub(in crate::sandbox) count: usize,
    /// What a server confines its children by, as JSON.
    pub(in crate::sandbox) text: String,
}

impl Setup {
    /// Compiles `profile` for the plan's tier. `warden` is the parent that a worker must have, where it can see it.
    ///
    /// # Errors
    /// The plan's tier has no fork server, or its parts cannot be made; the text says why.
    pub(in crate::sandbox) fn make(
        plan: &Plan,
        profile: &str,
        without: &Without,
        warden: i32,
    ) -> Result<Self, String> {
        let tier = plan.tier.as_deref().ok_or("there is no confinement")?;
        if !plan.landlock && !without.lacks(Layer::Landlock) {
            return Err("the kernel's Landlock is too old".to_owned());
        }
        let inside = plan.root.is_some();
        let filters = Filters::compile(profile, tier, Who::Server).map_err(|e| e.to_string())?;
        let own = Filters::compile(profile, tier, Who::Worker).map_err(|e| e.to_string())?;
        let has = |layer| !without.lacks(layer);
        let mut count = 0;
        let mut programs = Vec::new();
        if has(Layer::Seccomp) {
            count = filters.count() + own.count();
            programs = own.for_a_fork().map_err(|error| error.to_string())?;
        }
        let landlock = if plan.landlock {
            Some(Rules::of(&plan.reach).map_err(|error| error.to_string())?)
        } else {
            None
        };
        let spaces = if inside {
            namespaces::worker_spaces(without)
        } else {
            0
        };
        let text = json!({
            "spaces": spaces,
            "warden": if inside { 0 } else { warden },
            "landlock": landlock.as_ref().map(Rules::to_json),
            "filters": programs.iter().map(|program| hexadecimal(program)).collect::<Vec<_>>(),
            "bounding_set": inside && has(Layer::BoundingSet),
            "capabilities": inside && has(Layer::Capabilities),
            "parent_death": has(Layer::ParentDeath),
            "descriptors": has(Layer::Descriptors),
            "calls": {
                "clone": libc::SYS_clone,
                "seccomp": libc::SYS_seccomp,
                "close_range": libc::SYS_close_range,
                "landlock_create_ruleset": libc::SYS_landlock_create_ruleset,
                "landlock_add_rule": libc::SYS_landlock_add_rule,
                "landlock_restrict_self": libc::SYS_landlock_restrict_self,
            },
        })
        .to_string();
        Ok(Self {
            filters,
            count,
            text,
        })
    }
}

/// What one child is told: its limits, its scratch, and whether it is to try to get out. `tasks` is how many tasks its
/// user has already.
pub(in crate::sandbox) fn task(
    limits: Limits,
    tasks: u64,
    scratch: &Path,
    inside: bool,
    canary: bool,
    without: &Without,
) -> Value {
    let limited = !without.lacks(Layer::Limits);
    let limits_by_number: Vec<(u32, u64)> = if limited {
        limits.by_number(tasks).into()
    } else {
        Vec::new()
    };
    json!({
        "limits": limits_by_number,
        "scratch": scratch.to_str(),
        "options": inside.then(|| root::scratch_options(limits)),
        "canary": canary,
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
