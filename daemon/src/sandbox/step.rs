//! The steps by which a worker is made, and their names.

use serde::Deserialize;

/// The steps a worker goes through before it is the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A scratch folder.
    Scratch,
    /// A process.
    Fork,
    /// Namespaces of its own.
    Namespaces,
    /// A session of its own, in the scratch folder.
    Session,
    /// Descriptors 0 to 3 and no others.
    Descriptors,
    /// Resource limits.
    Limits,
    /// No privilege can be gained.
    NoNewPrivileges,
    /// No capability can be gained.
    BoundingSet,
    /// Another user, when ptcd is root.
    Identity,
    /// No capability is left.
    Capabilities,
    /// The warden's death is the worker's.
    ParentDeath,
    /// Files, ports, signals.
    Landlock,
    /// No memory becomes executable.
    Memory,
    /// System calls.
    Seccomp,
    /// The interpreter.
    Exec,
}

impl Step {
    /// The name it travels and is reported under.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scratch => "scratch",
            Self::Fork => "fork",
            Self::Namespaces => "namespaces",
            Self::Session => "session",
            Self::Descriptors => "descriptors",
            Self::Limits => "limits",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::BoundingSet => "bounding_set",
            Self::Identity => "identity",
            Self::Capabilities => "capabilities",
            Self::ParentDeath => "parent_death",
            Self::Landlock => "landlock",
            Self::Memory => "memory",
            Self::Seccomp => "seccomp",
            Self::Exec => "exec",
        }
    }
}
