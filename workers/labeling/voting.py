"""The votes of a teacher's answers to one input, and what they make of it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from backend.compiles.models import Candidate
from backend.compiles.states import CandidateState
from backend.domain.answers.labels import vote
from backend.domain.labeling.label_scores import compact_scores
from backend.domain.spec.parsing import LabelOutput, Spec, TextOutput, label_names
from workers.teachers.prompts.candidate_and_label import parse_label
from workers.training.votes import agree

Answers = list[list[dict[str, Any]]]  # of one text: the choices of each call

# the columns that votes change
VOTED = ["label", "answer", "votes", "agreement_ppm", "label_logprobs", "reasons", "state"]
CUT = ("length", "content_filter")  # why an answer ends that does not end by itself


def vote_on(spec: Spec, rows: Sequence[Candidate], answers: Mapping[str, Answers]) -> None:
    """Let the answers vote, outside a transaction: a customer's checks take their time."""
    replies = [[reply_of(spec, choice) for call in answers[row.text_key] for choice in call] for row in rows]
    if not isinstance(spec.output, LabelOutput):
        for row, agreed in zip(rows, agree(spec, list(zip([r.text for r in rows], replies, strict=True))), strict=True):
            row.answer, row.votes, row.agreement_ppm = agreed.answer, agreed.votes, agreed.agreement_ppm
            row.reasons = agreed.reasons
            row.move(CandidateState.LABELED if agreed.is_verified else CandidateState.UNVERIFIED)
        return
    allowed = label_names(spec)
    for row, texts in zip(rows, replies, strict=True):
        result = vote([parse_label(text, allowed) for text in texts], allowed)
        row.label, row.votes, row.agreement_ppm = result.label or "", dict(result.counts), result.agreement_ppm
        row.label_logprobs = mean_logprobs([choice for call in answers[row.text_key] for choice in call])
        is_verified = result.reaches(spec.sampling.min_agreement)
        row.move(CandidateState.LABELED if is_verified else CandidateState.UNVERIFIED)


def reply_of(spec: Spec, choice: Mapping[str, Any]) -> str:
    """The text of a choice. One that reached its limit, or that a filter ended, ends in the middle: a text answer is
    none then, and the last word of a label answer may be the beginning of a longer label."""
    text, is_cut = str(choice["text"]), choice.get("finish_reason") in CUT
    if is_cut and isinstance(spec.output, TextOutput):
        return ""
    return f"{text}…" if is_cut and isinstance(spec.output, LabelOutput) else text


def mean_logprobs(choices: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """The log-prob of each label by the mean of its probabilities over the choices that tell them; None where none
    does.

    >>> mean_logprobs([{"label_logprobs": {"a": 0.0}}, {"label_logprobs": {"a": -0.6931, "b": -0.6931}}, {"text": "a"}])
    {'a': -0.2877, 'b': -1.3863}
    """
    scores = [choice.get("label_logprobs") for choice in choices if choice.get("finish_reason") not in CUT]
    known = [one for one in scores if one]
    if not known:
        return None
    names = sorted({label for one in known for label in one})
    return compact_scores(
        {name: math.log(sum(math.exp(one[name]) for one in known if name in one) / len(known)) for name in names}
    )
