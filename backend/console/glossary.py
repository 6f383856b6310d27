"""The terms of docs/glossary.md: for hovers in the console, and their anchors in the documentation's site.

The page is read once a process. An installation without docs/ has no terms, and its pages show the bare words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings

_ROW = re.compile(r"^\| ([^|]+?) \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r"(?<=[a-z0-9)\]][.;]) (?=[A-Z(]|kolm )")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """`anchor` is its place on the page of the glossary; `definition` plain text, `sentence` the first of it."""

    name: str
    anchor: str
    definition: str

    @property
    def sentence(self) -> str:
        return _SENTENCE.split(self.definition, maxsplit=1)[0].rstrip(".;") + "."


def terms_of(markdown: str) -> dict[str, Term]:
    """Every term by its name, and by each name of a row that has several. What stands in brackets may be left out where
    that is no other term's name."""
    rows = [
        (cell, Term(name=_names(cell)[0], anchor=_anchor_of(cell), definition=_LINK.sub(r"\1", text).replace("`", "")))
        for cell, text in _rows(markdown)
    ]
    short = {re.sub(r" ?\([^)]*\)", "", term.name): term for _, term in reversed(rows)}
    return short | {name: term for cell, term in rows for name in _names(cell)}


def add_anchors(markdown: str) -> str:
    """Give every term of the page the anchor that links to it use."""

    def with_anchor(row: re.Match[str]) -> str:
        if row[1] == "word" or row[1].startswith("---"):
            return row[0]
        return f'| <span id="{_anchor_of(row[1])}">{row[1]}</span> | {row[2]} |'

    return _ROW.sub(with_anchor, markdown)


@cache
def terms() -> dict[str, Term]:
    page = Path(settings.ROOT) / "docs" / "glossary.md"
    return terms_of(page.read_text(encoding="utf-8")) if page.is_file() else {}


def _rows(markdown: str) -> Iterator[tuple[str, str]]:
    for row in _ROW.finditer(markdown):
        if row[1] != "word" and not row[1].startswith("---"):
            yield row[1], row[2]


def _names(cell: str) -> list[str]:
    """
    >>> _names("artifact, `.kolm`"), _names("break-even (of a compile)")
    (['artifact', '.kolm'], ['break-even (of a compile)'])
    """
    bare = cell.replace("`", "")
    return [bare] if "(" in bare else bare.split(", ")


def _anchor_of(cell: str) -> str:
    """
    >>> _anchor_of("artifact, `.kolm`"), _anchor_of("break-even (of drafts)"), _anchor_of("K-score")
    ('artifact', 'break-even-of-drafts', 'k-score')
    """
    first = cell.replace("`", "") if "(" in cell else cell.replace("`", "").partition(",")[0]
    return re.sub(r"[^\w -]", "", first.lower()).replace(" ", "-")
