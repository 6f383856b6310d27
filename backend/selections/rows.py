"""One row of a selection: what it may hold, and in which words it is refused. Nothing is stored here."""

import json
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

MAX_TEXT = 4_000
MAX_WIDTH = 4_096
MAX_ID = 512
MAX_LABEL = 200
MAX_SCORE = 1e9  # its parts per million are still a whole number that every JSON reader has
_FIELDS = ("id", "text", "embedding", "score", "label")
# what people call them elsewhere; other unknown fields are theirs, and passed over
_MISNAMED = {"vector": "embedding", "emb": "embedding", "input": "text", "content": "text", "reward": "score"}
_NUMBERS = frozenset({int, float})

Vector = NDArray[np.float32]


class BadRow(Exception):
    """The fault of one row, without its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`text` or `embedding`, never both. `embedding` is (d,) float32 with a largest number of 1: selection asks for
    directions alone, and nothing overflows so. `id` is "" where the row has none."""

    id: str
    text: str | None
    embedding: Vector | None
    score: float | None
    label: str | None


def row_of_line(line: bytes) -> Row:
    """Raises BadRow."""
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRow(f"it is not UTF-8 (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        raise BadRow(f"it is not JSON ({error.msg}, character {error.pos + 1})") from None
    except RecursionError:
        raise BadRow("it is nested too deeply; a row is a flat object") from None
    except ValueError as error:  # an integer of more than 4,300 digits
        raise BadRow(f"it is not JSON we take ({error})") from None
    return row_of(value)


def row_of(value: object) -> Row:
    """A row of parsed JSON. Raises BadRow."""
    if not isinstance(value, dict):
        raise BadRow('it is no object; a row is one like {"id": "a1", "text": "..."}')
    for name in value:
        _refuse_misnamed(name)
    text, embedding = value.get("text"), value.get("embedding")
    if text is not None and embedding is not None:
        raise BadRow('it has both "text" and "embedding"; give one')
    if text is None and embedding is None:
        raise BadRow('it has neither "text" nor "embedding"')
    return Row(
        id=_name(value.get("id"), "id", MAX_ID) or "",
        text=None if text is None else _text(text),
        embedding=None if embedding is None else _embedding(embedding),
        score=_score(value.get("score")),
        label=_name(value.get("label"), "label", MAX_LABEL),
    )


def _refuse_misnamed(name: str) -> None:
    if name in _FIELDS:
        return
    meant = _misspelt().get(name[:40].lower())
    if meant is not None:
        raise BadRow(f'it has a field {name[:40]!r}; did you mean "{meant}"?')


@cache
def _misspelt() -> dict[str, str]:
    """Every way to write a field with one letter too many or too few, and a longer one with a letter wrong or two
    turned round. A table, for a body may hold a million other names and each is looked up."""
    fields = {wrong: field for field in _FIELDS if len(field) > 2 for wrong in _slips(field)}
    return fields | _MISNAMED


def _slips(word: str) -> Iterator[str]:
    alphabet = string.ascii_lowercase + "_"
    for i in range(len(word) + 1):
        head, tail = word[:i], word[i:]
        yield from (head + character + tail for character in alphabet)
        if tail:
            yield head + tail[1:]
        if tail and len(word) > 4:  # test and next are names of their own
            yield from (head + character + tail[1:] for character in alphabet)
        if len(tail) > 1 and len(word) > 4:
            yield head + tail[1] + tail[0] + tail[2:]


def _name(value: object, field: str, longest: int) -> str | None:
    """Whole numbers are taken too: ids of rows often are."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadRow(f'"{field}" is neither a text nor a whole number')
    try:
        name = str(value)
    except ValueError:  # an integer of more than 4,300 digits
        name = ""
    if not 0 < len(name) <= longest:
        raise BadRow(f'"{field}" has {len(name)} characters; it needs 1 to {longest}')
    _check_text(name, field)
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadRow('"text" is no text')
    if not value.strip():
        raise BadRow('"text" is empty')
    if len(value) > MAX_TEXT:
        raise BadRow(f'"text" has {len(value)} characters; at most {MAX_TEXT}')
    _check_text(value, "text")
    return value


def _check_text(value: str, field: str) -> None:
    if "\x00" in value:
        raise BadRow(f'"{field}" has a NUL character')
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise BadRow(f'"{field}" has half of a surrogate pair in it; send it as UTF-8') from None


def _score(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRow('"score" is no number')
    if not -MAX_SCORE <= value <= MAX_SCORE:
        raise BadRow(f'"score" is not between -{MAX_SCORE:g} and {MAX_SCORE:g}')
    return float(value)


def _embedding(value: object) -> Vector:
    if not isinstance(value, list) or not value:
        raise BadRow('"embedding" is no list of numbers')
    if len(value) > MAX_WIDTH:
        raise BadRow(f'"embedding" has {len(value)} numbers; at most {MAX_WIDTH}')
    if not _NUMBERS.issuperset(map(type, value)):
        at = next(i for i, number in enumerate(value) if type(number) not in _NUMBERS)
        raise BadRow(f'"embedding" has something at place {at} that is no number')
    try:
        numbers = np.array(value, dtype=np.float64)
    except OverflowError:
        numbers = np.array([np.inf])
    largest = float(np.abs(numbers).max())
    if not np.isfinite(largest):
        raise BadRow('"embedding" has a number that is not finite')
    return (numbers / largest if largest > 0 else numbers).astype(np.float32)


def _no_constant(name: str) -> NoReturn:
    raise BadRow(f"{name} is no JSON number; a number must be finite")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise BadRow("it has a key twice in one object")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
