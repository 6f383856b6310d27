"""Log-prob verification against the grammar teacher over HTTP: what enters the pool is distributed as the teacher's own
answers, whatever the rule, and not where drafts were chosen by what they say."""

import dataclasses
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pytest

from backend.domain.drafts.costs import fresh_microusd
from backend.domain.drafts.vocabulary import Certificate, StoredDraft, Verification
from backend.domain.money.pricing import Price, TeacherPrice
from tests.backend.domain.drafts.draft_worlds import chi_square_p
from tests.workers.teachers.tiny_language import (
    CAPS,
    SOURCES,
    asked,
    asks,
    counted,
    drafts_of,
    expected,
    language,
    policy,
    small_price,
    small_teacher,
)
from workers.teachers.grammar.pcfg import END, tokenize
from workers.teachers.protocol import Message, ScoreRequest, Teacher, TeacherCaps
from workers.teachers.token_estimates import estimate_tokens
from workers.teachers.verifiers.acceptance_rules import Rule
from workers.teachers.verifiers.logprob_verifier import LogprobVerifier
from workers.teachers.verifiers.protocol import (
    Answer,
    Conversation,
    SamplingPolicy,
    TeacherRequest,
    VerificationContext,
    run_dialogue,
)

N = 300
COVERED = policy(1.0, 1024)


@pytest.fixture(scope="module")
def teacher() -> Iterator[Teacher]:
    with small_teacher() as made:
        yield made


def verified(
    teacher: Teacher, verifier: LogprobVerifier, how: VerificationContext, drafts: Sequence[StoredDraft], seed: int = 7
) -> Verification:
    return run_dialogue(teacher, small_price(), verifier.verify(how, drafts, random.Random(seed)))


def p_value(said: Verification, slice_name: str, how: SamplingPolicy) -> float:
    return chi_square_p(counted([v.text for v in said.verdicts]), expected(language(slice_name, how)))


@pytest.mark.parametrize(
    ("rule", "how", "chunk_tokens"),
    [
        (Rule.STORED, COVERED, 2),
        (Rule.STORED, policy(0.7, 1024), 128),
        (Rule.STORED, policy(1.0), 128),  # not promised to be covered: becomes BLOCK
        (Rule.TOKEN, policy(0.7), 128),
        (Rule.BLOCK, policy(1.0), 2),
        (Rule.BLOCK, policy(1.0, 2), 128),
        (Rule.POINT, policy(1.0), 128),
    ],
)
def test_what_enters_the_pool_is_distributed_as_the_new_prompts_answers(
    teacher: Teacher, rule: Rule, how: SamplingPolicy, chunk_tokens: int
) -> None:
    drafts = drafts_of(teacher, "old", how, N, seed=3)
    said = verified(teacher, LogprobVerifier(CAPS, rule=rule, chunk_tokens=chunk_tokens), asked("new", how), drafts)
    assert {v.certificate for v in said.verdicts} == {Certificate.EXACT}
    assert p_value(said, "new", how) > 1e-4
    assert chi_square_p(counted([d.text for d in drafts]), expected(language("new", how))) < 1e-12
    assert 0 < sum(v.is_accepted for v in said.verdicts) < N
    assert said.kept_tokens == {Certificate.EXACT: sum(v.kept_tokens for v in said.verdicts)}
    assert said.cost.amount_microusd == sum(v.cost_microusd for v in said.verdicts) > 0


@pytest.mark.nightly
def test_drafts_that_were_chosen_by_their_text_bias_the_stored_rule_and_not_the_point_mass(teacher: Teacher) -> None:
    drafts = [d for d in drafts_of(teacher, "old", COVERED, 3 * N, seed=3) if d.text.startswith("hello")][:N]
    stored = verified(teacher, LogprobVerifier(CAPS), asked("new", COVERED), drafts)
    assert p_value(stored, "new", COVERED) < 1e-9
    point = verified(teacher, LogprobVerifier(CAPS, rule=Rule.POINT), asked("new", COVERED), drafts)
    assert p_value(point, "new", COVERED) > 1e-4


@pytest.mark.nightly
def test_alternatives_that_are_not_the_whole_support_leave_only_the_point_mass(teacher: Teacher) -> None:
    """One alternative a place: no residual is known, so the next token is asked for."""
    caps = dataclasses.replace(CAPS, max_top_logprobs=1)
    drafts = drafts_of(teacher, "old", policy(), N, seed=3)
    with small_teacher(caps) as narrow:
        said = verified(narrow, LogprobVerifier(caps), asked("new", policy()), drafts)
    assert {v.certificate for v in said.verdicts} == {Certificate.EXACT}
    assert p_value(said, "new", policy()) > 1e-4


@pytest.mark.parametrize("slice_name", ["new", "old", "flat"])
def test_at_temperature_zero_drafts_are_kept_as_far_as_they_are_the_likeliest_tokens(
    teacher: Teacher, slice_name: str
) -> None:
    cold = policy(0.0)
    drafts = [*drafts_of(teacher, "old", policy(1.0), 100, seed=3), *drafts_of(teacher, slice_name, cold, 100, seed=4)]
    said = verified(teacher, LogprobVerifier(CAPS), asked(slice_name, cold), drafts)
    assert p_value(said, slice_name, cold) > 1e-4
    best = language(slice_name, cold)
    for draft, verdict in zip(drafts, said.verdicts, strict=True):
        assert verdict.certificate is Certificate.EXACT
        assert verdict.is_accepted == (best.get(draft.text, 0.0) > 0.99)


def test_a_share_of_chosen_drafts_is_carried_on_the_certificate(teacher: Teacher) -> None:
    drafts = drafts_of(teacher, "old", COVERED, 20, seed=3)
    for rule, certificate, bound in (
        (Rule.STORED, Certificate.BOUNDED, 1 / 3),
        (Rule.BLOCK, Certificate.BOUNDED, 1 / 3),
        (Rule.POINT, Certificate.EXACT, None),
    ):
        verifier = LogprobVerifier(CAPS, rule=rule, selection_tv=1 / 3)
        for verdict in verified(teacher, verifier, asked("new", COVERED), drafts).verdicts:
            assert (verdict.certificate, verdict.tv_bound) == (certificate, bound)


def test_the_same_seed_makes_the_same_requests_and_another_does_not(teacher: Teacher) -> None:
    drafts = drafts_of(teacher, "old", COVERED, 10, seed=3)

    def requests(seed: int) -> list[TeacherRequest]:
        asked_for: list[TeacherRequest] = []
        conversation = LogprobVerifier(CAPS).verify(asked("new", COVERED), drafts, random.Random(seed))
        run_dialogue(teacher, small_price(), overheard(conversation, asked_for))
        return asked_for

    assert requests(1) == requests(1) != requests(2)


def overheard(conversation: Conversation, into: list[TeacherRequest]) -> Conversation:
    told: list[Answer] | None = None
    while True:
        try:
            requests = next(conversation) if told is None else conversation.send(told)
        except StopIteration as ended:
            said: Verification = ended.value
            return said
        into += requests
        told = yield requests


def test_two_runs_of_one_score_are_held_against_each_other(teacher: Teacher) -> None:
    """The built-in teacher tells the same each time; what is scored twice is the first draft, to its first stop."""
    drafts = drafts_of(teacher, "old", COVERED, 8, seed=3)
    asked_for: list[TeacherRequest] = []
    conversation = LogprobVerifier(CAPS).verify(asked("new", COVERED), drafts, random.Random(1))
    said = run_dialogue(teacher, small_price(), overheard(conversation, asked_for))
    assert asked_for[0] == asked_for[1]
    assert said.repeatability.n_tokens == len(drafts[0].tokens or ())
    assert said.repeatability.tv_sum == 0


def test_what_lies_behind_a_stop_is_not_scored(teacher: Teacher) -> None:
    """Drafts of a far slice stop early: by chunks of one token, no longer beginning than that is ever sent."""
    drafts = [d for d in drafts_of(teacher, "old", COVERED, 50, seed=3) if d.text.startswith("hi")]
    sent: dict[int, int] = {}
    for chunk in (1, 128):
        asked_for: list[TeacherRequest] = []
        how = asked("flat", COVERED)  # nothing there begins with "hi"
        conversation = LogprobVerifier(CAPS, chunk_tokens=chunk).verify(how, drafts, random.Random(1))
        said = run_dialogue(teacher, small_price(), overheard(conversation, asked_for))
        assert all(v.kept_tokens == 0 and v.text for v in said.verdicts)
        sent[chunk] = sum(len(tokenize(r.text)) for r in asked_for if isinstance(r, ScoreRequest))
    assert sent[1] == 2 * len(drafts) + 1 < sent[128]  # one score is asked for twice


def test_an_answer_is_cut_where_a_fresh_one_would_be(teacher: Teacher) -> None:
    short = asked("new", COVERED, max_tokens=3)
    drafts = [d for d in drafts_of(teacher, "old", COVERED, 200, seed=3) if d.n_tokens <= 3]
    drafts += [d for d in drafts_of(teacher, "old", COVERED, 50, seed=3) if d.n_tokens > 3]
    for draft, verdict in zip(drafts, verified(teacher, LogprobVerifier(CAPS), short, drafts).verdicts, strict=True):
        assert verdict.n_tokens <= 3
        assert len(tokenize(verdict.text)) <= 3
        assert (verdict.certificate is None) == (draft.n_tokens > 3)  # longer than an answer may be: refused


def label_ask(text: str) -> tuple[Message, ...]:
    lines = ["Task: route", "Labels: x | y", "- x: hi refund", "- y: cancel order", "Message:", "~~~", text, "~~~"]
    return (Message(role="user", content="\n".join([*lines, "Answer with the label alone."])),)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_label_whose_end_is_not_told_goes_by_the_point_mass(teacher: Teacher, temperature: float) -> None:
    """A label is one token for this teacher, without an end: the teacher says itself that nothing follows."""
    how = asked("new", policy(temperature))
    request = dataclasses.replace(how.request, messages=label_ask("hi refund it"), n=300, seed=1)
    how = dataclasses.replace(how, request=dataclasses.replace(request, n=1))
    fresh = [c.text for c in teacher.complete(request, deadline_s=10).choices]
    drafts = [
        dataclasses.replace(draft, text="y", n_tokens=1, tokens=("y",), token_logprobs=(-0.5,))
        for draft in drafts_of(teacher, "old", policy(), 300, seed=1)
    ]
    said = verified(teacher, LogprobVerifier(CAPS), how, drafts)
    texts = [v.text for v in said.verdicts]
    assert set(texts) == set(fresh)
    assert texts.count("y") / 300 == pytest.approx(fresh.count("y") / 300, abs=0.12)
    assert all(v.is_accepted == (v.text == "y") for v in said.verdicts)


def test_a_draft_that_ends_where_the_new_prompt_goes_on_is_gone_on_from(teacher: Teacher) -> None:
    """The end is a token like any other: refused, another one is drawn in its place."""
    drafts = [d for d in drafts_of(teacher, "new", COVERED, 400, seed=3) if d.text == "hi refund it"]
    said = verified(teacher, LogprobVerifier(CAPS), asked("old", COVERED), drafts)
    longer = [v for v in said.verdicts if v.kept_tokens == 3 and not v.is_accepted]
    assert longer
    assert all(v.text == "hi refund it please" for v in longer)
    assert all(d.tokens is not None and d.tokens[-1] == END for d in drafts)


@pytest.mark.parametrize(
    ("caps", "how", "is_capable"),
    [
        (CAPS, policy(), True),
        (CAPS, policy(0.7), True),
        (CAPS, SamplingPolicy(temperature=1.0, top_p=0.9), False),
        (dataclasses.replace(CAPS, prompt_logprobs=False), policy(), False),
        (dataclasses.replace(CAPS, prefix=False), policy(), False),
        (TeacherCaps(logprobs=True), policy(), False),
        (dataclasses.replace(CAPS, processed_scores=False, max_top_logprobs=20), policy(1.0), True),
        (dataclasses.replace(CAPS, processed_scores=False, max_top_logprobs=20), policy(0.7), False),
        (dataclasses.replace(CAPS, processed_scores=False, max_top_logprobs=20), policy(0.7, 20), True),
        (dataclasses.replace(CAPS, processed_scores=False, max_top_logprobs=20), policy(0.0), True),
    ],
)
def test_it_is_offered_only_where_the_sampled_distribution_is_told(
    caps: TeacherCaps, how: SamplingPolicy, is_capable: bool
) -> None:
    assert LogprobVerifier(caps).capable(caps, how) is is_capable


def test_a_quote_is_what_scoring_costs_and_a_tenth_of_what_a_stop_costs() -> None:
    draft = long_draft(100)

    def quoted(rule: Rule, chunk_tokens: int = 128) -> float:
        verifier = LogprobVerifier(CAPS, rule=rule, chunk_tokens=chunk_tokens)
        first, second = verifier.quote(asked("new", COVERED), [draft, draft], small_price()).per_draft_microusd
        assert first == second
        return first

    # 0.1 USD a million tokens of input: each sending is the prompt and what there is of the draft
    n_prompt = estimate_tokens(asks("new")[0].content)
    n_old = estimate_tokens(asks("old")[0].content)
    score, begun = n_prompt + 100, n_prompt + 50 + 1
    assert quoted(Rule.POINT) == pytest.approx((score + n_prompt + 1) * 0.1)
    assert quoted(Rule.STORED) == pytest.approx((score + 0.1 * (begun + n_old + 51)) * 0.1)
    assert quoted(Rule.BLOCK) == pytest.approx((score + n_old + 100 + 0.1 * begun) * 0.1)
    second_half = 0.9**0.5  # the chance that the second of two chunks is reached
    assert quoted(Rule.STORED, chunk_tokens=50) == pytest.approx(
        (n_prompt + 50 + second_half * score + 0.1 * (begun + n_old + 51)) * 0.1
    )


def test_short_messages_pay_by_log_probs_where_output_is_thirty_times_as_dear_as_input() -> None:
    """A prompt of 208 tokens, messages of 12, 0.02 and 0.60 USD a million tokens."""
    cheap, dear = per_token("0.02"), per_token("0.60")
    price = TeacherPrice(version="v", input=cheap, cached_input=cheap, cache_write=cheap, output=dear)
    messages = (Message(role="user", content="x" * 4 * 208),)
    how = asked("new", COVERED)
    how = dataclasses.replace(
        how,
        request=dataclasses.replace(how.request, messages=messages),
        old_messages={SOURCES["old"]: messages},
    )
    (cost,) = LogprobVerifier(CAPS).quote(how, [long_draft(12)], price).per_draft_microusd
    fresh = fresh_microusd(prompt_tokens=208, n_per_call=8, output_tokens=12, price=price)
    assert (round(cost, 2), round(fresh, 2)) == (5.26, 7.72)


def long_draft(n_tokens: int) -> StoredDraft:
    return StoredDraft(
        draft_id=SOURCES["old"],
        source_id=SOURCES["old"],
        text="x" * 4 * n_tokens,
        n_tokens=n_tokens,
        distance=0.1,
        tokens=("x",) * n_tokens,
        token_logprobs=(-1.0,) * n_tokens,
    )


def per_token(usd_a_million: str) -> Price:
    return Price(sku="s", unit="token", usd_per_unit=Decimal(usd_a_million) / 1_000_000)
