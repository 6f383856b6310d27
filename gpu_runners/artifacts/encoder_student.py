"""The two kinds of student on an encoder, as whoever serves them sees both: one input in, one text out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.span_model import SpanModel

EncoderModel = LabelModel | SpanModel

_OWN = ("confidence", "is_unsure", "fields", "rule")  # of an answer, for whom they interest


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentAnswer:
    """The text of an answer, the tokens that were read for it (none where a rule answered), its own time, and kolm's
    own members: `confidence`, `is_unsure` of a label, `fields` of a span student, `rule`. `ranking` are a label task's
    likeliest labels with their calibrated probabilities, the answer first; of a rule's answer that alone, with the
    rule's bound."""

    text: str
    n_read: int
    latency_us: int
    kolm: Mapping[str, Any]
    ranking: tuple[tuple[str, float], ...] = ()


def model_answer(model: EncoderModel, text: str) -> StudentAnswer:
    """The answer to one input, by the artifact's rules or its model."""
    if isinstance(model, LabelModel):
        ranked = model.predict_ranked(text)
        return answer_of(ranked.output, n_read=_n_read(model, ranked.output, text), ranking=ranked.ranking)
    (row,) = model.predict([text])
    return answer_of(row, n_read=_n_read(model, row, text))


def rule_answer(model: EncoderModel, text: str) -> StudentAnswer | None:
    """The answer of the artifact's rules; None where none is sure."""
    if model.rules is None or model.rules.answer(text) is None:
        return None
    return model_answer(model, text)  # the rules again, for the row as the model gives it


def _n_read(model: EncoderModel, row: Mapping[str, Any], text: str) -> int:
    return 0 if "rule" in row else model.n_tokens(text)


def answer_of(row: Mapping[str, Any], *, n_read: int, ranking: tuple[tuple[str, float], ...] = ()) -> StudentAnswer:
    """`row` is one of the model's `predict`."""
    text = row["label"] if "label" in row else row["output"]
    own = {name: row[name] for name in _OWN if name in row}
    return StudentAnswer(text=text, n_read=n_read, latency_us=row["latency_us"], kolm=own, ranking=ranking)
