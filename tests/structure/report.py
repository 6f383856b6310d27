"""`make structure`: writes docs/structure.md, the tree as it is beside the tree of commit BEFORE."""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.structure.graph import loose_files, two_way_pairs
from tests.structure.tree import PRODUCT, ROOT, Module, modules
from tests.structure.walks import Index, Walk, index_of, walk

BEFORE = "b72d60c"
PAGE = ROOT / "docs" / "structure.md"
LOOSE = 20  # files of its own that a folder holds at most
# what is followed: a room, the function it starts from and the parameter, by the names they have or had
WALKS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "a posted spec": ("backend.compiles", ("submit",), ("document",)),
    "a slice that is offered drafts": ("workers", ("offer_drafts",), ("slice_row", "pool")),
    "a compile that becomes an artifact": ("workers", ("run_packaging",), ("run",)),
    "a usage fact": ("workers", ("capture", "book", "settle"), ("facts",)),
    "a chat request at the gateway": ("backend.serving", ("chat_completions",), ("request",)),
    "one step of the engine": ("gpu_runners", ("Scheduler._step",), ("self",)),
}
HEAD = """\
# Structure, measured

Written by `make structure` on {date}, at commit {commit}: do not edit. "Before" is commit {before}. A pair is two
folders of which each imports the other, inside functions and for types too; entry points, which nothing imports, are
left out. A way follows one value by name from a function on (`tests/structure/walks.py`): stays in a file, files, and
returns to a file that the way had left. A value that is put into a dictionary or a row is lost to the reader and here
too; one with a type is followed further, so a way may become longer by becoming visible.

"""


def measure(tree: Sequence[Module]) -> dict[str, str]:
    """{measure: its value as it is written}, in the order of the page."""
    loose, index = loose_files(tree), index_of(tree)
    crowded = sum(n > LOOSE for n in loose.values())
    measures = {
        "lines in files": f"{sum(module.n_lines for module in tree):,} in {len(tree):,}",
        "files of 1 to 59 lines": f"{sum(0 < module.n_lines < 60 for module in tree):,}",
        "folders that hold files": f"{len(loose):,}",
        f"folders of more than {LOOSE} files": f"{crowded:,}",
        "the fullest folders": ", ".join(f"`{name}` {n}" for name, n in loose.most_common(4)),
        "pairs of folders that import each other": f"{len(two_way_pairs(tree)):,}",
    }
    return measures | {f"way of {name}": _way(find_walk(index, start)) for name, start in WALKS.items()}


def find_walk(index: Index, start: tuple[str, tuple[str, ...], tuple[str, ...]]) -> Walk:
    """The way from the first of these functions that this tree has in the room."""
    room, functions, parameters = start
    for function in functions:
        for (module, name), (_, _, node) in index.functions.items():
            known = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            if name == function and f"{module}.".startswith(f"{room}.") and known & set(parameters):
                return walk(index, module, name, next(each for each in parameters if each in known))
    raise LookupError(f"{room} has no {' or '.join(functions)}: docs/structure.md follows a value from there")


def _way(way: Walk) -> str:
    return f"{len(way.files)} stays, {way.n_rooms} files, {way.n_returns} returns"


def page_of(before: Sequence[Module], now: Sequence[Module], commit: str) -> str:
    """The whole page: the table, then what is left of pairs, crowded folders and the files of each way."""
    there, here = measure(before), measure(now)
    rows = [f"| {name} | {there[name]} | {value} |" for name, value in here.items()]
    head = HEAD.format(date=f"{datetime.now(UTC):%Y-%m-%d}", commit=commit, before=BEFORE)
    return "\n".join([head + "| | before | now |", "|---|---|---|", *rows, *_left(now), *_ways(now)]) + "\n"


def _left(now: Sequence[Module]) -> Iterator[str]:
    yield "\n## What is left\n"
    pairs, crowded = two_way_pairs(now), [item for item in loose_files(now).most_common() if item[1] > LOOSE]
    yield from (f"- `{p.one}` and `{p.other}` import each other ({p.n_there}, {p.n_back}): {p.example}" for p in pairs)
    yield from (f"- `{name}` holds {n} files" for name, n in crowded)
    if not pairs and not crowded:
        yield "Nothing."


def _ways(now: Sequence[Module]) -> Iterator[str]:
    yield "\n## The ways, file by file\n"
    index = index_of(now)
    for name, start in WALKS.items():
        yield f"- {name}: " + ", ".join(f"`{file}`" for file in find_walk(index, start).files)


def main() -> None:
    commit = _git("rev-parse", "--short", "HEAD").strip()
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "before.tar"
        _git("archive", "--output", str(packed), BEFORE, *PRODUCT)
        subprocess.run(["tar", "-xf", str(packed), "-C", folder], check=True)
        PAGE.write_text(page_of(modules(Path(folder)), modules(ROOT), commit), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
