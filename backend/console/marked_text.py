"""A text with the places marked that the values of an answer stand at, for pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.domain.evaluation.spans import SURE_PPM, Segment, Span, SpanSource, segments
from backend.domain.number_words import score

MAX_PATH = 200  # of a field in a title
MAX_TITLES = 4  # of one stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of a text; `kind` is "" where nothing is marked, else a class of console.css."""

    text: str
    kind: str
    title: str


def pieces(text: str, spans: Iterable[Span]) -> list[Piece]:
    """The text in stretches; where spans overlap, a stretch names several."""
    return [_piece(part) for part in segments(text, spans)]


def is_unsure(span: Span) -> bool:
    return span.confidence_ppm is not None and span.confidence_ppm < SURE_PPM


def _piece(part: Segment) -> Piece:
    return Piece(
        text=part.text,
        kind=_kind(part.spans),
        title=", ".join(map(_title, part.spans[:MAX_TITLES])),
    )


def _kind(spans: Sequence[Span]) -> str:
    """The class of a stretch: what differs goes before where it was read, and an unsure span before others."""
    last = spans[-1].source if spans else ""
    return "unsure" if last == SpanSource.MODEL and any(map(is_unsure, spans)) else str(last)


def _title(span: Span) -> str:
    words = {"model": "read here", "gold": "gold", "predicted": "answered"}[span.source.value]
    sure = "" if span.confidence_ppm is None else f", {score(span.confidence_ppm)}"
    return f"{span.path[:MAX_PATH]} ({words}{sure})"
