"""Words that name nothing: where the product still has them. `python -m tests.structure.words` lists every place, and
`--lower` lowers the limits in words.tsv to what is left.

a value is named for what it is (verdicts, reply, missing), never told, said, found, given, taught
a function is a verb, never a participle (shown, kept), and its verb is the field's: capture, notify; not settle, tell
a docstring begins with a verb, or with a noun and its article; a clause or a preposition is a fragment
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.structure.tree import ROOT, Module, modules

LIMITS = Path(__file__).with_name("words.tsv")
VALUES = frozenset({"told", "said", "found", "given", "taught"})
TERMS = frozenset({"settle", "tell", "market", "purse", "law", "lane", "lanes", "letter", "letters", "hello", "spelt"})
IRREGULAR = re.compile(
    "told|said|found|given|taught|shown|taken|kept|written|chosen|known|held|seen|drawn|begun|spoken|hidden|meant|sent"
    "|built|bought|sold|lent|spent|thrown|grown|worn|broken|heard|left|lost|paid|made|laid"
)
FRAGMENTS = re.compile(
    "of|so|who|whose|whom|what|whatever|which|whichever|how|why|where|when|whether|whoever|for|from|as|in|into|with"
    "|without|within|by|at|on|to|until|up|under|before|after|between|behind|inside|outside|than|that|because|if|unless"
    "|beside|but|and|or|not|back|onto|out|gone|those|per|less|exactly|thinner|their|its"
)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_FIRST = re.compile(r"[A-Za-z]+")
Function = ast.FunctionDef | ast.AsyncFunctionDef
# what gives a name or has a docstring; the others are most of a tree
NAMING = frozenset(
    {
        *(ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Name, ast.Attribute, ast.arg, ast.alias),
        *(ast.MatchAs, ast.MatchStar, ast.ExceptHandler),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`rule` is the banned word, "participle" or "fragment"."""

    rule: str
    text: str
    where: str


def places(tree: Sequence[Module]) -> Iterator[Place]:
    for module in tree:
        for node in ast.walk(module.tree):
            if type(node) not in NAMING:
                continue
            where = f"{'/'.join(module.path.parts[-3:])}:{getattr(node, 'lineno', 1)}"
            for rule, text in _faults(node):
                yield Place(rule=rule, text=text, where=where)


def _faults(node: ast.AST) -> Iterator[tuple[str, str]]:
    name = _bound(node)
    words = _words(name)
    yield from ((word, name) for word in words if word in TERMS | VALUES and words[:2] != ["not", "found"])
    if isinstance(node, Function) and len(words) == 1 and _is_participle(words[0]) and not _is_property(node):
        yield "participle", name
    if isinstance(node, ast.Module | ast.ClassDef | Function):
        first = (ast.get_docstring(node) or "").lstrip("`'\"*").partition("\n")[0]
        opening = _FIRST.match(first)
        if opening and FRAGMENTS.fullmatch(opening[0].lower()):
            yield "fragment", first


@cache
def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _bound(node: ast.AST) -> str:
    """The name that a node gives to something, or ""."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return name
        case ast.ExceptHandler(name=str(name)):
            return name
    return ""


def _is_participle(word: str) -> bool:
    return IRREGULAR.fullmatch(word) is not None or (
        word.endswith("ed") and word not in {"seed", "feed", "embed", "need", "shed"}
    )


def _is_property(node: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def count(tree: Sequence[Module]) -> dict[str, int]:
    """{rule: places}; a rule without a place is 0."""
    counted = Counter(place.rule for place in places(tree))
    return {rule: counted[rule] for rule in (*sorted(VALUES), *sorted(TERMS), "participle", "fragment")}


def allowed() -> dict[str, int]:
    """{rule: the most places that it may have}, from words.tsv."""
    return {rule: int(n) for rule, n in (line.split("\t") for line in LIMITS.read_text().splitlines())}


def main() -> None:
    tree = modules(ROOT)
    counted = count(tree)
    if sys.argv[1:] == ["--lower"]:
        limits = allowed() if LIMITS.exists() else counted
        LIMITS.write_text("".join(f"{rule}\t{min(n, limits.get(rule, n))}\n" for rule, n in counted.items()))
    else:
        for place in sorted(places(tree), key=lambda place: (place.rule, place.where)):
            print(f"{place.rule:<12}{place.where:<60}{place.text}")
    print(counted)


if __name__ == "__main__":
    main()
