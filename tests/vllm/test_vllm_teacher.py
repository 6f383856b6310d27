"""What a vLLM teacher tells of given answers, on a real engine: held against what the same engine told while it
sampled."""

import math

import pytest

from tests.vllm import tiny_model
from tests.vllm.engine import MODEL, Engine
from workers.teachers.protocol import CompletionRequest, Message, ScoreRequest, TeacherCaps, TeacherFailed
from workers.teachers.vllm.teacher import VllmTeacher

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

ASKED = (Message(role="user", content=tiny_model.question("refund", "lamp", "two days")),)
END = tiny_model.SPECIALS[0]
POLICIES = [(1.0, None), (1.0, 5), (0.7, 5), (0.7, 20)]


@pytest.mark.parametrize(("temperature", "top_k"), POLICIES)
def test_a_score_is_what_the_engine_told_while_it_sampled(
    vllm_teacher: VllmTeacher, temperature: float, top_k: int | None
) -> None:
    sampled = vllm_teacher.complete(
        CompletionRequest(
            messages=ASKED, n=16, temperature=temperature, top_k=top_k, seed=5, logprobs=True, top_logprobs=3
        ),
        deadline_s=120,
    )
    n_compared = 0
    for choice in sampled.choices:
        score = vllm_teacher.score(
            ScoreRequest(messages=ASKED, text=choice.text, temperature=temperature, top_k=top_k, top_logprobs=3),
            deadline_s=120,
        )
        (scored,) = score.choices
        assert scored.text == choice.text
        assert scored.tokens is not None
        assert scored.tokens[-1] == END
        if scored.tokens != choice.tokens:
            continue  # sampled in pieces that the tokenizer would not cut the text into
        n_compared += 1
        assert scored.token_logprobs == pytest.approx(choice.token_logprobs, abs=2e-3)
        assert scored.logprob == pytest.approx(math.fsum(scored.token_logprobs or ()))
        assert scored.top_logprobs is not None
        assert choice.top_logprobs is not None
        if temperature > 0:
            likeliest = [[name for name, _ in row[:1]] for row in scored.top_logprobs]
            assert (
                sum(a == [b[0][0]] for a, b in zip(likeliest, choice.top_logprobs, strict=True)) >= len(likeliest) - 1
            )
    assert n_compared >= 12


def test_at_temperature_zero_the_greedy_answer_is_certain_and_another_impossible(vllm_teacher: VllmTeacher) -> None:
    (greedy,) = vllm_teacher.complete(CompletionRequest(messages=ASKED, temperature=0.0), deadline_s=120).choices
    other = greedy.text.replace(" We have ", " We teapot ", 1)
    assert other != greedy.text
    for text, is_greedy in ((greedy.text, True), (other, False)):
        request = ScoreRequest(messages=ASKED, text=text, temperature=0.0)
        (scored,) = vllm_teacher.score(request, deadline_s=120).choices
        assert (scored.logprob == 0.0) == is_greedy
        assert set(scored.token_logprobs or ()) <= {0.0, -10_000.0}


def test_all_alternatives_within_top_k_sum_to_one(vllm_teacher: VllmTeacher) -> None:
    request = ScoreRequest(
        messages=ASKED, text="Hello, We have repaired it.", temperature=0.7, top_k=20, top_logprobs=20
    )
    (scored,) = vllm_teacher.score(request, deadline_s=120).choices
    assert scored.top_logprobs is not None
    assert {len(row) for row in scored.top_logprobs} == {20}
    for row in scored.top_logprobs:
        assert math.fsum(math.exp(p) for _, p in row) == pytest.approx(1.0, abs=1e-6)


def test_a_token_outside_top_k_cannot_be(vllm_teacher: VllmTeacher) -> None:
    request = ScoreRequest(messages=ASKED, text="zzzz", temperature=1.0, top_k=5)
    (scored,) = vllm_teacher.score(request, deadline_s=120).choices
    assert scored.token_logprobs is not None
    assert scored.token_logprobs[0] == -10_000


def test_a_temperature_that_vllm_cannot_tell_is_refused(vllm_teacher: VllmTeacher) -> None:
    for request in (
        ScoreRequest(messages=ASKED, text="Hello", temperature=0.7),
        ScoreRequest(messages=ASKED, text="Hello", temperature=0.7, top_k=21),
    ):
        with pytest.raises(TeacherFailed) as failed:
            vllm_teacher.score(request, deadline_s=120)
        assert failed.value.code == "teacher_rejected"


def test_a_begun_answer_goes_on_as_it_would_have(vllm_teacher: VllmTeacher) -> None:
    greedy = CompletionRequest(messages=ASKED, temperature=0.0, logprobs=True, top_logprobs=2)
    (whole,) = vllm_teacher.complete(greedy, deadline_s=120).choices
    assert whole.tokens is not None
    for n in range(1, len(whole.tokens) - 1, 5):
        prefix = "".join(whole.tokens[:n])
        begun = CompletionRequest(messages=ASKED, temperature=0.0, prefix=prefix, logprobs=True, top_logprobs=2)
        (rest,) = vllm_teacher.complete(begun, deadline_s=120).choices
        assert prefix + rest.text == whole.text
        assert rest.tokens == whole.tokens[n:]
        assert rest.token_logprobs == pytest.approx(whole.token_logprobs[n:] if whole.token_logprobs else (), abs=2e-3)
        assert rest.finish_reason == "stop"


def test_a_begun_answer_takes_drafts_too(vllm_teacher: VllmTeacher, vllm: Engine) -> None:
    greedy = CompletionRequest(messages=ASKED, temperature=0.0)
    (whole,) = vllm_teacher.complete(greedy, deadline_s=120).choices
    before = vllm.counters()
    prefix = whole.text[: whole.text.index(" ", len(whole.text) // 2)]
    begun = CompletionRequest(messages=ASKED, temperature=0.0, prefix=prefix, drafts=(whole.text,))
    (rest,) = vllm_teacher.complete(begun, deadline_s=120).choices
    assert prefix + rest.text == whole.text
    assert (vllm.counters() - before).n_accepted > 10


def test_a_model_that_is_not_there_is_the_teachers_refusal(vllm_teacher: VllmTeacher, vllm: Engine) -> None:
    other = VllmTeacher(
        identity=type(vllm_teacher.identity)(provider="openai_compatible", model=f"not-{MODEL}"),
        base_url=vllm.base_url,
        api_key=None,
        caps=TeacherCaps(prompt_logprobs=True, max_top_logprobs=20),
        allowed_origins=frozenset({vllm.origin}),
    )
    with pytest.raises(TeacherFailed) as failed:
        other.score(ScoreRequest(messages=ASKED, text="Hello"), deadline_s=120)
    assert failed.value.code == "teacher_rejected"
    other.close()
