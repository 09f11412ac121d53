//! Makes a set of policies from texts, whole or not at all.

use std::collections::BTreeMap;
use std::fmt;

use cedar_policy::{Authorizer, PolicyId, PolicySet};
use miette::{Diagnostic, SourceSpan};

use crate::annotations::{self, Rule};
use crate::known::Known;
use crate::validate;

/// Most policies of a set.
const MAX_POLICIES: usize = 2000;

/// One text with policies.
#[derive(Clone, Debug)]
pub struct Source {
    /// How messages name it.
    pub file: String,
    /// What the ids of its policies begin with, followed by `/`; nothing where it is the only one.
    pub prefix: Option<String>,
    /// The policies.
    pub text: String,
}

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The text's name.
    pub file: String,
    /// Line, from 1; 0 where it concerns the whole.
    pub line: usize,
    /// Column in characters, from 1; 0 where it concerns the whole.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}",
            self.file, self.line, self.column, self.message
        )
    }
}

/// A set of policies that can judge.
#[derive(Debug)]
pub struct Policies {
    pub(crate) set: PolicySet,
    pub(crate) rules: BTreeMap<String, Rule>,
    pub(crate) authorizer: Authorizer,
    pub(crate) types: Types,
    pub(crate) known: Known,
    warnings: Vec<String>,
}

/// The names of types that requests are made of.
#[derive(Debug)]
pub(crate) struct Types {
    pub(crate) client: cedar_policy::EntityTypeName,
    pub(crate) server: cedar_policy::EntityTypeName,
    pub(crate) tool: cedar_policy::EntityTypeName,
    pub(crate) action: cedar_policy::EntityUid,
}

impl Types {
    fn new() -> Option<Self> {
        Some(Self {
            client: "Client".parse().ok()?,
            server: "Server".parse().ok()?,
            tool: "Tool".parse().ok()?,
            action: r#"Action::"call_tool""#.parse().ok()?,
        })
    }
}

impl Policies {
    /// Parses and validates. No policy at all is a set that denies everything.
    ///
    /// # Errors
    /// Every fault found: what is no policy, an annotation that means nothing, an id that is given twice, a template,
    /// a name that the schema does not have, a rubric that is not among `rubrics`.
    pub fn load(sources: &[Source], rubrics: &[&str]) -> Result<Self, Vec<Fault>> {
        let mut loading = Loading {
            rubrics,
            ..Loading::default()
        };
        for (index, source) in sources.iter().enumerate() {
            loading.take(index, source);
        }
        let places = &loading.places;
        let locate = |id: &str, offset: Option<usize>| {
            let (index, start) = places.get(id).copied().unwrap_or_default();
            (sources.get(index), offset.unwrap_or(start))
        };
        let mut warnings = Vec::new();
        if loading.faults.is_empty() {
            let found = validate::validate(&loading.set);
            loading.faults.extend(found.faults.into_iter().map(|found| {
                let (source, offset) = locate(&found.policy, found.offset);
                fault(source, offset, found.message)
            }));
            warnings.extend(found.warnings.into_iter().map(|found| {
                let (source, offset) = locate(&found.policy, found.offset);
                fault(source, offset, found.message).to_string()
            }));
        }
        let Some(types) = Types::new() else {
            let message = "the names of types cannot be read".to_owned();
            return Err(vec![fault(None, 0, message)]);
        };
        if !loading.faults.is_empty() {
            return Err(loading.faults);
        }
        Ok(Self {
            set: loading.set,
            rules: loading.rules,
            authorizer: Authorizer::new(),
            known: Known::default(),
            types,
            warnings,
        })
    }

    /// How many policies there are.
    pub fn count(&self) -> usize {
        self.rules.len()
    }

    /// What its author should know although it can be used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

#[derive(Default)]
struct Loading<'a> {
    /// Names that `@risk` may give.
    rubrics: &'a [&'a str],
    set: PolicySet,
    rules: BTreeMap<String, Rule>,
    /// Where each policy begins: the text's number, and an offset in bytes.
    places: BTreeMap<String, (usize, usize)>,
    faults: Vec<Fault>,
}

impl Loading<'_> {
    fn take(&mut self, index: usize, source: &Source) {
        let parsed: PolicySet = match source.text.parse() {
            Ok(parsed) => parsed,
            Err(errors) => {
                self.faults.extend(parse_faults(source, &errors));
                return;
            }
        };
        for template in parsed.templates() {
            let start = start_of(template.as_ref().loc().map(|loc| loc.span));
            let message =
                "a template (?principal, ?resource) is a rule for nobody: write the policy out"
                    .to_owned();
            self.faults.push(fault(Some(source), start, message));
        }
        for policy in parsed.policies() {
            let start = start_of(policy.as_ref().loc().map(|loc| loc.span));
            if let Err(message) = self.add(index, source, policy, start) {
                self.faults.push(fault(Some(source), start, message));
            }
        }
    }

    fn add(
        &mut self,
        index: usize,
        source: &Source,
        policy: &cedar_policy::Policy,
        start: usize,
    ) -> Result<(), String> {
        let rule = annotations::read(policy)?;
        if let Some(risk) = &rule.risk
            && !self.rubrics.contains(&risk.as_str())
        {
            let there = match self.rubrics {
                [] => "it has none".to_owned(),
                names => format!("it has {}", names.join(", ")),
            };
            return Err(format!(
                "@risk({risk:?}): policy.risk has no rubric of that name; {there}"
            ));
        }
        let own = rule.id.clone().unwrap_or_else(|| policy.id().to_string());
        let id = match &source.prefix {
            Some(prefix) => format!("{prefix}/{own}"),
            None => own,
        };
        if self.rules.len() >= MAX_POLICIES {
            return Err(format!("more than {MAX_POLICIES} policies"));
        }
        if self.rules.contains_key(&id) {
            return Err(format!("the id {id:?} is that of another policy"));
        }
        self.set
            .add(policy.new_id(PolicyId::new(&id)))
            .map_err(|error| error.to_string())?;
        self.places.insert(id.clone(), (index, start));
        self.rules.insert(id, rule);
        Ok(())
    }
}

fn parse_faults(source: &Source, errors: &cedar_policy::ParseErrors) -> Vec<Fault> {
    let one = |error: &dyn Diagnostic| {
        let offset = first_offset(error).unwrap_or(0);
        let mut message = error.to_string();
        let mut labels = error.labels().into_iter().flatten();
        let expected = labels.find_map(|label| label.label().map(str::to_owned));
        if let Some(more) = expected.or_else(|| error.help().map(|help| help.to_string())) {
            message = format!("{message}: {more}");
        }
        fault(Some(source), offset, message)
    };
    let mut faults = vec![one(errors)];
    faults.extend(errors.related().into_iter().flatten().map(one));
    faults
}

/// Where a policy begins, in bytes.
fn start_of(span: Option<SourceSpan>) -> usize {
    span.map_or(0, |span| span.offset())
}

/// Where a diagnostic's first label begins, in bytes.
pub(crate) fn first_offset(error: &dyn Diagnostic) -> Option<usize> {
    error.labels()?.next().map(|label| label.offset())
}

fn fault(source: Option<&Source>, offset: usize, message: String) -> Fault {
    let Some(source) = source else {
        return Fault {
            file: "policies".to_owned(),
            line: 0,
            column: 0,
            message,
        };
    };
    let before = source.text.get(..offset).unwrap_or(&source.text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    Fault {
        file: source.file.clone(),
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
        message: message.replace(['\n', '\r'], " "),
    }
}

#[cfg(test)]
pub(crate) fn one(text: &str) -> Result<Policies, Vec<String>> {
    let source = Source {
        file: "p.cedar".to_owned(),
        prefix: None,
        text: text.to_owned(),
    };
    Policies::load(&[source], &["careful"])
        .map_err(|faults| faults.iter().map(Fault::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        one(text).unwrap_err()
    }

    #[test]
    fn ids_come_from_annotations_and_files() {
        let source = |name: &str, text: &str| Source {
            file: format!("{name}.cedar"),
            prefix: Some(name.to_owned()),
            text: text.to_owned(),
        };
        let all = "permit(principal, action, resource);";
        let named = "@id(\"own\") permit(principal, action, resource);";
        let policies = Policies::load(
            &[source("a", &format!("{all}\n{named}")), source("b", named)],
            &[],
        )
        .unwrap();
        let ids: Vec<_> = policies.rules.keys().map(String::as_str).collect();
        assert_eq!(ids, ["a/own", "a/policy0", "b/own"]);
        assert_eq!(policies.count(), 3);
        assert_eq!(
            faults(&format!("{named}\n  {named}")),
            ["p.cedar:2:3: the id \"own\" is that of another policy"]
        );
    }

    #[test]
    fn no_policy_is_a_set_and_every_fault_has_a_place() {
        assert_eq!(one("// nothing\n").unwrap().count(), 0);
        let found = faults("permit(principal, action, resource)\nwhen { context.x = 1 };");
        assert!(found[0].starts_with("p.cedar:2:8: '=' is not"), "{found:?}");
        let found = faults("permit(principal, action, resource)");
        assert!(found[0].starts_with("p.cedar:1:36: "), "{found:?}");
        assert!(found[0].contains("expected"), "{found:?}");
        let found = faults("permit(principal == ?principal, action, resource);");
        assert!(found[0].contains("a template"), "{found:?}");
    }

    #[test]
    fn annotations_without_meaning_are_faults() {
        for (text, words) in [
            ("@requireAproval permit", "@requireAproval has no meaning"),
            (
                "@risk(\"x\") permit",
                "policy.risk has no rubric of that name; it has careful",
            ),
            ("@risk permit", "@risk names a rubric"),
            ("@risk(\"careful\") forbid", "@risk belongs to a permit"),
            (
                "@requireApproval forbid",
                "@requireApproval belongs to a permit",
            ),
            ("@message(\"x\") permit", "@message belongs to a forbid"),
            ("@id(\"\") permit", "@id has 1 to 64 characters"),
            ("@id(\"a\\nb\") permit", "@id has 1 to 64 characters"),
            ("@message(\"a\\u{1b}b\") forbid", "@message has at most 300"),
        ] {
            let found = faults(&format!("{text}(principal, action, resource);"));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(words), "{found:?}");
        }
    }
}
