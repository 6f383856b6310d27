"""Examples that are too long for a causal base's training, by their bytes."""

from typing import Any

import pytest

from backend.domain.planning.preflight.length_lines import length_lines
from backend.domain.planning.preflight.lines import LineStatus, PreflightLine
from backend.domain.spec.parsing import parse_spec
from tests.backend.domain.spec.test_parsing import document

TEXT = {"type": "text", "max_tokens": 64}


def lines_of(*, n_long: int = 40, captures: list[str] | None = None, **changes: Any) -> list[PreflightLine]:
    inline = [
        {"input": ("many words " * 300 if i < n_long else "few words ") + str(i), "output": "ok"} for i in range(40)
    ]
    parts = {"output": TEXT, "examples": {"inline": inline}, "train": {"causal": {"max_tokens": 512}}}
    parts |= {"gate": {"min_heldout": 5}}
    spec = parse_spec(document(**(parts | changes)))
    return length_lines(spec, gold=spec.examples.inline, captures=captures or [])


@pytest.mark.parametrize("n_long", [10, 40])
def test_long_examples_are_a_warning_with_the_number_that_holds_them(n_long: int) -> None:
    (line,) = lines_of(n_long=n_long)
    assert (line.status, line.code) == (LineStatus.WARNING, "examples_too_long")
    assert f"{n_long} of 40" in line.sentence
    assert "train.causal.max_tokens to 896," in line.what_to_do
    assert lines_of(n_long=n_long, train={"causal": {"max_tokens": 896}}) == []


def test_few_long_examples_short_ones_and_an_encoder_have_no_line() -> None:
    assert lines_of(n_long=9) == []
    assert lines_of(n_long=0) == []
    labels = [{"input": "many words " * 300 + str(i), "output": ("refund", "other")[i % 2]} for i in range(40)]
    assert lines_of(output=document()["output"], examples={"inline": labels}) == []


def test_where_no_pair_can_fit_it_fails() -> None:
    captures = ["many words " * 350 + str(i) for i in range(40)]
    long = [{"input": text, "output": "ok"} for text in captures]
    small = {"causal": {"max_tokens": 96}}
    (line,) = lines_of(captures=captures, examples={"inline": long}, train=small)
    assert (line.status, line.code) == (LineStatus.FAILED, "nothing_to_train")
    assert "train.causal.max_tokens to" in line.what_to_do
    (line,) = lines_of(examples={"inline": long}, train=small)
    assert line.status is LineStatus.WARNING, "what the teacher writes may be shorter"
    (line,) = lines_of(task="many words " * 300, train={"causal": {"max_tokens": 128}})
    assert (line.status, line.code) == (LineStatus.FAILED, "nothing_to_train")
