"""The grammar teacher over HTTP, through the production client: exact log-probs survive the wire."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backend.domain.spec.parsing import Spec, Teacher
from workers.step.teacher_session import make_teacher
from workers.teachers.grammar.model import GrammarModel
from workers.teachers.grammar.pcfg import END, Grammar, tokenize
from workers.teachers.grammar.server import GrammarServer, serving
from workers.teachers.prompts.candidate_and_label import candidate_request, label_names, label_request, parse_label
from workers.teachers.protocol import Choice, Message, ScoreRequest, TeacherFailed
from workers.teachers.protocol import Teacher as TeacherProtocol


@pytest.fixture(scope="module")
def teacher(grammar_server: GrammarServer) -> Iterator[TeacherProtocol]:
    made = make_teacher(
        Teacher(provider="grammar", model="kolm-grammar-1"),
        api_key=None,
        recording=None,
        allowed_private_origins=frozenset(),
        grammar_url=grammar_server.url,
    )
    yield made
    made.close()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.5])
def test_a_candidates_logprob_is_that_of_its_text(
    teacher: TeacherProtocol, grammar: Grammar, spec: Spec, temperature: float
) -> None:
    for slice_ in spec.slices:
        request = candidate_request(spec, slice_, n=12, temperature=temperature, seed=4)
        completion = teacher.complete(request, deadline_s=10)
        assert len(completion.choices) == 12
        for choice in completion.choices:
            exact = grammar.logprob(grammar.slices[slice_.name].start, choice.text, temperature=temperature)
            assert choice.logprob == pytest.approx(exact, abs=1e-9)
            assert choice.n_tokens == len(tokenize(choice.text)) + 1
        assert completion.usage.output_tokens == sum(c.n_tokens for c in completion.choices)
        assert not completion.usage.estimated
        assert not completion.usage.disputed
        assert completion.revision == teacher.identity.revision == grammar.revision


def scored(teacher: TeacherProtocol, request: ScoreRequest) -> Choice:
    (choice,) = teacher.score(request, deadline_s=10).choices
    return choice


def test_score_gives_a_drawn_text_the_logprob_it_was_drawn_with(teacher: TeacherProtocol, spec: Spec) -> None:
    request = candidate_request(spec, spec.slices[0], n=3, temperature=0.8, seed=9)
    for choice in teacher.complete(request, deadline_s=10).choices:
        score = scored(teacher, ScoreRequest(messages=request.messages, text=choice.text, temperature=0.8))
        assert score.text == choice.text
        assert score.tokens == choice.tokens == (*tokenize(choice.text), END)
        assert score.logprob == pytest.approx(choice.logprob)
        assert score.token_logprobs == pytest.approx(choice.token_logprobs)
    pony = scored(teacher, ScoreRequest(messages=request.messages, text="I would like a pony.", temperature=0.8))
    assert (pony.logprob or 0.0) < -9000


def test_labels_come_with_their_posterior(teacher: TeacherProtocol, spec: Spec) -> None:
    request = label_request(spec, "This is not what I paid for.", n=200, temperature=1.0, seed=1)
    completion = teacher.complete(request, deadline_s=10)
    labels = [parse_label(c.text, label_names(spec)) for c in completion.choices]
    said = {c.text: math.exp(c.logprob or 0.0) for c in completion.choices}
    assert set(said) == {"complaint", "refund_request"}
    assert math.fsum(said.values()) == pytest.approx(1.0)
    assert labels.count("complaint") / 200 == pytest.approx(said["complaint"], abs=0.12)


def test_equal_seeds_give_equal_answers_and_others_do_not(teacher: TeacherProtocol, spec: Spec) -> None:
    def texts(seed: int | None) -> tuple[str, ...]:
        request = candidate_request(spec, spec.slices[2], n=8, temperature=1.0, seed=seed)
        return tuple(c.text for c in teacher.complete(request, deadline_s=10).choices)

    assert texts(5) == texts(5)
    assert len({texts(5), texts(6), texts(None), texts(None)}) == 4


def test_the_first_answers_do_not_depend_on_how_many_are_asked_for(teacher: TeacherProtocol, spec: Spec) -> None:
    three, eight = (
        teacher.complete(candidate_request(spec, spec.slices[0], n=n, temperature=1.0, seed=5), deadline_s=10).choices
        for n in (3, 8)
    )
    assert eight[:3] == three


def test_a_slice_the_grammar_does_not_know_gets_messages_of_its_own_words(teacher: TeacherProtocol, spec: Spec) -> None:
    strange = spec.slices[0].model_copy(update={"name": "pets", "hint": "purring cats, barking dogs", "label": None})
    choices = teacher.complete(candidate_request(spec, strange, n=30, temperature=1.0, seed=1), deadline_s=10).choices
    assert len({c.text for c in choices}) > 20
    assert all(any(word in c.text.lower() for word in ("purring", "barking", "pets")) for c in choices)


def test_a_prompt_that_is_not_kolms_is_rejected(teacher: TeacherProtocol, spec: Spec) -> None:
    request = candidate_request(spec, spec.slices[0], n=1, temperature=1.0, seed=1)
    with pytest.raises(TeacherFailed) as caught:
        teacher.score(ScoreRequest(messages=(Message(role="user", content="hello"),), text="x"), deadline_s=5)
    assert caught.value.code == "teacher_rejected"
    assert request.n == 1


def post(server: GrammarServer, path: str, **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, content=json.dumps(body), trust_env=False)


def chat(spec: Spec, **more: Any) -> dict[str, Any]:
    request = candidate_request(spec, spec.slices[0], n=1, temperature=1.0, seed=1)
    return {"messages": [{"role": m.role, "content": m.content} for m in request.messages], "seed": 1, **more}


def test_top_logprobs_are_the_likeliest_next_tokens(grammar_server: GrammarServer, spec: Spec) -> None:
    body = post(grammar_server, "/chat/completions", **chat(spec, logprobs=True, top_logprobs=20)).json()
    rows = body["choices"][0]["logprobs"]["content"]
    assert rows[-1]["token"] == END
    for row in rows:
        top = row["top_logprobs"]
        assert [t["logprob"] for t in top] == sorted((t["logprob"] for t in top), reverse=True)
        assert math.fsum(math.exp(t["logprob"]) for t in top) <= 1 + 1e-9
        same = [t for t in top if t["token"] == row["token"]]
        assert not same or same[0]["logprob"] == pytest.approx(row["logprob"], abs=1e-7)


def test_max_tokens_cuts_and_says_so(grammar_server: GrammarServer, spec: Spec) -> None:
    choice = post(grammar_server, "/chat/completions", **chat(spec, max_tokens=2)).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert len(tokenize(choice["message"]["content"])) == 2


def test_prompt_logprobs_come_in_vllms_shape(grammar_server: GrammarServer, spec: Spec) -> None:
    request = candidate_request(spec, spec.slices[0], n=1, temperature=1.0, seed=1)
    prompt = "\n\n".join(m.content for m in request.messages) + "\n\nRefund please."
    row = post(grammar_server, "/completions", prompt=prompt, max_tokens=0, prompt_logprobs=0).json()["choices"][0]
    assert row["text"] == prompt
    assert row["prompt_logprobs"][0] is None
    assert row["logprobs"]["tokens"][-1] == END


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0},
        {"n": 10**6},
        {"n": "3"},
        {"temperature": -1},
        {"temperature": True},
        {"top_p": 0.9},
        {"stream": True},
        {"seed": 1.5},
        {"max_tokens": 0},
        {"messages": "hello"},
        {"messages": []},
        {"messages": [{"role": "user", "content": "hi"}]},
    ],
)
def test_a_request_it_cannot_serve_is_a_400(grammar_server: GrammarServer, spec: Spec, wrong: dict[str, Any]) -> None:
    response = post(grammar_server, "/chat/completions", **(chat(spec) | wrong))
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_broken_bodies_and_unknown_paths_are_answered(grammar_server: GrammarServer) -> None:
    assert httpx.post(grammar_server.url + "/completions", content=b"{", trust_env=False).status_code == 400
    assert httpx.post(grammar_server.url + "/completions", content=b"\xff", trust_env=False).status_code == 400
    assert httpx.post(grammar_server.url + "/completions", content=b"[]", trust_env=False).status_code == 400
    assert httpx.post(grammar_server.url + "/nowhere", content=b"{}", trust_env=False).status_code == 404
    assert httpx.get(grammar_server.url + "/nowhere", trust_env=False).status_code == 404
    assert httpx.get(grammar_server.url + "/models", trust_env=False).json()["data"][0]["id"] == "kolm-grammar-1"


def test_no_thread_outlives_the_server_even_with_a_connection_kept_alive(grammar: Grammar) -> None:
    before = set(threading.enumerate())
    with httpx.Client(trust_env=False) as client, serving(GrammarModel(grammar)) as server:
        assert client.get(server.url + "/models").status_code == 200
    assert set(threading.enumerate()) <= before


def test_the_command_serves_until_it_is_told_to_stop() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.teachers.grammar.server", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[-1]
        assert httpx.get(url + "/models", trust_env=False).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(5)
        process.stdout.close()


def test_a_fault_is_printed_without_the_prompt(
    grammar_server: GrammarServer, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = " ".join(["where", "is", "my", "order"])
    try:
        _ = {}[prompt]  # type: ignore[var-annotated]
    except KeyError:
        grammar_server.handle_error(None, ("127.0.0.1", 9))
    said = capsys.readouterr().err
    assert "KeyError" in said
    assert "test_server.py" in said
    assert prompt not in said
