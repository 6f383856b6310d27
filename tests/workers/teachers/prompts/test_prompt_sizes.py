"""What an estimate takes for the size of a prompt is the size of the prompt."""

import copy
from typing import Any

import pytest

from backend.domain.planning.prompt_sizes import answer_prompt_tokens, candidate_tokens
from backend.domain.planning.token_counts import Counting, count_tokens
from backend.domain.spec.defaults import effective_slices
from backend.domain.spec.parsing import Spec, parse_spec
from tests.acceptance.json_specs import small_orders, small_summaries
from tests.acceptance.specs import small_spec
from workers.teachers.prompts.answer import item_request
from workers.teachers.prompts.candidate_and_label import candidate_request
from workers.teachers.protocol import CompletionRequest
from workers.teachers.token_estimates import estimate_tokens

TEXT = "where is my money, it has been twelve days since you got the parcel"


def japanese() -> dict[str, Any]:
    spec = copy.deepcopy(small_spec("henpin"))
    spec["task"] = "返品についてですか、それとも配達についてですか。"
    spec["slices"][0] |= {"exemplars": ["上着を返品したいので返金してください", "鍵がまだ届きません"]}
    return spec


SPECS = {
    "labels": small_spec("router"),
    "without slices": small_spec("plain", slices=[]),
    "japanese": japanese(),
    "json": small_orders("orders"),
    "text": small_summaries("summaries"),
}


def words(request: CompletionRequest) -> int:
    """As the grammar teacher's server counts them."""
    return sum(int(count_tokens(message.content, Counting.WORDS)) + 4 for message in request.messages)


@pytest.fixture(params=SPECS.values(), ids=SPECS)
def spec(request: pytest.FixtureRequest) -> Spec:
    return parse_spec(request.param)


def test_the_question_for_candidates(spec):
    for part in effective_slices(spec):
        request = candidate_request(spec, part, n=8, temperature=1.0, seed=7, exemplars=part.exemplars)
        assert candidate_tokens(spec, part, Counting.WORDS) == pytest.approx(words(request), abs=3)
        n_bytes = sum(estimate_tokens(message.content) for message in request.messages)
        assert candidate_tokens(spec, part, Counting.BYTES) == pytest.approx(n_bytes, abs=2)


def test_the_question_for_a_label_or_an_answer(spec):
    request = item_request(spec, TEXT, n=1, temperature=0.0, seed=7)
    in_words = answer_prompt_tokens(spec, Counting.WORDS, input_tokens=int(count_tokens(TEXT, Counting.WORDS)))
    assert in_words == pytest.approx(words(request), rel=0.06)
    n_bytes = sum(estimate_tokens(message.content) for message in request.messages)
    shown = answer_prompt_tokens(spec, Counting.BYTES, input_tokens=estimate_tokens(TEXT))
    assert shown == pytest.approx(n_bytes, rel=0.06)
