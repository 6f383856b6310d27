"""The gate asks nobody, and lets nothing through without a certified threshold."""

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from backend.domain.drafts.vocabulary import Certificate, Cost, Strategy, VerdictKind, Verification
from backend.domain.money.pricing import Price, TeacherPrice
from tests.workers.teachers.judges.numbered_judges import drafts_of
from workers.teachers.protocol import CompletionRequest, TeacherCaps
from workers.teachers.verifiers.gate_verifier import GateVerifier
from workers.teachers.verifiers.protocol import Conversation, SamplingPolicy, VerificationContext

SCORES = {"a": 0.2, "b": 0.8, "c": 0.9, "d": math.nan}


def scores(texts: Sequence[str]) -> list[float]:
    return [SCORES[text] for text in texts]


def asked_about() -> VerificationContext:
    return VerificationContext(request=CompletionRequest(messages=()), policy=SamplingPolicy(temperature=1.0))


def hold(conversation: Conversation) -> tuple[Verification, list[Any]]:
    """What the gate says in the end; it asks nothing."""
    try:
        return Verification(verdicts=()), [next(conversation)]
    except StopIteration as ended:
        return ended.value, []


def price() -> TeacherPrice:
    one = Price(sku="s", unit="token", usd_per_unit=Decimal("0.000001"))
    return TeacherPrice(version="v", input=one, output=one, cached_input=one, cache_write=one)


def test_what_scores_at_the_certified_threshold_passes_and_is_marked_as_gated() -> None:
    gate = GateVerifier(scores=scores, threshold=0.8)
    found, rounds = hold(gate.verify(asked_about(), drafts_of("abcd"), random.Random(1)))
    assert rounds == []
    assert [verdict.is_accepted for verdict in found.verdicts] == [False, True, True, False]
    assert [verdict.text for verdict in found.verdicts] == ["", "b", "c", ""]
    assert {verdict.certificate for verdict in found.verdicts if verdict.is_accepted} == {Certificate.GATED}
    assert {verdict.kind for verdict in found.verdicts} == {VerdictKind.VERDICT}
    assert dict(found.kept_tokens) == {Certificate.GATED: 8}
    assert found.cost == Cost()


@pytest.mark.parametrize(
    "gate",
    [
        GateVerifier(scores=scores, threshold=None),
        GateVerifier(scores=lambda texts: None, threshold=0.8),
        GateVerifier(scores=lambda texts: [math.inf] * len(texts), threshold=None),
    ],
)
def test_without_a_certificate_or_a_ranking_verifier_nothing_passes(gate: GateVerifier) -> None:
    found, rounds = hold(gate.verify(asked_about(), drafts_of("abc"), random.Random(1)))
    assert rounds == []
    assert len(found.verdicts) == 3
    assert not any(verdict.is_accepted or verdict.text for verdict in found.verdicts)


def test_the_gate_costs_nothing_and_is_capable_only_when_certified() -> None:
    caps, policy = TeacherCaps(), SamplingPolicy(temperature=1.0)
    gate = GateVerifier(scores=scores, threshold=0.8)
    assert gate.strategy is Strategy.GATE
    assert gate.capable(caps, policy)
    assert not GateVerifier(scores=scores, threshold=None).capable(caps, policy)
    assert gate.quote(asked_about(), drafts_of("ab"), price()).whole_microusd == 0.0
