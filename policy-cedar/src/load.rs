//! Makes a set of policies from texts, whole or not at all.

use std::collections::BTreeMap;
use std::fmt;

use cedar_policy::{Authorizer, PolicyId, PolicySet};
use miette::{Diagnostic, SourceSpan};

use crate::annotations::{self, Rule};
use crate::known::Known;
use crate::{depth, programs, validate};

/// Most policies of a set.
const MAX_POLICIES: usize = 2000;
/// Most faults that are told of a set.
const MAX_FAULTS: usize = 50;

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
    pub(crate) judges_programs: bool,
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
    pub(crate) engine: cedar_policy::EntityTypeName,
    pub(crate) run_program: cedar_policy::EntityUid,
}

impl Types {
    fn new() -> Option<Self> {
        Some(Self {
            client: "Client".parse().ok()?,
            server: "Server".parse().ok()?,
            tool: "Tool".parse().ok()?,
            action: r#"Action::"call_tool""#.parse().ok()?,
            engine: "Engine".parse().ok()?,
            run_program: r#"Action::"run_program""#.parse().ok()?,
        })
    }
}

impl Policies {
    /// Parses and validates. No policy at all is a set that denies everything.
    ///
    /// # Errors
    /// Every fault found: what is no policy, an annotation that means nothing, an id that is given twice, a template,
    /// a name that the schema does not have, a rubric that is not among `rubrics`, a policy that is too deep. At most 50
    /// of them and how many more there are.
    pub fn load(sources: &[Source], rubrics: &[&str]) -> Result<Self, Vec<Fault>> {
        let deep = depth::faults(sources);
        if !deep.is_empty() {
            return Err(deep);
        }
        let failed = |message: String| Err(vec![fault(None, 0, message)]);
        std::thread::scope(|scope| {
            let loading = std::thread::Builder::new()
                .name("policies".to_owned())
                .stack_size(depth::STACK)
                .spawn_scoped(scope, || Self::load_here(sources, rubrics));
            match loading.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(loaded)) => loaded,
                Ok(Err(_)) => failed("they cannot be read: reading them failed inside".to_owned()),
                Err(error) => failed(format!("no thread can be had that reads them: {error}")),
            }
        })
    }

    /// What [`Policies::load`] does, on a stack that is large enough for it.
    fn load_here(sources: &[Source], rubrics: &[&str]) -> Result<Self, Vec<Fault>> {
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
            let mut found = validate::validate(&loading.set);
            found
                .faults
                .extend(programs::faults(&loading.set, &loading.rules));
            found.warnings.extend(programs::warning(&loading.set));
            loading.more = found.faults.len().saturating_sub(MAX_FAULTS);
            let told = found.faults.into_iter().take(MAX_FAULTS);
            loading.faults.extend(told.map(|found| {
                let (source, offset) = locate(&found.policy, found.offset);
                fault(source, offset, found.message)
            }));
            warnings.extend(found.warnings.into_iter().take(MAX_FAULTS).map(|found| {
                let (source, offset) = locate(&found.policy, found.offset);
                fault(source, offset, found.message).to_string()
            }));
        }
        let Some(types) = Types::new() else {
            let message = "the names of types cannot be read".to_owned();
            return Err(vec![fault(None, 0, message)]);
        };
        if !loading.faults.is_empty() {
            return Err(loading.told());
        }
        Ok(Self {
            judges_programs: programs::are_named(&loading.set),
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
    /// Faults beyond those.
    more: usize,
}

impl Loading<'_> {
    /// The faults, and how many more there are.
    fn told(mut self) -> Vec<Fault> {
        if self.more > 0 {
            let message = format!("and {} more faults", self.more);
            self.faults.push(fault(None, 0, message));
        }
        self.faults
    }

    /// Keeps a fault, as far as there is room: its place is looked for only then.
    fn find(&mut self, source: &Source, offset: usize, message: String) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault(Some(source), offset, message));
        } else {
            self.more += 1;
        }
    }

    fn take(&mut self, index: usize, source: &Source) {
        let parsed: PolicySet = match source.text.parse() {
            Ok(parsed) => parsed,
            Err(errors) => {
                let faults = parse_faults(source, &errors);
                let room = MAX_FAULTS.saturating_sub(self.faults.len());
                self.more += faults.len().saturating_sub(room);
                self.faults.extend(faults.into_iter().take(room));
                return;
            }
        };
        for template in parsed.templates() {
            let start = start_of(template.as_ref().loc().map(|loc| loc.span));
            let message =
                "a template (?principal, ?resource) is a rule for nobody: write the policy out"
                    .to_owned();
            self.find(source, start, message);
        }
        if self.rules.len() + parsed.policies().count() > MAX_POLICIES {
            self.find(source, 0, format!("more than {MAX_POLICIES} policies"));
            return;
        }
        for policy in parsed.policies() {
            let start = start_of(policy.as_ref().loc().map(|loc| loc.span));
            if let Err(message) = self.add(index, source, policy, start) {
                self.find(source, start, message);
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
    faults.extend(
        errors
            .related()
            .into_iter()
            .flatten()
            .take(MAX_FAULTS)
            .map(one),
    );
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

pub(crate) fn fault(source: Option<&Source>, offset: usize, message: String) -> Fault {
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
    fn a_set_with_more_policies_or_faults_than_any_is_told_of_briefly() {
        let policy = "permit(principal, action, resource);\n";
        assert_eq!(
            faults(&policy.repeat(5000)),
            ["p.cedar:1:1: more than 2000 policies"]
        );
        let found = faults(&format!("@nonsense {policy}").repeat(1000));
        assert_eq!(found.len(), 51);
        assert_eq!(found[50], "policies:0:0: and 950 more faults");
        let found = faults(&"permit(principal, action, resource in Sever::\"x\");\n".repeat(200));
        assert_eq!((found.len(), found[50].contains("more faults")), (51, true));
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
