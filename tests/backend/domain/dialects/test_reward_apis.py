"""Where the number of a reward model stands, and what the server is sent."""

import pytest

from backend.domain.dialects.reward_apis import APIS, RERANK, VLLM_CLASSIFY, VLLM_POOLING, VLLM_SCORE, reward_api
from backend.domain.spec.reward import CHAT, RewardApiName


def test_every_api_that_a_spec_may_name_has_its_row() -> None:
    assert {CHAT, *(api.name for api in APIS)} == set(RewardApiName.__args__)
    assert [reward_api(api.name) for api in APIS] == list(APIS)
    assert all(api.source.startswith("https://") and api.written_on for api in APIS)


@pytest.mark.parametrize(
    ("api", "answer", "number"),
    [
        (VLLM_CLASSIFY, {"data": [{"index": 0, "label": None, "probs": [-1.25], "num_classes": 1}]}, -1.25),
        (VLLM_CLASSIFY, {"data": [{"index": 0, "label": "good", "probs": [0.1, 2.5], "num_classes": 2}]}, 2.5),
        (VLLM_POOLING, {"data": [{"index": 0, "object": "pooling", "data": [0.75]}]}, 0.75),
        (VLLM_POOLING, {"data": [{"index": 0, "object": "pooling", "data": [[0.1], [0.2], [3.5]]}]}, 3.5),
        (VLLM_SCORE, {"data": [{"index": 0, "object": "score", "score": 4.0}]}, 4.0),
        (RERANK, {"results": [{"index": 0, "document": {"text": "c"}, "relevance_score": 0.25}]}, 0.25),
    ],
)
def test_the_number_is_found_in_the_shape_of_each_api(api, answer, number) -> None:
    assert api.number(answer) == number


@pytest.mark.parametrize("answer", [{}, {"data": []}, {"data": [{}]}, {"data": [{"probs": []}]}, [], "0.5", None])
def test_another_shape_holds_none(answer) -> None:
    with pytest.raises((LookupError, TypeError)):
        VLLM_CLASSIFY.number(answer)


@pytest.mark.parametrize(("written", "number"), [("0.93", 0.93), (" -1.5e1 ", -15.0), (["3"], 3.0), (".5", 0.5)])
def test_a_number_that_is_written_as_text_is_that_number(written, number) -> None:
    assert VLLM_SCORE.number({"data": [{"score": written}]}) == number


@pytest.mark.parametrize("written", ["", "good", "nan", "inf", "1_000", "7/9", "0.93 (good)", "٣"])
def test_a_text_that_is_no_number_stays_a_text(written) -> None:
    assert VLLM_SCORE.number({"data": [{"score": written}]}) == written


def test_a_reward_model_reads_a_conversation_and_a_reranker_a_pair() -> None:
    assert [m["role"] for m in VLLM_POOLING.body("m", "q", "c")["messages"]] == ["user", "assistant"]
    assert RERANK.body("m", "q", "c") == {"model": "m", "query": "q", "documents": ["c"]}


def test_servers_are_asked_at_their_root_and_rerankers_under_the_base() -> None:
    assert VLLM_CLASSIFY.url("http://gpu:8000/v1/") == "http://gpu:8000/classify"
    assert RERANK.url("https://api.example.com/v1") == "https://api.example.com/v1/rerank"
