"""Verification by log-probs (workers.teachers.verifiers.logprob_verifier) against a real engine: drafts that the model
wrote for another question come out distributed as its answers to this one."""

import random
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from scipy import stats

from backend.domain.drafts.vocabulary import Certificate, DraftVerdict, StoredDraft
from backend.domain.money.pricing import price_book, teacher_price
from tests.vllm import tiny_model
from tests.vllm.engine import CAPS
from workers.teachers.grammar.model import MODEL as PRICED
from workers.teachers.protocol import CompletionRequest, Message
from workers.teachers.verifiers.acceptance_rules import Rule
from workers.teachers.verifiers.logprob_verifier import LogprobVerifier
from workers.teachers.verifiers.protocol import SamplingPolicy, VerificationContext, run_dialogue
from workers.teachers.vllm.teacher import VllmTeacher

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

SOURCE = uuid.UUID(int=1)
N_DRAFTS, N_FRESH = 320, 960
NEW = (Message(role="user", content=tiny_model.question("refund", "lamp", "two days")),)
OLD = (Message(role="user", content=tiny_model.question("repair", "lamp", "two days")),)


def request(messages: tuple[Message, ...], how: SamplingPolicy, **fields: object) -> CompletionRequest:
    return CompletionRequest(
        **{"messages": messages, "temperature": how.temperature, "top_k": how.top_k, "max_tokens": 96, **fields}
    )


def written(
    teacher: VllmTeacher, messages: tuple[Message, ...], how: SamplingPolicy, n: int, seed: int, *, each: int = 32
) -> list[StoredDraft]:
    requests = [request(messages, how, n=each, seed=seed + 1000 * i, logprobs=True) for i in range(n // each)]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda asked: teacher.complete(asked, deadline_s=300), requests))
    return [
        StoredDraft(
            draft_id=uuid.UUID(int=100 + i),
            source_id=SOURCE,
            text=choice.text,
            n_tokens=choice.n_tokens,
            distance=0.1,
            tokens=choice.tokens,
            token_logprobs=choice.token_logprobs,
        )
        for i, choice in enumerate(choice for completion in done for choice in completion.choices)
    ]


def verified(
    teacher: VllmTeacher, rule: Rule, how: SamplingPolicy, drafts: Sequence[StoredDraft]
) -> list[DraftVerdict]:
    verifier = LogprobVerifier(CAPS, rule=rule, chunk_tokens=128)
    assert verifier.capable(CAPS, how)
    asked = VerificationContext(request=request(NEW, how), policy=how, old_messages={SOURCE: OLD})
    price = teacher_price(price_book(), PRICED, None)
    parts = [drafts[i::16] for i in range(16)]

    def verify(number: int) -> tuple[DraftVerdict, ...]:
        talk = verifier.verify(asked, parts[number], random.Random(number))
        return run_dialogue(teacher, price, talk, deadline_s=300).verdicts

    with ThreadPoolExecutor(16) as pool:
        return [verdict for verdicts in pool.map(verify, range(16)) for verdict in verdicts]


def beginning(text: str) -> str:
    """What the reply opens with and what it says first."""
    return " ".join(text.split()[:5])


def p_value(texts: Sequence[str], fresh: Sequence[str]) -> float:
    """Of the chi-square test that both were drawn from one distribution; rare beginnings are pooled."""
    a, b = (Counter(map(beginning, them)) for them in (texts, fresh))
    common = [name for name in a | b if a[name] + b[name] >= 25]
    rows = [[c[name] for name in common] + [c.total() - sum(c[n] for n in common)] for c in (a, b)]
    columns = [column for column in zip(*rows, strict=True) if sum(column)]
    assert len(columns) >= 6, "too few different replies to tell distributions apart"
    return float(stats.chi2_contingency(list(zip(*columns, strict=True))).pvalue)


@pytest.mark.parametrize(
    ("rule", "how"),
    [
        (Rule.BLOCK, SamplingPolicy(temperature=1.0, top_k=20)),
        (Rule.TOKEN, SamplingPolicy(temperature=0.7, top_k=20)),
        (Rule.POINT, SamplingPolicy(temperature=1.0)),
    ],
    ids=["block, T=1, top-k 20", "token, T=0.7, top-k 20", "point mass, T=1"],
)
def test_what_enters_the_pool_is_distributed_as_the_engines_answers(
    vllm_teacher: VllmTeacher, rule: Rule, how: SamplingPolicy
) -> None:
    drafts = written(vllm_teacher, OLD, how, N_DRAFTS, seed=10_000_000)
    fresh = [draft.text for draft in written(vllm_teacher, NEW, how, N_FRESH, seed=20_000_000)]
    verdicts = verified(vllm_teacher, rule, how, drafts)
    told = [verdict for verdict in verdicts if verdict.text]
    texts = [verdict.text for verdict in told]
    n_tokens = sum(verdict.n_tokens for verdict in told)
    kept = sum(verdict.kept_tokens for verdict in told)
    p = p_value(texts, fresh)
    print(f"{rule} {how}: {len(verdicts) - len(told)} refused, kept {kept / n_tokens:.2f} of the tokens, p = {p:.3f}")
    assert {verdict.certificate for verdict in told} <= {Certificate.EXACT, Certificate.BOUNDED}
    # the point mass draws again until another token comes, and gives up after some hundred draws
    assert max(verdict.tv_bound or 0.0 for verdict in told) <= (0.02 if rule is Rule.POINT else 0.0)
    assert len(told) > 0.9 * len(verdicts)
    assert p > 1e-3
    assert p_value([draft.text for draft in drafts], fresh) < 1e-9, "the drafts themselves are no fair test"


def test_at_temperature_zero_any_draft_becomes_the_greedy_answer(vllm_teacher: VllmTeacher) -> None:
    cold = SamplingPolicy(temperature=0.0)
    (greedy,) = vllm_teacher.complete(request(NEW, cold), deadline_s=120).choices
    own = written(vllm_teacher, NEW, cold, 8, seed=1, each=1)  # this engine refuses more than one at T = 0
    others = written(vllm_teacher, OLD, SamplingPolicy(temperature=1.0, top_k=20), 64, seed=2)
    verdicts = verified(vllm_teacher, Rule.ARGMAX, cold, [*own, *others])
    told = [verdict for verdict in verdicts if verdict.text]
    assert len(told) > 0.9 * len(verdicts)
    assert {verdict.text for verdict in told} == {greedy.text}
    assert sum(verdict.is_accepted for verdict in told) >= len(own)
