"""A spec is refused with what to do about it, or it is valid and says everything."""

import copy
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import sha256_of
from backend.domain.errors import InvalidSpec, Problem
from backend.domain.jobs.runner_jobs import TrainOptions
from backend.domain.spec.defaults import buys_in_rounds
from backend.domain.spec.parsing import (
    Example,
    Spec,
    canonical_spec,
    check_gold,
    default_k_select,
    effective_slices,
    first_votes,
    label_max_tokens,
    label_names,
    most_votes,
    n_distilled,
    parse_spec,
    read_stored_spec,
    spec_json_schema,
    target_shares,
)

REMOVE = object()


def document(**changed: Any) -> dict[str, Any]:
    texts = [("I want my money back, order {}", "refund"), ("where is parcel {}", "other")]
    return {
        "name": "refund-router",
        "task": "Does the customer ask for money back?",
        "output": {"type": "label", "labels": [{"name": "refund"}, {"name": "other"}]},
        "examples": {"inline": [{"input": t.format(i), "output": o} for i in range(40) for t, o in texts]},
        "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
        **changed,
    }


def changed(pointer: str, value: Any) -> dict[str, Any]:
    """The document with one place set (or removed)."""
    data = copy.deepcopy(document())
    *path, last = [int(p) if p.isdigit() else p for p in pointer.split("/")[1:]]
    node: Any = data
    for part in path:
        node = node[part] if isinstance(node, list) else node.setdefault(part, {})
    if value is REMOVE:
        del node[last]
    else:
        node[last] = value
    return data


def problems(data: object) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(data)
    assert caught.value.problems
    return caught.value.problems


def two_labels(**second: Any) -> dict[str, Any]:
    return {"type": "label", "labels": [{"name": "refund"}, {"name": "other", **second}]}


@pytest.mark.parametrize(
    ("pointer", "value", "at", "code", "words"),
    [
        ("/taks", "x", "/taks", "unknown_key", 'did you mean "task"?'),
        ("/Sampling", {}, "/Sampling", "unknown_key", 'did you mean "sampling"?'),
        ("/output/labels/0/nmae", "x", "/output/labels/0/nmae", "unknown_key", 'did you mean "name"?'),
        ("/sampling/n_candidate", 3, "/sampling/n_candidate", "unknown_key", 'did you mean "n_candidates"?'),
        ("/train/epoch", 3, "/train/epoch", "unknown_key", 'did you mean "epochs"?'),
        ("/output/abstain", {"accuracy": 0.3}, "/output/abstain/accuracy", "out_of_range", "0.5"),
        ("/gate/zzz", 3, "/gate/zzz", "unknown_key", "known are"),
        ("/task", "", "/task", "empty", "write something"),
        ("/task", " \n ", "/task", "bad_format", "blank"),
        ("/task", REMOVE, "/task", "missing", 'add "task"'),
        ("/task", "x" * 4001, "/task", "too_large", "4,000"),
        ("/name", "Refund Router", "/name", "bad_format", "lower-case"),
        ("/output/labels/0/name", True, "/output/labels/0/name", "wrong_type", "quotes"),
        ("/output/labels/1/name", "Refund", "/output/labels/1/name", "duplicate_label", "/output/labels/0"),
        ("/output/labels", [{"name": "a b"}, {"name": "A  b"}], "/output/labels/1/name", "duplicate_label", '"a b"'),
        ("/output/labels", [{"name": "\xe9"}, {"name": "e\u0301"}], "/output/labels/1/name", "duplicate_label", "/0"),
        ("/output/labels/1/name", "a|b", "/output/labels/1/name", "bad_format", "'|'"),
        ("/output/labels", [{"name": "refund"}], "/output/labels", "empty", "at least 2"),
        ("/output", {"type": "lable", "labels": []}, "/output/type", "unknown_value", 'did you mean "label"?'),
        ("/output", {"labels": []}, "/output/type", "missing", "label, json, text"),
        ("/output/labels/0/share", 0.5, "/output/labels", "shares_incomplete", "1 of 2"),
        ("/slices", [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.4}], "/slices", "shares_do_not_sum", "0.9"),
        ("/slices", [{"name": "a", "share": 0.5}] * 2, "/slices/1/name", "duplicate_slice", "stands twice"),
        ("/slices", [{"name": "a", "share": 1, "label": "refnd"}], "/slices/0/label", "unknown_label", '"refund"?'),
        ("/examples/inline", [{"input": "a", "output": "refund"}], "/examples", "too_few_examples", "1 example"),
        ("/examples/inline", [], "/examples", "too_few_examples", "no examples"),
        ("/examples/inline", [{"input": "a", "output": "refund"}] * 99, "/examples", "no_gold_for_label", '"other"'),
        ("/examples/inline/3/output", "refnud", "/examples/inline/3/output", "unknown_label", 'mean "refund"?'),
        ("/examples/inline/3/input", "\ud800", "/examples/inline/3/input", "bad_text", "UTF-8"),
        ("/examples/inline/3/input", "a\0b", "/examples/inline/3/input", "bad_text", "NUL"),
        ("/examples/holdout", 0.1, "/examples/holdout", "out_of_range", "at least 0.2"),
        ("/gate/min_heldout", 500, "/examples", "too_few_heldout", "min_heldout"),
        ("/sampling/n_candidates", 0, "/sampling/n_candidates", "out_of_range", "at least 1"),
        ("/sampling/k_select", 13, "/sampling/k_select", "k_exceeds_n", "n_candidates 12"),
        ("/sampling/k_distill", 9, "/sampling/k_distill", "k_exceeds_n", "8 inputs"),
        ("/sampling/k_distill", "halves", "/sampling/k_distill", "unknown_value", "half"),
        ("/sampling/k_distill", 1, "/sampling/k_distill", "out_of_range", "at least 2"),
        ("/sampling/balance", "drop it", "/sampling/balance", "unknown_value", "drop"),
        ("/sampling/diversity_lambda", -0.1, "/sampling/diversity_lambda", "out_of_range", "at least 0"),
        ("/sampling/on_gap", [], "/sampling/on_gap", "empty", "add an entry"),
        ("/sampling/on_gap", "drop", "/sampling/on_gap/0", "unknown_value", "drop_k"),
        ("/sampling/on_gap", ["drop_k", "drop_k"], "/sampling/on_gap/1", "not_used", "stands twice"),
        ("/sampling/on_gap", ["fail", "drop_k"], "/sampling/on_gap/1", "not_used", 'after "fail"'),
        ("/sampling/score_floor", 1, "/sampling/score_floor", "out_of_range", "less than 1"),
        ("/sampling/overcluster", 0.5, "/sampling/overcluster", "out_of_range", "at least 1"),
        ("/sampling/method", "two-step", "/sampling/method", "unknown_value", 'did you mean "two_step"?'),
        ("/sampling", None, "/sampling", "wrong_type", "leave the key out"),
        ("/recipes/sources", ["model"], "/recipes/draft_base", "missing", '"model" needs "draft_base"'),
        ("/recipes/sources", ["pack", "pack"], "/recipes/sources/1", "not_used", "stands twice"),
        ("/recipes/sources", ["pak"], "/recipes/sources/0", "unknown_value", 'did you mean "pack"?'),
        ("/recipes/draft_base", "kolm-tiny-1", "/recipes/draft_base", "not_used", "add it to sources"),
        ("/recipes/max_kib", 0, "/recipes/max_kib", "out_of_range", "at least 1"),
        ("/recipes/budget_s", 0, "/recipes/budget_s", "out_of_range", "more than 0"),
        ("/recipes/min_rule_precision", 1, "/recipes/min_rule_precision", "out_of_range", "less than 1"),
        ("/recipes/registry", "share", "/recipes/registry", "unknown_value", "contribute"),
        ("/verifiers", [{"kind": "regex", "pattern": "a(?!b)"}], "/verifiers/0/pattern", "bad_pattern", "looks ahead"),
        ("/verifiers", [{"kind": "regex", "pattern": "("}], "/verifiers/0/pattern", "bad_pattern", "has no ) after it"),
        ("/verifiers", [{"kind": "regx"}], "/verifiers/0/kind", "unknown_value", 'did you mean "regex"?'),
        (
            "/verifiers",
            [{"kind": "length", "min_chars": 9, "max_chars": 2}],
            "/verifiers/0/min_chars",
            "out_of_range",
            "no text",
        ),
        ("/teacher/base_url", "https://x.example/v1", "/teacher/base_url", "not_used", "remove it"),
        ("/teacher/provider", "openai_compatible", "/teacher/base_url", "missing", "needs"),
        ("/teacher/provider", "replay", "/teacher/recording", "missing", "needs"),
        ("/teacher/price", {"input_usd_per_mtok": 1}, "/teacher/price/output_usd_per_mtok", "missing", "add"),
        ("/captures", {}, "/captures", "empty", "leave captures out"),
        ("/captures", {"upload": "a/b"}, "/captures/upload", "bad_format", "upload"),
        ("/budget/usd", 0, "/budget/usd", "out_of_range", "more than 0"),
        ("/budget/usd", float("nan"), "/budget/usd", "invalid", "finite"),
        ("/budget/usd", "5", "/budget/usd", "wrong_type", "without quotes"),
        ("/budget/usd", True, "/budget/usd", "wrong_type", "a number"),
    ],
)
def test_bad_input_is_named_where_it_stands_and_says_what_to_do(
    pointer: str, value: Any, at: str, code: str, words: str
) -> None:
    found = problems(changed(pointer, value))
    match = [problem for problem in found if problem.pointer == at and problem.code == code]
    assert match, found
    assert words in match[0].message


@pytest.mark.parametrize("data", [None, [], "text", 3, True])
def test_what_is_not_an_object_is_not_a_spec(data: object) -> None:
    assert problems(data)[0].pointer == ""


def test_a_key_that_yaml_did_not_read_as_text_is_explained() -> None:
    assert 'in quotes: "True"' in problems({**document(), True: 1})[0].message


def test_all_problems_come_at_once_and_no_more_than_fifty() -> None:
    data = changed("/taks", 1) | {"sampling": {"n_candidates": 0}, "gate": {"k_min": 2}}
    assert {p.pointer for p in problems(data)} == {"/taks", "/sampling/n_candidates", "/gate/k_min"}
    assert len(problems({**document(), **{f"x{i}": 1 for i in range(200)}})) == 50


def test_a_missing_name_is_one_problem_not_two() -> None:
    assert [p.pointer for p in problems(changed("/name", REMOVE))] == ["/name"]


def test_a_pasted_api_key_is_never_repeated() -> None:
    data = changed("/teacher/api_key", "sk-live-very-secret")
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(data)
    assert "very-secret" not in str(caught.value) + repr(caught.value.problems)
    assert "never the key itself" in caught.value.problems[0].message


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x.example/v1",
        "https://",
        "https://user:pw@x.example/v1",
        "https://x.example/v1?key=1",
        "https://x.example:99999/v1",
        "https://x example/v1",
        "https:\\\\x.example",
        "x.example/v1",
        "http://[::1",
    ],
)
def test_a_teacher_url_that_is_no_plain_web_address_is_refused(url: str) -> None:
    teacher = {"provider": "openai_compatible", "model": "m", "base_url": url}
    assert problems(document(teacher=teacher))[0].code == "bad_url"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://x.example/v1/chat/completions", "ends in /chat/completions"),
        ("https://x.example/v1/Chat/Completions/", "ends in /chat/completions"),
        ("https://x.example/v1/completions", "ends in /completions;"),
        ("https://api.anthropic.com/v1/messages", "ends in /messages;"),
        ("https://x.example/v1/models", "ends in /models;"),
        ("x.example/v1", "begins without https://"),
        ("localhost:8000/v1", "begins without https://"),
        (" https://x.example/v1", "a space"),
        ("https://x.example/v1\n", "a line break"),
        ('"https://x.example/v1"', "a quotation mark"),
        ("https://x.example/v1\u200b", "a sign that cannot be seen"),
        ("https://x.example/v1?api-version=7", "goes on with ?"),
        ("https://user:pw@x.example/v1", "POST /v1/teacher_keys"),
    ],
)
def test_a_pasted_address_is_answered_with_what_is_wrong_with_it_and_never_repeated(url: str, word: str) -> None:
    teacher = {"provider": "openai_compatible", "model": "m", "base_url": url}
    (problem,) = [one for one in problems(document(teacher=teacher)) if one.pointer == "/teacher/base_url"]
    assert word in problem.message
    assert "https://llm.example.com/v1" in problem.message, "what to write instead"
    assert "x.example/v1" not in problem.message.replace("https://llm.example.com/v1", "")


@pytest.mark.parametrize(
    "url",
    [
        "https://x.example/v1/",
        "https://x.example",
        "https://generativelanguage.googleapis.com/v1beta/openai/",
        "https://r.openai.azure.com/openai/v1",
        "https://gateway.example/models/qwen3/v1",
        "https://r.services.ai.azure.com/models",
        "http://10.0.0.5:11434/v1",
    ],
)
def test_an_address_that_ends_before_the_path_is_taken(url: str) -> None:
    teacher = {"provider": "openai_compatible", "model": "m", "base_url": url}
    assert parse_spec(document(teacher=teacher)).teacher.base_url == url


@pytest.mark.parametrize("model", ["gpt-5 mini", " gpt-5-mini", "gpt-5-mini\n"])
def test_a_models_name_with_a_space_says_so_in_words(model: str) -> None:
    teacher = {"provider": "openai_compatible", "model": model, "base_url": "https://x.example/v1"}
    (problem,) = problems(document(teacher=teacher))
    assert (problem.pointer, problem.code) == ("/teacher/model", "bad_format")
    assert "a space or a line break" in problem.message
    assert "pattern" not in problem.message


def test_a_deep_or_huge_document_is_refused_without_being_validated() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert problems(document(slices=deep))[0].code == "too_large"
    assert problems(document(slices=[0] * 250_000))[0].code == "too_large"
    assert problems(document(task="x" * 9_000_000))[0].code == "too_large"


def test_every_default_is_written_out_and_read_back() -> None:
    spec = parse_spec(document())
    plain = canonical_spec(spec)
    assert parse_spec(json.loads(json.dumps(plain))) == spec
    assert plain["family"] == "refund-router"
    assert plain["budget"] == {"usd": 5.0}
    assert sha256_of(plain) == sha256_of(canonical_spec(parse_spec(plain)))


def test_money_is_what_was_written() -> None:
    spec = parse_spec(document(budget={"usd": 0.1}))
    assert spec.budget.microusd == 100_000
    assert str(spec.budget.usd) == "0.1"


def test_shares_within_a_hundredth_are_taken_and_scaled() -> None:
    output = {"type": "label", "labels": [{"name": "refund", "share": 0.333}, {"name": "other", "share": 0.66}]}
    shares = target_shares(parse_spec(document(output=output)))
    assert shares["refund"] + shares["other"] == pytest.approx(1)
    assert problems(
        document(
            output={"type": "label", "labels": [{"name": "refund", "share": 0.3}, {"name": "other", "share": 0.6}]}
        )
    )


@pytest.mark.parametrize("names", [["A", "A*"], ["C", "C++"], ["yes", "yes."], ["true", "false"], ["1", "1.0"]])
def test_labels_that_differ_in_a_mark_are_two(names: list[str]) -> None:
    output = {"type": "label", "labels": [{"name": name} for name in names]}
    inline = [{"input": f"{name} {i}", "output": name} for name in names for i in range(40)]
    assert label_names(parse_spec(document(output=output, examples={"inline": inline}))) == names


def test_without_slices_there_is_one_for_each_label() -> None:
    spec = parse_spec(document(output=two_labels(description="anything else")))
    parts = effective_slices(spec)
    assert [(p.name, p.label, p.share) for p in parts] == [("refund", "refund", 0.5), ("other", "other", 0.5)]
    assert parts[1].hint == "anything else"
    named = parse_spec(document(slices=[{"name": "edge", "share": 1}]))
    assert [p.name for p in effective_slices(named)] == ["edge"]


def test_captures_alone_are_the_pool_that_k_is_taken_of() -> None:
    captures = {"inline": [f"text {i}" for i in range(300)]}
    assert parse_spec(document(captures=captures, sampling={"k_select": 200})).sampling.k_select == 200
    assert problems(document(captures=captures, sampling={"k_select": 301}))[0].code == "k_exceeds_n"


def test_the_default_ks_are_the_seeds() -> None:
    assert [default_k_select(n) for n in (1, 3, 12, 13)] == [1, 1, 4, 5]
    assert [n_distilled("half", n) for n in (1, 2, 3, 80)] == [1, 1, 2, 40]


def test_every_labelled_pair_trains_unless_the_spec_says_how_many() -> None:
    assert parse_spec(document()).sampling.k_distill is None
    assert [n_distilled(k, 7) for k in (None, "half", 3, 90)] == [7, 4, 3, 7]


def test_a_spec_that_the_release_before_stored_means_what_it_meant_then() -> None:
    stored = canonical_spec(parse_spec(document()))
    assert read_stored_spec(stored) == parse_spec(stored), "this release's own is read as it stands"
    for sampling, expected in (
        ({"k_distill": None}, "half"),
        ({"k_distill": 5}, 5),
        ({"k_distill": None, "method": "all"}, None),
    ):
        before = {**stored, "sampling": stored["sampling"] | {"label_samples": 5} | sampling}
        del before["sampling"]["balance"], before["plan"]
        assert read_stored_spec(before).plan.kind == "fixed"
        read = read_stored_spec(before).sampling
        assert (read.k_distill, read.balance, read.label_samples) == (expected, "drop", 5)
        assert read_stored_spec(canonical_spec(read_stored_spec(before))).sampling == read, "stored again it stays"


def test_a_plan_is_a_word_or_says_what_a_point_is_worth() -> None:
    plans = [parse_spec(document(plan=plan)).plan for plan in ("fixed", {"kind": "auto", "point_usd": 0.2}, {})]
    assert [(plan.kind, plan.point_usd) for plan in plans] == [
        ("fixed", None),
        ("auto", Decimal("0.2")),
        ("auto", None),
    ]
    with pytest.raises(InvalidSpec) as raised:
        parse_spec(document(plan="often"))
    assert raised.value.problems[0].pointer == "/plan/kind"
    with pytest.raises(InvalidSpec) as raised:
        parse_spec(document(plan={"point_usd": 0}))
    assert raised.value.problems[0].pointer == "/plan/point_usd"


def test_a_plan_ends_with_its_worth_and_writes_no_more_unless_it_says_so() -> None:
    before = {"kind": "auto", "point_usd": None}  # as the release before stored it
    plans = [parse_spec(document(plan=plan)).plan for plan in ("auto", before)]
    assert {(plan.stop, plan.more_candidates) for plan in plans} == {("worth", False)}
    named = parse_spec(document(plan={"kind": "auto", "stop": "gate", "more_candidates": True})).plan
    assert (named.stop, named.more_candidates) == ("gate", True)
    with pytest.raises(InvalidSpec) as raised:
        parse_spec(document(plan={"stop": "never"}))
    assert raised.value.problems[0].pointer == "/plan/stop"


@pytest.mark.parametrize(
    ("changes", "first", "most", "is_planned"),
    [
        ({}, 1, 5, True),
        ({"sampling": {"label_samples": 3}}, 3, 3, True),
        ({"sampling": {"method": "random"}}, 1, 5, False),
        ({"plan": "fixed"}, 1, 5, False),
    ],
)
def test_votes_and_rounds_by_what_a_spec_says(changes: dict[str, Any], first: int, most: int, is_planned: bool) -> None:
    read = parse_spec(document(**changes))
    assert (first_votes(read), most_votes(read), buys_in_rounds(read)) == (first, most, is_planned)


def test_a_label_answer_has_room_for_the_longest_label() -> None:
    assert label_max_tokens(parse_spec(document())) == 24 + len("refund")


def test_train_options_are_the_runners_own_with_the_same_defaults() -> None:
    assert parse_spec(document()).train.options(334) == TrainOptions()


def test_few_pairs_are_gone_over_more_often_and_what_a_spec_says_counts() -> None:
    few = parse_spec(document()).train.options(32)
    assert (few.epochs, few.learning_rate) == (20, 0.001183)
    own = parse_spec(document(train={"epochs": 3, "learning_rate": 0.01})).train
    assert (own.options(32).epochs, own.options(32).learning_rate, own.passes(32)) == (3, 0.01, 3)


def test_uploaded_gold_is_judged_when_it_is_there() -> None:
    spec = parse_spec(document(examples={"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}))
    good = [Example(input=f"text {i}", output=("refund", "other")[i % 2]) for i in range(80)]
    check_gold(spec, good)
    with pytest.raises(InvalidSpec, match="no gold example"):
        check_gold(spec, [e for e in good if e.output == "refund"])


def test_repeats_of_one_example_do_not_count_as_evaluation() -> None:
    inline = [{"input": f"same {i % 2}", "output": ("refund", "other")[i % 2]} for i in range(100)]
    assert problems(document(examples={"inline": inline}))[0].code == "too_few_heldout"


def test_named_sides_that_leave_too_little_for_the_evaluation_are_told_as_such() -> None:
    rows = [{"input": f"text {i}", "output": ("refund", "other")[i % 2]} for i in range(60)]
    few = [row | ({"split": "test"} if i < 5 else {}) for i, row in enumerate(rows)]
    (problem,) = problems(document(examples={"inline": few}))
    assert problem.code == "too_few_heldout"
    assert "5 of 60 examples say that they are held out" in problem.message
    assert "split" in problem.message
    trained = [row | ({"split": "train"} if i < 50 else {}) for i, row in enumerate(rows)]
    (problem,) = problems(document(examples={"inline": trained}))
    assert "holding out 0.3 of 10 examples that do not say train gives 3" in problem.message
    assert 'add gold examples that do not say "split": "train", raise' in problem.message
    enough = [row | ({"split": "test"} if i < 20 else {}) for i, row in enumerate(rows)]
    assert parse_spec(document(examples={"inline": enough})).examples.inline[0].split == "heldout"


def test_a_side_that_is_none_is_told_with_all_that_there_are() -> None:
    (problem,) = problems(document(examples={"inline": [{"input": "a", "output": "refund", "split": "dev"}]}))
    assert (problem.pointer, problem.code) == ("/examples/inline/0/split", "unknown_value")
    assert all(side in problem.message for side in ("train", "heldout", "test"))


def properties(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        for name, sub in schema.get("properties", {}).items():
            yield f"{path}/{name}", sub
        for key, value in schema.items():
            yield from properties(value, f"{path}/{key}")


def test_the_published_schema_describes_every_field_with_an_example() -> None:
    schema = spec_json_schema()
    assert schema["$id"].startswith("https://")
    found = dict(properties(schema))
    assert len(found) > 80
    for path, field in found.items():
        assert field.get("description"), path
        assert field.get("examples"), path


def test_the_published_schema_takes_what_the_parser_takes() -> None:
    schema = spec_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert not list(validator.iter_errors(document()))
    assert not list(validator.iter_errors(canonical_spec(parse_spec(document()))))
    assert not list(validator.iter_errors(document(output={"type": "json", "schema": {"type": "object"}})))
    for pointer, value in [
        ("/taks", 1),
        ("/sampling/n_candidates", 0),
        ("/budget/usd", 0),
        ("/budget/usd", "5"),
        ("/task", ""),
    ]:
        assert list(validator.iter_errors(changed(pointer, value))), pointer


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted(Spec.model_fields)), value=anything)
def test_whatever_stands_in_a_field_there_is_a_spec_or_a_problem(key: str, value: Any) -> None:
    refused: tuple[Problem, ...] = ()
    try:
        spec = parse_spec({**document(), key: value})
    except InvalidSpec as refusal:
        refused = refusal.problems
    if refused:
        assert all(p.pointer == "" or p.pointer.startswith("/") for p in refused)
    else:
        assert parse_spec(canonical_spec(spec)) == spec


VENDOR = {"provider": "openai_compatible", "model": "gpt-4o-mini", "base_url": "https://api.openai.com/v1"}


@pytest.mark.parametrize(
    ("teacher", "pointer"),
    [
        ({"provider": "grammar", "model": "kolm-grammar-1", "effort": "low"}, "/teacher/effort"),
        ({"provider": "grammar", "model": "kolm-grammar-1", "dialect": "ollama"}, "/teacher/dialect"),
        ({"provider": "grammar", "model": "kolm-grammar-1", "thought_tokens": 0}, "/teacher/thought_tokens"),
        (VENDOR | {"effort": "low"}, "/teacher/effort"),
        (VENDOR | {"model": "gpt-5-mini", "dialect": "openai", "effort": "low"}, "/teacher/effort"),
    ],
)
def test_an_option_of_reasoning_models_is_refused_where_nothing_would_read_it(
    teacher: dict[str, Any], pointer: str
) -> None:
    (problem,) = problems(document(teacher=teacher))
    assert (problem.pointer, problem.code) == (pointer, "not_used")


def test_a_reasoning_model_and_an_endpoint_that_nobody_knows_take_an_effort() -> None:
    for changes in ({"model": "gpt-5-mini"}, {"base_url": "https://llm.example.com/v1"}):
        assert parse_spec(document(teacher=VENDOR | changes | {"effort": "low"})).teacher.effort == "low"


def test_to_abstain_takes_an_encoder():
    output = two_labels() | {"abstain": {"accuracy": 0.95}}
    assert parse_spec(document(output=output)).output.abstain.accuracy == 0.95
    assert canonical_spec(parse_spec(document()))["output"]["abstain"] is None
    for kind in ("causal", "auto"):
        problem = problems(document(output=output, train={"kind": kind}))[0]
        assert (problem.pointer, problem.code) == ("/output/abstain", "not_used")
