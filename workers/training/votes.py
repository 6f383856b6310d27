"""The way from a teacher's repeated answers to a json or text task to the one that is taken: read, checked, compared.

The checks of a spec may be programs of the customer's, run in a sandbox that takes its time: nothing here is called
inside a transaction.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.answers.json_values import Consensus, consensus
from backend.domain.answers.text_scores import text_consensus
from backend.domain.spec.parsing import JsonOutput, Spec, first_votes
from workers.scoring.answer_checks import failed_checks
from workers.teachers.prompts.answer import ReadAnswer, answer_output, parse_answer_choice

UNREADABLE = "unreadable"
DISAGREED = "disagreed"
MAX_VOTES = 8  # different answers that are shown with their counts
MAX_VOTE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """`answer` is "" where none of the answers is valid; `reasons` say why an input stays unverified. `votes` counts
    the commonest valid answers, cut to what is shown."""

    answer: str
    votes: dict[str, int]
    agreement_ppm: int
    reasons: list[str]

    @property
    def is_verified(self) -> bool:
        return not self.reasons


def agree(spec: Spec, asked: Sequence[tuple[str, Sequence[str]]]) -> list[Agreed]:
    """Agree on one answer for each (input, replies of the teacher), and on whether it may train."""
    return [_agree_on_one(spec, judged) for judged in _judge(spec, asked)]


def valid_answers(spec: Spec, text: str, replies: Sequence[str]) -> list[str | None]:
    """The answer in each reply to one input; None where it is not valid."""
    (judged,) = _judge(spec, [(text, replies)])
    return [one.answer.text if one.is_valid and one.answer else None for one in judged]


def valid_samples(spec: Spec, asked: Sequence[tuple[str, Sequence[str]]]) -> list[Counter[str]]:
    """Count the different valid answers among the teacher's replies, for each (input, replies)."""
    judged = _judge(spec, asked)
    return [Counter(one.answer.text for one in mine if one.is_valid and one.answer) for mine in judged]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """`failed` names what an answer fails; one that could not be read is None."""

    answer: ReadAnswer | None
    failed: list[str]

    @property
    def is_valid(self) -> bool:
        return not self.failed


def _judge(spec: Spec, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[_Judged]]:
    """All answers in one go: a sandbox takes its time to start."""
    read = [[parse_answer_choice(spec, replies) for replies in answers] for _, answers in asked]
    rows = [(text, one.text) for (text, _), mine in zip(asked, read, strict=True) for one in mine if one is not None]
    failed = iter(failed_checks(answer_output(spec), rows) if rows else [])
    return [
        [_Judged(answer=one, failed=[UNREADABLE] if one is None else next(failed)) for one in mine] for mine in read
    ]


def _agree_on_one(spec: Spec, judged: Sequence[_Judged]) -> Agreed:
    valid = [one.answer if one.is_valid else None for one in judged]
    agreed = _consensus(spec, valid)
    chosen = None if agreed.index is None else valid[agreed.index]
    counted = Counter(answer.text for answer in valid if answer is not None)
    return Agreed(
        answer="" if chosen is None else chosen.text,
        votes={text[:MAX_VOTE_CHARS]: n for text, n in counted.most_common(MAX_VOTES)},
        agreement_ppm=agreed.agreement_ppm,
        reasons=[] if agreed.reaches(spec.sampling.min_agreement) else _reasons(judged),
    )


def _consensus(spec: Spec, valid: Sequence[ReadAnswer | None]) -> Consensus:
    asked = max(len(valid), first_votes(spec))
    if isinstance(spec.output, JsonOutput):
        return consensus([None if answer is None else answer.value for answer in valid], asked)
    return text_consensus([None if answer is None else answer.text for answer in valid], asked)


def _reasons(judged: Sequence[_Judged]) -> list[str]:
    """The reasons for which no answer is taken: what is wrong with the invalid ones, commonest first, or that they
    differ."""
    counted = Counter(name for one in judged for name in dict.fromkeys(one.failed))
    return [name for name, _ in counted.most_common()] or [DISAGREED]
