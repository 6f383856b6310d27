"""The conformal test against the HTTP grammar teacher: its own answers pass as often as stated, far ones do not."""

import dataclasses
import math
import random
from collections.abc import Iterator, Sequence

import pytest

from backend.domain.drafts import Certificate, Cost, StoredDraft, Verification
from tests.workers.teachers.small_language import CAPS, asked, drafts_of, policy, small_price, small_teacher
from workers.teachers.draft_typical import TypicalVerifier
from workers.teachers.draft_verifiers import Answer, converse
from workers.teachers.protocol import Choice, Teacher


@pytest.fixture(scope="module")
def teacher() -> Iterator[Teacher]:
    with small_teacher() as made:
        yield made


def verified(teacher: Teacher, fresh: Sequence[str], drafts: Sequence[StoredDraft], alpha: float = 0.1) -> Verification:
    how = dataclasses.replace(asked("new", policy()), fresh=tuple(fresh))
    verifier = TypicalVerifier(alpha=alpha)
    return converse(teacher, small_price(), verifier.verify(how, drafts, random.Random(1)))


def test_the_teachers_own_answers_are_refused_no_more_often_than_alpha(teacher: Teacher) -> None:
    """40 rounds of 9 fresh candidates and 20 drafts that are fresh too. Drafts of one round share their fresh ones, so
    that the rate varies by round: four standard deviations of 40 rounds."""
    refused = []
    for seed in range(40):
        fresh = drafts_of(teacher, "new", policy(), 29, seed=100 + seed)
        said = verified(teacher, [d.text for d in fresh[:9]], fresh[9:])
        refused.append(sum(not v.is_accepted for v in said.verdicts) / 20)
    mean = math.fsum(refused) / 40
    deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in refused) / 39 / 40)
    assert mean <= 0.1 + 4 * deviation


def test_a_far_draft_is_refused_and_an_accepted_one_says_how_typical_it_is(teacher: Teacher) -> None:
    fresh = [d.text for d in drafts_of(teacher, "new", policy(), 19, seed=1)]
    far = drafts_of(teacher, "flat", policy(), 10, seed=2)
    own = drafts_of(teacher, "new", policy(), 10, seed=3)
    said = verified(teacher, fresh, [*far, *own])
    assert not any(v.is_accepted for v in said.verdicts[:10])
    accepted = [v for v in said.verdicts if v.is_accepted]
    assert len(accepted) >= 7
    for verdict in accepted:
        assert verdict.certificate is Certificate.TYPICAL
        assert verdict.p_value is not None
        assert verdict.p_value > 0.1
        assert verdict.kept_tokens == verdict.n_tokens > 0
    assert said.kept_tokens == {Certificate.TYPICAL: sum(v.n_tokens for v in accepted)}
    assert said.cost.n_requests == 19 + 20


def test_without_enough_fresh_candidates_nothing_is_asked(teacher: Teacher) -> None:
    drafts = drafts_of(teacher, "new", policy(), 3, seed=3)
    said = verified(teacher, [d.text for d in drafts_of(teacher, "new", policy(), 8, seed=1)], drafts)
    assert not any(v.is_accepted for v in said.verdicts)
    assert said.cost == Cost()


def test_a_broken_score_refuses_its_draft_and_is_no_fresh_candidate() -> None:
    how = dataclasses.replace(asked("new", policy()), fresh=("f",) * 10)
    drafts = [
        StoredDraft(draft_id=how_id, source_id=how_id, text="d", n_tokens=1, distance=0.1)
        for how_id in list(how.old_messages)[:2]
    ]
    talk = TypicalVerifier().verify(how, drafts, random.Random(1))
    assert len(next(talk)) == 12

    def told(*rows: float) -> Answer:
        return Answer(choices=(Choice(text="", token_logprobs=rows),), cost=Cost())

    with pytest.raises(StopIteration) as ended:
        talk.send([told(-1.0)] * 9 + [told(math.nan)] + [told(math.nan), told(-1.0)])
    assert [v.is_accepted for v in ended.value.value.verdicts] == [False, True]

    talk = TypicalVerifier().verify(how, drafts, random.Random(1))
    next(talk)
    with pytest.raises(StopIteration) as ended:
        talk.send([told(-1.0)] * 8 + [told(), Answer(choices=(), cost=Cost())] + [told(-1.0)] * 2)
    assert [v.is_accepted for v in ended.value.value.verdicts] == [False, False]


def test_it_needs_scores_and_more_than_one_answer() -> None:
    assert TypicalVerifier().capable(CAPS, policy(0.7))
    assert not TypicalVerifier().capable(CAPS, policy(0.0))
    assert not TypicalVerifier().capable(dataclasses.replace(CAPS, prompt_logprobs=False), policy())


def test_the_fresh_ones_are_quoted_once() -> None:
    how = dataclasses.replace(asked("new", policy()), fresh=("four",) * 9)
    draft = StoredDraft(draft_id=(i := next(iter(how.old_messages))), source_id=i, text="d", n_tokens=50, distance=0.1)
    quote = TypicalVerifier().quote(how, [draft, draft], small_price())
    assert quote.overhead_microusd == pytest.approx(9 * (quote.per_draft_microusd[0] - 4.9))
    assert len(quote.per_draft_microusd) == 2
