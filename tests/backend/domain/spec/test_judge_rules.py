"""A spec's own judge of drafts: which may be asked, where, by whose key, and under which name it is remembered."""

from typing import Any

import pytest

from backend.domain.errors import InvalidSpec
from backend.domain.money.pricing import price_book
from backend.domain.money.teacher_prices import kept_prices
from backend.domain.planning.estimates import estimate
from backend.domain.spec.defaults import judge_name, judge_of, judged_by
from backend.domain.spec.parsing import Spec, canonical_spec, parse_spec
from tests.compile_factories import small_spec

PRICE = {"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 0.4}
KEY = "tk_01ktfz2x8e4s1c9w0m5q7r3vbd"
OTHER_KEY = "tk_01ktfz2x8e4s1c9w0m5q7r3vbe"
TEACHER: dict[str, Any] = {
    "provider": "openai_compatible",
    "base_url": "https://llm.example.com/v1",
    "model": "big",
    "api_key": KEY,
    "price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15},
    "fallback_model": "spare",
    "revision": "2026-08",
}
CHEAP = {"model": "small", "price": PRICE}
ELSEWHERE = CHEAP | {"base_url": "https://judge.example.com/v1"}


def document(judge: dict[str, Any], *, teacher: dict[str, Any] | None = None, **cache: Any) -> dict[str, Any]:
    return small_spec(teacher=teacher or TEACHER, draft_cache={"judge": judge} | cache)


def spec_of(judge: dict[str, Any], **changes: Any) -> Spec:
    return parse_spec(document(judge, **changes))


@pytest.mark.parametrize(
    ("judge", "place", "code", "words"),
    [
        (ELSEWHERE | {"base_url": "ftp://x"}, "/base_url", "bad_url", "http"),
        ({"price": PRICE}, "/model", "missing", "model"),
        (CHEAP | {"api_key": OTHER_KEY}, "/api_key", "not_used", "the teacher's"),
        (CHEAP | {"dialect": "vllm"}, "/dialect", "not_used", "the teacher's"),
        ({"model": "big"}, "/model", "not_used", "judges anyway"),
        ({"model": "big", "thought_tokens": 0, "price": PRICE}, "/price", "not_used", "same model"),
        (ELSEWHERE | {"dialect": "transformers", "effort": "low"}, "/effort", "not_used", "how long"),
        (CHEAP | {"rubric": "x"}, "/rubric", "unknown_key", "rubric"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_refused_with_what_to_change(judge, place, code, words) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(document(judge))
    (problem,) = refused.value.problems
    assert problem.pointer == f"/draft_cache/judge{place}"
    assert code in problem.code
    assert words in problem.message


@pytest.mark.parametrize("verify", ["logprobs", "engine"])
def test_a_judge_that_nothing_asks_is_refused(verify: str) -> None:
    with pytest.raises(InvalidSpec, match="asks no judge"):
        spec_of(CHEAP, verify=verify)


def test_the_built_in_teacher_has_no_other_model_and_a_recording_audits_nothing() -> None:
    grammar = {"provider": "grammar", "model": "kolm-grammar-1"}
    with pytest.raises(InvalidSpec, match="no other model"):
        spec_of(CHEAP, teacher=grammar)
    assert judge_of(spec_of(ELSEWHERE, teacher=grammar))
    recording = {"provider": "replay", "model": "m", "recording": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}
    with pytest.raises(InvalidSpec, match="cannot audit"):
        spec_of(ELSEWHERE, teacher=recording)


def test_without_an_address_it_is_asked_at_the_teachers_with_the_teachers_key() -> None:
    spec = spec_of(CHEAP, teacher=TEACHER | {"concurrency": 9})
    judge = judge_of(spec)
    assert judge is not None
    assert (judge.model, judge.base_url, judge.api_key) == ("small", TEACHER["base_url"], KEY)
    assert (judge.fallback_model, judge.revision, judge.mode, judge.concurrency) == (None, None, "live", 9)
    assert judge.price is not None
    assert float(judge.price.output_usd_per_mtok) == 0.4
    assert judged_by(spec).teacher == judge


def test_an_address_of_its_own_gets_its_own_key_alone() -> None:
    judge = judge_of(spec_of(ELSEWHERE))
    assert judge is not None
    assert (judge.base_url, judge.api_key) == ("https://judge.example.com/v1", None)
    keyed = judge_of(spec_of(ELSEWHERE | {"api_key": OTHER_KEY}))
    assert keyed is not None
    assert keyed.api_key == OTHER_KEY


def test_a_spec_without_one_is_judged_by_its_teacher() -> None:
    spec = parse_spec(small_spec(teacher=TEACHER))
    assert (judge_of(spec), judge_name(spec), judged_by(spec)) == (None, "", spec)
    assert canonical_spec(spec)["draft_cache"]["judge"] is None


def test_evidence_has_a_name_that_differs_where_the_judge_does_and_fits_its_column() -> None:
    long = {"base_url": "https://judge.example.com/" + 300 * "x"}
    thinking = ELSEWHERE | {"effort": "low", "dialect": "openai-reasoning"}
    longer = ELSEWHERE | {"base_url": long["base_url"] + "y"}
    judges = [CHEAP, ELSEWHERE, CHEAP | {"model": "other"}, thinking, ELSEWHERE | long, longer]
    names = [judge_name(spec_of(judge)) for judge in judges]
    assert names[:2] == ["small@https://llm.example.com/v1", "small@https://judge.example.com/v1"]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) == 200
    assert judge_name(spec_of(CHEAP | {"price": PRICE | {"output_usd_per_mtok": 1}})) == names[0]


def test_its_price_is_kept_with_the_estimate_and_a_model_without_one_is_refused_at_its_place() -> None:
    spec = spec_of(CHEAP)
    made = estimate(spec).to_json()
    assert (made["judge_price"]["model"], made["judge_price"]["output_usd_per_mtok"]) == ("small", "0.4")
    kept = kept_prices(made, spec.teacher, book=price_book(), judge=judge_of(spec))
    assert kept.judge is not None
    assert kept.judge.version == made["judge_price"]["version"]
    assert kept_prices({}, spec.teacher, book=price_book(), judge=judge_of(spec)).judge is not None
    assert kept_prices(made, spec.teacher, book=price_book()).judge is None
    assert estimate(parse_spec(small_spec(teacher=TEACHER))).to_json()["judge_price"] is None
    with pytest.raises(InvalidSpec) as refused:
        estimate(spec_of({"model": "small"}))
    (problem,) = refused.value.problems
    assert (problem.pointer, problem.code) == ("/draft_cache/judge", "unknown_teacher_price")
    assert "to the judge" in problem.message
