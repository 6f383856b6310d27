"""OpenAI's interface over the real engine: one json artifact, as `kolm serve` has it."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import jsonschema
import pytest
import uvicorn
from starlette.applications import Starlette

from backend.domain.artifact.kolm_verify import read_kolm
from gpu_runners.artifacts.generative_model import GenerativeModel
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.serving.openai.arrival import MAX_BODY
from gpu_runners.serving.openai.connections import web_config
from gpu_runners.serving.openai.single import app_of
from tests.backend.domain.patterns.test_matching import AUDITED
from tests.cpu_time import own_objects_alone
from tests.gpu_runners.small_base import CONTEXT, make_base
from tests.gpu_runners.small_generative import SCHEMA, generative_kolm
from tests.hostile_bodies import connected, head_of

ASKED = [{"role": "user", "content": "3 coffee"}]
TEXT = {"type": "text"}
MOST_S = 60.0  # a bound for what fails; nothing that works comes near it


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> CausalBase:
    return make_base(tmp_path_factory.mktemp("bases") / "small-llama")


@pytest.fixture(scope="module")
def model(base: CausalBase) -> Iterator[GenerativeModel]:
    model = GenerativeModel.merge_members(read_kolm(generative_kolm(base)).members, base=base, max_running=4)
    yield model
    model.engine.stop()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def app(base: CausalBase, model: GenerativeModel) -> Starlette:
    return app_of(read_kolm(generative_kolm(base)), model)


class Caller:
    """One call an event loop, as a client of its own each."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.request(method, path, **more)

        return asyncio.run(go())

    def chat(self, **changed: Any) -> httpx.Response:
        body = {"model": "orders", "messages": ASKED} | changed
        return self.send("POST", "/v1/chat/completions", json=body)

    def completion(self, **changed: Any) -> httpx.Response:
        body = {"model": "orders", "prompt": "3 coffee", "response_format": TEXT} | changed
        return self.send("POST", "/v1/completions", json=body)


@pytest.fixture
def caller(app: Starlette) -> Caller:
    return Caller(app)


@contextmanager
def before_steps(engine: Any, do: Callable[[int], None]) -> Iterator[None]:
    """Call `do` with the number of each forward pass, in the engine's thread, before it."""
    forward, numbers = engine._runner.forward, iter(range(10**6))

    def after_that(*args: Any) -> Any:
        do(next(numbers))
        return forward(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._runner, "forward", after_that)
        yield


@contextmanager
def held(engine: Any, *, n_free: int) -> Iterator[threading.Event]:
    """Hold the engine after its first `n_free` steps until the event is set."""
    go = threading.Event()

    def hold(number: int) -> None:
        if number >= n_free and not go.wait(MOST_S):
            go.set()

    with before_steps(engine, hold):
        try:
            yield go
        finally:
            go.set()


def wait_until(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + MOST_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_json_artifact_answers_by_its_schema_with_its_own_system_message(caller: Caller, base: CausalBase) -> None:
    answer = caller.chat().json()
    [choice] = answer["choices"]
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    assert (answer["object"], answer["model"], choice["finish_reason"]) == ("chat.completion", "orders", "stop")
    own = [{"role": "system", "content": "of tea and coffee"}, *ASKED]
    assert caller.chat(messages=own).json()["choices"] == answer["choices"]
    prompt = base.tokenizer.apply_chat_template(own, add_generation_prompt=True, return_dict=False)
    usage = answer["usage"]
    assert usage["prompt_tokens"] == len(prompt)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_text_is_free_when_it_is_asked_for(caller: Caller) -> None:
    text = caller.chat(response_format=TEXT, max_tokens=12).json()["choices"][0]
    with pytest.raises(ValueError):
        json.loads(text["message"]["content"])
    assert text["finish_reason"] == "length"
    other = {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "maxItems": 2}
    form = {"type": "json_schema", "json_schema": {"name": "pair", "schema": other, "strict": True}}
    jsonschema.validate(json.loads(caller.chat(response_format=form).json()["choices"][0]["message"]["content"]), other)
    own = caller.chat(response_format={"type": "json_object"}).json()["choices"][0]["message"]["content"]
    jsonschema.validate(json.loads(own), SCHEMA)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.2, "seed": 4, "response_format": TEXT}, {"stop": ["e"]}])
def test_a_stream_adds_up_to_the_answer(caller: Caller, options: dict[str, Any]) -> None:
    whole = caller.chat(**options).json()
    chunks = events(caller.chat(**options, stream=True, stream_options={"include_usage": True}))
    *parts, last = chunks
    assert (
        "".join(part["choices"][0]["delta"].get("content", "") for part in parts)
        == (whole["choices"][0]["message"]["content"])
    )
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [part["choices"][0]["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in events(caller.chat(**options, stream=True)))


def test_choices_differ_by_seed_and_repeat_with_it(caller: Caller) -> None:
    options = {"n": 3, "temperature": 1.3, "seed": 9, "response_format": TEXT, "max_tokens": 10}
    answer = caller.chat(**options).json()
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert len(set(texts)) == 3
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [c["message"]["content"] for c in caller.chat(**options).json()["choices"]] == texts
    streamed = ["", "", ""]
    for chunk in events(caller.chat(**options, stream=True)):
        [choice] = chunk["choices"]
        streamed[choice["index"]] += choice["delta"].get("content", "")
    assert streamed == texts


def test_logprobs_in_both_shapes(caller: Caller) -> None:
    chat = caller.chat(logprobs=True, top_logprobs=2, max_tokens=4, response_format=TEXT).json()["choices"][0]
    tokens = chat["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == chat["message"]["content"]
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in tokens)
    assert tokens[0]["top_logprobs"][0]["token"] == tokens[0]["token"]  # greedy
    text = caller.completion(logprobs=2, max_tokens=4).json()["choices"][0]
    told = text["logprobs"]
    assert "".join(told["tokens"]) == text["text"]
    assert told["text_offset"][1] == len(told["tokens"][0])
    assert len(told["token_logprobs"]) == len(told["top_logprobs"]) == 4


def test_completions_take_texts_and_tokens(caller: Caller, base: CausalBase) -> None:
    one = caller.completion(max_tokens=6).json()
    assert (one["object"], len(one["choices"])) == ("text_completion", 1)
    ids = base.tokenizer("3 coffee")["input_ids"]
    many = caller.completion(prompt=["3 coffee", "tea"], max_tokens=6, n=2).json()["choices"]
    assert [choice["index"] for choice in many] == [0, 1, 2, 3]
    for prompt in (ids, [ids], ["3 coffee"]):
        assert caller.completion(prompt=prompt, max_tokens=6).json()["choices"][0]["text"] == one["choices"][0]["text"]
    assert many[0]["text"] == many[1]["text"] == one["choices"][0]["text"]
    jsonschema.validate(json.loads(caller.completion(response_format=None).json()["choices"][0]["text"]), SCHEMA)


@pytest.mark.parametrize(
    ("changed", "param", "code"),
    [
        ({"logit_bias": {"5": 1}}, "logit_bias", "unsupported_parameter"),
        ({"functions": []}, "functions", "unsupported_parameter"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice", "unsupported_parameter"),
        ({"audio": {}}, "audio", "unsupported_parameter"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"temperature": True}, "temperature", "invalid_value"),
        ({"top_p": "1"}, "top_p", "invalid_value"),
        ({"n": 1000}, "n", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"stop": [""]}, "stop", "invalid_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"stream": False, "stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "invalid_value"),
        ({"response_format": {"type": "text", "x": 1}}, "response_format.x", "unsupported_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages[0].content", "unsupported_content"),
        ({"messages": [{"role": "user", "content": "x", "voice": 1}]}, "messages[0].voice", "unsupported_parameter"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "unsupported_parameter"),
        ({"model": "other"}, None, "model_not_found"),
        ({"model": None}, "model", "missing_model"),
        ({"messages": [{"role": "user", "content": "tea " * CONTEXT}]}, None, "context_length_exceeded"),
    ],
)  # fmt: skip
def test_what_is_not_honoured_is_refused_by_name(
    caller: Caller, changed: dict[str, Any], param: str | None, code: str
) -> None:
    for stream in (False, True):
        response = caller.chat(**{"stream": stream} | changed)
        error = response.json()["error"]
        assert response.status_code == (404 if code == "model_not_found" else 400)
        assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
        assert error["message"]


def test_a_hostile_schema_is_refused_before_it_is_compiled(caller: Caller) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(25):
        deep = {"type": "object", "properties": {"a": deep}}
    loop = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    remote = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}
    for schema in (deep, loop, remote, {"type": "nonsense"}, "text"):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        error = caller.chat(response_format=form).json()["error"]
        assert (error["code"], error["param"]) == ("bad_schema", "response_format.json_schema.schema")


def test_a_patterns_schema_costs_the_runner_little_whatever_it_says(caller: Caller) -> None:
    """Judged by us in linear time, then decoded to by llguidance under its own bounds on work; no answer of the base is
    long enough to be complete."""
    for pattern in AUDITED:
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}, "required": ["a"]}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        started = time.process_time()
        answer = caller.chat(response_format=form, max_tokens=8)
        assert time.process_time() - started < 5
        assert answer.status_code in (200, 400), answer.text
        assert caller.chat(response_format=TEXT, max_tokens=2).status_code == 200


def test_a_schema_of_many_patterns_that_take_long_to_read_is_refused_soon(caller: Caller) -> None:
    letters = [chr(i) for i in range(0x100, 0x2000) if chr(i).lower() != chr(i).upper()]
    pattern = "(?i)" + "".join(f"[^{letter}]" for letter in letters[:115])
    fields = {f"f{i}": {"type": "string", "pattern": f"{pattern}{i}"} for i in range(64)}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": fields}}}
    with own_objects_alone():
        started = time.process_time()
        error = caller.chat(response_format=form, max_tokens=4).json()["error"]
        assert time.process_time() - started < 2
    assert (error["code"], error["param"]) == ("bad_schema", "response_format.json_schema.schema")


def test_bodies_are_bounded_and_must_be_json(caller: Caller) -> None:
    path = "/v1/chat/completions"
    for content in (b"", b"[]", b"{", b"\xff", b"[" * 200_000):
        response = caller.send("POST", path, content=content)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")
    big = b'{"model": "' + b"x" * MAX_BODY + b'"}'
    assert caller.send("POST", path, content=big).status_code == 413

    async def parts() -> Any:
        for _ in range(70):
            yield b"x" * 65536

    assert caller.send("POST", path, content=parts()).status_code == 413
    assert caller.send("GET", path).json()["error"]["type"] == "invalid_request_error"
    assert caller.send("GET", "/nowhere").status_code == 404


def test_models_health_and_the_older_routes(caller: Caller) -> None:
    [told] = caller.send("GET", "/v1/models").json()["data"]
    assert (told["id"], told["object"]) == ("orders", "model")
    assert caller.send("GET", "/healthz").json() == {"status": "ok"}
    assert caller.send("GET", "/v1/model").json()["task_type"] == "json"
    outputs = caller.send("POST", "/v1/run", json={"input": ["3 coffee", "tea"]}).json()["outputs"]
    assert outputs[0]["output"] == caller.chat().json()["choices"][0]["message"]["content"]
    assert set(outputs[1]) == {"output", "finish_reason", "n_tokens", "latency_us"}
    assert caller.send("POST", "/v1/run", json={"inputs": ["3 coffee", "tea"]}).json()["object"] == "run"
    for body in ({"input": 3}, {"inputs": "tea"}, {"inputs": ["tea"], "input": "tea"}, {"inputs": []}):
        assert caller.send("POST", "/v1/run", json=body).status_code == 400


async def twenty_chats(app: Starlette, *, n_refused: int, go: threading.Event) -> list[httpx.Response]:
    """The answers to twenty chats at once; `go` is set when `n_refused` of them have been refused."""
    body = {"model": "orders", "messages": ASKED, "response_format": TEXT, "max_tokens": 20}
    refused = []

    async def ask(client: httpx.AsyncClient, i: int) -> httpx.Response:
        response = await client.post("/v1/chat/completions", json=body | {"stream": i % 2 == 0})
        if response.status_code == 429:
            refused.append(i)
        if len(refused) >= n_refused:
            go.set()
        return response

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return await asyncio.gather(*(ask(client, i) for i in range(20)))


def test_more_than_may_wait_is_told_to_come_back(base: CausalBase) -> None:
    from gpu_runners.engine.torch_engine import TorchEngine

    kolm = read_kolm(generative_kolm(base))
    model = GenerativeModel.merge_members(kolm.members, base=base)
    model.engine.stop()  # type: ignore[attr-defined]
    model.engine = engine = TorchEngine(base, max_running=1, max_waiting=3)
    try:
        with held(engine, n_free=0) as go:
            responses = asyncio.run(twenty_chats(app_of(kolm, model), n_refused=16, go=go))
    finally:
        engine.stop()
    statuses = [response.status_code for response in responses]
    assert set(statuses) == {200, 429}
    assert statuses.count(429) >= 16
    for response in responses:
        if response.status_code == 429:
            assert response.json()["error"]["type"] == "rate_limit_error"
            assert int(response.headers["retry-after"]) >= 1
    assert engine.counters()["requests"] == statuses.count(200)


@pytest.fixture
def address(app: Starlette) -> Iterator[str]:
    server = uvicorn.Server(web_config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.mark.parametrize("stream", [True, False])
def test_who_hangs_up_frees_the_place(address: str, model: GenerativeModel, stream: bool) -> None:
    long = {"messages": [{"role": "user", "content": "tea " * 60}], "max_tokens": 400, "temperature": 1.4, "n": 4}
    body = json.dumps({"model": "orders", "response_format": TEXT, "stream": stream, "seed": 1} | long).encode()
    counters = model.engine.counters
    canceled = counters()["canceled"]
    with held(model.engine, n_free=20) as go:
        with connected(httpx.URL(address).port or 0, timeout_s=MOST_S) as connection:
            connection.sendall(head_of("/v1/chat/completions", len(body)) + body)
            if stream:
                read_until(connection, b"data: ")
            wait_until(lambda: counters()["running"])
        wait_until(lambda: counters()["canceled"] > canceled)
        go.set()
        wait_until(lambda: (counters()["running"], counters()["waiting"]) == (0, 0))


def read_until(connection: socket.socket, words: bytes) -> None:
    received = b""
    while words not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece


def test_pieces_arrive_as_they_are_made(address: str, model: GenerativeModel) -> None:
    """Not in one buffer at the end: each ten steps of the engine wait for a piece to be read."""
    body = {"model": "orders", "messages": ASKED, "response_format": TEXT, "max_tokens": 120, "stream": True}
    was_read = threading.Event()
    waited: list[bool] = []

    def wait_for_reader(number: int) -> None:
        if number and number % 10 == 0 and all(waited):
            waited.append(was_read.wait(MOST_S))
            was_read.clear()

    url, timeout_s = f"{address}/v1/chat/completions", 2 * MOST_S
    with (
        before_steps(model.engine, wait_for_reader),
        httpx.stream("POST", url, json=body, timeout=timeout_s) as response,
    ):
        for line in response.iter_lines():
            if line:
                was_read.set()
    assert len(waited) > 2
    assert all(waited)
