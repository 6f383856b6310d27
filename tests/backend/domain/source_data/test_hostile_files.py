"""Files of strangers: what no reader of tables expects is read as it is meant, or refused with what it is."""

import io
import random

import pytest

from backend.domain.source_data.reading import MOST_CELLS, read_records
from backend.domain.source_data.records import SourceFormat, UnreadableSource
from backend.domain.source_data.source import Source, look_at


def look(text: str | bytes, name: str = "tickets.csv") -> Source:
    data = text.encode() if isinstance(text, str) else text
    return look_at(read_records(io.BytesIO(data), name, most=20_000))


def table(*labels: str) -> str:
    return "text,label\n" + "".join(f"where is order {n}?,{labels[n % len(labels)]}\n" for n in range(50))


def test_a_quoted_line_of_the_separator_is_no_header() -> None:
    assert look('"sep=;"\r\n' + table("a", "b").replace(",", ";")).columns == ("text", "label")


def test_quotes_behind_a_space_are_no_part_of_a_cell() -> None:
    source = look("text, label\n" + "".join(f'"hi, you {n}", "a{n % 2}"\n' for n in range(50)))
    assert [label.name for label in source.profile.labels] == ["a0", "a1"]


@pytest.mark.parametrize("other", ["refund\u200b", "\ufeffrefund", "re\u2060fund", "Refund"])
def test_labels_that_look_alike_are_one(other: str) -> None:
    assert len(look(table("refund", other)).profile.labels) == 1


def test_a_letter_and_its_parts_are_one_label() -> None:
    assert len(look(table("caf\u00e9", "cafe\u0301")).profile.labels) == 1


def test_emojis_that_are_joined_stay_joined() -> None:
    family = "\U0001f469\u200d\U0001f467"
    assert {label.name for label in look(table(family, "x")).profile.labels} == {family, "x"}


def test_a_text_that_nobody_can_see_is_no_input() -> None:
    source = look("text,label\n" + "\u200b,a\nhello,b\n" * 30)
    assert [(group.reason, group.n) for group in source.profile.problems] == [("has no input", 30)]


@pytest.mark.parametrize(
    "start", [b"MZ\x90\x00", b"SQLite format 3\x00", b"RIFF\x10\x00\x00\x00WEBP", b"\x80\x04\x95", b""]
)
def test_a_binary_file_is_said_to_be_none_that_is_read(start: bytes) -> None:
    with pytest.raises(UnreadableSource, match="not text"):
        look(start + random.Random(1).randbytes(5_000))


def test_a_table_of_windows_stays_text() -> None:
    assert look(table("\u00e4rger", "lob").encode("cp1252")).profile.n_usable == 50


def test_json_lines_that_are_called_csv_are_json_lines() -> None:
    source = look('{"text": "a, b", "label": "x"}\n{"text": "c", "label": "y"}\n' * 30)
    assert (source.records.format, source.columns) == (SourceFormat.JSON_LINES, ("text", "label"))


def test_a_file_of_which_no_row_fits_says_why() -> None:
    with pytest.raises(UnreadableSource, match="Row 2 has more cells than the table has columns"):
        look("text,label\n" + "'hi, you','a'\n" * 50)


@pytest.mark.parametrize("at", [5, 500])
def test_a_quote_that_swallows_the_rest_is_the_reason(at: int) -> None:
    rows = [f"x {n},{'ab'[n % 2]}\n" if n != at else '"open, b\n' for n in range(2_000)]
    source = look("text,label\n" + "".join(rows))
    assert "has a quote that ends hundreds of lines later" in source.profile.problems[0].reason
    assert source.profile.problems[0].examples[0].number == at + 2


def test_a_wide_table_keeps_as_many_cells_as_memory_has_room_for() -> None:
    row = ",".join("x" * 1_000) + "\n"
    records = read_records(io.BytesIO((",".join(f"c{n}" for n in range(1_000)) + "\n" + row * 5_000).encode()), "w.csv")
    assert len(records.records) == MOST_CELLS // 1_000
    assert records.is_sample
