import itertools
import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.label_scores import LEAST, label_logprobs


def logs(**shares: float) -> dict[str, float]:
    return {token: math.log(share) for token, share in shares.items()}


def probabilities(scores: dict[str, float] | None) -> dict[str, float]:
    assert scores is not None
    return {label: math.exp(score) for label, score in scores.items()}


def test_one_token_a_label() -> None:
    scores = label_logprobs(["refund"], [logs(refund=0.7, exchange=0.2, hello=0.1)], ["refund", "exchange", "other"])
    assert probabilities(scores) == pytest.approx({"refund": 7 / 9, "exchange": 2 / 9, "other": 0}, abs=1e-8)
    assert scores is not None
    assert scores["other"] == LEAST


def test_a_common_stem_is_walked_along() -> None:
    labels = ["card_payment", "card_arrival", "cash", "transfer"]
    top = [logs(card=0.6, cash=0.3, transfer=0.1), logs(_pay=0.9, _arr=0.1), logs(ment=1.0)]
    scores = probabilities(label_logprobs(["card", "_pay", "ment"], top, labels))
    assert scores == pytest.approx({"card_payment": 0.54, "card_arrival": 0.06, "cash": 0.3, "transfer": 0.1})


def test_an_alternative_that_several_labels_begin_with_is_shared() -> None:
    labels = ["card_payment", "card_arrival", "cash"]
    scores = probabilities(label_logprobs(["cash"], [logs(cash=0.8, card=0.2)], labels))
    assert scores == pytest.approx({"card_payment": 0.1, "card_arrival": 0.1, "cash": 0.8})


def test_a_label_that_another_begins_with_ends_where_the_answer_does() -> None:
    labels = ["card", "card_payment"]
    ended = probabilities(label_logprobs(["card", "\n"], [logs(card=1.0), {"\n": -0.2, "_pay": -2.0}], labels))
    first, second = math.exp(-0.2), math.exp(-2.0)
    assert ended == pytest.approx({"card": first / (first + second), "card_payment": second / (first + second)})


@pytest.mark.parametrize("end", ["<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<|endoftext|>", ""])
@pytest.mark.parametrize("answer", ["order", "order_status"])
def test_an_end_says_that_the_label_so_far_is_whole(answer: str, end: str) -> None:
    labels = ["order", "order_status", "other"]
    top = [logs(order=0.8, other=0.2), logs(_status=0.5) | {end: math.log(0.5)}]
    expected = pytest.approx({"order": 0.4, "order_status": 0.4, "other": 0.2})
    tokens = ["order", end if answer == "order" else "_status"]
    assert probabilities(label_logprobs(tokens, top, labels)) == expected
    assert probabilities(label_logprobs([*tokens, end], [*top, {end: 0.0}], labels)) == expected


@pytest.mark.parametrize(
    ("tokens", "labels"),
    [
        (["order"], ["order", "order_status"]),
        (["or", "der"], ["order", "order_status"]),
        (['"', "order"], ["order", "order_status"]),
        (["order", " "], ["order", "order status"]),
        (["A"], ["A", "A*"]),
        (["order_"], ["order", "order_", "order_status"]),
    ],
)
def test_a_label_that_another_begins_with_has_no_scores_where_nothing_says_that_it_ends(
    tokens: list[str], labels: list[str]
) -> None:
    top = [{token: 0.0} for token in tokens]
    assert label_logprobs(tokens, top, labels) is None
    assert label_logprobs([*tokens, "</s>"], [*top, {"</s>": 0.0}], labels) is not None


def test_an_end_before_a_label_is_whole_is_no_labels() -> None:
    top = [logs(re=1.0), {"fund": math.log(0.5), "<|im_end|>": math.log(0.5)}]
    assert label_logprobs(["re", "fund"], top, ["refund", "return"]) is None
    assert label_logprobs(["re", "<|im_end|>"], top, ["refund", "return"]) is None


def test_a_token_without_text_inside_an_answer_is_no_end() -> None:
    tokens = ["退", "", "款", ""]
    scores = label_logprobs(tokens, [{token: 0.0} for token in tokens], ["退", "退款"])
    assert probabilities(scores) == pytest.approx({"退": 0, "退款": 1}, abs=1e-8)


@pytest.mark.parametrize("tokens", [[" ", "refund"], ['"', "refund", '"'], [" Refund", "."], ["**refund**"]])
def test_marks_around_a_label_are_no_part_of_it(tokens: list[str]) -> None:
    scores = label_logprobs(tokens, [{token: 0.0} for token in tokens], ["refund", "exchange"])
    assert probabilities(scores) == pytest.approx({"refund": 1, "exchange": 0}, abs=1e-8)


def test_labels_that_differ_by_case_alone_are_two() -> None:
    scores = probabilities(label_logprobs(["AI"], [logs(AI=0.9, Ai=0.1)], ["AI", "Ai"]))
    assert scores == pytest.approx({"AI": 0.9, "Ai": 0.1})


@pytest.mark.parametrize(
    ("tokens", "labels", "label"),
    [
        (["A", "*"], ["A", "A*"], "A*"),
        (["A", "."], ["A", "A*"], "A"),
        (["**", "A", "**"], ["A", "A*"], "A"),
        (["**", "A", "***"], ["A", "A*"], "A*"),
        (['"', "A", '*"'], ["A", "A*"], "A*"),
        (["yes", "."], ["yes", "yes."], "yes."),
        (["yes", "\n"], ["yes", "yes."], "yes"),
        (["yes", "!"], ["yes", "yes."], None),
        (["inc", "."], ["inc.", "other"], "inc."),
        ([".", "net"], [".net", "net"], ".net"),
        (["net", "\n"], [".net", "net"], "net"),
        (["net", "work"], [".net", "other"], None),
        (["`", "a", "`"], ["`a`", "b"], "`a`"),
        (["*"], ["*", "x"], "*"),
        (["card", " payment"], ["card", "card payment"], "card payment"),
        (["card", " ", "payment"], ["card", "card payment"], "card payment"),
        (["'", "card", "'."], ["card", "card payment"], "card"),
    ],
)
def test_a_mark_that_is_part_of_a_label_counts(tokens: list[str], labels: list[str], label: str | None) -> None:
    scores = label_logprobs(tokens, [{token: 0.0} for token in tokens], labels)
    if label is None:
        assert scores is None
    else:
        assert probabilities(scores)[label] == pytest.approx(1, abs=1e-6)


def test_an_alternative_that_is_a_labels_mark_is_that_labels() -> None:
    top = [{"A": 0.0}, {"*": math.log(0.7), "\n": math.log(0.2), ".": math.log(0.1)}]
    assert probabilities(label_logprobs(["A", "*"], top, ["A", "A*"])) == pytest.approx({"A": 0.3, "A*": 0.7})
    top = [{"yes": 0.0}, {"\n": math.log(0.6), ".": math.log(0.4)}]
    assert probabilities(label_logprobs(["yes", "\n"], top, ["yes", "yes."])) == pytest.approx(
        {"yes": 0.6, "yes.": 0.4}
    )


@pytest.mark.parametrize(
    ("tokens", "top"),
    [
        (["The", " label"], [{"The": 0.0}, {" label": 0.0}]),
        (["refund"], [{"refund": math.log(0.7), "banana": math.log(0.3)}]),
        (["refund"], [{"exchange": math.log(0.3)}]),  # the answer itself is not among the alternatives
        (["refund"], [{}]),
        ([], []),
        ([" "], [{" ": 0.0}]),
        (["re", "x"], [{"re": 0.0}, {"x": 0.0}]),
    ],
)
def test_what_is_mostly_no_label_has_no_scores(tokens: list[str], top: list[dict[str, float]]) -> None:
    assert label_logprobs(tokens, top, ["refund", "return"]) is None


def tokenised(label: str, cuts: frozenset[int], end: str) -> list[str]:
    """The tokens of a label and its end: a line feed in its last token, or a token of the end's own."""
    text = label + ("" if end == "</s>" else end)
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places)] + [end] * (end == "</s>")


@given(
    st.lists(st.text("ab_*", min_size=1, max_size=6), min_size=1, max_size=6, unique=True),
    st.frozensets(st.integers(1, 5)),
    st.sampled_from(["\n", "</s>"]),
    st.data(),
)
def test_the_walk_is_exact_along_the_answer(
    labels: list[str], cuts: frozenset[int], end: str, data: st.DataObject
) -> None:
    """A teacher with a probability for every label, its tokens cut at fixed places, and every alternative known: what
    the answer's own label gets is what the teacher gave it, and nothing is lost."""
    parts = [tokenised(label, cuts, end) for label in labels]  # with an end, so that none begins another
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(labels), max_size=len(labels)))
    own = data.draw(st.integers(0, len(labels) - 1))
    top = []
    for i in range(len(parts[own])):
        at: dict[str, float] = defaultdict(float)
        for tokens, weight in zip(parts, weights, strict=True):
            if tokens[:i] == parts[own][:i] and len(tokens) > i:
                at[tokens[i]] += weight
        top.append({token: math.log(weight / sum(at.values())) for token, weight in at.items()})
    scores = probabilities(label_logprobs(parts[own], top, labels))
    assert sum(scores.values()) == pytest.approx(1, abs=1e-6)
    assert scores[labels[own]] >= weights[own] / sum(weights) - 1e-6
