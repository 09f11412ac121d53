//! What a program's text shows before it runs: imports, names, functions, and constructs the engine is known to lack.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::visitor::{
    Visitor, walk_except_handler, walk_expr, walk_parameter, walk_stmt,
};
use ruff_python_ast::{
    Alias, ExceptHandler, Expr, ExprAttribute, ExprCall, ExprContext, Parameter, Stmt, StmtTry,
};
use ruff_text_size::{Ranged as _, TextRange};

use crate::remedy::sentence;
use crate::words::{ERROR_ATTRIBUTES, METHODS, SILENT, TAKERS, TYPES};

/// Something the engine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The byte of the text at which it stands.
    pub(crate) at: usize,
    /// What it is and what to write instead.
    pub(crate) told: String,
}

/// An attribute of a module that the program reads, or a name it imports from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) at: usize,
    pub(crate) module: String,
    pub(crate) attribute: String,
}

/// What a text shows.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Modules it imports where nothing catches the failure, and where.
    pub(crate) imports: Vec<(usize, String)>,
    pub(crate) uses: Vec<Use>,
    /// Names that are read, and where first.
    pub(crate) names: BTreeMap<String, usize>,
    /// Names that the program gives a meaning.
    pub(crate) bound: BTreeSet<String>,
    /// Functions with the bytes they cover, the outer before the inner.
    functions: Vec<(TextRange, String)>,
    /// Where `sys.exit` or a call of `SystemExit` stands, and how long the word is.
    pub(crate) exits: Vec<(usize, usize)>,
    pub(crate) gaps: Vec<Gap>,
    /// What is no Python, though the interpreter would take it: what it is and where.
    pub(crate) faults: Vec<(usize, &'static str)>,
    /// Whether the last line is an expression.
    pub(crate) ends_in_expression: bool,
}

impl Reading {
    /// Reads a text; `None` where it is no Python.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let parsed = ruff_python_parser::parse_module(text).ok()?;
        let body = parsed.suite();
        let mut reader = Reader::default();
        for statement in body {
            reader.visit_stmt(statement);
        }
        let deep = reader.deep;
        let mut reading = reader.finish();
        reading.ends_in_expression = matches!(body.last(), Some(Stmt::Expr(_)));
        if deep {
            // Freeing a tree takes as much of the stack as following it; this one stays.
            std::mem::forget(parsed);
        }
        Some(reading)
    }

    /// The innermost function around a byte.
    pub(crate) fn function_at(&self, offset: usize) -> &str {
        let around = |range: &TextRange| {
            range.start().to_usize() <= offset && offset < range.end().to_usize()
        };
        let innermost = self
            .functions
            .iter()
            .filter(|(range, _)| around(range))
            .min_by_key(|(range, _)| range.len());
        innermost.map_or("<module>", |(_, name)| name)
    }
}

#[derive(Default)]
struct Reader {
    reading: Reading,
    /// Names that stand for modules.
    modules: BTreeMap<String, String>,
    /// Attributes read of a plain name: where, the name, the attribute.
    attributes: Vec<(usize, String, String)>,
    /// Names of errors that were caught.
    caught: Vec<String>,
    /// How many handlers around here catch a failed import.
    guards: usize,
    scope: Vec<String>,
    functions_of_program: BTreeSet<String>,
    substitutions: Vec<(usize, String)>,
    /// Functions around here: whether each is `async`.
    within_async: Vec<bool>,
    /// Attributes that are called, by where they stand.
    called: BTreeSet<usize>,
    /// Methods read and not called: where, of what name, which.
    kept: Vec<(usize, String, String)>,
    /// How deep in an expression this is, and whether one was too deep to be followed.
    depth: usize,
    deep: bool,
}

/// Deepest expression that is followed; the interpreter itself takes no deeper one.
const MAX_DEPTH: usize = 200;
const OUTSIDE_ASYNC: &str = "'await' outside async function";
const OUTSIDE_FUNCTION: &str = "'return' outside function";
const BOUND: &str = "write a lambda, as in lambda x: d.get(x)";

impl Reader {
    fn finish(mut self) -> Reading {
        for (at, name, attribute) in std::mem::take(&mut self.attributes) {
            if let Some(module) = self.modules.get(&name) {
                if module == "sys" && attribute == "exit" {
                    self.reading.exits.push((at, "sys.exit".len()));
                } else {
                    self.reading.uses.push(Use {
                        at,
                        module: module.clone(),
                        attribute,
                    });
                }
            }
        }
        for (at, name, method) in std::mem::take(&mut self.kept) {
            if !self.called.contains(&at)
                && !self.modules.contains_key(&name)
                && !self.functions_of_program.contains(&method)
            {
                let construct = format!("the method {name}.{method} as a value");
                self.gap(
                    at,
                    &construct,
                    &format!("write lambda x: {name}.{method}(x), or call it where it is needed"),
                );
            }
        }
        for (at, name) in std::mem::take(&mut self.substitutions) {
            if self.functions_of_program.contains(&name) {
                self.gap(
                    at,
                    "re.sub with a function",
                    "loop over re.finditer and join the parts",
                );
            }
        }
        self.reading
    }

    fn gap(&mut self, at: usize, construct: &str, instead: &str) {
        self.reading.gaps.push(Gap {
            at,
            told: sentence(construct, instead),
        });
    }

    fn import(&mut self, at: usize, alias: &Alias) {
        let module = alias.name.as_str();
        let root = module.split('.').next().unwrap_or(module);
        let local = alias.asname.as_ref().map_or(root, |name| name.as_str());
        let meant = if alias.asname.is_some() { module } else { root };
        self.modules.insert(local.to_owned(), meant.to_owned());
        self.reading.bound.insert(local.to_owned());
        if self.guards == 0 {
            self.reading.imports.push((at, module.to_owned()));
        }
    }

    fn import_from(&mut self, at: usize, module: &str, names: &[Alias]) {
        for alias in names {
            let local = alias.asname.as_ref().unwrap_or(&alias.name);
            self.reading.bound.insert(local.as_str().to_owned());
            if self.guards == 0 && alias.name.as_str() != "*" && module != "__future__" {
                let attribute = alias.name.as_str().to_owned();
                self.reading.uses.push(Use {
                    at,
                    module: module.to_owned(),
                    attribute,
                });
            }
        }
        if self.guards == 0 {
            self.reading.imports.push((at, module.to_owned()));
        }
    }

    fn attempt(&mut self, attempt: &StmtTry) {
        let guarded = attempt
            .handlers
            .iter()
            .any(|ExceptHandler::ExceptHandler(handler)| {
                handler.type_.as_deref().is_none_or(|kind| {
                    let names: Vec<&Expr> = match kind {
                        Expr::Tuple(tuple) => tuple.elts.iter().collect(),
                        one => vec![one],
                    };
                    let catching = [
                        "ImportError",
                        "ModuleNotFoundError",
                        "Exception",
                        "BaseException",
                    ];
                    names.iter().any(|name| {
                        name.as_name_expr()
                            .is_some_and(|name| catching.contains(&name.id.as_str()))
                    })
                })
            });
        self.guards += usize::from(guarded);
        for statement in &attempt.body {
            self.visit_stmt(statement);
        }
        self.guards -= usize::from(guarded);
        for handler in &attempt.handlers {
            self.visit_except_handler(handler);
        }
        for statement in attempt.orelse.iter().chain(&attempt.finalbody) {
            self.visit_stmt(statement);
        }
    }

    fn attribute(&mut self, expression: &ExprAttribute) {
        let Expr::Name(name) = expression.value.as_ref() else {
            return;
        };
        let (at, attribute) = (
            expression.range.start().to_usize(),
            expression.attr.as_str(),
        );
        if ERROR_ATTRIBUTES.contains(&attribute)
            && self.caught.iter().any(|caught| caught == name.id.as_str())
        {
            let caught = name.id.as_str();
            let construct = format!("{caught}.{attribute} of a caught error");
            self.gap(
                at,
                &construct,
                &format!("write tool_error({caught})[{attribute:?}]"),
            );
            return;
        }
        if METHODS.contains(&attribute) {
            self.kept
                .push((at, name.id.as_str().to_owned(), attribute.to_owned()));
        }
        self.attributes
            .push((at, name.id.as_str().to_owned(), attribute.to_owned()));
    }

    fn call(&mut self, call: &ExprCall) {
        let at = call.range_start.to_usize();
        let keyword = |name: &str| {
            call.arguments
                .keywords
                .iter()
                .find(|keyword| keyword.arg.as_ref().is_some_and(|arg| arg.as_str() == name))
        };
        match call.func.as_ref() {
            Expr::Attribute(function) => {
                self.called.insert(function.range.start().to_usize());
                if let Expr::Attribute(stream) = function.value.as_ref()
                    && matches!(stream.attr.as_str(), "stdout" | "stderr")
                    && stream
                        .value
                        .as_name_expr()
                        .is_some_and(|name| name.id.as_str() == "sys")
                {
                    let construct =
                        format!("sys.{}.{}", stream.attr.as_str(), function.attr.as_str());
                    self.gap(at, &construct, "write print(..., end=\"\")");
                }
                let of = function
                    .value
                    .as_name_expr()
                    .map_or("", |name| name.id.as_str());
                match (of, function.attr.as_str()) {
                    ("asyncio", "gather") if keyword("return_exceptions").is_some() => self.gap(
                        at,
                        "asyncio.gather(return_exceptions=...)",
                        "gather calls of an async def that catches ToolError and returns it as a value",
                    ),
                    ("json", "dumps") if keyword("default").or(keyword("cls")).is_some() => self.gap(
                        at,
                        "json.dumps(default=..., cls=...)",
                        "turn the values into text or lists first",
                    ),
                    ("re", "sub" | "subn") => self.substitution(at, call.arguments.args.get(1)),
                    _ => {}
                }
            }
            Expr::Name(name) if name.id.as_str() == "SystemExit" => {
                self.reading.exits.push((at, "SystemExit".len()));
            }
            Expr::Name(name) if name.id.as_str() == "next" => {
                if matches!(call.arguments.args.first(), Some(Expr::Generator(_))) {
                    self.gap(
                        at,
                        "next over a generator expression",
                        "write next(iter([...]), None)",
                    );
                }
            }
            Expr::Name(name) if TAKERS.contains(&name.id.as_str()) => {
                if let Some(first) = call.arguments.args.first() {
                    self.function_value(first);
                }
            }
            _ => {}
        }
        if let Some(key) = keyword("key") {
            self.function_value(&key.value);
        }
    }

    fn substitution(&mut self, at: usize, with: Option<&Expr>) {
        match with {
            Some(Expr::Lambda(_)) => self.gap(
                at,
                "re.sub with a function",
                "loop over re.finditer and join the parts",
            ),
            Some(Expr::Name(name)) => self.substitutions.push((at, name.id.as_str().to_owned())),
            _ => {}
        }
    }

    /// Looks at what is given where a function is wanted.
    fn function_value(&mut self, value: &Expr) {
        if let Expr::Attribute(attribute) = value
            && let Expr::Name(name) = attribute.value.as_ref()
            && !self.modules.contains_key(name.id.as_str())
        {
            let construct = format!(
                "the method {}.{} as a value",
                name.id.as_str(),
                attribute.attr.as_str()
            );
            let instead = if TYPES.contains(&name.id.as_str()) {
                format!("write lambda x: x.{}()", attribute.attr.as_str())
            } else {
                BOUND.replace(
                    "d.get",
                    &format!("{}.{}", name.id.as_str(), attribute.attr.as_str()),
                )
            };
            self.gap(attribute.range.start().to_usize(), &construct, &instead);
        }
    }

    fn within(&mut self, range: TextRange, name: &str, go: impl FnOnce(&mut Self)) {
        let inside = match self.scope.last() {
            Some(outer) => format!("{outer}{name}"),
            None => name.to_owned(),
        };
        self.reading.functions.push((range, inside.clone()));
        self.scope.push(format!("{inside}.<locals>."));
        go(self);
        self.scope.pop();
    }
}

impl<'a> Visitor<'a> for Reader {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let at = statement.start().to_usize();
        match statement {
            Stmt::Import(import) => import.names.iter().for_each(|alias| self.import(at, alias)),
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                self.import_from(at, module, &import.names);
            }
            Stmt::Try(attempt) => self.attempt(attempt),
            Stmt::FunctionDef(function) => {
                let name = function.name.as_str();
                self.reading.bound.insert(name.to_owned());
                self.functions_of_program.insert(name.to_owned());
                self.within_async.push(function.is_async);
                self.within(function.range, name, |this| walk_stmt(this, statement));
                self.within_async.pop();
            }
            Stmt::Return(_) if self.within_async.is_empty() => {
                self.reading.faults.push((at, OUTSIDE_FUNCTION));
                walk_stmt(self, statement);
            }
            Stmt::ClassDef(class) => {
                for member in &class.body {
                    if let Stmt::FunctionDef(method) = member
                        && SILENT.contains(&method.name.as_str())
                    {
                        let construct = format!("the method {}", method.name.as_str());
                        let at = method.range.start().to_usize();
                        self.gap(
                            at,
                            &construct,
                            "call a method with a plain name in its place",
                        );
                    }
                    if let Stmt::AnnAssign(member) = member
                        && let Expr::Name(name) = member.target.as_ref()
                    {
                        self.functions_of_program
                            .insert(name.id.as_str().to_owned());
                    }
                }
                self.reading.bound.insert(class.name.as_str().to_owned());
                self.scope.push(format!(
                    "{}{}.",
                    self.scope.last().map_or("", String::as_str),
                    class.name.as_str()
                ));
                walk_stmt(self, statement);
                self.scope.pop();
            }
            Stmt::Global(global) => {
                self.reading
                    .bound
                    .extend(global.names.iter().map(|name| name.as_str().to_owned()));
            }
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if self.depth == MAX_DEPTH {
            self.deep = true;
            return;
        }
        match expression {
            Expr::Name(name) => {
                let id = name.id.as_str().to_owned();
                if matches!(name.ctx, ExprContext::Load) {
                    self.reading
                        .names
                        .entry(id)
                        .or_insert(name.range.start().to_usize());
                } else {
                    self.reading.bound.insert(id);
                }
            }
            Expr::Attribute(attribute) if matches!(attribute.ctx, ExprContext::Load) => {
                self.attribute(attribute);
            }
            Expr::Call(call) => self.call(call),
            Expr::Await(awaited) if self.within_async.last() == Some(&false) => {
                self.reading
                    .faults
                    .push((awaited.range.start().to_usize(), OUTSIDE_ASYNC));
            }
            _ => {}
        }
        self.depth += 1;
        walk_expr(self, expression);
        self.depth -= 1;
    }

    fn visit_parameter(&mut self, parameter: &'a Parameter) {
        self.reading
            .bound
            .insert(parameter.name.as_str().to_owned());
        walk_parameter(self, parameter);
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(inner) = handler;
        let name = inner.name.as_ref().map(|name| name.as_str().to_owned());
        self.reading.bound.extend(name.clone());
        let count = self.caught.len();
        self.caught.extend(name);
        walk_except_handler(self, handler);
        self.caught.truncate(count);
    }
}
