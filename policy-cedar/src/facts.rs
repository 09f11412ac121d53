//! The facts about one call, or the start of one program, that policies may look at.

use serde_json::{Map, Value};

/// One call that is to be judged.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Who started the program.
    pub client: Client<'a>,
    /// What is called.
    pub tool: Tool<'a>,
    /// The arguments as they will be sent.
    pub arguments: &'a Map<String, Value>,
    /// The program that calls.
    pub program: Program<'a>,
}

/// The start of one program that is to be judged.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Who starts it.
    pub client: Client<'a>,
    /// What is to run it, such as `cpython`.
    pub engine: &'a str,
}

/// The client that started the program, as it says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// Its name; empty where it gave none.
    pub name: &'a str,
    /// Its version; empty where it gave none.
    pub version: &'a str,
    /// How it reaches the daemon.
    pub transport: &'a str,
}

/// The tool that is called.
#[derive(Clone, Copy, Debug)]
pub struct Tool<'a> {
    /// Name of its server.
    pub server: &'a str,
    /// Its name as the server gave it.
    pub name: &'a str,
    /// Its name in programs.
    pub callable: &'a str,
    /// `read`, `write` or `destructive`.
    pub effect: &'a str,
    /// What is believed of its annotations.
    pub hints: Hints,
    /// Its input schema, by which a number is a whole one or not.
    pub input_schema: Option<&'a Value>,
}

/// MCP's hints about a tool, every default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the four hints that MCP defines"
)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: bool,
    /// It may destroy something.
    pub destructive: bool,
    /// A second call changes nothing more.
    pub idempotent: bool,
    /// It reaches what lies outside its server.
    pub open_world: bool,
}

impl Default for Hints {
    /// What MCP says of a tool without annotations.
    fn default() -> Self {
        Self {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: true,
        }
    }
}

/// The program that calls.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// What runs it, such as `cpython`.
    pub engine: &'a str,
    /// Id of its run.
    pub run: &'a str,
    /// Calls of the run that were judged before this one.
    pub call_index: u64,
    /// Calls of this tool in the run that were let through before this one.
    pub calls_to_tool: u64,
}
