"""How a judge is asked about the drafts of many slices."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from workers.teachers.prompts.candidate_and_label import DATA_RULE, unfence
from workers.teachers.prompts.judge import (
    SLICES_JUDGE_ASK,
    SLICES_JUDGE_JSON_ASK,
    SLICES_JUDGE_SYSTEM,
    ShownSlice,
    as_shown,
    numbered_lines,
    numbers_schema,
    slice_mark,
    slices_judge_messages,
)
from workers.teachers.prompts.judge_audit import AUDIT_SYSTEM, audit_messages
from workers.teachers.token_estimates import estimate_tokens

TEXTS = st.lists(
    st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=60) | st.text('~\n" 1', max_size=20),
    min_size=1,
    max_size=6,
)
SLICES = {0: ("Slice: one", "Hint: h"), 1: ("Slice: two", "Hint: k", "Label: b")}


@given(TEXTS, TEXTS)
def test_drafts_stand_on_a_line_each_that_reads_back(first: list[str], second: list[str]) -> None:
    texts = dict(enumerate([*first, *second], 1))
    split = len(first)
    parts = [
        ShownSlice(at=0, drafts={n: text for n, text in texts.items() if n <= split}),
        ShownSlice(at=1, drafts={n: text for n, text in texts.items() if n > split}),
    ]
    _, user = slices_judge_messages(["Task: t"], SLICES, parts, as_json=False)
    lines = [line for fenced in unfence(user.content) for line in fenced.split("\n")]
    assert {int(line.split(" ", 1)[0]): json.loads(line.split(" ", 1)[1]) for line in lines} == texts
    assert len(unfence(user.content)) == 2
    assert user.content.split("\n")[-1] == SLICES_JUDGE_ASK
    assert len(user.content.splitlines()) == len(user.content.split("\n")) == 7 + 2 * 3 + len(texts) + 1


def test_what_no_reader_sees_is_written_out() -> None:
    hidden = "\u2028\u2029\u202e\u2066\u2060\ufeff\x85\x7f\U000e0041"
    line, pairs = numbered_lines({1: hidden}), as_shown({"kx": hidden})
    assert line.isascii()
    assert pairs.isascii()
    assert json.loads(line.removeprefix("1 ")) == json.loads(pairs)[0][1] == hidden
    assert numbered_lines({1: "naïve 👍"}) == '1 "naïve 👍"'


def test_the_beginning_does_not_depend_on_the_drafts_and_is_marked_as_shared() -> None:
    asked = [
        slices_judge_messages(
            ["Task: t", "Labels: a | b"], SLICES, [ShownSlice(at=at, drafts={1: text})], as_json=json_
        )
        for at, text, json_ in ((0, "x", False), (1, "~~~~", True))
    ]
    assert asked[0][0] == asked[1][0]
    opening = "Task: t\nLabels: a | b\nSlices:\nA. Slice: one\nHint: h\nB. Slice: two\nHint: k\nLabel: b"
    for _, user in asked:
        assert user.content[: user.n_shared] == opening
    assert asked[0][1].content[len(opening) :] == f'\nDrafts of slice A, one:\n~~~\n1 "x"\n~~~\n{SLICES_JUDGE_ASK}'
    assert asked[1][1].content.endswith(f'\nDrafts of slice B, two:\n~~~~~\n1 "~~~~"\n~~~~~\n{SLICES_JUDGE_JSON_ASK}')


def test_slices_have_letters_that_are_no_numbers_of_drafts() -> None:
    marks = [slice_mark(at) for at in range(2000)]
    assert len(set(marks)) == 2000
    assert all(re.fullmatch("[A-Z]{1,3}", mark) for mark in marks)


def test_the_instructions_are_short_and_hold_the_rule_about_data() -> None:
    """They are paid with every request where the prompt is below what vendors cache."""
    for system in (SLICES_JUDGE_SYSTEM, AUDIT_SYSTEM):
        assert estimate_tokens(system) <= 160
        assert DATA_RULE in system


def test_the_schema_of_an_answer_is_one_text() -> None:
    schema = json.loads(numbers_schema("accepted"))
    assert schema["properties"] == {"accepted": {"type": "string"}}
    assert schema["required"] == ["accepted"]
    assert schema["additionalProperties"] is False


@given(TEXTS)
def test_an_audit_shows_numbered_messages_before_the_slice(texts: list[str]) -> None:
    _, user = audit_messages(["Task: t"], ["Slice: s", "Hint: h"], texts, as_json=False)
    (fenced,) = unfence(user.content)
    assert [json.loads(line.split(" ", 1)[1]) for line in fenced.split("\n")] == texts
    assert user.content.index("Messages:") < user.content.rindex("\nSlice: s\nHint: h\n")
    assert user.content[: user.n_shared] == "Task: t"
