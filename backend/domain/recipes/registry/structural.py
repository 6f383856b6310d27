"""The part of a recipe that may leave its tenant: structure, cut off before the first character that could be content.

The wall that stands before counting (docs/registry.md): whatever the counting gets wrong, no value of an answer, no
digit, no character beyond ASCII and no word of prose passes here. Where it cannot tell, it cuts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from backend.domain.recipes.shape_steps import KEYWORDS

MAX_RUN_CHARS = 96
MAX_KEY_CHARS = 32
MAX_KEYS = 4

_PUNCTUATION = r"[!-/:-@\[-^`{-~]"
_UNIT = "(?:NUM|STR|ID|WS|NL|" + "|".join(sorted(word.decode() for word in KEYWORDS)) + f"|{_PUNCTUATION})"
_UNITS = rf"\|(?: {_UNIT}(?: {_UNIT}){{0,3}})?"
_ORDINAL = r"(?:[0-9]{1,2}|\*)"
# Not the shapes of literals' insides ("in value", "in key", `in "`), and none that holds the name of a key.
_JSON_SHAPE = re.compile(
    rf"json d[0-9]{{1,2}} (key|colon|value|scalar|after|end) #(?:{_ORDINAL}(?:\.{_ORDINAL}){{0,2}})? {_UNITS}"
)
_TEXT_SHAPE = re.compile(rf"text d[0-9] i[0-9]{{1,2}} {_UNITS}")
_LINE_START = re.compile(r"text d0 i0 \|(?: .*NL)?")  # where a bracket opens JSON
# The name of a JSON member: letters, with _ and - between; so no number, and little of what machines make up.
_KEY = re.compile(r'"([A-Za-z]+(?:[_-][A-Za-z]+)*)"(?=[ \n\t]*:)')
_JSON_SIGNS = frozenset("{}[]:, \n\t")
_NO_WORD = rf"{_PUNCTUATION}|[ \n\t]"
_TEXT_PIECE = re.compile(rf"[A-Za-z0-9_]+|{_NO_WORD}")
# Outside JSON: words of programming languages that everybody has, and nothing else that has letters.
_WORDS = """
    and as assert async await bool boolean break case catch class const continue def default del delete do elif else
    enum except export extends false False finally float for from function if implements import in instanceof int
    interface is lambda len let list map match new None not null or pass print private protected public raise range
    return self set static str string struct super switch this throw true True try type typeof undefined var void
    while with yield
"""
WORDS = frozenset(_WORDS.split())


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Structure:
    """`run` is what may leave of a recipe's run; `words` are the names of members in it, the one thing there that
    tenants choose."""

    shape: str
    run: str
    words: tuple[str, ...]


def structural(shape: str, run: str) -> Structure | None:
    """The longest beginning of `run` that is structure after a text of this shape; None where nothing is left, and for
    a shape that is not written as shapes outside literals are.

    >>> structural("json d1 key #1 | STR : STR ,", ' "city": "Bern"').run
    ' "city": "'
    """
    run = run[:MAX_RUN_CHARS]
    if json_shape := _JSON_SHAPE.fullmatch(shape):
        pieces = list(_json_pieces(run, json_shape[1]))
    elif _TEXT_SHAPE.fullmatch(shape):
        is_json = _LINE_START.fullmatch(shape) and run[:1] in ("{", "[")
        pieces = list(_json_pieces(run, "value") if is_json else _text_pieces(run))
    else:
        return None
    words = tuple(piece[1:-1] for piece in pieces if len(piece) > 2 and piece[0] == '"')
    return Structure(shape=shape, run="".join(pieces), words=words) if pieces else None


def _json_pieces(run: str, place: str) -> Iterator[str]:
    """Signs of JSON, white space and names of members; of a value its opening quote at most."""
    at, n_keys, open_here = 0, 0, ""
    is_key_next = place in ("key", "after", "scalar")
    while at < len(run):
        sign = run[at]
        if sign == '"':
            key = _KEY.match(run, at)
            if not key or not is_key_next or len(key[1]) > MAX_KEY_CHARS or n_keys == MAX_KEYS:
                yield sign
                return
            yield key[0]
            at, n_keys, is_key_next = key.end(), n_keys + 1, False
            continue
        if sign not in _JSON_SIGNS:
            return
        open_here = open_here + sign if sign in "{[" else open_here[:-1] if sign in "}]" else open_here
        if sign in "{,":
            is_key_next = not open_here.endswith("[")
        elif sign in "[:":
            is_key_next = False
        yield sign
        at += 1


def _text_pieces(run: str) -> Iterator[str]:
    """Punctuation, white space and WORDS, up to the first quote."""
    at = 0
    while piece := _TEXT_PIECE.match(run, at):
        if piece[0] not in WORDS and not re.fullmatch(_NO_WORD, piece[0]):
            return
        yield piece[0]
        if piece[0] in "\"'`":
            return
        at = piece.end()
