"""The way of one value through the product: from a function and one of its parameters on, which files does it enter?

A value is followed by name. What a call makes of it is it too; what is computed from it in other ways is not. Calls are
resolved by reading: functions of the module, imported ones, functions of imported modules; methods are not entered.
Each function is entered once, arguments before the call that takes them. A stay is a stretch of the way in one file; a
return is a stay in a file that the way had left. It estimates what a reader opens and comes back to, and it is the same
estimate for every commit.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.structure.tree import ALIAS, Module

Function = ast.FunctionDef | ast.AsyncFunctionDef
MAX_DEPTH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """`files` in the order of the way, no two equal ones in a row."""

    files: tuple[str, ...]
    n_names: int

    @property
    def n_rooms(self) -> int:
        return len(set(self.files))

    @property
    def n_returns(self) -> int:
        return len(self.files) - self.n_rooms


@dataclass(kw_only=True)
class Index:
    """Where each function is and what each module's imported names mean."""

    functions: dict[tuple[str, str], tuple[str, Function]] = field(default_factory=dict)
    names: dict[str, dict[str, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))

    def resolve(self, module: str, called: ast.expr) -> tuple[str, Function] | None:
        """The function that an expression calls in this module, with the module it stands in."""
        match called:
            case ast.Name(id=name):
                return self._named(*self.names[module].get(name, (module, name)))
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in self.names[module]:
                parent, symbol = self.names[module][name]
                return self._named(f"{parent}.{symbol}" if symbol else parent, attr)
        return None

    def _named(self, module: str, name: str) -> tuple[str, Function] | None:
        """The function itself, also where a package's __init__ or another module passes it on."""
        for _ in range(3):
            if (module, name) in self.functions:
                return self.functions[module, name]
            if name not in self.names.get(module, {}):
                return None
            module, name = self.names[module][name]
        return None


def index_of(tree: Sequence[Module]) -> Index:
    index = Index()
    for module in tree:
        for node in module.tree.body:
            if isinstance(node, Function):
                index.functions[module.name, node.name] = (module.name, node)
        for part in ast.walk(module.tree):
            if isinstance(part, ast.ImportFrom) and part.module:
                head, _, rest = part.module.partition(".")
                parent = f"{ALIAS[head]}.{rest}".rstrip(".") if head in ALIAS else part.module
                for alias in part.names:
                    index.names[module.name][alias.asname or alias.name] = (parent, alias.name)
    return index


def walk(index: Index, module: str, function: str, parameter: str) -> Walk:
    """Follow a parameter of a function through everything that it reaches. Raises KeyError for an unknown function."""
    where, node = index.functions[module, function]
    way, names, entered = [], set[str](), set[int]()

    def enter(module: str, node: Function, values: frozenset[str], depth: int) -> None:
        entered.add(id(node))
        way.append(module)
        mine = set(values)
        names.update(values)
        for step in _in_order(node):
            mine |= (new := _assigned(step, mine) - mine)
            names.update(new)
            if not isinstance(step, ast.Call):
                continue
            called = index.resolve(module, step.func)
            if called is None or id(called[1]) in entered or depth == MAX_DEPTH:
                continue
            if passed := _parameters(step, called[1], mine):
                enter(*called, passed, depth + 1)

    enter(where, node, frozenset({parameter}), 0)
    return Walk(files=tuple(f for i, f in enumerate(way) if i == 0 or way[i - 1] != f), n_names=len(names))


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Depth first, arguments before the call that takes them."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
    yield node


def _touches(node: ast.AST, values: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in values for part in ast.walk(node))


def _assigned(step: ast.AST, values: set[str]) -> set[str]:
    """Names that get what a call makes of the values, or an element or attribute of one."""
    match step:
        case ast.Assign(targets=targets, value=value) if _carries(value, values):
            return {name for target in targets for name in _names(target)}
        case ast.AnnAssign(target=target, value=ast.expr() as value) if _carries(value, values):
            return _names(target)
        case ast.NamedExpr(target=target, value=value) if _carries(value, values):
            return _names(target)
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value) if _carries(
            value, values
        ):
            return _names(target)
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target) if _carries(value, values):
            return _names(target)
    return set()


def _carries(node: ast.expr, values: set[str]) -> bool:
    """Whether an expression is one of the values, a part of one, or a function's answer about one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return any(_carries(value, values) for value in (*node.args, *(k.value for k in node.keywords)))
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Await):
        node = node.value
    return isinstance(node, ast.Name) and node.id in values


def _names(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _parameters(call: ast.Call, function: Function, values: set[str]) -> frozenset[str]:
    """The function's parameters that the values go into."""
    own = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    pairs = [*zip(own, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
    known = {*own, *(argument.arg for argument in function.args.kwonlyargs)}
    return frozenset(name for name, value in pairs if name in known and _touches(value, values))
