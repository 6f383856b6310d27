r"""The alphabet of one pattern: characters between which the pattern cannot tell are one symbol of a byte or two.

`(?i)\brefund(ed)?\b` tells ten kinds of characters apart (r, e, f, u, n, d, other characters of words, the rest, ...).
A text is rewritten in these symbols and the pattern is run over them, so the engine below knows neither Unicode nor
case, and a program that would be thousands of instructions for `\w` is one for each symbol. Which characters a part of
the pattern takes is asked of Python's `re`, one character at a time, which cannot take long.

Symbols keep what the engine's own assertions look at: a word's characters are of [0-9A-Za-z_] where the pattern has \b,
and a new line where ^ or $ stand is 0x0A. Every other symbol is neither. Should bytes not do, a symbol is two, both of
its kind.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, product

import numpy as np
from numpy.typing import NDArray

from backend.domain.patterns.code_points import Ints, cases, codes_of, kinds, text_of
from backend.domain.patterns.syntax import Syntax

NEW_LINE = b"\n"
_WORD = bytes(byte for byte in range(128) if chr(byte).isalnum() or chr(byte) == "_")
_OTHER = bytes(byte for byte in range(256) if byte not in _WORD and byte != NEW_LINE[0])
_N_KINDS = 8  # sums of code_points.Kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Alphabet:
    """`starts` (n,) int64 in order begin runs of code points of one symbol; `symbols` (n, width) uint8 are theirs. A
    new line that ends the text is NEW_LINE, and so is every other one where `has_lines`."""

    starts: Ints
    symbols: NDArray[np.uint8]
    width: int
    classes: Mapping[str, str]  # of each Chars.source: the engine's pattern of the symbols that it takes

    def encode(self, text: str) -> bytes:
        """The text in symbols, `width` bytes for each character."""
        made = self.symbols[np.searchsorted(self.starts, codes_of(text), "right") - 1].tobytes()
        return made[: -self.width] + NEW_LINE * self.width if text.endswith("\n") else made


def alphabet_of(syntax: Syntax) -> Alphabet:
    starts, samples, sample_of = _cells(syntax)
    takes = _takes(syntax.sources, samples)  # (sources, samples)
    signatures = [column.tobytes() for column in np.packbits(takes, axis=0).T] if len(takes) else [b""] * len(samples)
    is_word = takes[syntax.sources.index(syntax.word)] if syntax.word else np.zeros(len(samples), np.bool_)
    lines = [char == "\n" and syntax.has_lines for char in samples]
    words = {signature for signature, yes in zip(signatures, is_word, strict=True) if yes}
    others = {s for s, is_part, is_line in zip(signatures, is_word, lines, strict=True) if not is_part | is_line}
    width = 1 if len(words) <= len(_WORD) and len(others) <= len(_OTHER) else 2
    symbol = {**_symbols(words, _WORD, width), **_symbols(others, _OTHER, width)}
    line = NEW_LINE * width
    per_sample = [line if is_line else symbol[s] for s, is_line in zip(signatures, lines, strict=True)]
    # one sample will do for a symbol; a new line that ends the text is taken by what takes any
    sample_of_symbol = {made: i for i, made in enumerate(per_sample)} | {line: samples.index("\n")}
    named, rows = list(sample_of_symbol), takes[:, list(sample_of_symbol.values())]
    classes = {
        source: _class_of([named[i] for i in row.nonzero()[0].tolist()], width)
        for source, row in zip(syntax.sources, rows, strict=True)
    }
    table = np.frombuffer(b"".join(per_sample), np.uint8).reshape(-1, width)
    return Alphabet(starts=starts, symbols=table[sample_of], width=width, classes=classes)


def taken_ranges(syntax: Syntax, sources: Sequence[str]) -> dict[str, Ints]:
    """Return of each of these sources the code points that it takes: (n, 2) int64, the first and the last of each
    run."""
    starts, samples, sample_of = _cells(syntax)
    takes = _takes(sources, samples)[:, sample_of]
    ends = np.append(starts[1:], 0x110000) - 1
    ranges = {}
    for source, row in zip(sources, takes, strict=True):
        is_first, is_last = row.copy(), row.copy()
        is_first[1:] &= ~row[:-1]
        is_last[:-1] &= ~row[1:]
        ranges[source] = np.stack([starts[is_first], ends[is_last]], axis=1)
    return ranges


def _takes(sources: Sequence[str], samples: str) -> NDArray[np.bool_]:
    """(sources, samples): whether the source takes the sample."""
    codes = codes_of(samples)
    order = np.argsort(codes)
    takes = np.zeros((len(sources), len(samples)), np.bool_)
    for row, source in zip(takes, sources, strict=True):
        is_escape = source.startswith("\\U")
        taken = np.array([int(source[2:], 16)]) if is_escape else codes_of("".join(_asks(source).findall(samples)))
        row[order[np.searchsorted(codes, taken, sorter=order)]] = True
    return takes


@lru_cache(maxsize=4096)
def _asks(source: str) -> re.Pattern[str]:
    return re.compile(source)


def _cells(syntax: Syntax) -> tuple[Ints, str, Ints]:
    """Runs of code points that no source tells apart: where each starts, a text of one sample for all runs that are
    alike, and of each run its sample.

    What takes a character depends on where it stands among the edges and, with categories, on its kind; where case is
    ignored also on where those stand that it may be taken for. A character whose mates stand between other edges
    than itself is a run of its own.
    """
    edges = np.array(sorted({0, 10, 11, *syntax.edges} - {0x110000}))
    bounds = [edges]
    if syntax.has_categories:
        bounds.append(kinds().starts)
    alone = _alone(edges) if syntax.ignores_case else edges[:0]
    after = alone + 1
    starts = np.unique(np.concatenate([*bounds, alone, after[after < 0x110000]]))
    alike = np.searchsorted(edges, starts, "right") * _N_KINDS
    if syntax.has_categories:
        alike += kinds().of(starts)
    alike = np.where(np.isin(starts, alone), -1 - starts, alike)
    _, first, sample_of = np.unique(alike, return_index=True, return_inverse=True)
    return starts, text_of(starts[first]), sample_of


def _alone(edges: Ints) -> Ints:
    cased = cases()
    is_apart = np.searchsorted(edges, cased.lowest, "right") != np.searchsorted(edges, cased.highest, "right")
    alone: Ints = cased.codes[is_apart]
    return alone


def _symbols(signatures: Collection[bytes], pool: bytes, width: int) -> dict[bytes, bytes]:
    """A symbol for each, neighbours for what is taken by much the same: a class is then few runs of bytes."""
    return dict(zip(sorted(signatures), map(bytes, product(pool, repeat=width)), strict=False))


def _class_of(symbols: Collection[bytes], width: int) -> str:
    if width == 1:
        return _bytes_class({symbol[0] for symbol in symbols})
    ends = defaultdict(set)
    for first, second in symbols:
        ends[first].add(second)
    starts = defaultdict(set)
    for first, seconds in ends.items():
        starts[frozenset(seconds)].add(first)
    pairs = [_bytes_class(firsts) + _bytes_class(seconds) for seconds, firsts in starts.items()]
    return f"(?:{'|'.join(pairs)})" if pairs else _bytes_class(())


def _bytes_class(values: Collection[int]) -> str:
    if not values:
        return r"[^\x00-\xff]"
    runs = groupby(enumerate(sorted(values)), key=lambda placed: placed[1] - placed[0])
    spans = [[value for _, value in run] for _, run in runs]
    return "[" + "".join(f"\\x{span[0]:02x}-\\x{span[-1]:02x}" for span in spans) + "]"
