"""Rewards in a spec: which may be asked, and what is said of those that may not."""

import pytest

from backend.domain.errors import InvalidSpec
from backend.domain.spec.defaults import rewarded_by, rewarder_of
from backend.domain.spec.parsing import canonical_spec, parse_spec
from tests.compile_factories import small_spec

PRICE = {"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 0.4}
KEY = "tk_01ktfz2x8e4s1c9w0m5q7r3vbd"
TEACHER = {
    "provider": "openai_compatible",
    "base_url": "https://llm.example.com/v1",
    "model": "big",
    "api_key": KEY,
    "price": PRICE,
}
SERVER = {"kind": "reward", "base_url": "https://rewards.example.com/v1", "model": "judge"}


def spec_with(*verifiers: dict, teacher: dict | None = None) -> dict:
    return small_spec(verifiers=list(verifiers), teacher=teacher or TEACHER)


@pytest.mark.parametrize(
    ("verifiers", "pointer", "code", "words"),
    [
        ([{"kind": "reward"}, {"kind": "reward"}], "/verifiers/1", "not_used", "one reward"),
        ([SERVER | {"base_url": "ftp://x"}], "/verifiers/0/base_url", "bad_url", "http"),
        ([{"kind": "reward", "base_url": SERVER["base_url"]}], "/verifiers/0/model", "missing", "add it"),
        ([{"kind": "reward", "api": "vllm-score"}], "/verifiers/0/base_url", "missing", "vllm-score"),
        ([{"kind": "reward", "api_key": KEY}], "/verifiers/0/api_key", "not_used", "the teacher's"),
        ([{"kind": "reward", "price": PRICE}], "/verifiers/0/price", "not_used", "same model"),
        ([SERVER | {"api": "vllm-classify", "effort": "low"}], "/verifiers/0/effort", "not_used", "asks none"),
        ([{"kind": "reward", "gate": True}], "/verifiers/0/gate", "unknown_key", "gate"),
        ([{"kind": "reward", "rubric": " "}], "/verifiers/0/rubric", "", ""),
    ],
)
def test_a_reward_that_cannot_be_asked_is_refused_with_what_to_change(verifiers, pointer, code, words) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(spec_with(*verifiers))
    (problem,) = refused.value.problems
    assert problem.pointer == pointer
    assert code in problem.code
    assert words in problem.message


@pytest.mark.parametrize("provider", ["grammar", "replay"])
def test_a_teacher_that_cannot_rate_is_not_taken_for_the_judge(provider) -> None:
    teacher = {"provider": provider, "model": "kolm-grammar-1"}
    teacher |= {"recording": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"} if provider == "replay" else {}
    with pytest.raises(InvalidSpec, match="rates nothing"):
        parse_spec(spec_with({"kind": "reward"}, teacher=teacher))
    assert parse_spec(spec_with(SERVER, teacher=teacher))


def test_without_an_address_the_teacher_is_asked_with_its_own_key() -> None:
    spec = parse_spec(spec_with({"kind": "reward", "rubric": "Be concrete."}))
    rewarder = rewarder_of(spec)
    assert rewarder is not None
    assert (rewarder.model, rewarder.base_url, rewarder.api_key) == ("big", TEACHER["base_url"], KEY)
    assert rewarded_by(spec).teacher == rewarder


def test_another_model_of_the_teachers_has_a_price_of_its_own() -> None:
    spec = parse_spec(spec_with({"kind": "reward", "model": "small"}))
    rewarder = rewarder_of(spec)
    assert rewarder is not None
    assert (rewarder.model, rewarder.price, rewarder.api_key) == ("small", None, KEY)


def test_a_server_of_its_own_gets_no_key_of_the_teachers() -> None:
    spec = parse_spec(spec_with(SERVER | {"api": "vllm-classify", "concurrency": 9}))
    rewarder = rewarder_of(spec)
    assert rewarder is not None
    assert (rewarder.model, rewarder.api_key, rewarder.concurrency) == ("judge", None, 9)


def test_a_spec_without_a_reward_is_its_own_and_a_spec_with_one_survives_its_canonical_form() -> None:
    plain = parse_spec(spec_with())
    assert rewarder_of(plain) is None
    assert rewarded_by(plain) is plain
    spec = parse_spec(spec_with(SERVER | {"price": PRICE}))
    assert parse_spec(canonical_spec(spec)) == spec
