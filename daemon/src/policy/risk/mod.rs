//! Has models that the operator chose judge calls by rubrics in plain language.
//!
//! Their word only tightens: a call that was denied is never put to them, and their yes is worth what it would be
//! without them. They see the bare call. The program's text, its comments and what other calls returned would be the
//! words of those who are judged.

mod endpoint;
mod memory;
mod tab;
mod wire;

use globset::GlobSet;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

pub use self::tab::Tab;

use self::endpoint::Endpoint;
use self::memory::Memory;
use self::tab::Sessions;
use self::wire::{Word, instructions};
use super::effects::{Effect, Hints};
use super::visibility::{PolicyError, compile};
use super::{Decision, Step, ToolFacts, Verdict};
use crate::config::{OnError, RiskConfig};

/// Requests under way at once, over all programs and rubrics.
const AT_ONCE: usize = 4;
/// Most bytes of arguments that are told whole.
const MAX_ARGUMENTS: usize = 8 * 1024;
/// Bytes told of the beginning, and of the end, of longer ones.
const TOLD_PART: usize = 3 * 1024;
/// Most characters told of a tool's description.
const MAX_DESCRIPTION: usize = 2000;

/// Gives the key that a text with references stands for, or says why there is none.
pub type Keys<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// The rubrics of one configuration and those who judge by them.
#[derive(Debug)]
pub struct Risk {
    rubrics: Vec<Rubric>,
    places: Semaphore,
    memory: Memory,
    sessions: Sessions,
}

#[derive(Debug)]
struct Rubric {
    config: RiskConfig,
    tools: GlobSet,
    endpoint: Endpoint,
    system: String,
}

/// One call as it is put to a model.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What is called.
    pub tool: ToolFacts<'a>,
    /// What the tool does.
    pub effect: Effect,
    /// What is believed of its annotations.
    pub hints: Hints,
    /// The arguments, JSON text, secrets masked.
    pub arguments: &'a str,
    /// Digest of the session whose program calls.
    pub session: &'a str,
}

/// What one rubric says of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    /// The rubric.
    pub rubric: String,
    /// What follows for the call. The reason of a denial is for the program, that of a question for a person.
    pub verdict: Verdict,
    /// Why, for the journal: a model's words, or why none was had. They may quote arguments.
    pub why: String,
}

impl Risk {
    /// Makes ready to ask. No request is sent.
    pub(super) fn open(rubrics: &[RiskConfig], keys: &Keys<'_>) -> Result<Self, PolicyError> {
        let open = |config: &RiskConfig| {
            let refused = |cause: String| PolicyError::Risk {
                rubric: config.name.clone(),
                cause,
            };
            let key = config.api_key.as_deref().map(keys).transpose();
            let key = key.map_err(|cause| refused(format!("api_key: {cause}")))?;
            Ok(Rubric {
                tools: compile("policy.risk[].tools", &config.tools)?,
                endpoint: Endpoint::open(config, key.as_deref()).map_err(refused)?,
                system: instructions(&config.rubric),
                config: config.clone(),
            })
        };
        Ok(Self {
            rubrics: rubrics.iter().map(open).collect::<Result<_, _>>()?,
            places: Semaphore::new(AT_ONCE),
            memory: Memory::default(),
            sessions: Sessions::default(),
        })
    }

    /// The names of the rubrics, in the file's order.
    pub(super) fn names(&self) -> Vec<&str> {
        let names = self
            .rubrics
            .iter()
            .map(|rubric| rubric.config.name.as_str());
        names.collect()
    }

    /// The rubrics whose globs match a tool. A suffix is no way around one.
    pub(super) fn of_tool(&self, callable: &str, plain: &str) -> impl Iterator<Item = &str> {
        self.rubrics
            .iter()
            .filter(move |rubric| rubric.tools.is_match(callable) || rubric.tools.is_match(plain))
            .map(|rubric| rubric.config.name.as_str())
    }

    /// Has a call judged by rubrics, one after the other until one denies. Every wait in it has its limit.
    pub async fn judge(&self, rubrics: &[String], asked: &Asked<'_>, tab: &Tab) -> Vec<Opinion> {
        let mut opinions = Vec::new();
        for name in rubrics {
            let (verdict, why) = match self
                .rubrics
                .iter()
                .find(|rubric| rubric.config.name == *name)
            {
                Some(rubric) => self.one(rubric, asked, tab).await,
                None => (denied(name), "there is no such rubric".to_owned()),
            };
            let ends = matches!(verdict, Verdict::Deny { .. });
            opinions.push(Opinion {
                rubric: name.clone(),
                verdict,
                why,
            });
            if ends {
                break;
            }
        }
        opinions
    }

    async fn one(&self, rubric: &Rubric, asked: &Asked<'_>, tab: &Tab) -> (Verdict, String) {
        let name = &rubric.config.name;
        if let Some(why) = tab
            .stopped()
            .or_else(|| self.sessions.stopped(asked.session))
        {
            let reason = format!("risk policy {name:?} is asked no more: {why}");
            return (Verdict::Deny { reason }, why);
        }
        let (told, whole) = told(asked);
        let told = told.to_string();
        let cell = self.memory.cell(key(rubric, asked, &told));
        if cell.get().is_none() && !tab.take(rubric.config.max_per_program) {
            let why = format!(
                "this program had {} calls judged (max_per_program)",
                rubric.config.max_per_program
            );
            return (question(name, &why), why);
        }
        let answer = cell
            .get_or_init(|| self.request(rubric, &told))
            .await
            .clone();
        let (verdict, why) = match answer {
            Ok((Word::Allow, _)) if !whole => {
                let why = "the arguments are too long to be judged whole".to_owned();
                (question(name, &why), why)
            }
            Ok((Word::Allow, why)) => {
                tab.allowed();
                self.memory.keep(&cell);
                return (Verdict::Allow, why);
            }
            Ok((Word::Ask, why)) => (question(name, &why), why),
            Ok((Word::Deny, why)) => {
                tab.denied();
                self.sessions.denied(asked.session);
                (denied(name), why)
            }
            Err(why) => {
                tracing::warn!(rubric = name, %why, "a call could not be judged");
                let verdict = match rubric.config.on_error {
                    OnError::Ask => question(name, "it could not judge this call"),
                    OnError::Deny => Verdict::Deny {
                        reason: format!("risk policy {name:?} could not judge this call"),
                    },
                };
                (verdict, format!("not judged: {why}"))
            }
        };
        // Only a yes is remembered: what was judged otherwise may be judged anew.
        self.memory.forget(&cell);
        (verdict, why)
    }

    async fn request(&self, rubric: &Rubric, told: &str) -> Result<(Word, String), String> {
        let limit = rubric.config.timeout;
        let seconds = limit.as_secs_f64();
        let place = tokio::time::timeout(limit, self.places.acquire());
        let Ok(_place) = place.await else {
            return Err(format!("no place for another request within {seconds} s"));
        };
        let asking = rubric.endpoint.ask(&rubric.system, told);
        match tokio::time::timeout(limit, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {seconds} s")),
        }
    }
}

/// What a decision becomes by what rubrics say: deny over ask over allow. The reasons of several questions are joined.
pub fn tightened(mut decision: Decision, opinions: Vec<Opinion>) -> Decision {
    for opinion in &opinions {
        decision.verdict = match (decision.verdict, &opinion.verdict) {
            (before @ Verdict::Deny { .. }, _) | (before, Verdict::Allow) => before,
            (_, Verdict::Deny { reason }) => {
                decision.step = Step::Risk;
                Verdict::Deny {
                    reason: reason.clone(),
                }
            }
            (before, Verdict::Ask { reason }) => {
                decision.once_only = true;
                let before = match before {
                    Verdict::Ask { reason } => reason,
                    Verdict::Allow | Verdict::Deny { .. } => {
                        decision.step = Step::Risk;
                        String::new()
                    }
                };
                let both = [before, reason.clone()];
                let both: Vec<String> = both.into_iter().filter(|text| !text.is_empty()).collect();
                Verdict::Ask {
                    reason: both.join("; "),
                }
            }
        };
    }
    decision.opinions = opinions;
    decision
}

/// The model's words are not for the program: whoever tries would learn from them what to try next.
fn denied(name: &str) -> Verdict {
    Verdict::Deny {
        reason: format!("risk policy {name:?} denies this call"),
    }
}

fn question(name: &str, why: &str) -> Verdict {
    Verdict::Ask {
        reason: format!("risk policy {name:?}: {why}"),
    }
}

/// The call as a model reads it, and whether it has all of the arguments.
fn told(asked: &Asked<'_>) -> (Value, bool) {
    let tool = &asked.tool;
    let text = asked.arguments;
    let whole = text.len() <= MAX_ARGUMENTS;
    let arguments = if whole {
        serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
    } else {
        let head = text.floor_char_boundary(TOLD_PART);
        let tail = text.ceil_char_boundary(text.len() - TOLD_PART);
        json!({
            "cut": true,
            "bytes": text.len(),
            "sha256": ptc_protocol::hex(&Sha256::digest(text.as_bytes())),
            "beginning": text.get(..head),
            "end": text.get(tail..),
        })
    };
    let description: String = tool
        .description
        .unwrap_or_default()
        .chars()
        .take(MAX_DESCRIPTION)
        .collect();
    let told = json!({
        "server": tool.server,
        "tool": tool.tool,
        "description": description,
        "effect": asked.effect.as_str(),
        "hints": {
            "readOnlyHint": asked.hints.read_only,
            "destructiveHint": asked.hints.destructive,
            "idempotentHint": asked.hints.idempotent,
            "openWorldHint": asked.hints.open_world,
        },
        "arguments": arguments,
    });
    (told, whole)
}

/// By what a judgement is known again: whoever judges, by what, what, and for whom.
fn key(rubric: &Rubric, asked: &Asked<'_>, told: &str) -> [u8; 32] {
    let config = &rubric.config;
    let mut hash = Sha256::new();
    for part in [
        config.name.as_str(),
        &rubric.system,
        config.base_url.as_str(),
        &config.model,
        asked.session,
        told,
        // What was cut away is in neither of the two texts above.
        asked.arguments,
    ] {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
