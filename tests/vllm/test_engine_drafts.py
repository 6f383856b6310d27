"""Drafts proposed to a real engine, through the production client: what comes back is what comes back without them."""

import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from scipy import stats

from backend.domain.dialects.table import BY_NAME
from tests.vllm import tiny_model
from tests.vllm.engine import MODEL, Engine
from workers.teachers.openai_compatible.bodies import chat_body
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import Choice, CompletionRequest, Message

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

QUESTION = tiny_model.question("refund", "lamp", "two days")
GARBAGE = "}{ \u00e9\u00df\u4e2d\U0001f600 zzzz <|end|> We have We have We have"


def asked(question: str, *, system: str = "", **fields: object) -> CompletionRequest:
    messages = (Message(role="user", content=question),)
    if system:
        messages = (Message(role="system", content=system), *messages)
    return CompletionRequest(**{"messages": messages, "temperature": 0.0, "max_tokens": 96, **fields})


def answers(teacher: OpenAICompatibleTeacher, requests: list[CompletionRequest]) -> list[tuple[Choice, ...]]:
    with ThreadPoolExecutor(32) as pool:
        done = pool.map(lambda request: teacher.complete(request, deadline_s=300), requests)
        return [completion.choices for completion in done]


def drafts_of(question: str, rng: random.Random) -> tuple[str, ...]:
    """Other replies to the question, or to another, or a mixture, or garbage."""
    near = [tiny_model.reply("refund", "lamp", "two days", rng) for _ in range(2)]
    far = [said for _, said in tiny_model.conversations(3, rng)]
    return tuple(rng.choice((near, far, near + far, [GARBAGE], [GARBAGE, *far], [question], far * 10)))


def test_greedy_answers_are_the_same_with_drafts(teacher: OpenAICompatibleTeacher, vllm: Engine) -> None:
    rng = random.Random(1)
    plain = [asked(question) for question in tiny_model.questions()]
    plain += [asked(question, system="Answer briefly.") for question in tiny_model.questions()[::2]]
    assert len(plain) >= 200
    without = answers(teacher, plain)
    own = [choice[0].text for choice in without]
    before = vllm.counters()

    drafted = [
        CompletionRequest(
            messages=request.messages,
            temperature=0.0,
            max_tokens=96,
            drafts=(text, *drafts_of(QUESTION, rng)) if rng.random() < 0.3 else drafts_of(QUESTION, rng),
            cache_salt=rng.choice(("tenant-a", "tenant-b")),
        )
        for request, text in zip(plain, own, strict=True)
    ]
    again = [choice[0].text for choice in answers(teacher, drafted)]

    assert again == own
    counted = vllm.counters() - before
    assert counted.n_accepted > 2000
    assert counted.n_drafted - counted.n_accepted > 500, "no draft was refused: the test saw nothing"


def drawn(teacher: OpenAICompatibleTeacher, *, seed: int, n_requests: int = 80, **fields: object) -> Counter[str]:
    """How often each beginning of seven tokens was sampled, out of 32 * `n_requests`."""
    requests = [asked(QUESTION, n=32, max_tokens=7, seed=seed + 1000 * i, **fields) for i in range(n_requests)]
    return Counter(choice.text for choices in answers(teacher, requests) for choice in choices)


def p_value(a: Counter[str], b: Counter[str]) -> float:
    """Of the chi-square test that both were drawn from one distribution; rare texts are pooled."""
    common = [text for text in a | b if a[text] + b[text] >= 20]
    rows = [[counts[text] for text in common] + [counts.total() - sum(counts[t] for t in common)] for counts in (a, b)]
    columns = [column for column in zip(*rows, strict=True) if sum(column)]
    assert len(columns) >= 4, "too few different texts to tell distributions apart"
    return float(stats.chi2_contingency(list(zip(*columns, strict=True))).pvalue)


# the same text however likely it is, the likeliest, one that no answer begins with, and two that begin alike
ADVERSARIAL = {
    "one fixed reply": ("Hello, The refund for the lamp takes two days.",),
    "an unlikely reply": ("Hello, We are sorry for this. Have a good day.",),
    "garbage that begins well": ("Hello, You You You You You You",),
    "two that part late": ("Good morning, We have refunded the lamp", "Good morning, The refund for the lamp"),
}
POLICIES = {
    "T=1": {"temperature": 1.0},
    "T=0.7": {"temperature": 0.7},
    "T=1, top-k 5": {"temperature": 1.0, "top_k": 5},
    "T=0.8, top-p 0.9": {"temperature": 0.8, "top_p": 0.9},
}


@pytest.mark.parametrize("policy", POLICIES, ids=lambda name: name.replace(" ", "_"))
def test_sampled_answers_have_the_distribution_of_those_without_drafts(
    teacher: OpenAICompatibleTeacher, vllm: Engine, policy: str
) -> None:
    without = drawn(teacher, seed=1_000_000, **POLICIES[policy])
    tried = ADVERSARIAL if policy in ("T=1", "T=0.7") else dict(list(ADVERSARIAL.items())[::3])
    for number, (name, drafts) in enumerate(tried.items()):
        before = vllm.counters()
        with_drafts = drawn(teacher, seed=2_000_000 + 500_000 * number, drafts=drafts, **POLICIES[policy])
        counted = vllm.counters() - before
        assert counted.n_drafted > 1000, name
        p = p_value(without, with_drafts)
        print(f"{policy}, {name}: p = {p:.3f}, {counted.n_accepted} of {counted.n_drafted} proposed tokens accepted")
        assert p > 1e-3, name


def test_the_chi_square_test_tells_a_slightly_different_temperature(teacher: OpenAICompatibleTeacher) -> None:
    at_one = drawn(teacher, seed=1_000_000, temperature=1.0)
    assert p_value(at_one, drawn(teacher, seed=9_000_000, temperature=1.3)) < 1e-6


def test_two_tenants_in_one_batch_are_never_proposed_each_others_drafts(
    teacher: OpenAICompatibleTeacher, vllm: Engine
) -> None:
    """Tenant a sends the very answer as its draft, tenant b none, or one that never fits: what the engine counts for b
    beside a is what it counts for b alone."""
    answer = answers(teacher, [asked(QUESTION)])[0][0].text
    of_a = asked(QUESTION, drafts=(answer,), cache_salt="tenant-a")
    of_b = [asked(QUESTION, cache_salt="tenant-b"), asked(QUESTION, drafts=(GARBAGE,), cache_salt="tenant-b")]

    with ThreadPoolExecutor(48) as pool:
        alone = [list(pool.map(lambda r: spoken(vllm, teacher, r), [request] * 4)) for request in of_b]
        both = list(pool.map(lambda r: spoken(vllm, teacher, r), [of_a, *of_b] * 40))

    assert {text for text, _ in both} == {answer}
    assert all(stats_of["num_accepted_draft_tokens"] > 25 for _, stats_of in both[0::3])
    assert all(stats_of["num_draft_tokens"] == 0 for _, stats_of in both[1::3])
    garbage = {json.dumps(stats_of) for _, stats_of in alone[1]}
    assert {json.dumps(stats_of) for _, stats_of in both[2::3]} == garbage


def spoken(vllm: Engine, teacher: OpenAICompatibleTeacher, request: CompletionRequest) -> tuple[str, dict[str, object]]:
    """The answer, and what the engine says its drafts brought: the production client's body, read with its metrics."""
    body = chat_body(request, MODEL, teacher.caps, BY_NAME["vllm"])
    answer = httpx.post(f"{vllm.base_url}/chat/completions", json=body, timeout=300).json()
    return answer["choices"][0]["message"]["content"], answer["metrics"]["speculative_decoding"]


@pytest.mark.parametrize(
    "drafts",
    ["", "not JSON", "7", '{"a": 1}', '["a", 2]', "[" * 20_000, '["\\ud800"]', json.dumps(["x" * 100_000])],
    ids=range(8),
)
def test_the_engine_survives_garbage_and_answers_as_without_it(
    teacher: OpenAICompatibleTeacher, vllm: Engine, drafts: str
) -> None:
    answer = answers(teacher, [asked(QUESTION)])[0][0].text
    body = chat_body(asked(QUESTION), MODEL, teacher.caps, BY_NAME["vllm"]) | {"vllm_xargs": {"kolm_drafts": drafts}}
    got = httpx.post(f"{vllm.base_url}/chat/completions", json=body, timeout=60)
    assert got.status_code == 200
    assert got.json()["choices"][0]["message"]["content"] == answer
    assert got.json()["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0
