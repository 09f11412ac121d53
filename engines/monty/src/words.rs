//! Names by which a program's text shows what the engine lacks.

/// What an error of a tool has in other engines.
pub(crate) const ERROR_ATTRIBUTES: [&str; 6] =
    ["kind", "tool", "server", "retryable", "data", "message"];
/// Types whose methods programs take as values.
pub(crate) const TYPES: [&str; 9] = [
    "str", "int", "float", "list", "dict", "set", "tuple", "bytes", "bool",
];
/// Functions whose argument is a function.
pub(crate) const TAKERS: [&str; 3] = ["map", "filter", "reduce"];
/// Methods of values that programs keep under another name.
pub(crate) const METHODS: [&str; 22] = [
    "append",
    "add",
    "get",
    "strip",
    "lower",
    "upper",
    "join",
    "startswith",
    "endswith",
    "extend",
    "items",
    "keys",
    "values",
    "pop",
    "split",
    "replace",
    "setdefault",
    "update",
    "insert",
    "remove",
    "sort",
    "isdigit",
];
/// Methods of a class that Python calls by itself and the interpreter does not.
pub(crate) const SILENT: [&str; 31] = [
    "__len__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__bool__",
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "__delattr__",
    "__delitem__",
    "__format__",
    "__iadd__",
    "__isub__",
    "__imul__",
    "__ior__",
    "__iand__",
    "__reversed__",
    "__await__",
    "__aenter__",
    "__aexit__",
    "__aiter__",
    "__anext__",
    "__missing__",
    "__new__",
    "__del__",
    "__get__",
    "__set__",
    "__init_subclass__",
    "__class_getitem__",
    "__length_hint__",
];
