"""One slice refactored into two (seed 000: `policy_clarification` -> `..._refund`, `..._shipping`): which candidates go
where, how share, N and K are divided, and what the halves are called.

The halves are the top two clusters of the average-linkage dendrogram. A teacher names them; its answer is hostile input
and is read strictly. Where it is of no use, the terms that tell the two clusters apart name them.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from backend.domain.selection.allocation import allocate_largest_remainder
from backend.domain.selection.linkage.clustering import Ints, Rows, average_linkage, cut
from backend.domain.unicode_forms import unicode_form

MAX_NAME_CHARS = 80  # of a slice, as in a spec
MAX_PART_CHARS = 40  # of what a half adds to the name of the slice
MAX_HINT_CHARS = 1000  # of a slice, as in a spec
MAX_PART_HINT_CHARS = 200  # of what a half adds to the hint
MAX_ANSWER_CHARS = 4000
N_TERMS = 3  # that make up the hint of a half that its own terms name
MIN_TERM_CHARS = 3
_WORD = re.compile(r"\w+")
_FENCE = re.compile(r"```(?:json)?\n(.*)\n```", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfName:
    """The words that a half adds to the name and to the hint of the slice it was part of."""

    name: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfSize:
    """A half's part of the slice's share, N and K."""

    share_ppm: int
    n_candidates: int
    k: int


def halves(unit_rows: Rows) -> tuple[Ints, Ints] | None:
    """Row indices of the two clusters joined last, the larger first, each with its most central rows first; None where
    the rows are one near-duplicate group, which cannot be split.

    `(n, d)`, unit or zero rows, in canonical order: ties go to the lower index."""
    dendrogram = average_linkage(unit_rows)
    if dendrogram.n_groups() < 2:
        return None
    labels = cut(dendrogram, 2)
    parts = sorted((np.flatnonzero(labels == side) for side in (0, 1)), key=lambda part: (-len(part), int(part[0])))
    first, second = (_by_centrality(unit_rows, part) for part in parts)
    return first, second


def _by_centrality(unit_rows: Rows, part: Ints) -> Ints:
    """The medoid of cosine distance first: the row closest to the sum of all. Quantised, so that rounding does not
    choose."""
    rows = unit_rows[part].astype(np.float64)
    closeness = np.rint(rows @ rows.sum(axis=0) / len(rows) * 1e6)
    return np.asarray(part[np.argsort(-closeness, kind="stable")], dtype=np.int64)


def divide(*, share_ppm: int, n_candidates: int, k: int, sizes: Sequence[int]) -> list[HalfSize]:
    """Share, N and K in proportion to `sizes`, by largest remainder and at least one each; no half has a K above its N.

    >>> [(half.n_candidates, half.k) for half in divide(share_ppm=500_000, n_candidates=12, k=4, sizes=[9, 3])]
    [(9, 3), (3, 1)]
    """
    shares, ns, ks = (_apportion(total, sizes) for total in (share_ppm, n_candidates, k))
    while (over := next((i for i in range(len(ks)) if ks[i] > ns[i]), None)) is not None:
        ks[over] -= 1
        ks[max(range(len(ks)), key=lambda i: (ns[i] - ks[i], -i))] += 1
    return [HalfSize(share_ppm=s, n_candidates=n, k=own_k) for s, n, own_k in zip(shares, ns, ks, strict=True)]


def _apportion(total: int, sizes: Sequence[int]) -> list[int]:
    """`allocate_largest_remainder` without its upper bound: what is divided is no part of what is counted."""
    scale = -(-max(total, len(sizes)) // min(sizes))
    return allocate_largest_remainder(max(total, len(sizes)), [size * scale for size in sizes])


def read_names(answer: str) -> tuple[HalfName, HalfName] | None:
    """The names that a teacher gave to the two halves, or None when the answer is not exactly
    `{"halves": [{"name", "hint"}, {"name", "hint"}]}` with short, printable, different names."""
    fenced = _FENCE.fullmatch(answer.strip())
    text = fenced.group(1) if fenced else answer
    if len(text) > MAX_ANSWER_CHARS:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != {"halves"}:
        return None
    rows = value["halves"]
    if not isinstance(rows, list) or len(rows) != 2:
        return None
    first, second = (_read_name(row) for row in rows)
    if first is None or second is None or first.name.casefold() == second.name.casefold():
        return None
    return first, second


def _read_name(row: object) -> HalfName | None:
    if not isinstance(row, dict) or set(row) != {"name", "hint"}:
        return None
    name, hint = row["name"], row["hint"]
    if not isinstance(name, str) or not isinstance(hint, str):
        return None
    if not (_is_plain(name, MAX_PART_CHARS) and _is_plain(hint, MAX_PART_HINT_CHARS)) or "|" in name:
        return None
    return HalfName(name=name, hint=hint)


def _is_plain(text: str, most: int) -> bool:
    """One printable line without space at either end: no controls, no line or direction marks, no lone surrogates."""
    return 0 < len(text) <= most and text == text.strip() and text.isprintable()


def names_from_terms(first: Sequence[str], second: Sequence[str]) -> tuple[HalfName, HalfName]:
    """Names from what tells the halves' texts apart: the terms of the greatest difference in the share of texts that
    have them (a term of both weighs nothing, as with tf-idf). `part 1` and `part 2` where no term does.

    >>> [half.name for half in names_from_terms(["refund my order", "a refund"], ["ship my order", "ship it"])]
    ['refund', 'ship']
    """
    terms = _telling_terms(first, second), _telling_terms(second, first)
    one, two = (
        HalfName(name=own[0], hint="Above all: " + ", ".join(own[:N_TERMS]) + ".")
        if own
        else HalfName(name=f"part {number}", hint="")
        for number, own in enumerate(terms, start=1)
    )
    return one, two


def _telling_terms(own: Sequence[str], other: Sequence[str]) -> list[str]:
    """Terms more common in `own` than in `other`, most telling first. Compared as whole numbers: rounding decides
    nothing."""
    inside, outside = _document_counts(own), _document_counts(other)
    weight = {term: n * len(other) - outside[term] * len(own) for term, n in inside.items()}
    return sorted((term for term in weight if weight[term] > 0), key=lambda term: (-weight[term], term))


def _document_counts(texts: Sequence[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update({word for word in _WORD.findall(unicode_form("NFC", text).casefold()) if _is_term(word)})
    return counts


def _is_term(word: str) -> bool:
    return MIN_TERM_CHARS <= len(word) <= MAX_PART_CHARS and word.isprintable() and not word.isdigit()


def full_names(parent: str, parts: Sequence[HalfName], taken: Collection[str]) -> tuple[str, ...] | None:
    """`{parent}_{part}` for each half, the parent's name shortened to fit; None when one is taken already, in whatever
    case."""
    names = []
    used = {name.casefold() for name in taken}
    for part in parts:
        is_whole = part.name.startswith(parent) and part.name != parent
        name = part.name if is_whole else f"{parent[: MAX_NAME_CHARS - len(part.name) - 1].rstrip()}_{part.name}"
        if name.casefold() in used:
            return None
        used.add(name.casefold())
        names.append(name)
    return tuple(names)


def full_hint(parent: str, part: HalfName) -> str:
    """The slice's own hint, which says what it is about, and then the half's."""
    room = MAX_HINT_CHARS - len(part.hint) - 1
    return f"{parent[:room]} {part.hint}".strip()
