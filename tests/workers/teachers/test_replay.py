"""Recorded completions, good and broken."""

import hashlib
import json
import math
from dataclasses import replace

import pytest

from backend.domain.errors import InvalidInput
from backend.domain.spec.parsing import Spec
from workers.step.teacher_calls import request_sha256
from workers.teachers.prompts.answer import item_request
from workers.teachers.prompts.candidate_and_label import candidate_request, label_request
from workers.teachers.protocol import TeacherFailed
from workers.teachers.replay import ReplayTeacher


def recording(*rows: object) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def test_a_recorded_item_is_answered_by_text_or_by_hash(spec: Spec) -> None:
    digest = hashlib.sha256(b"second").hexdigest()
    teacher = ReplayTeacher(
        recording(
            {
                "item": "first",
                "completions": [{"text": "other", "logprob": -0.25}],
                "usage": {"input_tokens": 7, "output_tokens": 2},
            },
            {"item_sha256": digest.upper(), "completions": [{"text": "a"}, {"text": "b"}]},
        )
    )
    first = teacher.complete(label_request(spec, "first", n=1, temperature=0.2, seed=1), deadline_s=1)
    assert (first.choices[0].text, first.choices[0].logprob, first.usage.input_tokens) == ("other", -0.25, 7)
    second = teacher.complete(label_request(spec, "second", n=5, temperature=0.2, seed=1), deadline_s=1)
    assert [c.text for c in second.choices] == ["a", "b", "a", "b", "a"]
    assert second.usage.estimated


def test_an_item_asked_again_goes_on_where_its_recording_was(spec: Spec) -> None:
    recorded = [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    teacher = ReplayTeacher(recording({"item": "first", "completions": recorded}))
    first = item_request(spec, "first", n=2, temperature=0.2, seed=1)
    again = item_request(spec, "first", n=2, temperature=0.2, seed=1, n_before=2)
    assert [c.text for c in teacher.complete(first, deadline_s=1).choices] == ["a", "b"]
    assert [c.text for c in teacher.complete(again, deadline_s=1).choices] == ["c", "a"]
    assert request_sha256(first) == request_sha256(again), "no vendor hears how many there were"


@pytest.mark.parametrize(("n", "billed"), [(1, 4), (5, 20), (10, 40)])
def test_recorded_usage_is_billed_by_the_number_of_choices(spec: Spec, n: int, billed: int) -> None:
    row = {"item": "first", "completions": [{"text": "a"}] * 5, "usage": {"input_tokens": 30, "output_tokens": 20}}
    answer = ReplayTeacher(recording(row)).complete(
        item_request(spec, "first", n=n, temperature=0.2, seed=1), deadline_s=1
    )
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, billed)


def test_recorded_log_probs_of_labels_come_where_labels_are_asked_about(spec: Spec) -> None:
    scores = {"complaint": math.log(0.6), "refund_request": math.log(0.3), "hello": math.log(0.1)}
    choices = [{"text": "complaint", "label_logprobs": scores}, {"text": "other", "label_logprobs": {"hello": -0.1}}]
    teacher = ReplayTeacher(recording({"item": "first", "completions": choices}))
    plain = item_request(spec, "first", n=2, temperature=0.2, seed=1)
    asked = replace(plain, labels=("complaint", "refund_request", "other"))
    assert [choice.label_logprobs for choice in teacher.complete(plain, deadline_s=1).choices] == [None, None]
    told, nothing = teacher.complete(asked, deadline_s=1).choices
    assert told.label_logprobs == pytest.approx(
        {"complaint": math.log(2 / 3), "refund_request": math.log(1 / 3)}, abs=1e-3
    )
    assert nothing.label_logprobs is None, "most of it is no label's"
    assert request_sha256(plain) == request_sha256(asked), "no vendor hears of them"


BAD_SCORES = ['{"a": 0.1}', '{"a": NaN}', '{"a": "x"}', '{"a": true}', '{"a": -1e400}', "[]", '{"a": 0, "b": 0}']


@pytest.mark.parametrize("scores", BAD_SCORES)
def test_recorded_log_probs_that_are_none_are_refused(scores: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ReplayTeacher(b'{"item": "x", "completions": [{"text": "a", "label_logprobs": %s}]}' % scores.encode())
    assert caught.value.code == "invalid_recording"


def test_a_missing_recording_fails_once_and_for_all(spec: Spec) -> None:
    teacher = ReplayTeacher(recording({"item": "first", "completions": [{"text": "other"}]}))
    for request in (
        label_request(spec, "unknown", n=1, temperature=0.2, seed=1),
        candidate_request(spec, spec.slices[0], n=1, temperature=1.0, seed=1),
    ):
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(request, deadline_s=1)
        assert (caught.value.code, caught.value.retryable) == ("teacher_no_recording", False)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"item": "a"}',
        b'{"item": "a", "completions": []}',
        b'{"item": 3, "completions": [{"text": "a"}]}',
        b'{"item": "a", "completions": [{"text": 3}]}',
        b'{"item": "a", "completions": ["x"]}',
        b'{"item": "a", "completions": [{"text": "a", "logprob": 2}]}',
        b'{"item": "a", "completions": [{"text": "\\ud800"}]}',
        b'{"item": "\\ud800", "completions": [{"text": "a"}]}',
        b'{"item_sha256": "abc", "completions": [{"text": "a"}]}',
        b'{"item_sha256": "zz", "completions": [{"text": "a"}]}',
        b'{"completions": [{"text": "a"}]}',
        b'{"item": "a", "completions": [{"text": "a"}], "usage": {"input_tokens": -1, "output_tokens": 2}}',
    ],
)
def test_a_broken_line_is_refused_by_its_number(line: bytes) -> None:
    good = recording({"item": "first", "completions": [{"text": "other"}]})
    with pytest.raises(InvalidInput) as caught:
        ReplayTeacher(good + b"\n" + line)
    assert caught.value.code == "invalid_recording"
    assert line == b"\xff" or "Line 2" in caught.value.message


def test_equal_recordings_have_equal_revisions() -> None:
    one, two = (
        recording({"item": "a", "completions": [{"text": "x"}]}),
        recording({"item": "b", "completions": [{"text": "x"}]}),
    )
    assert ReplayTeacher(one).identity == ReplayTeacher(one).identity != ReplayTeacher(two).identity
