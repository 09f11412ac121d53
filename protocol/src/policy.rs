//! What is asked and told about policies without a program.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::detail::DecisionEntry;
use crate::facts::StartEntry;

/// A call that is to be judged and not made, or only the client whose programs are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialCall {
    /// Callable name; empty where no call is to be judged.
    #[serde(default)]
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// Name of the client that would make it; empty where it gives none.
    #[serde(default)]
    pub client: String,
}

/// What [`crate::route::POLICY_CHECK`] answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChecked {
    /// See [`crate::status::SCHEMA`].
    pub schema: u32,
    /// The file or folder of Cedar policies; absent where none is configured.
    pub path: Option<String>,
    /// How many policies it holds.
    pub policies: usize,
    /// Which set of policies: the first digits of its hash.
    pub rules: Option<String>,
    /// Everything wrong with the configuration or the policies; nothing can be judged then.
    pub faults: Vec<String>,
    /// What their author should know although they can be used.
    pub warnings: Vec<String>,
    /// What the policies say of that client's programs in each engine; empty where none is about starts, and all start.
    #[serde(default)]
    pub starts: Vec<TrialStart>,
    /// What the gate says about the call.
    pub decision: Option<DecisionEntry>,
    /// Why the call cannot be judged.
    pub refused: Option<String>,
}

/// What policies say of a client's programs in one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialStart {
    /// The client.
    pub client: String,
    /// The engine.
    pub engine: String,
    /// What they say.
    #[serde(flatten)]
    pub said: StartEntry,
}
