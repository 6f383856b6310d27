"""`kolm run FILE --in TABLE`: what is read, what is written beside it, and what a spreadsheet must not run."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.cli.artifacts.loading import Refused
from gpu_runners.cli.artifacts.table_files import neutral, open_table
from gpu_runners.cli.exit_codes import PIPE_CLOSED
from gpu_runners.cli.main import main
from tests.backend.domain.artifact.tiny_kolm import small_kolm
from tests.gpu_runners.small_orders import order_pairs, spans_kolm
from tests.gpu_runners.small_task import Trained, kolm_of

ROOT = Path(__file__).parents[4]
PARCEL = "where is my parcel 3 number 9"


@pytest.fixture
def kolm(home: Path, trained: Trained) -> Path:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    return home


def rows_of(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter=delimiter))


def test_a_table_of_excel_comes_back_with_an_answer_beside_each_row(
    kolm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = f'\ufeffid;text;label\r\n1;{PARCEL};x\r\n\r\n2;"a ""quoted""\nline; é 🎉";y\r\n3;  ;z\r\n4\r\n'
    (kolm / "in.csv").write_text(table, encoding="utf-8", newline="")
    assert main(["run", "a.kolm", "--in", "in.csv", "--column", "text", "--out", "out.csv"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("out.csv: 4 rows, 2 without a text; ")
    written = (kolm / "out.csv").read_bytes()
    assert written.startswith(b"\xef\xbb\xbfid;text;label;answer;confidence;unsure\n")
    head, first, second, third, fourth = rows_of(written.decode("utf-8-sig"), ";")
    assert head == ["id", "text", "label", "answer", "confidence", "unsure"]
    assert first[:4] == ["1", PARCEL, "x", "delivery"]
    assert 0 < float(first[4]) <= 1
    assert second[1] == 'a "quoted"\nline; é 🎉'
    assert third == ["3", "  ", "z", "", "", ""]
    assert fourth == ["4", "", "", "", "", ""]
    assert not list(kolm.glob("*.part"))


def test_without_out_the_rows_go_to_standard_output_as_they_are(kolm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kolm / "in.tsv").write_text(f"input\tanswer\n{PARCEL}\twomen 👩‍🔬\n", encoding="utf-8")
    assert main(["run", "a.kolm", "--in", "in.tsv"]) == 0
    out, err = capsys.readouterr()
    head, row = rows_of(out, "\t")
    assert head == ["input", "answer", "kolm_answer", "confidence", "unsure"]
    assert row[1:3] == ["women 👩‍🔬", "delivery"]
    assert "1 rows; " in err


def test_json_lines_keep_their_members(kolm: Path) -> None:
    (kolm / "in.jsonl").write_text(json.dumps({"body": PARCEL, "n": 3, "unsure": "?"}) + "\n")
    assert main(["run", "a.kolm", "--in", "in.jsonl", "--column", "body", "--out", "out.jsonl"]) == 0
    row = json.loads((kolm / "out.jsonl").read_text())
    assert (row["body"], row["n"], row["unsure"], row["answer"], row["kolm_unsure"]) == (
        PARCEL, 3, "?", "delivery", False,
    )  # fmt: skip


def test_what_a_spreadsheet_would_run_gets_an_apostrophe(kolm: Path) -> None:
    cells = ["=1+1", "+49 30 1234", "-3 lamps", "@SUM(A1)", "\tx", "-3.5", "+7", "-1,5 %", "plain"]
    with (kolm / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "=cmd()"], *([PARCEL, cell] for cell in cells)])
    assert main(["run", "a.kolm", "--in", "in.csv", "--out", "out.csv"]) == 0
    head, *rows = rows_of((kolm / "out.csv").read_text())
    assert head[1] == "'=cmd()"
    assert [row[1] for row in rows] == [
        "'=1+1", "'+49 30 1234", "'-3 lamps", "'@SUM(A1)", "'\tx", "-3.5", "+7", "'-1,5 %", "plain",
    ]  # fmt: skip


@given(st.text())
def test_no_cell_begins_as_a_formula_but_a_number(cell: str) -> None:
    written = neutral(cell)
    assert written in (cell, f"'{cell}")
    if written[:1] in ("=", "+", "-", "@", "\t", "\r"):
        float(written.rstrip("%").replace(",", "."))


def test_a_span_students_answer_is_json_in_a_cell(home: Path) -> None:
    (home / "a.kolm").write_bytes(spans_kolm())
    ((text, answer),) = order_pairs(1, start=53)
    with (home / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["only"], [text]])
    assert main(["run", "a.kolm", "--in", "in.csv", "--out", "out.csv"]) == 0
    head, row = rows_of((home / "out.csv").read_text())
    assert head == ["only", "answer", "confidence"]
    assert json.loads(row[1]) == answer


@pytest.mark.parametrize("codec", ["cp1252", "utf-16"])
def test_what_an_older_excel_saved_is_read_and_comes_back_as_its_utf_8(
    kolm: Path, capsys: pytest.CaptureFixture[str], codec: str
) -> None:
    (kolm / "in.csv").write_bytes(f"text;Größe\r\n{PARCEL};für\r\n".encode(codec))
    assert main(["run", "a.kolm", "--in", "in.csv", "--column", "text", "--out", "out.csv"]) == 0
    head, row = rows_of((kolm / "out.csv").read_text(encoding="utf-8-sig"), ";")
    assert (head[1], row[1], row[2]) == ("Größe", "für", "delivery")
    assert (kolm / "out.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert ("Windows-1252" in capsys.readouterr().err) == (codec == "cp1252")


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (b"a,b\n1,2\n", [], "name the column of texts with --column; there are 'a', 'b'"),
        (b"a,b\n1,2\n", ["--column", "c"], "there are 'a', 'b'"),
        (b"a,a\n1,2\n", ["--column", "a"], "2 columns are called 'a'"),
        (b"a,b\n1,2,3\n", ["--column", "a"], "line 2: 3 cells, and the first line names 2 columns"),
        (b'a,b\n1,"2\n', ["--column", "a"], "line 2: unexpected end of data"),
        (b"text\n\x81\n", [], "cannot be read as text"),
        (b"", [], "is empty"),
        (b"text\nx\n", ["--out", "in.csv"], "is the file that is read"),
        (b"text\nx\n", ["--out", "out.jsonl"], "--out ends in .csv or .tsv"),
        (b"text\nx\n", ["--out", "no/such/out.csv"], "cannot be written"),
        (b"text\nx\n", ["more"], "not several of them"),
    ],
)
def test_a_table_that_makes_no_sense_is_exit_code_two_and_leaves_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], content: bytes, options: list[str], said: str
) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    (home / "in.csv").write_bytes(content)
    assert main(["run", "a.kolm", *options, "--in", "in.csv"]) == 2
    assert said in capsys.readouterr().err
    assert {path.name for path in home.iterdir()} == {"a.kolm", "in.csv", "keyring.json"}


def test_out_without_a_table_and_a_table_of_another_kind_are_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    assert main(["run", "a.kolm", "x", "--out", "out.csv"]) == 2
    assert main(["run", "a.kolm", "--in", "in.xlsx"]) == 2
    assert main(["run", "a.kolm", "--in", "missing.csv"]) == 2
    assert "ends in .csv, .tsv, .jsonl" in capsys.readouterr().err


def test_a_table_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("text\n" + "row\n" * 100_000 + '"broken\n')
    with open_table(str(path)) as table:
        assert next(table.rows) == ["row"]
        with pytest.raises(Refused, match="line 100002"):
            list(table.rows)


def test_a_parquet_file_comes_back_as_a_csv_file(kolm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": [PARCEL, None], "n": [3, 4]}), kolm / "in.parquet")
    assert main(["run", "a.kolm", "--in", "in.parquet", "--out", "out.csv"]) == 0
    head, first, second = rows_of((kolm / "out.csv").read_text())
    assert head == ["text", "n", "answer", "confidence", "unsure"]
    assert first[:3] == [PARCEL, "3", "delivery"]
    assert second == ["", "4", "", "", ""]
    capsys.readouterr()
    (kolm / "broken.parquet").write_bytes(b"PAR1 and nothing")
    assert main(["run", "a.kolm", "--in", "broken.parquet"]) == 2
    assert "no parquet file that can be read" in capsys.readouterr().err


def test_a_reader_that_closes_the_output_early_ends_the_run_quietly(kolm: Path) -> None:
    (kolm / "in.csv").write_text("text\n" + "".join(f"{PARCEL} {n}\n" for n in range(3_000)))
    words = [sys.executable, "-m", "gpu_runners.cli", "run", "a.kolm", "--in", "in.csv"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=kolm) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.stdout.close()
        assert run.stderr is not None
        said = run.stderr.read().decode()
    assert (run.returncode, "cannot be read" in said) == (PIPE_CLOSED, False)
