"""The kinds of tokens: what a tokenizer leaves out of a text or splits up. Needs no torch.

An uncased tokenizer drops the case of words, every one of them line breaks, and pieces of a number say little of its
shape; names, headings, order numbers and signatures are known by them. A kind is the number of one combination of
features; a span student adds a vector of each to the embeddings of its tokens. `kolm export` copies this file beside
a student: it imports nothing but the standard library.
"""

import re
from collections.abc import Sequence
from enum import IntEnum


class Shape(IntEnum):
    """The shape of the word that a token lies in."""

    LOWER = 0
    TITLE = 1  # a capital, then none
    UPPER = 2
    MIXED = 3
    DIGITS = 4
    CODE = 5  # letters and digits
    OTHER = 6  # no letter and no digit


N_SHAPES = len(Shape)
LINE, SENTENCE = N_SHAPES, N_SHAPES + 1  # the features beside the shapes: a line or a sentence begins at the token
N_FEATURES = N_SHAPES + 2
N_KINDS = 1 + 4 * N_SHAPES
NO_KIND = 0  # of special tokens, the prefix and padding
_WORD = re.compile(r"[^\W_]+")
_ENDS = frozenset(".!?")


def drop_case(kind: int) -> int:
    """The kind as it would be in a text without capitals."""
    if not kind:
        return kind
    flags, shape = divmod(kind - 1, N_SHAPES)
    if shape in (Shape.TITLE, Shape.UPPER, Shape.MIXED):
        shape = Shape.LOWER
    return 1 + flags * N_SHAPES + shape


def kinds_of(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The kinds of a text's tokens, whose places, in order, are `offsets`."""
    words = [(match.start(), match.end(), _shape(match[0])) for match in _WORD.finditer(text)]
    out: list[int] = []
    at = before = 0
    for start, end in offsets:
        while at < len(words) and words[at][1] <= start:
            at += 1
        shape = words[at][2] if at < len(words) and words[at][0] < max(end, start + 1) else Shape.OTHER
        is_line = not out or any(char in "\n\r" for char in text[before:start])
        is_sentence = not out or text[before - 1 : before] in _ENDS
        out.append(1 + (is_line + 2 * is_sentence) * N_SHAPES + shape)
        before = end
    return tuple(out)


def _shape(word: str) -> Shape:
    n_alpha = sum(char.isalpha() for char in word)
    if n_alpha < len(word):
        return Shape.CODE if n_alpha else Shape.DIGITS
    is_upper = [char.isupper() for char in word]
    if not any(is_upper):
        return Shape.LOWER
    if is_upper[0] and not any(is_upper[1:]):
        return Shape.TITLE
    return Shape.UPPER if all(is_upper) else Shape.MIXED
