"""Which packages import each other, and how many files lie loose in a folder."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.structure.tree import Module, imports


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two folders that import each other, with one import of each way that fewer files need: what to cut."""

    one: str
    other: str
    n_there: int  # imports of `other` in `one`
    n_back: int
    example: str


def two_way_pairs(tree: Sequence[Module]) -> list[Pair]:
    """Pairs of folders of which each imports the other. A folder's loose modules count as one package, but for entry
    points (asgi, urls, a __main__): nothing imports them, so that they close no circle. A folder that lies inside
    another is a package of its own."""
    known = frozenset(module.name for module in tree)
    folder_of = {module.name: module.folder for module in tree}
    targets = {module.name: sorted(set(imports(module, known)) - {module.name}) for module in tree}
    imported = {target for names in targets.values() for target in names}
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module in tree:
        for target in targets[module.name] if module.name in imported else ():
            if folder_of[target] != module.folder and not _is_package_of(target, module, folder_of):
                edges[module.folder, folder_of[target]].append(f"{module.name} -> {target}")
    return [
        Pair(
            one=one,
            other=other,
            n_there=len(there),
            n_back=len(edges[other, one]),
            example=min(there, edges[other, one], key=len)[0],
        )
        for (one, other), there in sorted(edges.items())
        if one < other and (other, one) in edges
    ]


def _is_package_of(target: str, module: Module, folder_of: dict[str, str]) -> bool:
    """Whether the target is the docstring-only __init__ of a folder above: importing `a.b` names `a` too."""
    return module.folder.startswith(f"{target}.") and folder_of[target] == target


def loose_files(tree: Sequence[Module]) -> Counter[str]:
    """{folder: .py files of its own}, __init__ not counted."""
    return Counter(module.folder for module in tree if not module.is_init)
