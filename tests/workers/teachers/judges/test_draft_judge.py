"""What the judge's verifier asks, and what it makes of the answers: controls, void batches, audits, costs."""

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal

import pytest

from backend.domain.drafts.costs import judge_quote
from backend.domain.drafts.judge_controls import Audits, ControlCounts, audits_of, bad_rate, controls_of, exact_interval
from backend.domain.drafts.vocabulary import Certificate, Cost, StoredDraft, Strategy, VerdictKind
from backend.domain.money.pricing import Price, TeacherPrice
from tests.workers.teachers.judges.simulated_judges import (
    FAR,
    NoisyJudge,
    answered,
    asked_about,
    drafts_of,
    hold,
    say,
    shown_in,
)
from workers.teachers.judges.batches import MAX_BATCH_CHARS, NO_DRAFT
from workers.teachers.judges.draft_judge import BATCH, JudgeVerifier
from workers.teachers.judges.off_topic import OFF_TOPIC
from workers.teachers.protocol import CompletionRequest, TeacherCaps
from workers.teachers.verifiers.protocol import Answer, SamplingPolicy

FRESH = ("fresh one", "fresh two")
MIXED = [f"{'good' if i % 3 else 'bad'} {i}" for i in range(20)]


def truthful(shown: dict[str, str]) -> str:
    return say({id_: text.startswith(("good", "fresh")) for id_, text in shown.items()})


def test_each_draft_gets_its_verdict_in_order_and_the_accepted_ones_a_certificate() -> None:
    drafts = drafts_of(MIXED)
    found, rounds = hold(JudgeVerifier().verify(asked_about(), drafts, random.Random(1)), truthful)
    assert [len(requests) for requests in rounds] == [1]
    assert [verdict.draft_id for verdict in found.verdicts] == [draft.draft_id for draft in drafts]
    for draft, verdict in zip(drafts, found.verdicts, strict=True):
        is_good = draft.text.startswith("good")
        assert verdict.kind is VerdictKind.VERDICT
        assert verdict.is_accepted == is_good
        assert verdict.text == (draft.text if is_good else "")
        assert verdict.certificate is (Certificate.JUDGED if is_good else None)
        assert verdict.kept_tokens == verdict.n_tokens == (4 if is_good else 0)
    assert dict(found.kept_tokens) == {Certificate.JUDGED: 4 * 13}
    assert not found.is_void


def test_a_batch_holds_one_negative_control_under_an_id_like_any_other() -> None:
    drafts = drafts_of([f"good {i}" for i in range(60)])
    _, rounds = hold(JudgeVerifier().verify(asked_about(), drafts, random.Random(2)), truthful)
    shown = [shown_in(request) for request in rounds[0]]
    assert [sum(text.startswith("good") for text in texts.values()) for texts in shown] == [24, 24, 12]
    planted = [text for texts in shown for text in texts.values() if not text.startswith("good")]
    assert len(planted) == len(set(planted)) == 3
    assert set(planted) <= {draft.text for draft in FAR}
    assert len({frozenset(texts) for texts in shown}) == 3


def test_ids_and_order_are_random_and_equal_seeds_ask_the_same() -> None:
    drafts = drafts_of([f"good {i}" for i in range(10)])

    def requests(seed: int) -> list[object]:
        _, rounds = hold(JudgeVerifier().verify(asked_about(fresh=FRESH), drafts, random.Random(seed)), truthful)
        return list(rounds)

    assert requests(1) == requests(1) != requests(2)
    where = Counter[int]()
    for seed in range(400):
        _, rounds = hold(JudgeVerifier().verify(asked_about(), drafts, random.Random(seed)), truthful)
        where[[text[:3] for text in shown_in(rounds[0][0]).values()].index("far")] += 1
    assert sorted(where) == list(range(11))
    assert max(where.values()) < 80


def test_a_sampled_share_of_batches_carries_a_fresh_candidate() -> None:
    drafts = drafts_of(["good"])
    asked = asked_about(fresh=FRESH)
    judge = JudgeVerifier(positive_share=0.25)
    found = [hold(judge.verify(asked, drafts, random.Random(seed)), truthful)[0] for seed in range(1000)]
    counts = sum((controls_of(one.controls) for one in found), ControlCounts())
    assert counts == ControlCounts(n_negative=1000, n_positive=counts.n_positive, n_positive_accepted=counts.n_positive)
    assert 200 < counts.n_positive < 300
    none = hold(judge.verify(asked_about(), drafts, random.Random(1)), truthful)[0]
    assert controls_of(none.controls).n_positive == 0


def test_without_a_far_draft_the_negative_control_is_off_every_topic() -> None:
    drafts = drafts_of(["good", OFF_TOPIC[0]])
    for far in ((), (FAR[0],)):
        asked = asked_about(far=tuple(dataclasses.replace(draft, text="good") for draft in far))
        found, rounds = hold(JudgeVerifier().verify(asked, drafts, random.Random(5)), truthful)
        (planted,) = set(shown_in(rounds[0][0]).values()) - {"good", OFF_TOPIC[0]}
        assert planted in OFF_TOPIC
        assert [control.draft_id for control in found.controls] == [NO_DRAFT]


def test_a_batch_that_accepts_its_control_is_void_and_its_drafts_are_asked_again_in_parts() -> None:
    drafts = drafts_of([f"good {i}" for i in range(24)])
    found, rounds = hold(
        JudgeVerifier().verify(asked_about(), drafts, random.Random(3)),
        lambda shown: say(dict.fromkeys(shown, True)) if len(shown) > 20 else truthful(shown),
    )
    assert [len(requests) for requests in rounds] == [1, 4]
    assert [sum(text.startswith("good") for text in shown_in(r).values()) for r in rounds[1]] == [6, 6, 6, 6]
    assert all(verdict.is_accepted for verdict in found.verdicts)
    assert controls_of(found.controls) == ControlCounts(n_negative=5, n_negative_accepted=1)
    assert found.cost == Cost(amount_microusd=35, n_requests=5)
    used = [text for requests in rounds for r in requests for text in shown_in(r).values() if text.startswith("far")]
    assert len(set(used)) == 5


def test_a_draft_that_makes_every_batch_void_takes_few_down_with_it() -> None:
    drafts = drafts_of([f"good {i}" for i in range(23)] + ["poison"])
    found, rounds = hold(
        JudgeVerifier().verify(asked_about(), drafts, random.Random(4)), NoisyJudge(random.Random(1), 1.0, 1.0)
    )
    kinds = [verdict.kind for verdict in found.verdicts]
    assert kinds == [VerdictKind.VERDICT] * 18 + [VerdictKind.VOID] * 6
    assert [verdict.is_accepted for verdict in found.verdicts] == [True] * 18 + [False] * 6
    assert len(rounds) == 2
    assert not found.is_void


def test_a_judge_that_says_yes_to_all_accepts_nothing() -> None:
    drafts = drafts_of(["good", "bad", "good 2"])
    found, rounds = hold(
        JudgeVerifier().verify(asked_about(), drafts, random.Random(4)), lambda shown: say(dict.fromkeys(shown, True))
    )
    assert found.is_void
    assert not any(verdict.is_accepted for verdict in found.verdicts)
    assert len(rounds) == 2
    assert dict(found.kept_tokens) == {}


def test_an_answer_without_a_choice_is_void_like_a_malformed_one() -> None:
    conversation = JudgeVerifier().verify(asked_about(), drafts_of(["good"]), random.Random(4))
    assert len(next(conversation)) == 1
    assert len(conversation.send([Answer(choices=(), cost=Cost(amount_microusd=2))])) == 1
    with pytest.raises(StopIteration) as ended:
        conversation.send([answered("Y")])
    found = ended.value.value
    assert found.is_void
    assert found.cost.amount_microusd == 9
    assert [verdict.cost_microusd for verdict in found.verdicts] == [9]


@pytest.mark.parametrize("n", [1, 2, 5, 13, 24, 25, 100])
def test_costs_fall_on_the_drafts_to_the_last_microusd_and_waste_is_bounded(n: int) -> None:
    drafts = drafts_of([f"{'poison' if i % 7 == 3 else 'good'} {i}" for i in range(n)])
    judge = NoisyJudge(random.Random(n), flip=0.7)
    found, rounds = hold(JudgeVerifier().verify(asked_about(fresh=FRESH), drafts, random.Random(n)), judge)
    n_requests = sum(len(requests) for requests in rounds)
    assert sum(verdict.cost_microusd for verdict in found.verdicts) == found.cost.amount_microusd == 7 * n_requests
    assert n_requests <= 5 * -(-n // BATCH)
    assert found.audit_cost == Cost()


def test_batches_stay_within_a_context_and_a_draft_beyond_it_is_never_shown() -> None:
    texts = ["good " + "x" * 10_000 for _ in range(7)] + ["good " + "y" * MAX_BATCH_CHARS, "good short"]
    found, rounds = hold(JudgeVerifier().verify(asked_about(), drafts_of(texts), random.Random(1)), truthful)
    assert all(len(r.messages[-1].content) < MAX_BATCH_CHARS + 2000 for requests in rounds for r in requests)
    assert [verdict.kind for verdict in found.verdicts].index(VerdictKind.VOID) == 7
    assert sum(verdict.is_accepted for verdict in found.verdicts) == 8


def test_no_drafts_are_no_request() -> None:
    found, rounds = hold(JudgeVerifier().verify(asked_about(), [], random.Random(1)), truthful)
    assert (found.verdicts, rounds, found.is_void) == ((), [], False)


def test_requests_are_deterministic_short_and_carry_the_tenants_salt() -> None:
    asked = dataclasses.replace(
        asked_about(), request=CompletionRequest(messages=(), seed=11, cache_salt="salt", temperature=0.9, n=8)
    )
    (request,) = next(JudgeVerifier().verify(asked, drafts_of(["good"] * 10), random.Random(1)))
    assert isinstance(request, CompletionRequest)
    assert (request.temperature, request.n, request.seed, request.cache_salt) == (0.0, 1, 11, "salt")
    assert request.max_tokens == 8 * 12
    assert request.messages[-1].content.startswith(
        "Task: route messages\nLabels: a | b\nSlice: one\nHint: whatever fits\n"
    )


def test_any_teacher_can_be_asked() -> None:
    assert JudgeVerifier().strategy is Strategy.JUDGE
    assert JudgeVerifier().capable(TeacherCaps(), SamplingPolicy(temperature=0.0))


def price(usd_in: str, usd_out: str, usd_cached: str) -> TeacherPrice:
    def of(usd: str) -> Price:
        return Price(sku="s", unit="token", usd_per_unit=Decimal(usd) / 1_000_000)

    return TeacherPrice(
        version="v", input=of(usd_in), output=of(usd_out), cached_input=of(usd_cached), cache_write=of(usd_in)
    )


def test_the_quote_is_near_what_is_sent() -> None:
    drafts = [
        StoredDraft(draft_id=draft.draft_id, source_id=draft.source_id, text="good " * 40, n_tokens=50, distance=0.1)
        for draft in drafts_of([""] * 30)
    ]
    asked = asked_about()
    quote = JudgeVerifier().quote(asked, drafts, price("1", "5", "0.1"))
    conversation = JudgeVerifier().verify(asked, drafts, random.Random(1))
    sent = sum(len(message.content.encode()) / 4 for request in next(conversation) for message in request.messages)
    assert quote.whole_microusd == pytest.approx(sent + 30 * 3 * 5, rel=0.08)
    long_head = dataclasses.replace(asked, head=("Task: " + "t" * 8000,))
    cached, plain = (JudgeVerifier().quote(long_head, drafts, price("1", "5", usd)) for usd in ("0.1", "1"))
    assert plain.overhead_microusd - cached.overhead_microusd == pytest.approx(0.9 * 2 * 2200, rel=0.1)
    assert (
        cached.per_draft_microusd
        == judge_quote(
            prompt_tokens=0, draft_tokens=[55] * 30, price=price("1", "5", "1"), verdict_tokens=3
        ).per_draft_microusd
    )


def test_an_audit_asks_again_about_at_most_one_draft_of_a_slice_in_a_request_of_its_own() -> None:
    drafts = drafts_of([f"good {i}" for i in range(5)])
    verifier = JudgeVerifier(audit_share=0.1)
    n_audited = Counter[object]()
    for seed in range(600):
        found, rounds = hold(verifier.audit(asked_about(fresh=FRESH), drafts, random.Random(seed)), truthful)
        assert len(found.verdicts) == len(rounds) <= 1
        for verdict in found.verdicts:
            assert verdict.kind is VerdictKind.AUDIT
            assert verdict.is_accepted
            assert (verdict.text, verdict.certificate, verdict.kept_tokens) == ("", None, 0)
            assert found.audit_cost == found.cost == Cost(amount_microusd=7, n_requests=1)
            shown = sorted(text.split()[0] for text in shown_in(rounds[0][0]).values())
            assert shown == ["far:", "fresh", "good"]
            n_audited[verdict.draft_id] += 1
    assert 240 < n_audited.total() < 360
    assert len(n_audited) == 5
    assert hold(verifier.audit(asked_about(), [], random.Random(1)), truthful)[0].verdicts == ()


@pytest.mark.parametrize(("text", "said"), [("good", [True]), ("doubtful", [False, True]), ("bad", [False, False])])
def test_an_audit_ends_when_the_draft_is_accepted_or_refused_twice(text: str, said: list[bool]) -> None:
    asked: list[dict[str, str]] = []

    def judge(shown: dict[str, str]) -> str:
        asked.append(shown)
        yes = {"good", "fresh one", "fresh two"} | ({"doubtful"} if len(asked) > 1 else set())
        return say({id_: shown[id_] in yes for id_ in shown})

    conversation = JudgeVerifier(audit_share=1.0).audit(asked_about(fresh=FRESH), drafts_of([text]), random.Random(1))
    found, _ = hold(conversation, judge)
    n = len(said)
    assert [verdict.is_accepted for verdict in found.verdicts] == said
    assert [verdict.cost_microusd for verdict in found.verdicts] == [7] * n
    assert len(asked) == n
    assert controls_of(found.controls) == ControlCounts(n_negative=n, n_positive=n, n_positive_accepted=n)
    assert len({id_ for shown in asked for id_ in shown}) == 3 * n


def test_an_audit_that_no_sound_batch_settles_is_void_and_ends() -> None:
    found, rounds = hold(
        JudgeVerifier(audit_share=1.0).audit(asked_about(), drafts_of(["good"]), random.Random(1)),
        lambda shown: say(dict.fromkeys(shown, True)),
    )
    assert [verdict.kind for verdict in found.verdicts] == [VerdictKind.VOID] * 4
    assert (len(rounds), found.is_void) == (4, True)


@pytest.mark.parametrize("bad", [0.0, 0.15])
def test_controls_and_audits_recover_the_judges_errors_and_the_share_of_bad_drafts(bad: float) -> None:
    rng = random.Random(17)
    judge = NoisyJudge(random.Random(18), sensitivity=0.95, specificity=0.97)
    verifier = JudgeVerifier(positive_share=1.0, audit_share=1.0)
    controls, audits = ControlCounts(), Audits()
    for i in range(900):
        (draft,) = drafts_of([f"{'bad' if rng.random() < bad else 'good'} {i}"])
        for conversation in (
            verifier.verify(asked_about(fresh=FRESH), [draft], rng),
            verifier.audit(asked_about(fresh=FRESH), [draft], rng),
        ):
            found, _ = hold(conversation, judge)
            controls += controls_of(found.controls)
            audits += audits_of(found.verdicts)
    for (low, high), truth in (
        (exact_interval(controls.n_positive_accepted, controls.n_positive, 0.99), 0.95),
        (exact_interval(controls.n_negative - controls.n_negative_accepted, controls.n_negative, 0.99), 0.97),
    ):
        assert low <= truth <= high
    found_rate = bad_rate(audits, controls)
    assert audits.n > 850
    assert found_rate.low <= bad <= found_rate.high
    assert found_rate.estimate == pytest.approx(bad, abs=0.03)
    assert found_rate.is_above(0.02) == (bad > 0.02)


def judge_of(says: Callable[[str], bool]) -> Callable[[dict[str, str]], str]:
    return lambda shown: say({id_: says(text) for id_, text in shown.items()})


def test_a_refused_positive_control_is_counted_and_voids_nothing() -> None:
    found, rounds = hold(
        JudgeVerifier(positive_share=1.0).verify(asked_about(fresh=FRESH), drafts_of(["good"]), random.Random(1)),
        judge_of(lambda text: text == "good"),
    )
    assert controls_of(found.controls) == ControlCounts(n_negative=1, n_positive=1)
    assert [verdict.is_accepted for verdict in found.verdicts] == [True]
    assert len(rounds) == 1
