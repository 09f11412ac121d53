//! Judges one call by a set of policies.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cedar_policy::{
    Context, Decision, Entities, Entity, EntityId, EntityTypeName, EntityUid, Request, Response,
    RestrictedExpression,
};

use crate::facts::{Call, Client};
use crate::known::Parties;
use crate::load::Policies;
use crate::values;

/// What a client is called that gives no name.
const NO_NAME: &str = "unknown";
/// Most errors that are told of one call.
const MAX_ERRORS: usize = 8;
/// Longest text of one error, in characters.
const MAX_ERROR: usize = 300;

/// What the policies say of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Whether it may be made.
    pub verdict: Verdict,
    /// Sorted ids of the policies that decided.
    pub policies: Vec<String>,
    /// Sorted names of the rubrics that the call is to be judged by as well; none where it may not be made.
    pub risks: Vec<String>,
    /// What could not be evaluated; may quote arguments, so it is not for programs.
    pub errors: Vec<String>,
}

/// Whether a call may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allow,
    /// It may if a person says so.
    Ask {
        /// Why, as the policies say; empty where none says it.
        reason: String,
    },
    /// It may not.
    Deny {
        /// Why, in words for the program's author: never a condition of a policy, nor what an argument held.
        reason: String,
    },
}

impl Policies {
    /// Judges one call. The same call gets the same answer.
    ///
    /// Whatever cannot be evaluated denies: a forbid whose condition fails would otherwise be no forbid at all.
    pub fn judge(&self, call: &Call<'_>) -> Judgement {
        let (request, parties) = match self.request(call) {
            Ok(made) => made,
            Err(error) => {
                return Judgement {
                    verdict: not_evaluated(),
                    policies: Vec::new(),
                    risks: Vec::new(),
                    errors: vec![bounded(&error)],
                };
            }
        };
        let response = self
            .authorizer
            .is_authorized(&request, &self.set, &parties.entities);
        let (policies, errors) = reasons(&response);
        let verdict = match response.decision() {
            Decision::Deny if !policies.is_empty() => Verdict::Deny {
                reason: self.told(&policies, "this call"),
            },
            _ if !errors.is_empty() => not_evaluated(),
            Decision::Deny => Verdict::Deny {
                reason: "no policy permits this call".to_owned(),
            },
            Decision::Allow => self.permitted(&policies),
        };
        let risks = match verdict {
            Verdict::Deny { .. } => Vec::new(),
            Verdict::Allow | Verdict::Ask { .. } => self.risks(&policies),
        };
        Judgement {
            verdict,
            policies,
            risks,
            errors,
        }
    }

    /// What is told of forbids that match `what`: the first message of theirs.
    pub(crate) fn told(&self, policies: &[String], what: &str) -> String {
        let told = policies.iter().find_map(|id| {
            let message = self.rules.get(id)?.message.as_deref()?;
            Some((id.as_str(), message))
        });
        match told {
            Some((id, message)) => format!("policy \"{id}\": {message}"),
            None => match policies.first() {
                Some(id) => format!("policy \"{id}\" forbids {what}"),
                None => format!("a policy forbids {what}"),
            },
        }
    }

    /// One permit that wants a person wins over those that do not.
    fn permitted(&self, policies: &[String]) -> Verdict {
        let mut reasons: Vec<&str> = policies
            .iter()
            .filter_map(|id| self.rules.get(id)?.approval.as_deref())
            .collect();
        if reasons.is_empty() {
            return Verdict::Allow;
        }
        reasons.retain(|reason| !reason.is_empty());
        reasons.sort_unstable();
        reasons.dedup();
        Verdict::Ask {
            reason: reasons.join("; "),
        }
    }

    /// Every rubric that one of these permits names: it counts over permits that name none.
    fn risks(&self, policies: &[String]) -> Vec<String> {
        let mut risks: Vec<String> = policies
            .iter()
            .filter_map(|id| self.rules.get(id)?.risk.clone())
            .collect();
        risks.sort_unstable();
        risks.dedup();
        risks
    }

    fn request(&self, call: &Call<'_>) -> Result<(Request, Arc<Parties>), String> {
        let parties = self.known.parties(call, || self.parties(call))?;
        let context = context(call)?;
        let (principal, resource) = (parties.principal.clone(), parties.resource.clone());
        let action = self.types.action.clone();
        let request = Request::new(principal, action, resource, context, None)
            .map_err(|error| error.to_string())?;
        Ok((request, parties))
    }

    /// Who calls what: all that a call's arguments and its program have no part in.
    fn parties(&self, call: &Call<'_>) -> Result<Parties, String> {
        let types = &self.types;
        let tool = &call.tool;
        let principal = uid(&types.client, client_name(&call.client));
        let server = uid(&types.server, tool.server);
        let resource = uid(&types.tool, &tool_id(tool.server, tool.name));
        let entities = [
            client_entity(&principal, &call.client)?,
            entity(server.clone(), [("name", text(tool.server))], None)?,
            entity(
                resource.clone(),
                [
                    ("name", text(tool.callable)),
                    ("server", text(tool.server)),
                    ("tool", text(tool.name)),
                    ("effect", text(tool.effect)),
                    ("readOnlyHint", truth(tool.hints.read_only)),
                    ("destructiveHint", truth(tool.hints.destructive)),
                    ("idempotentHint", truth(tool.hints.idempotent)),
                    ("openWorldHint", truth(tool.hints.open_world)),
                ],
                Some(server),
            )?,
        ];
        let entities =
            Entities::from_entities(entities, None).map_err(|error| error.to_string())?;
        Ok(Parties {
            principal,
            resource,
            entities,
        })
    }
}

fn context(call: &Call<'_>) -> Result<Context, String> {
    let program = &call.program;
    let long =
        |number: u64| RestrictedExpression::new_long(i64::try_from(number).unwrap_or(i64::MAX));
    let fields = [
        ("engine", text(program.engine)),
        ("run_id", text(program.run)),
        ("call_index", long(program.call_index)),
        ("calls_to_tool", long(program.calls_to_tool)),
    ];
    let fields = fields.map(|(key, value)| (key.to_owned(), value));
    let program = RestrictedExpression::new_record(fields).map_err(|error| error.to_string())?;
    let arguments = values::arguments(call.arguments, call.tool.input_schema);
    let mut pairs = vec![
        ("program".to_owned(), program),
        ("arguments_omitted".to_owned(), truth(arguments.is_none())),
    ];
    // A policy that reads what is left out cannot be evaluated, which denies.
    if let Some(arguments) = arguments {
        pairs.push(("arguments".to_owned(), arguments.record));
        pairs.push((
            "arguments_json".to_owned(),
            RestrictedExpression::new_string(arguments.json),
        ));
    }
    Context::from_pairs(pairs).map_err(|error| error.to_string())
}

/// A tool's id: its server's name, `/`, and its own as the server gave it, so that no new tool slips under a rule by the
/// name it folds to. A slash in a server's name is written `%2F`, and `%` as `%25`: no two tools have one id.
fn tool_id(server: &str, tool: &str) -> String {
    let server = server.replace('%', "%25").replace('/', "%2F");
    format!("{server}/{tool}")
}

/// Who a client is for policies, whatever it asks for.
pub(crate) fn client_name<'a>(client: &Client<'a>) -> &'a str {
    match client.name {
        "" => NO_NAME,
        name => name,
    }
}

/// A client with what it says of itself.
pub(crate) fn client_entity(principal: &EntityUid, client: &Client<'_>) -> Result<Entity, String> {
    let attributes = [
        ("name", text(client_name(client))),
        ("version", text(client.version)),
        ("transport", text(client.transport)),
    ];
    entity(principal.clone(), attributes, None)
}

/// Sorted ids of the policies that decided, and what could not be evaluated.
pub(crate) fn reasons(response: &Response) -> (Vec<String>, Vec<String>) {
    let diagnostics = response.diagnostics();
    let mut policies: Vec<String> = diagnostics.reason().map(ToString::to_string).collect();
    policies.sort_unstable();
    let mut errors: Vec<String> = diagnostics
        .errors()
        .map(|error| bounded(&error.to_string()))
        .collect();
    errors.sort_unstable();
    errors.truncate(MAX_ERRORS);
    (policies, errors)
}

pub(crate) fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

fn entity<const N: usize>(
    uid: EntityUid,
    attributes: [(&str, RestrictedExpression); N],
    parent: Option<EntityUid>,
) -> Result<Entity, String> {
    let attributes: HashMap<_, _> = attributes
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let parents: HashSet<_> = parent.into_iter().collect();
    Entity::new(uid, attributes, parents).map_err(|error| error.to_string())
}

fn text(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

fn truth(value: bool) -> RestrictedExpression {
    RestrictedExpression::new_bool(value)
}

fn not_evaluated() -> Verdict {
    Verdict::Deny {
        reason: "a policy cannot be evaluated for this call, such as for an argument that is missing or of another \
                 type than it compares with"
            .to_owned(),
    }
}

pub(crate) fn bounded(text: &str) -> String {
    text.chars().take(MAX_ERROR).collect()
}
