"""Labels in answers of chatty teachers: what is read, and what must not be."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.teachers.prompts.candidate_and_label import parse_label

LABELS = ("refund_request", "refund_status", "refund", "Refund Policy", "other", "other-2", "order", "no", "yes")
NAMED = (
    "billing_error",
    "Erstattung",
    "статус_возврата",
    "退款状态",
    "返金",
    "étiquette perdue",
    "A",
    "v2-beta",
    "other",
)
DECIDED = (
    "{}",
    "  **{}**\n",
    '"{}".',
    "- {}",
    "{} ✅",
    "→ {}",
    "✔️ **{}** 🙂",
    "1. {}",
    "Label: {}",
    "**Label:** `{}`\n\n**Reason:** the message asks for it.",
    "label={}",
    "Intent: {}",
    "Output: {}",
    "Classification → {}",
    "Kategorie: {}",
    "标签：{}",
    "Final Answer: {}\nConfidence: 95%",
    "The label is {}.",
    "Sure! The label is {}.",
    "The label for this message is {}.",
    "Based on the message, the label is: **{}**",
    "So the best label here would be {}.",
    "The customer does not name a date, so the label is {}.",
    "I would classify this message as {}.",
    "Here is the label:\n\n{}",
    "The customer writes about money.\n\n{}",
    "{} - the customer writes about money",
    "{} — the customer writes about money",
    "{}, because the customer writes about money",
    "{} because it is about money.",
    "{} (the customer writes about money)",
    "Label: {} (confidence: 0.95)",
    "{}\n\nThe customer does not want anything else.",
    "\\boxed{{{}}}",
    "$\\boxed{{\\text{{{}}}}}$",
    "<|begin_of_box|>{}<|end_of_box|>",
    "<answer>{}</answer>",
    "I looked at it.\n<label>\n{}\n</label>",
    '{{"intent": "{}", "confidence": 0.9}}',
    '{{"result": {{"label": "{}"}}}}',
    'Here you go:\n```json\n{{"label": "{}"}}\n```\nLet me know.',
    '{{"label": "{}", "reason": "the cust',
    "{{'label': '{}'}}",
    "<think>It could be anything.</think>\n\n{}",
)
UNDECIDED = (
    "not {0}",
    "This is not {0}.",
    "This is not a {0} but {1}",
    "{0} or {1}",
    "{0}, {1}",
    "{0}/{1}",
    "{0} | {1}",
    "Label: {0} -> {1}",
    "❌ {0}",
    "{0} 👎",
    "{0}\n{1}",
    "{0}: 0.2\n{1}: 0.8",
    "{0} - no, {1}",
    "{0} - this does not fit",
    "{0} (unlikely)",
    "{0}: 0.1",
    "The label is {0} or {1}.",
    "The label is not {0}.",
    "The label is {0}? No.",
    "The label could be {0}.",
    "I don't think the label is {0}.",
    "If it were about money, the label would be {0}.",
    "The wrong label is {0}.",
    "Label: {0}, {1}",
    "Label 1: {0}\nLabel 2: {1}",
    "Labels: {0}, {1}",
    "Possible labels:\n- {0}\n- {1}",
    "Neither {0} nor {1}",
    "I cannot decide between {0} and {1}.",
    "I'm sorry, I can't help with {0}.",
    "It is certainly not:\n\n{0}",
    "Is it {0}?",
    "Das ist kein {0}.",
    "Ce n'est pas {0}.",
    "Esto no es {0}",
    "Tôi không chọn {0}",
    "これは {0} ではない。",
    "<think>Perhaps\n{0}",
    '{{"not": "{0}"}}',
    '{{"label": "{0}", "label": "{1}"}}',
    '{{"label": "none of them", "fallback": "{0}"}}',
    '{{"label": "{0}", "category": "{1}"}}',
    '["{0}", "{1}"]',
    "<answer>{0}</answer> <answer>{1}</answer>",
    "my_{0}",
    "{0}_too",
)


@pytest.mark.parametrize("answer", DECIDED)
def test_a_label_in_its_place_is_read_whatever_surrounds_it(answer: str) -> None:
    for label in NAMED:
        for written in (label, label.upper(), label.lower()):
            assert parse_label(answer.format(written), NAMED) == label


@pytest.mark.parametrize("answer", UNDECIDED)
def test_an_answer_that_denies_doubts_or_names_two_labels_is_not_read(answer: str) -> None:
    for label, second in zip(NAMED, (*NAMED[1:], NAMED[0]), strict=True):
        assert parse_label(answer.format(label, second), NAMED) is None, label
    assert parse_label(answer.format("refund_status", "refund_request"), LABELS) is None


@pytest.mark.parametrize(
    "answer",
    [
        "The other customer asks for an order.",
        "Other customers complain.",
        "Other, more specific labels fit better",
        "Order arrived late.",
        "The word \"order\" appears in the message.",
        "The customer wants an answer because the status is other.",
        "The type is order confirmation.",
        "The customer asks about the refund policy.",
        "There is no problem.",
        "No problem!",
        "No.5 is meant",
        "Yes, but",
        "None of the labels fits.",
        "refund_statuses",
        "refund-status-late",
        "Label: unknown",
        "I cannot label this.",
        "",
        "```\n```",
    ],
)  # fmt: skip
def test_a_label_that_is_a_word_of_prose_or_a_part_of_another_word_is_not_read(answer: str) -> None:
    assert parse_label(answer, LABELS) is None


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("It is refund_status, I think", "refund_status"),
        ("The best fit is refund_status", "refund_status"),
        ("This message belongs under Refund Policy.", "Refund Policy"),
        ("It is about the refund_status.", "refund_status"),
        ("It is about the refund policy.", None),
        ("refund_status fits, refund_request less", None),
        ("Hmm, refund_status.", None),  # no sentence that says so
    ],
)
def test_a_mere_mention_is_read_where_it_is_unmistakable_and_the_only_one(answer: str, label: str | None) -> None:
    assert parse_label(answer, LABELS) == label


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("refund\n\nFinal answer: refund_status", "refund_status"),
        ("The label is refund status.", "refund_status"),
        ("refund", "refund"),
        ("Label: other\nAnswer: refund_status", None),
        ("The label is other at first sight.\n\nrefund_status", "refund_status"),
        ("The label is other.\n\nrefund_status", None),
        ("The label is other at first sight. Therefore, the final label is refund_status.", "refund_status"),
        ("refund_status\n\nA refund_request would name an amount.", "refund_status"),
        ("refund_status, because a refund_request would name an amount", "refund_status"),
        ("Other - none of the labels fits", "other"),
        ("Yes, the customer asks for it.", "yes"),
        ("Label: no", "no"),
    ],
)
def test_the_longest_label_and_the_last_decision_count(answer: str, label: str | None) -> None:
    assert parse_label(answer, LABELS) == label


JSON_WORDS = ("true", "false", "null", "NaN", "Infinity", "0.5", "0.50", "1", "1.0", "1e3")


@pytest.mark.parametrize("label", JSON_WORDS)
@pytest.mark.parametrize("answer", ["{}", "{}\n", '"{}"', "Label: {}", '{{"label": "{}"}}', "<answer>{}</answer>"])
def test_a_label_that_json_has_a_value_for_is_read(answer: str, label: str) -> None:
    assert parse_label(answer.format(label), JSON_WORDS) == label


@pytest.mark.parametrize("label", JSON_WORDS)
@pytest.mark.parametrize("answer", ['{{"label": {}}}', "[{}]", 'So:\n{{"label": {}, "reason": "it is asked"}}'])
def test_a_bare_json_value_is_the_label_that_is_spelt_like_it(answer: str, label: str) -> None:
    assert parse_label(answer.format(label), JSON_WORDS) == label


@pytest.mark.parametrize(
    ("answer", "labels", "label"),
    [
        ("true", ("True", "False", "None"), "True"),
        ('{"label": false}', ("True", "False", "None"), "False"),
        ('{"label": null}', ("True", "False", "None"), "None"),
        ('{"label": null}', ("none", "some"), None),  # it may be a teacher that has no answer
        ('{"label": true}', ("yes", "no"), None),
        ('{"label": true, "category": false}', ("true", "false"), None),
        ("1.0", ("1", "2"), None),
        ('{"label": "yes", "sure": true}', ("yes", "no"), "yes"),
    ],
)
def test_a_json_value_is_read_as_no_other_label(answer: str, labels: tuple[str, ...], label: str | None) -> None:
    assert parse_label(answer, labels) == label


PIECES = [*LABELS, *NAMED, "not", "or", "is", "the label is", "Label:", "\n", ".", ",", " - ", '"', "**", "{", "}", "?"]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12))
def test_a_label_that_is_read_stands_in_the_answer(parts: list[str]) -> None:
    answer = " ".join(parts)
    label = parse_label(answer, LABELS)
    assert label is None or label in LABELS
    assert (
        label is None
        or "".join(filter(str.isalnum, label)).casefold() in "".join(filter(str.isalnum, answer)).casefold()
    )


@given(st.permutations(LABELS), st.sampled_from(DECIDED))
def test_the_order_of_the_labels_changes_nothing(labels: list[str], answer: str) -> None:
    assert parse_label(answer.format("refund_status"), labels) == "refund_status"


LOOPS = ("label is refund, ", "label is refund_status ", "refund_status, ")  # of a teacher that does not end


@pytest.mark.parametrize(
    "piece", ["{", "<answer>", "\\boxed{", "the label ", "label is ", "refund_", "- ", "a, ", "\n", *LOOPS]
)
def test_no_answer_takes_long_to_read(piece: str) -> None:
    began = time.thread_time()  # threads of earlier tests may be at work beside it
    parse_label(piece * (20_000 // len(piece)), LABELS)
    assert time.thread_time() - began < 1.0
