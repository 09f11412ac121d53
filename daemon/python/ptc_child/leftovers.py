"""Finds what a program that succeeded left undone: a last value not printed, tasks not awaited."""

import ast
from asyncio import all_tasks

from ptc_child.awaiting import HELPERS

MAX_TASKS = 1_000_000
# Functions and methods that give a value and do nothing else.
VALUES = set("abs all any bool dict enumerate filter float int len list map max min range repr reversed round set sorted str sum "
             "tuple type zip".split())  # fmt: skip
METHODS = set("count dumps format get index items join keys lower replace split strip title upper values".split())
PLAIN = (
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Compare, ast.Dict, ast.DictComp, ast.IfExp, ast.JoinedStr, ast.List, ast.ListComp,
    ast.Name, ast.Set, ast.SetComp, ast.Subscript, ast.Tuple, ast.UnaryOp,
)  # fmt: skip


def running(loop, main_task):
    """How many tasks of the program are not done."""
    return min(sum(task is not main_task and not task.done() for task in all_tasks(loop)), MAX_TASKS)


def is_unprinted(tree, tools, last_result):
    """Whether the last line is an expression whose value goes nowhere, by the program's text alone.

    `last_result` is the type of the last result of a tool, None where it was None: of a call the text does not say whether it gives one.
    """
    body = tree.body
    if body and isinstance(body[-1], ast.If) and _is_main_guard(body[-1].test):
        functions, body = body, body[-1].body
    else:
        functions = body
    if not body or not isinstance(body[-1], ast.Expr):
        return False
    value = body[-1].value
    if isinstance(value, ast.Constant):
        return value.value is not None and value.value is not ... and not (len(body) == 1 and type(value.value) is str)
    if isinstance(value, ast.Await):
        value = value.value
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Name) and value.func.id in tools:
            return last_result is not None
        if isinstance(value.func, ast.Name) and value.func.id in HELPERS:
            return True
    if isinstance(value, ast.Call):
        return _gives_value(value, functions)
    return isinstance(value, PLAIN)


def _is_main_guard(test):
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _gives_value(call, functions):
    function = call.func
    if isinstance(function, ast.Attribute):
        if function.attr == "run" and len(call.args) == 1 and isinstance(call.args[0], ast.Call):
            return _gives_value(call.args[0], functions)
        return function.attr in METHODS
    if not isinstance(function, ast.Name):
        return False
    own = [one for one in functions if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name == function.id]
    return _returns(own[-1]) if own else function.id in VALUES


def _returns(function):
    """Whether a function of the program comes to its end with a value, whichever way it goes."""
    last = function.body[-1]
    if not (isinstance(last, ast.Return) and last.value is not None):
        return False
    todo, found = list(function.body), []
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Return):
            found.append(node.value)
        todo += ast.iter_child_nodes(node)
    return all(value is not None and not (isinstance(value, ast.Constant) and value.value is None) for value in found)
