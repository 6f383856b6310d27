import io
import json
import random
import time
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.source_data.reading import read_records
from backend.domain.source_data.records import Records, SourceFormat, UnreadableSource
from backend.domain.source_data.sampling import sample_of


def read(data: bytes | str, name: str = "", *, most: int = 1000) -> Records:
    return read_records(io.BytesIO(data.encode() if isinstance(data, str) else data), name, most=most)


def rows(records: Records) -> list[dict]:
    return [dict(record.values) for record in records.records]


def test_a_comma_separated_table_keeps_its_cells_as_texts() -> None:
    records = read('text,label\n"where, is it",007\nNA,1e5\n')
    assert records.format is SourceFormat.CSV
    assert rows(records) == [{"text": "where, is it", "label": "007"}, {"text": "NA", "label": "1e5"}]
    assert [record.number for record in records.records] == [2, 3]


@pytest.mark.parametrize(
    ("codec", "prefix"), [("utf-8", b""), ("utf-8-sig", b""), ("utf-16", b""), ("utf-16-le", b""), ("cp1252", b"")]
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_every_encoding_and_separator_of_excel_is_read(codec: str, prefix: bytes, delimiter: str) -> None:
    table = f"text{delimiter}label\r\nwhere is my café order{delimiter}späť\r\nhello there{delimiter}other\r\n"
    if codec == "cp1252":
        table = table.replace("ť", "t")
    records = read(prefix + table.encode(codec))
    assert records.columns == ("text", "label")
    assert rows(records)[0]["text"] == "where is my café order"
    assert rows(records)[0]["label"].startswith("spä")


def test_an_encoding_that_was_guessed_is_said() -> None:
    records = read("text,label\ncafé,x\n".encode("cp1252"))
    assert any("Windows-1252" in note for note in records.notes)


def test_an_accent_far_into_a_file_decides_the_encoding_too() -> None:
    data = b"text,label\n" + b"plain text,x\n" * 20_000 + "café,x\n".encode("cp1252")
    assert rows(read(data, most=50_000))[-1]["text"] == "café"


def test_the_separator_line_of_excel_is_obeyed_and_not_a_row() -> None:
    records = read("sep=;\r\ntext;label\r\na, b;x\r\n")
    assert rows(records) == [{"text": "a, b", "label": "x"}]
    assert records.records[0].number == 3


def test_columns_named_alike_are_told_apart() -> None:
    records = read("text,text,,label\na,b,c,x\n")
    assert records.columns == ("text", "text (2)", "column 3", "label")
    assert any("“text”" in note for note in records.notes)


def test_a_table_without_a_header_has_numbers_for_names() -> None:
    records = read("where is it?,status\nsend it back,refund\nis it there,status\n")
    assert records.columns == ("column 1", "column 2")
    assert len(records.records) == 3


def test_a_header_that_stands_under_itself_is_data() -> None:
    assert len(read("hello,status\nbye,other\nagain,status\n").records) == 3


def test_lines_of_prose_are_one_text_a_line() -> None:
    records = read("where is my order, please\nI want a refund\nthe size is wrong, again, really\n", "notes.txt")
    assert len(records.columns) == 1
    assert len(records.records) == 3


def test_a_row_with_too_many_cells_is_a_problem_with_its_line() -> None:
    records = read('text,label\n"two\nlines",x\na,b,c\nd,y\n')
    assert [problem.number for problem in records.problems] == [4]
    assert "more cells" in records.problems[0].reason
    assert [row["text"] for row in rows(records)] == ["two\nlines", "d"]


def test_missing_cells_at_the_end_are_empty() -> None:
    assert rows(read("text,label,note\na,x\n")) == [{"text": "a", "label": "x", "note": ""}]


def test_json_lines_a_list_and_an_object_of_rows_are_the_same_rows() -> None:
    values = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    lines = "\n".join(map(json.dumps, values))
    frame = {"text": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}}
    for data in (lines, json.dumps(values), json.dumps(values, indent=1), json.dumps({"data": values})):
        assert rows(read(data)) == values
    assert rows(read(json.dumps(frame))) == values


def test_a_data_set_by_parts_keeps_the_part_of_each_row() -> None:
    data = json.dumps({"train": [["a", "x"]], "oos_test": [["b", "y"]]})
    assert [row["split"] for row in rows(read(data))] == ["train", "test"]


def test_a_bad_line_among_json_lines_is_one_problem() -> None:
    records = read('{"a": 1}\nnonsense\n{"a": 2}\n', "x.jsonl")
    assert len(records.records) == 2
    assert [(problem.number, problem.reason) for problem in records.problems] == [(2, "is not a JSON object")]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"PK\x03\x04rest", "CSV UTF-8"),
        (b"\xd0\xcf\x11\xe0rest", "old Excel"),
        (b"\x1f\x8brest", "compressed"),
        (b"%PDF-1.7", "document"),
        (b"<html><body>Log in</body></html>", "HTML"),
        (b"PAR1 not really", "parquet"),
        (b'{"a": 1', "not JSON"),
        (b"[1, 2", "not JSON"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_to_do(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableSource, match=words):
        read(data)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(UnreadableSource, match=r"nested|not JSON"):
        read("[" * 100_000)


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(UnreadableSource, match="characters"):
        read(b"text,label\n" + b"x" * 5_000_000)


def test_a_file_that_is_too_long_is_a_sample_over_all_of_it() -> None:
    data = "text,label\n" + "".join(f"row {n},x\n" for n in range(10_000))
    records = read(data, most=500)
    numbers = [record.number for record in records.records]
    assert (len(numbers), records.n_rows, records.is_sample) == (500, 10_000, True)
    assert numbers == sorted(numbers)
    assert numbers[0] < 500
    assert numbers[-1] > 9_500
    assert rows(read(data, most=500)) == rows(records)


@given(st.lists(st.integers(), max_size=60), st.integers(min_value=1, max_value=20))
def test_a_sample_keeps_the_order_and_every_row_while_there_is_room(values: list[int], most: int) -> None:
    sample = sample_of(enumerate(values), most)
    assert len(sample) == min(most, len(values))
    assert sample == sorted(sample)
    if len(values) <= most:
        assert [value for _, value in sample] == values


@given(st.binary(max_size=400))
def test_any_bytes_are_rows_or_a_clear_refusal(data: bytes) -> None:
    try:
        records = read(data)
    except UnreadableSource:
        return
    assert records.records or records.problems


def test_bytes_that_are_no_text_are_not_read_as_a_code_page() -> None:
    with pytest.raises(UnreadableSource, match="is not text"):
        read(random.Random(4).randbytes(5_000))
    assert read("text,label\ncafé,a\nthé,b\n".encode("cp1252")).n_rows == 2


def test_reading_is_linear_in_the_file() -> None:
    """CPU time of 8 times the rows: 8 times, with room for noise; a quadratic reader would take 64 times."""

    def cpu_s(n: int) -> float:
        data = ("text,label\n" + "".join(f"some text of row {i},l{i % 7}\n" for i in range(n))).encode()
        start = time.process_time()
        read(data, most=1_000)
        return time.process_time() - start

    small = min(cpu_s(10_000) for _ in range(3))
    assert cpu_s(80_000) < 24 * small


def test_parquet_and_arrow_are_read_with_the_names_of_their_classes() -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import ipc, parquet

    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}, "text": {"dtype": "string"}}
    table = pyarrow.table({"text": ["a", "b"], "label": [0, 1], "picture": [b"\x00", b"\x01"]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    sinks = [io.BytesIO() for _ in range(3)]
    parquet.write_table(table, sinks[0])
    with ipc.new_stream(sinks[1], table.schema) as stream:
        stream.write_table(table)
    with ipc.new_file(sinks[2], table.schema) as file:
        file.write_table(table)
    for sink, kind in zip(sinks, ("parquet", "arrow", "arrow"), strict=True):
        records = read(sink.getvalue())
        assert (records.format, records.columns) == (kind, ("text", "label"))
        assert rows(records) == [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
        assert records.label_names == {"label": ("neg", "pos")}


def test_a_generator_of_lines_is_read_once() -> None:
    assert list(islice(sample_of(iter(range(5)), 2), 5)) == sample_of(iter(range(5)), 2)
