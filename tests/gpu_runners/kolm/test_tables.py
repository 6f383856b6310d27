"""Rows as customers have them, into the lines of an upload."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_runners import kolm
from gpu_runners.kolm import tables
from gpu_runners.kolm.tables import jsonl_of


class Frame:
    """What is used of a DataFrame, by the names and meanings of pandas' documentation."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self.columns = list(rows[0])

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return self._rows


def lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.decode().split("\n") if line]


def test_a_frame_with_numpy_values_and_gaps() -> None:
    frame = Frame([{"message": "é", "ticket": np.int64(7), "note": float("nan")}, {"message": "b", "ticket": None}])
    found = lines(jsonl_of(frame, columns={"message": "input", "ticket": "group"}))
    assert found == [{"input": "é", "group": 7}, {"input": "b"}]


def test_dicts_texts_and_generators() -> None:
    assert lines(jsonl_of([{"input": "a"}, "b"])) == [{"input": "a"}, {"input": "b"}]
    assert lines(jsonl_of(text for text in ("x", "y\n\u2028"))) == [{"input": "x"}, {"input": "y\n\u2028"}]


def test_a_file_goes_as_it_is_and_its_columns_may_be_renamed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text":  "a"}\n\n')
    assert jsonl_of(path) == jsonl_of(str(path)) == b'{"text":  "a"}\n\n'
    assert jsonl_of(path, columns={"text": "input"}) == b'{"input": "a"}\n'
    with pytest.raises(kolm.Unreadable, match="missing"):
        jsonl_of(tmp_path / "missing")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"text": "a"}\n\nmessage,intent\n', "line 3 is not JSON"),
        (b'{"text": "caf\xe9"}\n', "cannot be read: 'utf-8' codec"),
        (b'{"text": ' + b"[" * 100_000, "line 1 is not JSON"),
    ],
    ids=["a table", "no UTF-8", "nested too deeply"],
)
def test_a_file_that_is_no_jsonl_is_an_error_of_the_client(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(data)
    with pytest.raises(kolm.KolmError, match=words) as refused:
        jsonl_of(path, columns={"text": "input"})
    assert (type(refused.value), refused.value.code) == (kolm.Unreadable, "unreadable_file")


def test_a_byte_order_mark_is_skipped_where_columns_are_renamed(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\n')
    assert jsonl_of(tmp_path / "rows.jsonl", columns={"text": "input"}) == b'{"input": "a"}\n'


def test_what_is_too_large_is_not_even_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 2)
    monkeypatch.setattr(tables, "MAX_BYTES", 40)
    for rows in (["a"] * 3, ["a" * 50]):
        with pytest.raises(kolm.InvalidRequest) as refused:
            jsonl_of(rows)
        assert refused.value.code == "upload_too_large"
    (tmp_path / "x").write_bytes(b"x" * 41)
    with pytest.raises(kolm.InvalidRequest):
        jsonl_of(tmp_path / "x")


@pytest.mark.parametrize("rows", [{"input": "a"}, b"bytes", 3, [1], [["a"]]])
def test_what_are_no_rows(rows: Any) -> None:
    with pytest.raises(TypeError):
        jsonl_of(rows)
