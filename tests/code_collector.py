"""Which stable codes the source can put into an answer, a failure or a warning, found by reading it (AST), not by
running it.

A code reaches the outside under the name `code` (or `error_code`, `failure_code`): as a keyword, as the parameter of
that name of one of our own functions, as a class attribute, as a key of a dictionary, or assigned to a variable of
that name. A value that is not written out there is followed to where it is: a branch, a constant or a table of the
module. What cannot be followed is told by `undecided`.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAMES = frozenset({"code", "error_code", "failure_code"})
Positions = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A code, or the expression it could not be read from, and the line."""

    code: str
    where: str


def collect(paths: Iterable[Path]) -> list[Found]:
    """Every code that is written out."""
    return [Found(code=leaf.value, where=where) for leaf, where in _leaves(paths) if isinstance(leaf, ast.Constant)]


def undecided(paths: Iterable[Path]) -> list[Found]:
    """Every expression in the place of a code that is neither written out nor itself named `code`."""
    return [
        Found(code=ast.unparse(leaf), where=where)
        for leaf, where in _leaves(paths)
        if not isinstance(leaf, ast.Constant)
    ]


def _leaves(paths: Iterable[Path]) -> list[tuple[ast.expr, str]]:
    return _leaves_of(tuple(paths))


@cache
def _leaves_of(paths: tuple[Path, ...]) -> list[tuple[ast.expr, str]]:
    """Read once for all who ask: the whole source takes seconds."""
    return list(_read(paths))


def _read(paths: tuple[Path, ...]) -> Iterator[tuple[ast.expr, str]]:
    trees = {path: ast.parse(path.read_text()) for path in paths}
    positions = {path: _positions(tree) for path, tree in trees.items()}
    everywhere = {name: at for of_file in positions.values() for name, at in of_file.items()}
    for path, tree in trees.items():
        for place in _places(tree, everywhere | positions[path]):
            for leaf in _followed(place, tree):
                yield leaf, f"{path}:{place.lineno}"


def _places(tree: ast.Module, positions: Positions) -> Iterator[ast.expr]:
    """Every expression that stands where a code goes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call | ast.Assign | ast.AnnAssign | ast.Dict):
            continue
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                yield from (keyword.value for keyword in keywords if keyword.arg in NAMES)
                at = positions.get(_last_name(func))
                if at is not None and len(args) > at:
                    yield args[at]
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                yield from (v for name, v in zip(names, values, strict=True) if _last_name(name) in NAMES)
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                if _last_name(target) in NAMES:
                    yield value
            case ast.Dict(keys=keys, values=values):
                named = [isinstance(key, ast.Constant) and key.value in NAMES for key in keys]
                yield from (value for is_code, value in zip(named, values, strict=True) if is_code)


def _positions(tree: ast.Module) -> dict[str, int]:
    """{function or class: the place of its parameter `code`}, counted without self."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        functions = [node] if isinstance(node, ast.FunctionDef) else []
        if isinstance(node, ast.ClassDef):
            functions = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
        for function in functions:
            names = [argument.arg for argument in function.args.args if argument.arg != "self"]
            if "code" in names and (node.name != "__init__" or isinstance(node, ast.ClassDef)):
                found[node.name] = names.index("code")
    return found


def _followed(value: ast.expr, tree: ast.Module) -> Iterator[ast.expr]:
    """The texts that an expression can be, as constants; and what cannot be told, as it stands."""
    match value:
        case ast.Constant(value=text):
            if isinstance(text, str) and text:
                yield value
        case ast.IfExp(body=first, orelse=second):
            yield from _followed(first, tree)
            yield from _followed(second, tree)
        case ast.BoolOp(values=values):
            for part in values:
                yield from _followed(part, tree)
        case ast.Call(func=ast.Attribute(value=ast.Dict(values=values), attr="get"), args=[*_, default]):
            for part in (*values, default):
                yield from _followed(part, tree)
        case ast.Starred(value=ast.Subscript(value=ast.Name(id=name))):  # warn(*TABLE[key]): rows of (code, message)
            for row in _table(name, tree):
                yield from _followed(row, tree)
        case ast.Name(id=name) if name.isupper():
            yield from _assigned(name, tree)
        case _ if not _is_elsewhere(value):
            yield value


def _is_elsewhere(value: ast.expr) -> bool:
    """A variable, an attribute or a key named `code` (found where it is given its value), a column of a table, a JSON
    schema, the exit code of a process, or the kind of text that is a code in what the tiny base learns from."""
    match value:
        case ast.Name() | ast.Attribute():
            return _last_name(value) in NAMES | {"exit_code"}
        case ast.Dict(keys=[ast.Constant(value="type"), *_]):
            return True
        case ast.Call(func=func) if _last_name(func) in ("CharField", "IntegerField", "wait", "getsockopt", "Kind"):
            return True
    return any(_is_looked_up(node) for node in ast.walk(value))


def _is_looked_up(node: ast.AST) -> bool:
    match node:
        case (
            ast.Subscript(slice=ast.Constant(value=key))
            | ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), *_])
        ):
            return key in NAMES
    return False


def _table(name: str, tree: ast.Module) -> Iterator[ast.expr]:
    for assigned in _assigned(name, tree):
        assert isinstance(assigned, ast.Dict), name
        for row in assigned.values:
            assert isinstance(row, ast.Tuple), name
            yield row.elts[0]


def _assigned(name: str, tree: ast.Module) -> list[ast.expr]:
    return [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
