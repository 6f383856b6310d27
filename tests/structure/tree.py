"""The product's modules as values: where each lies, how long it is and what it imports. Files are read and nothing is
imported, so that another checkout can be measured as well as this one."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("backend", "workers", "gpu_runners", "deploy")
ALIAS = {"kolm": "gpu_runners.kolm"}  # one folder under two names


@dataclass(frozen=True, kw_only=True)
class Module:
    """`name` is dotted; `folder` the dotted name of the folder it lies in, also for a package's own __init__."""

    name: str
    folder: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def n_lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_init(self) -> bool:
        return self.path.name == "__init__.py"


@cache
def modules(root: Path, rooms: tuple[str, ...] = PRODUCT) -> tuple[Module, ...]:
    """Every module of these rooms, in the order of their names; read and parsed once a process."""
    return tuple(_module(root, path) for room in rooms for path in sorted((root / room).rglob("*.py")))


def _module(root: Path, path: Path) -> Module:
    folder = ".".join(path.parent.relative_to(root).parts)
    name = folder if path.name == "__init__.py" else f"{folder}.{path.stem}"
    return Module(name=name, folder=folder, path=path)


def imports(module: Module, known: frozenset[str]) -> Iterator[str]:
    """The product's modules that a module imports, wherever the statement stands: inside a function and under
    TYPE_CHECKING too."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in named:
            yield from _owner(name, known)


def _owner(name: str, known: frozenset[str]) -> Iterator[str]:
    """The module that an imported name lies in: the longest prefix that is one."""
    head, _, rest = name.partition(".")
    name = f"{ALIAS[head]}.{rest}" if head in ALIAS and rest else ALIAS.get(name, name)
    while name:
        if name in known:
            yield name
            return
        name = name.rpartition(".")[0]
