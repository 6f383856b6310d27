"""The way of one value through the product: from a function and one of its parameters on, which files does it enter?

A value is followed by name. What a call makes of it is it too; what is computed from it in other ways is not. Calls are
resolved by reading: functions of the module, imported ones, functions of imported modules. Methods are entered on a way
that begins in one: those of the same class, and those whose name one class of the room alone has.
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
Place = tuple[str, str, Function]  # module, name (of a method with its class), the function itself
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

    functions: dict[tuple[str, str], Place] = field(default_factory=dict)
    methods: dict[tuple[str, str], list[Place]] = field(default_factory=lambda: defaultdict(list))  # by room and name
    names: dict[str, dict[str, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))

    def resolve(self, place: Place, called: ast.expr, *, with_methods: bool) -> Place | None:
        """The function that an expression calls at this place."""
        module, name, _ = place
        match called:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if with_methods:
                return self.functions.get((module, f"{name.partition('.')[0]}.{attr}"))
            case ast.Name(id=name):
                return self._named(*self.names[module].get(name, (module, name)))
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in self.names[module]:
                parent, symbol = self.names[module][name]
                return self._named(f"{parent}.{symbol}", attr)
            case ast.Attribute(attr=attr) if with_methods:
                owners = self.methods[module.partition(".")[0], attr]
                return owners[0] if len(owners) == 1 else None
        return None

    def _named(self, module: str, name: str) -> Place | None:
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
                index.functions[module.name, node.name] = (module.name, node.name, node)
            if not isinstance(node, ast.ClassDef):
                continue
            for part in node.body:
                if isinstance(part, Function):
                    place = (module.name, f"{node.name}.{part.name}", part)
                    index.functions[place[:2]] = place
                    index.methods[module.name.partition(".")[0], part.name].append(place)
        for statement in ast.walk(module.tree):
            if isinstance(statement, ast.ImportFrom) and statement.module:
                head, _, rest = statement.module.partition(".")
                parent = f"{ALIAS[head]}.{rest}".rstrip(".") if head in ALIAS else statement.module
                for alias in statement.names:
                    index.names[module.name][alias.asname or alias.name] = (parent, alias.name)
    return index


def walk(index: Index, module: str, function: str, parameter: str) -> Walk:
    """Follow a parameter of a function, or `self` of a method, through everything that it reaches. Raises KeyError for
    an unknown function."""
    way, names, entered = [], set[str](), set[int]()
    with_methods = "." in function

    def enter(place: Place, values: frozenset[str], depth: int) -> None:
        entered.add(id(place[2]))
        way.append(place[0])
        mine = set(values)
        names.update(values)
        for step in _in_order(place[2]):
            mine |= (new := _assigned(step, mine) - mine)
            names.update(new)
            if not isinstance(step, ast.Call):
                continue
            called = index.resolve(place, step.func, with_methods=with_methods)
            if called is None or id(called[2]) in entered or depth == MAX_DEPTH:
                continue
            if passed := _parameters(step, called[2], mine):
                enter(called, passed, depth + 1)

    enter(index.functions[module, function], frozenset({parameter}), 0)
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
    is_method = own[:1] == ["self"]
    pairs = [*zip(own[is_method:], call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
    pairs += [("self", call.func)] if is_method else []
    known = {*own, *(argument.arg for argument in function.args.kwonlyargs)}
    return frozenset(name for name, value in pairs if name in known and _touches(value, values))
