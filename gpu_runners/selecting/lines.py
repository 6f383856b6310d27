"""One line of `kolm select`'s input: `{"id", "text"}` or `{"id", "embedding"}`, perhaps with `score` and `label`.

Fields that selection does not know are kept for the output; one that looks like a known one that is missing is refused.
"""

import difflib
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

MAX_LINE_BYTES = 4_000_000
MAX_ID_CHARACTERS = 512
RESULT_FIELD = "selection"  # what an earlier run wrote about a row: dropped when read, written anew
_SMALLEST, _LARGEST = 1e-25, 1e30  # of a row's largest coordinate: float32 keeps its direction in between
_KNOWN = ("id", "text", "embedding", "score", "label")
_MISSPELLED = {"vector": "embedding", "emb": "embedding", "input": "text", "content": "text", "reward": "score"}


class BadLine(Exception):
    """The fault of one line, without its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One usable line. `rest` is the JSON object of the fields that are passed through, "" where there are none."""

    id: str
    text: str | None
    embedding: Vectors | None
    score: float | None
    label: str | None
    rest: str


def json_row(line: bytes, *, has_embeddings_file: bool) -> Row:
    """Raises BadLine. With `has_embeddings_file` the line must not bring an embedding, and need not bring a text."""
    fields = _object(line)
    for name in fields:
        meant = _did_you_mean(name)
        if meant is not None and meant not in fields:
            raise BadLine(f'it has a field {json.dumps(name[:40])}; did you mean "{meant}"?')
    text, embedding = fields.get("text"), fields.get("embedding")
    if embedding is not None and has_embeddings_file:
        raise BadLine('it has an "embedding", and --embeddings gives one too')
    if text is not None and embedding is not None:
        raise BadLine('it has both "text" and "embedding"; give one')
    if text is None and embedding is None and not has_embeddings_file:
        raise BadLine('it has neither "text" nor "embedding"')
    rest = {name: value for name, value in fields.items() if name not in _KNOWN and name != RESULT_FIELD}
    return Row(
        id=_id(fields.get("id")),
        text=None if text is None else _text(text),
        embedding=None if embedding is None else _embedding(embedding),
        score=_number(fields["score"], '"score"') if fields.get("score") is not None else None,
        label=_label(fields.get("label")),
        rest=json.dumps(rest, ensure_ascii=True) if rest else "",
    )


def text_row(line: bytes, number: int) -> Row:
    """A plain line is a text; its number is its id. Raises BadLine."""
    return Row(id=str(number), text=_text(_decode(line)), embedding=None, score=None, label=None, rest="")


def _decode(line: bytes) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadLine(f"it is not UTF-8 (byte {error.start + 1})") from error


def _object(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(_decode(line), parse_constant=_refuse_constant, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        raise BadLine(f"it is not JSON ({error.msg} at character {error.pos + 1})") from error
    except (ValueError, RecursionError) as error:  # a number of more than 4,300 digits, or brackets nested too deep
        raise BadLine(f"it is not usable JSON ({error})") from error
    if not isinstance(fields, dict):
        raise BadLine('it is not an object like {"id": "a1", "text": "…"}')
    return fields


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise BadLine(f"it has the field {json.dumps(twice[:40])} twice")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise BadLine(f"it has a number that is not finite ({name})")


@lru_cache(maxsize=1_024)
def _did_you_mean(name: str) -> str | None:
    """The field that an unknown name looks like."""
    if name in _KNOWN or name == RESULT_FIELD:
        return None
    lower = name.lower()
    return _MISSPELLED.get(lower) or next(iter(difflib.get_close_matches(lower, _KNOWN, n=1, cutoff=0.8)), None)


def _id(value: object) -> str:
    if value is None:
        raise BadLine('it has no "id"')
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadLine('its "id" is neither text nor a whole number')
    name = str(value)
    if not name.strip() or len(name) > MAX_ID_CHARACTERS:
        raise BadLine(f'its "id" is empty or longer than {MAX_ID_CHARACTERS} characters')
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadLine('its "text" is not text')
    if not value.strip():
        raise BadLine("its text is empty")
    return value


def _label(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadLine('its "label" is neither text nor a whole number')
    return str(value)


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadLine(f"its {name} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadLine(f"its {name} is not finite")
    return number


def _embedding(value: object) -> Vectors:
    """(d,) float32."""
    if not isinstance(value, list) or not value:
        raise BadLine('its "embedding" is not a list of numbers')
    if not set(map(type, value)) <= {int, float}:
        for at, number in enumerate(value):
            _number(number, f"embedding[{at}]")
    try:
        numbers = np.array(value, dtype=np.float64)
    except OverflowError as error:
        raise BadLine('its "embedding" has a number that is not finite') from error
    if not np.isfinite(numbers).all():
        raise BadLine(f"its embedding[{int(np.flatnonzero(~np.isfinite(numbers))[0])}] is not finite")
    vector: Vectors = float32_rows(numbers[None])[0]
    return vector


def float32_rows(rows: NDArray[np.float64]) -> Vectors:
    """(n, d) float32; a row that float32 cannot hold is brought to a largest coordinate of 1, since selection reads
    directions only."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    fits = (largest == 0) | ((largest > _SMALLEST) & (largest < _LARGEST))
    out = np.empty(rows.shape, dtype=np.float32)
    np.divide(rows, np.where(fits, 1.0, largest), out=out, casting="same_kind")
    return out
