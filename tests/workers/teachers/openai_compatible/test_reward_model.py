"""The client of reward models against vLLM's shapes, and against answers that hold no number."""

import json
from typing import Any

import pytest

from backend.domain.dialects.reward_apis import APIS, VLLM_CLASSIFY, RewardApi, reward_api
from tests.workers.teachers.reward_server import MODEL, RewardServer, serving_rewards
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.openai_compatible.reward_model import RewardModel, read_reward
from workers.teachers.prompts.reward import scored_request
from workers.teachers.protocol import Completion, TeacherCaps, TeacherFailed, TeacherIdentity

REQUEST = scored_request("Write one new message.", "where is my refund")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.02)


def ask(server: RewardServer, api: RewardApi, *, key: str | None = None, model: str = MODEL) -> Completion:
    client = RewardModel(
        api=api,
        identity=TeacherIdentity(provider="openai_compatible", model=model),
        base_url=server.base_url,
        api_key=key,
        caps=TeacherCaps(),
        allowed_origins=frozenset({server.base_url.removesuffix("/v1")}),
    )
    try:
        return client.complete(REQUEST, deadline_s=20.0)
    finally:
        client.close()


def speaker_of(api: RewardApi) -> str:
    """Whose server speaks it; Jina's protocol is vLLM's too."""
    return "vllm" if api.name == "rerank" else api.name.partition("-")[0]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_number_of_a_candidate_is_read_from_every_api(api):
    speaks = speaker_of(api)
    with serving_rewards(lambda text: -2.25 if text == "where is my refund" else 0.0, speaks=speaks) as server:
        done = ask(server, api)
    (choice,) = done.choices
    assert float(choice.text) == -2.25
    assert (done.usage.output_tokens, done.usage.estimated, done.usage.disputed) == (0, speaks != "vllm", False)
    assert done.usage.input_tokens > 0
    assert len(server.asked) == 1


RANKERS = [api for api in APIS if speaker_of(api) != "vllm"]


@pytest.mark.parametrize("api", RANKERS, ids=lambda api: api.name)
def test_a_ranker_is_asked_for_raw_numbers_without_the_text_and_its_refusals_are_read(api):
    with serving_rewards(lambda text: 1.0, key="right", speaks=speaker_of(api)) as server:
        with pytest.raises(TeacherFailed, match="refuses the API key"):
            ask(server, api, key="wrong")
        ask(server, api, key="right", model="a name that it does not read")
        with pytest.raises(TeacherFailed, match="no such model or path"):
            ask(server, VLLM_CLASSIFY, key="right")
        ((path, body),) = server.asked
    texts = body.get("texts") or body.get("documents")
    assert (body["query"], texts) == ("Write one new message.", ["where is my refund"])
    if api.name == "tei-rerank":
        assert (path, body["raw_scores"]) == ("/rerank", True)
    else:
        assert (path, body["return_documents"]) == ("/v1/rerank", False)


def test_a_score_in_a_list_of_one_is_that_number():
    """SGLang's releases of before it coerced `embedding` into a number."""
    answer = read_reward(b'[{"score": [0.5], "document": "x", "index": 0}]', reward_api("sglang-rerank"), REQUEST)
    assert answer.choices[0].text == "0.5"


@pytest.mark.parametrize("body", [b"[]", b"{}", b'[{"index": 0}]', b'{"score": 1}', b"[1]", b'"x"'])
@pytest.mark.parametrize("api", RANKERS, ids=lambda api: api.name)
def test_another_shape_is_no_answer_of_a_ranker(api, body):
    with pytest.raises(BadAnswer):
        read_reward(body, api, REQUEST)


@pytest.mark.parametrize("value", [None, "nine", True, float("nan"), float("inf"), 1e12, 10**400, {}])
def test_what_is_no_number_is_none_and_no_failure(value):
    with serving_rewards(lambda text: value) as server:
        (choice,) = ask(server, reward_api("vllm-classify")).choices
    assert choice.text == ""


def test_a_wrong_key_and_an_unknown_model_are_failures_that_say_so():
    with serving_rewards(lambda text: 1.0, key="right") as server:
        with pytest.raises(TeacherFailed, match="refuses the API key") as wrong:
            ask(server, VLLM_CLASSIFY, key="wrong")
        with pytest.raises(TeacherFailed, match="no such model"):
            ask(server, VLLM_CLASSIFY, key="right", model="other")
        assert float(ask(server, VLLM_CLASSIFY, key="right").choices[0].text) == 1.0
    assert wrong.value.code == "teacher_rejected"
    assert wrong.value.usage is None


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'"x"', b'{"data": [{"probs": []}]}', b"\xff", b"[" * 100_000, b'{"data": 3}']
)
def test_another_shape_is_no_answer(body):
    with pytest.raises(BadAnswer):
        read_reward(body, VLLM_CLASSIFY, REQUEST)


@pytest.mark.parametrize(
    ("usage", "tokens", "is_estimated"),
    [
        ({"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": None}, 9, False),
        ({"total_tokens": 7}, 7, False),
        (None, None, True),
        ([], None, True),
    ],
)
def test_usage_is_read_as_such_servers_report_it(usage: Any, tokens, is_estimated):
    answer = read_reward(json.dumps({"data": [{"probs": [1]}], "usage": usage}).encode(), VLLM_CLASSIFY, REQUEST)
    assert answer.usage.estimated is is_estimated
    assert tokens is None or answer.usage.input_tokens == tokens
    assert answer.usage.output_tokens == 0
