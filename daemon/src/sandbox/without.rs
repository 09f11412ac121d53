//! The layers of a worker's confinement by name, so that a test can have one left out.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::forks::Renewal;

/// One layer of what confines a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The warden's own user namespace.
    WardenUser,
    /// The warden's own pid namespace.
    WardenPid,
    /// The warden's own mount namespace.
    WardenMount,
    /// The warden's own network namespace, in which its workers are.
    WardenNetwork,
    /// The warden's own IPC namespace.
    WardenIpc,
    /// The warden's own UTS namespace, in which its workers are.
    WardenUts,
    /// A worker's own user namespace.
    WorkerUser,
    /// A worker's own pid namespace.
    WorkerPid,
    /// A worker's own mount namespace.
    WorkerMount,
    /// A worker's own IPC namespace.
    WorkerIpc,
    /// A root that holds nothing but the interpreter.
    Root,
    /// Files, ports, signals.
    Landlock,
    /// System calls.
    Seccomp,
    /// Resource limits.
    Limits,
    /// No privilege can be gained.
    NoNewPrivileges,
    /// No capability is left.
    Capabilities,
    /// No capability can be gained.
    BoundingSet,
    /// No memory becomes executable.
    Memory,
    /// The warden's death is the worker's.
    ParentDeath,
    /// Descriptors 0 to 3 and no others.
    Descriptors,
    /// No variables.
    Environment,
    /// Another user, when ptcd is root.
    Identity,
}

/// Every layer.
pub const LAYERS: [Layer; 22] = [
    Layer::WardenUser,
    Layer::WardenPid,
    Layer::WardenMount,
    Layer::WardenNetwork,
    Layer::WardenIpc,
    Layer::WardenUts,
    Layer::WorkerUser,
    Layer::WorkerPid,
    Layer::WorkerMount,
    Layer::WorkerIpc,
    Layer::Root,
    Layer::Landlock,
    Layer::Seccomp,
    Layer::Limits,
    Layer::NoNewPrivileges,
    Layer::Capabilities,
    Layer::BoundingSet,
    Layer::Memory,
    Layer::ParentDeath,
    Layer::Descriptors,
    Layer::Environment,
    Layer::Identity,
];

impl Layer {
    /// The name it travels under.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WardenUser => "warden_user",
            Self::WardenPid => "warden_pid",
            Self::WardenMount => "warden_mount",
            Self::WardenNetwork => "warden_network",
            Self::WardenIpc => "warden_ipc",
            Self::WardenUts => "warden_uts",
            Self::WorkerUser => "worker_user",
            Self::WorkerPid => "worker_pid",
            Self::WorkerMount => "worker_mount",
            Self::WorkerIpc => "worker_ipc",
            Self::Root => "root",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Limits => "limits",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::Capabilities => "capabilities",
            Self::BoundingSet => "bounding_set",
            Self::Memory => "memory",
            Self::ParentDeath => "parent_death",
            Self::Descriptors => "descriptors",
            Self::Environment => "environment",
            Self::Identity => "identity",
        }
    }

    /// Whether the warden has it before it knows any plan.
    pub(super) fn is_of_warden(self) -> bool {
        matches!(
            self,
            Self::WardenUser
                | Self::WardenPid
                | Self::WardenMount
                | Self::WardenNetwork
                | Self::WardenIpc
                | Self::WardenUts
                | Self::Identity
        )
    }

    /// The layer of this name.
    pub fn named(name: &str) -> Option<Self> {
        LAYERS.into_iter().find(|layer| layer.as_str() == name)
    }
}

/// What a sandbox of the tests is without. The running ptcd is never without anything: it leaves this empty, and its
/// warden refuses a plan that does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Without {
    /// Layers that are left out.
    pub layers: Vec<Layer>,
    /// The seccomp profile in place of the built-in one.
    pub profile: Option<String>,
    /// Folders that may be read though programs do not need them.
    pub shown: Vec<PathBuf>,
    /// Forks and milliseconds after which a fork server is replaced, in place of the built-in numbers.
    pub renewal: Option<(u32, u64)>,
}

/// The part of a plan's text that only tests write.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Weakened {
    #[serde(default)]
    pub(super) without: Without,
}

impl Without {
    /// Without nothing but these layers.
    pub fn layers(layers: &[Layer]) -> Self {
        Self {
            layers: layers.to_vec(),
            ..Self::default()
        }
    }

    /// Whether `layer` is left out.
    pub fn lacks(&self, layer: Layer) -> bool {
        self.layers.contains(&layer)
    }

    /// When a fork server is replaced.
    pub(super) fn renewal(&self) -> Renewal {
        self.renewal
            .map_or_else(Renewal::default, |(forks, age)| Renewal {
                forks,
                age: Duration::from_millis(age),
            })
    }

    /// The flags among `spaces` that stay, each named with the layer that it makes.
    pub(super) fn keep(&self, spaces: &[(i32, Layer)]) -> i32 {
        spaces
            .iter()
            .filter(|(_, layer)| !self.lacks(*layer))
            .fold(0, |sum, (flag, _)| sum | flag)
    }

    /// The form in which it travels to the warden.
    pub(super) fn to_json(&self) -> Value {
        let layers: Vec<&str> = self.layers.iter().map(|layer| layer.as_str()).collect();
        let shown: Vec<&str> = self.shown.iter().filter_map(|path| path.to_str()).collect();
        json!({"layers": layers, "profile": self.profile, "shown": shown, "renewal": self.renewal})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_survives_the_way_to_the_warden() {
        let without = Without {
            layers: LAYERS.to_vec(),
            profile: Some("{}".into()),
            shown: vec!["/a b".into()],
            renewal: Some((7, u64::MAX)),
        };
        let text = json!({"tier": null, "without": without.to_json()}).to_string();
        let back: Weakened = serde_json::from_str(&text).unwrap();
        assert_eq!(back.without, without);
        let nothing: Weakened = serde_json::from_str(r#"{"tier": null}"#).unwrap();
        assert_eq!(nothing.without, Without::default());
    }

    #[test]
    fn a_layer_is_found_by_its_name() {
        for layer in LAYERS {
            assert_eq!(Layer::named(layer.as_str()), Some(layer));
        }
        assert_eq!(Layer::named("everything"), None);
    }
}
