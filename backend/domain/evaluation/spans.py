"""The places of an input that an answer's values stand at: those that a model says it copied from, and those where a
value of gold or of the answer literally stands. Offsets count Unicode code points."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise
from typing import Any

from backend.domain.evaluation.differences import Difference

MAX_SPANS = 200  # of one row
SURE_PPM = 800_000  # a field below it is shown as unsure: calibrated, one in five or more of such fields is wrong


class SpanSource(StrEnum):
    """`model`: the model copied the value from here. The others: a value that differs stands here literally."""

    MODEL = "model"
    GOLD = "gold"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A value's place; `start` and `end` are None for a value that the model did not copy."""

    path: str
    source: SpanSource
    start: int | None = None
    end: int | None = None
    confidence_ppm: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a text and the spans that cover all of it."""

    text: str
    spans: tuple[Span, ...] = ()


def model_spans(entries: Iterable[Mapping[str, Any]], text: str) -> list[Span]:
    """The spans of the fields that a model read. A place that is not in the text is none."""
    spans = []
    for entry in islice(entries, MAX_SPANS):
        start, end = entry.get("start"), entry.get("end")
        is_place = isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text)
        spans.append(
            Span(
                path=entry["path"],
                source=SpanSource.MODEL,
                start=start if is_place else None,
                end=end if is_place else None,
                confidence_ppm=entry.get("confidence_ppm"),
            )
        )
    return spans


def literal_spans(differences: Sequence[Difference], text: str) -> list[Span]:
    """The first place of each text that differs and stands in the input as it is written."""
    values = [
        (one.field, source, value)
        for one in differences
        for source, side in ((SpanSource.GOLD, one.gold), (SpanSource.PREDICTED, one.predicted))
        for value in side
        if isinstance(value, str) and value
    ]
    spans = []
    for path, source, value in values[:MAX_SPANS]:
        start = text.find(value)
        if start >= 0:
            spans.append(Span(path=path, source=source, start=start, end=start + len(value)))
    return spans


def segments(text: str, spans: Iterable[Span]) -> list[Segment]:
    """The text cut where a span begins or ends.

    >>> whole = Span(path="/a", source=SpanSource.GOLD, start=3, end=5)
    >>> [(one.text, len(one.spans)) for one in segments("an AB", [whole])]
    [('an ', 0), ('AB', 1)]
    """
    placed = [
        (one.start, min(one.end, len(text)), one) for one in spans if one.start is not None and one.end is not None
    ]
    edges = sorted({0, len(text), *(edge for start, end, _ in placed for edge in (start, end) if edge <= len(text))})
    return [
        Segment(text=text[low:high], spans=tuple(one for start, end, one in placed if start <= low and high <= end))
        for low, high in pairwise(edges)
    ]
