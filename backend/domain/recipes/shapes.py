"""The shape of a text: what is left of it when its literals are replaced by classes (docs/recipes.md defines it).

Rolling: one `advance` per token; equal texts have equal shapes however they were cut into tokens. Inside JSON there is
a keyed shape beside it, which holds the name of the last key in place of the member's ordinal: names of keys are a
task's own, so a keyed shape never leaves its tenant.
"""

import json
import re
from collections.abc import Sequence
from functools import cached_property

from backend.domain.recipes.shape_steps import KEYWORDS, UNITS, Level, Shape, step

SHAPE_VERSION = "kolm-shape-1"
_UNIT = rf"NUM|STR|ID|WS|NL|[!-/:-@\[-^`{{-~]|{'|'.join(sorted(word.decode() for word in KEYWORDS))}"
_ORDINALS = r"#(?:(?:\d\d?|\*)(?:\.(?:\d\d?|\*)){0,2})?"
# What ShapeTable.text writes, all of it: no literal of any text.
SHAPE_TEXT = re.compile(
    rf"(?:text d\d i\d\d?(?: in [\"'`])?|json d\d\d? (?:key|colon|value|scalar|after|end|in key|in value) {_ORDINALS})"
    rf" \|(?: (?:{_UNIT})){{0,{UNITS}}}"
)
MAX_STATES = 50_000
MAX_MOVES = 500_000
SHOWN_LEVELS = 3
_VALUE_KINDS = {"in value": "text", "value": "number", "scalar": "number"}


class TokenPieces:
    """The tokens of one vocabulary by their bytes: what a text that was cut for the input is called where it begins
    elsewhere. The table is made when it is first asked for."""

    def __init__(self, token_texts: Sequence[bytes]) -> None:
        self.texts = token_texts

    def longest(self, data: bytes) -> int:
        """The token that `data` is, or else the longest one that it begins with; -1 for none. A tokenizer may cut it
        otherwise: then the model refuses the draft.

        >>> TokenPieces([b"", b"a", b"ab", b"abc"]).longest(b"abd")
        2
        """
        of_text = self._of_text
        for n in range(min(len(data), self._most), 0, -1):
            token = of_text.get(data[:n])
            if token is not None:
                return token
        return -1

    @cached_property
    def _of_text(self) -> dict[bytes, int]:
        return {text: token for token, text in reversed(list(enumerate(self.texts))) if text}

    @cached_property
    def _most(self) -> int:
        return max(map(len, self.texts), default=0)


class ShapeTable:
    """States of shapes as small numbers, shared by all cursors over one vocabulary. `token_texts[i]` is token i's
    bytes; a token beyond them has no text. The table grows as texts are read (3,600 states for 7,500 answers of GSM8K,
    12,000 for 4,100 of HumanEval). When it is full, some 80 MB, answers that need more lose their shape: state `lost`,
    which no recipe has. Who shares a table between tenants takes a new one once it `is_full`."""

    def __init__(self, token_texts: Sequence[bytes]) -> None:
        self._texts = token_texts
        self.pieces = TokenPieces(token_texts)
        self._numbers: dict[Shape, int] = {}
        self._shapes: list[Shape] = []
        self._written: list[str] = []
        self._keyed: list[str] = []
        self.moves: list[dict[int, int]] = []
        self._n_moves = 0
        self.lost = self._number(Shape(place="lost"))
        self._start = self._number(Shape())

    @property
    def start(self) -> int:
        """The state of the empty answer."""
        return self._start

    @property
    def n_states(self) -> int:
        return len(self._shapes)

    @property
    def is_full(self) -> bool:
        return len(self._shapes) >= MAX_STATES or self._n_moves >= MAX_MOVES

    def advance(self, state: int, token: int) -> int:
        known = self.moves[state].get(token)
        return self.move(state, token) if known is None else known

    def move(self, state: int, token: int) -> int:
        """`advance` where `moves` has no entry."""
        text = self._texts[token] if 0 <= token < len(self._texts) else b""
        if not text or state == self.lost:
            return state
        shape = self._shapes[state]
        for byte in text:
            shape = step(shape, byte)
        to = self._number(shape)
        if self._n_moves < MAX_MOVES:
            self._n_moves += 1
            self.moves[state][token] = to
        return to

    def text(self, state: int) -> str:
        """The state as it is written in packs, feedback and the registry: `json d1 key #2 | WS STR , WS`."""
        return self._written[state]

    def keyed_text(self, state: int) -> str:
        """`json d1 key "city" | WS STR , WS`; "" outside JSON and before the first key."""
        return self._keyed[state]

    def value_at(self, state: int) -> str:
        """The value that is being written: `text "city"` inside its string, `number "n"` from where a number may begin;
        "" elsewhere."""
        shape = self._shapes[state]
        kind = _VALUE_KINDS.get(shape.place, "")
        key = _last_key(shape) if kind else ""
        return f"{kind} {json.dumps(key, ensure_ascii=False)}" if key else ""

    def _number(self, shape: Shape) -> int:
        known = self._numbers.get(shape)
        if known is not None:
            return known
        if len(self._shapes) >= MAX_STATES:
            return self.lost
        self._numbers[shape] = number = len(self._shapes)
        self._shapes.append(shape)
        self._written.append(_serialise(shape))
        self._keyed.append(_serialise_keyed(shape))
        self.moves.append({})
        return number


def shape_of(text: bytes) -> str:
    """The shape of a whole text, as `ShapeTable.text` writes it.

    >>> shape_of(b'{"city": "Bonn", "n": 12')
    'json d1 scalar #1 | STR : WS NUM'
    >>> shape_of(b"def f(x):\\n    return x")
    'text d0 i4 | NL WS return WS ID'
    """
    shape = Shape()
    for byte in text:
        shape = step(shape, byte)
    return _serialise(shape)


def is_keyed(shape: str) -> bool:
    """Return whether a written shape holds the name of a key: all that is not of SHAPE_TEXT is taken for it."""
    return SHAPE_TEXT.fullmatch(shape) is None


def _serialise(shape: Shape) -> str:
    if shape.place == "lost":
        return ""
    if not shape.place:
        quote = f" in {chr(shape.quote)}" if shape.quote else ""
        return f"text d{shape.depth} i{shape.indent}{quote} |{_units(shape)}"
    ordinals = ".".join(_ordinal(level) for level in shape.levels[-SHOWN_LEVELS:])
    return f"json d{len(shape.levels)} {shape.place} #{ordinals} |{_units(shape)}"


def _units(shape: Shape) -> str:
    return "".join(f" {unit}" for unit in shape.units)


def _ordinal(level: Level) -> str:
    return str(level.ordinal) if level.is_object else "*"


def _last_key(shape: Shape) -> str:
    return next((level.key for level in reversed(shape.levels) if level.key), "")


def _serialise_keyed(shape: Shape) -> str:
    key = _last_key(shape)
    if not key:
        return ""
    quoted = json.dumps(key, ensure_ascii=False)
    return f"json d{len(shape.levels)} {shape.place} {quoted} |{_units(shape)}"
