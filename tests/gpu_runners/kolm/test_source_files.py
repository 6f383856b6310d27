"""Data as a customer has it, through the real client and command: looked at, drafted, uploaded, estimated."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend.domain.spec.parsing import parse_spec
from gpu_runners import kolm
from gpu_runners.cli.main import main
from gpu_runners.kolm.source_files import look, part_of
from tests.acceptance.deployment import Customer
from tests.web_stack import WebStack

WORDS = ("refund", "status")
ROWS = [{"text": f"message number {n} of a customer", "label": WORDS[n % 2]} for n in range(120)]
DEMO = {"provider": "grammar", "model": "kolm-grammar-1"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: WebStack, customer: Customer) -> Path:
    monkeypatch.setenv("KOLM_API_URL", stack.deployment.url)
    monkeypatch.setenv("KOLM_API_KEY", customer.key)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_csv(path: Path, rows: list[dict[str, Any]] = ROWS, **dialect: Any) -> Path:
    with path.open("w", newline="", encoding=dialect.pop("encoding", "utf-8")) as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), **dialect)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_frame_a_list_and_a_file_draft_the_same_spec(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    drafts = [
        kolm.spec_from(data, name="tickets", task="Route.")
        for data in (pandas.DataFrame(ROWS), ROWS, str(write_csv(tmp_path / "x.csv")))
    ]
    assert drafts[0].text == drafts[1].text == drafts[2].text
    assert drafts[0].rows[0] == {"input": "message number 0 of a customer", "output": "refund"}


def test_a_draft_is_saved_with_its_rows_and_checks_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = kolm.spec_from(ROWS, name="tickets", task="Route.", descriptions={"refund": "Wants money: <now>"})
    place = draft.save(tmp_path / "tickets.yaml")
    assert len((tmp_path / "tickets.examples.jsonl").read_text().splitlines()) == 120
    assert main(["check", str(place)]) == 0
    assert "is a valid spec" in capsys.readouterr().out
    html = draft._repr_html_()
    assert "50.0 %" in html
    assert "&lt;now&gt;" in html


def test_a_missing_value_of_a_frame_is_no_answer() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame([*ROWS, {"text": "without", "label": None}, {"text": None, "label": "refund"}])
    problems = kolm.spec_from(frame).source.profile.problems
    assert {(group.reason, group.n) for group in problems} == {("has no answer", 1), ("has no input", 1)}


def test_a_frame_whose_columns_are_named_alike_is_refused_before_one_is_lost() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame([["a", "x", "b"]], columns=["text", "label", "text"])
    with pytest.raises(kolm.Unreadable, match="Several columns are called “text”"):
        kolm.spec_from(frame)
    with pytest.raises(TypeError, match="a row is a mapping or a text, not int"):
        kolm.spec_from([1, 2])


def test_a_draft_is_uploaded_once_and_estimated(client: kolm.Client) -> None:
    draft = kolm.spec_from(ROWS, name="drafted-once", task="Route.", teacher=DEMO)
    first, again = client.compiles.document(draft), client.compiles.document(draft)
    assert first == again
    assert parse_spec(first).examples.upload == first["examples"]["upload"]
    assert client.compiles.estimate(draft).total["expected_microusd"] > 0
    (upload,) = client.uploads.list(name="drafted-once.examples.jsonl")
    assert upload.n_rows == 120


def test_a_spec_that_names_a_file_is_sent_with_its_upload(client: kolm.Client, tmp_path: Path) -> None:
    write_csv(tmp_path / "tickets.csv")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "name: by-file\ntask: Route.\noutput: {type: label, labels: [{name: refund}, {name: status}]}\n"
        "examples: {file: tickets.csv, columns: {input: text, output: label}, holdout: 0.5}\n"
        "teacher: {provider: grammar, model: kolm-grammar-1}\n"
    )
    document = client.compiles.document(spec)
    assert set(document["examples"]) == {"holdout", "upload"}
    assert client.uploads.get(document["examples"]["upload"]).name == "tickets.csv"
    assert client.compiles.estimate(spec).within_budget


def test_init_writes_a_short_spec_that_estimates(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(home / "tickets.csv")
    assert (
        main(["init", "tickets.csv", "--yes", "--teacher", "demo", "--task", "Route a ticket.", "--budget", "2"]) == 0
    )
    text = (home / "tickets.yaml").read_text()
    assert len(text.splitlines()) < 30
    document = yaml.safe_load(text)
    assert document["examples"] == {
        "file": "tickets.csv",
        "columns": {"input": "text", "output": "label"},
        "holdout": 0.5,
    }
    assert document["budget"] == {"usd": 2}
    shown = capsys.readouterr()
    assert "50.0 %" in shown.err
    assert "kolm compile tickets.yaml" in shown.out
    assert main(["check", "tickets.yaml"]) == 0
    assert main(["compile", "tickets.yaml", "--estimate"]) == 0
    assert main(["init", "tickets.csv", "--yes"]) == 2  # written over only when asked


def test_init_names_the_newest_key_of_the_vendor(home: Path, client: kolm.Client) -> None:
    write_csv(home / "tickets.csv")
    key = client.teacher_keys.create("our anthropic key", "sk-ant-api03-abcdefgh12345678")
    assert main(["init", "tickets.csv", "--yes", "--teacher", "anthropic", "--out", "a.yaml"]) == 0
    teacher = yaml.safe_load((home / "a.yaml").read_text())["teacher"]
    assert (teacher["api_key"], teacher["model"]) == (key.id, "claude-haiku-5-5")


def test_init_without_a_login_still_writes_and_says_where_the_key_goes(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("KOLM_API_URL", "KOLM_API_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    write_csv(home / "tickets.csv")
    assert main(["init", "tickets.csv", "--yes", "--teacher", "openai:gpt-5"]) == 0
    assert "# api_key: tk_..." in (home / "tickets.yaml").read_text()
    assert "kolm teacher-keys add" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.csv"], "cannot be read"),
        (["tickets.csv", "--input", "nothing"], "There is no column"),
        (["tickets.csv", "--teacher", "nobody"], "is no vendor"),
        (["tickets.csv", "--teacher", "http://127.0.0.1:9/v1"], "--teacher-model"),
        (["book.xlsx"], "CSV UTF-8"),
    ],
)
def test_what_init_cannot_do_is_one_clear_line(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    write_csv(home / "tickets.csv")
    (home / "book.xlsx").write_bytes(b"PK\x03\x04rest")
    assert main(["init", *words, "--yes"]) in (1, 2)
    assert says in capsys.readouterr().err
    assert not list(home.glob("*.yaml"))


def test_upload_sends_the_rows_of_a_file_of_excel(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(home / "excel.csv", delimiter=";", encoding="cp1252")
    assert main(["upload", "excel.csv", "--dry-run"]) == 0
    assert "nothing was sent" in capsys.readouterr().out
    assert main(["upload", "excel.csv", "--name", "tickets-2026", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["purpose"], row["n_rows"]) == ("tickets-2026", "examples", 120)
    assert main(["upload", "excel.csv", "--captures", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["purpose"] == "captures"
    assert main(["ls", "uploads", "--name", "tickets-2026"]) == 0
    assert row["id"] in capsys.readouterr().out


def test_the_folder_of_a_data_set_keeps_its_parts_and_the_names_of_its_classes(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import ipc, parquet

    parts = {"train": 60, "test": 20}
    for part, n in parts.items():
        table = pyarrow.table({"text": [f"{part} text {i}" for i in range(n)], "label": [i % 2 for i in range(n)]})
        parquet_file = tmp_path / "hub" / "data" / f"{part}-00000-of-00001.parquet"
        parquet_file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, parquet_file)
        arrow = tmp_path / "saved" / part / "data-00000-of-00001.arrow"
        arrow.parent.mkdir(parents=True, exist_ok=True)
        with ipc.new_stream(str(arrow), table.schema) as stream:
            stream.write_table(table)
        about = {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}
        (arrow.parent / "dataset_info.json").write_text(json.dumps(about))
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for folder, names in (("hub", {"0", "1"}), ("saved", {"neg", "pos"})):
        source = look(tmp_path / folder)
        assert source.mapping.split == "split"
        assert (source.profile.n_usable, source.profile.n_heldout) == (80, 20)
        assert {label.name for label in source.profile.labels} == names


@pytest.mark.parametrize(
    ("path", "part"),
    [("train.csv", "train"), ("data/test-00000-of-00001.parquet", "test"), ("validation/data.arrow", "validation")],
)
def test_the_part_of_a_file_stands_in_its_name_or_folder(path: str, part: str) -> None:
    assert part_of(Path("set") / path, Path("set")) == part


def test_a_large_file_is_sampled_on_this_machine(tmp_path: Path) -> None:
    """20 MB of 300,000 rows: what is kept are 2,000, from all over it."""
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write("text,label\n")
        for n in range(300_000):
            file.write(f"the text of row number {n} with some words after it,{WORDS[n % 2]}\n")
    source = look(path, most=2_000)
    assert source.records.n_rows == 300_000
    assert source.profile.n_usable == 2_000
    assert any("a sample of 2,000 of the file's 300,000 rows" in note for note in source.notes)
