"""The feedback of a runner about a pack in use: counts by recipe, and shapes of places that no recipe knew. Never text,
unless the tenant opted in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backend.domain.jobs.runner_jobs import Wire
from backend.domain.recipes.shapes import SHAPE_TEXT

MAX_ROWS = 2_000
MAX_SHAPE = 200  # characters
MAX_LEARNED_TOKENS = 65_536  # of all rows together


@dataclass(frozen=True, slots=True, kw_only=True)
class PackFeedback(Wire):
    """The counts of one artifact's pack since the last report. `tried`: `{"id": Recipe.id, "tried": drafted tokens,
    "accepted": n}`; `missed`: `{"shape": ShapeTable.text, "n": tokens that came where nothing was proposed}`, commonest
    first; `learned`: token runs of answers (`{"tokens": [ids]}`), only where the tenant opted in."""

    artifact_sha256: str
    pack_sha256: str
    n_answers: int
    n_tokens: int
    tried: list[dict[str, Any]]
    missed: list[dict[str, Any]]
    learned: list[dict[str, Any]]


def checked_feedback(value: Any) -> PackFeedback:
    """Feedback that came from outside: every part of the form and within its bounds. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("feedback is an object")
    feedback = PackFeedback.from_json(value)
    for name in ("artifact_sha256", "pack_sha256"):
        _require(_is_hex(getattr(feedback, name), 64), f"{name} is a sha256")
    _require(_is_count(feedback.n_answers) and _is_count(feedback.n_tokens), "n_answers and n_tokens are counts")
    _rows(feedback.tried, {"id", "tried", "accepted"}, _is_tried, "tried")
    _rows(feedback.missed, {"shape", "n"}, _is_missed, "missed")
    _rows(feedback.learned, {"tokens"}, _is_learned, "learned")
    n_learned = sum(len(row["tokens"]) for row in feedback.learned)
    _require(n_learned <= MAX_LEARNED_TOKENS, f"learned has at most {MAX_LEARNED_TOKENS} tokens")
    return feedback


def _rows(rows: Any, members: set[str], holds: Callable[[dict[str, Any]], bool], name: str) -> None:
    _require(isinstance(rows, list) and len(rows) <= MAX_ROWS, f"{name} has at most {MAX_ROWS} rows")
    for row in rows:
        _require(isinstance(row, dict) and set(row) == members and holds(row), f"a row of {name} is not of its form")


def _is_tried(row: dict[str, Any]) -> bool:
    return _is_hex(row["id"], 16) and _is_count(row["tried"]) and _is_count(row["accepted"], most=row["tried"])


def _is_missed(row: dict[str, Any]) -> bool:
    """Only what a shape is written like: there is no text in it."""
    shape = row["shape"]
    is_shape = isinstance(shape, str) and len(shape) <= MAX_SHAPE and SHAPE_TEXT.fullmatch(shape) is not None
    return is_shape and _is_count(row["n"])


def _is_learned(row: dict[str, Any]) -> bool:
    tokens = row["tokens"]
    return isinstance(tokens, list) and bool(tokens) and all(_is_count(token, most=1 << 31) for token in tokens)


def _is_hex(value: Any, n_digits: int) -> bool:
    return isinstance(value, str) and len(value) == n_digits and set(value) <= set("0123456789abcdef")


def _is_count(value: Any, *, most: int = 1 << 52) -> bool:
    return type(value) is int and 0 <= value <= most


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(why)
