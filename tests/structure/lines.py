"""`make lines`: the lines of each room and package beside their budget in docs/lines.md, so that growth is seen when it
happens. `make lines WRITE=yes` sets every budget to what is there: a deliberate act, with a commit of its own.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.structure.tree import PRODUCT, ROOT, Module, modules

PAGE = ROOT / "docs" / "lines.md"
ROOMS = (*PRODUCT, "migrations", "tests")
_ROW = re.compile(r"\| `([\w.]+)` \| ([\d,]*) \| ([\d,]+) \|")


def count(tree: Sequence[Module]) -> dict[str, int]:
    """Lines of each room with all that it holds, and of each package of the product without the packages inside it."""
    rooms: Counter[str] = Counter(dict.fromkeys(ROOMS, 0))
    packages: Counter[str] = Counter()
    for module in tree:
        room = module.folder.partition(".")[0]
        rooms[room] += module.n_lines
        if room in PRODUCT and module.folder != room and module.n_lines:
            packages[module.folder] += module.n_lines
    return dict(rooms) | dict(sorted(packages.items()))


def read_page(text: str) -> dict[str, tuple[str, int]]:
    """{name: (the column of before as it is written, the budget)}."""
    return {name: (before, int(budget.replace(",", ""))) for name, before, budget in _ROW.findall(text)}


def report(counted: Mapping[str, int], budgets: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """A line for each room and package, and the growth past its budget where there is any."""
    for name in [*counted, *sorted(budgets.keys() - counted.keys())]:
        n, budget = counted.get(name, 0), budgets.get(name, ("", 0))[1]
        yield f"{name:<42} {n:>8,} of {budget:>8,}" + (f"  {n - budget:+,}" if n > budget else "")


def write_page(text: str, counted: Mapping[str, int]) -> str:
    """The page with every budget set to what was counted; what stands around its table stays."""
    before = {name: row[0] for name, row in read_page(text).items()}
    rows = [f"| `{name}` | {before.get(name, '')} | {n:,} |" for name, n in counted.items()]
    lines = text.split("\n")
    at = [i for i, line in enumerate(lines) if _ROW.fullmatch(line)]
    return "\n".join([*lines[: at[0]], *rows, *lines[at[-1] + 1 :]])


def main() -> None:
    counted, text = count(modules(ROOT, ROOMS)), PAGE.read_text(encoding="utf-8")
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(write_page(text, counted), encoding="utf-8")
    print("\n".join(report(counted, read_page(text))))


if __name__ == "__main__":
    main()
