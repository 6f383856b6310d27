"""`kolm inspect` and `kolm run`: what they print, load and refuse."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_runners.cli.main import main
from tests.backend.domain.artifact.tiny_kolm import small_kolm
from tests.gpu_runners.small_orders import order_pairs, spans_kolm
from tests.gpu_runners.small_task import Trained, kolm_of

ROOT = Path(__file__).parents[4]


def test_run_answers_without_loading_torch(home: Path, trained: Trained) -> None:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    script = (
        "import sys\n"
        "from gpu_runners.cli.main import main\n"
        "code = main(['run', 'a.kolm', 'where is my parcel 3 number 9'])\n"
        "print(code, sorted({'torch', 'transformers', 'peft', 'sklearn'} & set(sys.modules)))\n"
    )
    environment = {"PYTHONPATH": str(ROOT), "KOLM_KEYRING": "keyring.json"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    label, status = done.stdout.splitlines()
    assert label.startswith("delivery")
    assert status == "0 []"


def test_inspect_shows_an_intact_file_and_refuses_an_altered_one(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    (home / "b.kolm").write_bytes(small_kolm()[:-1])
    assert main(["inspect", "a.kolm"]) == 0
    assert "slicing → synthesis → labeling" in capsys.readouterr().out
    assert main(["inspect", "a.kolm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"]["labels.json"] == ["refund", "other"]
    assert main(["inspect", "b.kolm"]) == 1


def test_run_labels_texts_and_lines_and_refuses_what_is_not_trusted(
    home: Path, trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    (home / "in.jsonl").write_text('{"input": "where is my parcel 3 number 9"}\n\n{"input": "é"}\n')
    assert main(["run", "a.kolm", "where is my parcel 3 number 9"]) == 0
    assert capsys.readouterr().out.startswith("delivery  0.")
    assert main(["run", "a.kolm", "--keyring", "keyring.json", "where is my parcel 3 number 9"]) == 0
    assert capsys.readouterr().out.startswith("delivery  0.")
    assert main(["run", "a.kolm", "--jsonl", "in.jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["input"] for row in rows] == ["where is my parcel 3 number 9", "é"]
    assert set(rows[0]) == {"input", "label", "confidence", "latency_us"}
    calibration = b'{"abstain_ppm":1000000,"temperature_ppm":1000000}'
    (home / "c.kolm").write_bytes(kolm_of(trained, calibration=calibration))
    assert main(["run", "c.kolm", "é"]) == 0
    assert "  unsure  " in capsys.readouterr().out
    (home / "keyring.json").unlink()
    assert main(["run", "a.kolm", "hello"]) == 3
    assert "--allow-untrusted" in capsys.readouterr().err
    assert main(["run", "a.kolm", "hello", "--allow-untrusted"]) == 0
    (home / "b.kolm").write_bytes(kolm_of(trained)[:-1])
    assert main(["run", "b.kolm", "hello", "--allow-untrusted"]) == 1


@pytest.mark.parametrize(
    "arguments", [["a.kolm"], ["a.kolm", "text", "--jsonl", "in.jsonl"], ["a.kolm", "--jsonl", "bad"]]
)
def test_run_without_usable_input_says_what_to_give(home: Path, arguments: list[str]) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    (home / "in.jsonl").write_text('{"input": "x"}\n')
    (home / "bad").write_text('{"text": "x"}\n')
    assert main(["run", *arguments]) == 2


def test_a_text_may_hold_what_python_takes_for_a_line_end(home: Path, trained: Trained) -> None:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    (home / "in.jsonl").write_text('{"input": "where\u2028is my parcel"}\n', encoding="utf-8")
    assert main(["run", "a.kolm", "--jsonl", "in.jsonl"]) == 0


DOUBTFUL = "?"  # a text without anything to read


def test_a_span_students_line_names_the_fields_it_is_unsure_of_and_its_json_all_of_them(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "a.kolm").write_bytes(spans_kolm())
    ((text, answer),) = order_pairs(1, start=53)
    (home / "in.jsonl").write_text(json.dumps({"input": text}) + "\n" + json.dumps({"input": DOUBTFUL}) + "\n")
    assert main(["run", "a.kolm", "--jsonl", "in.jsonl"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert json.loads(first["output"]) == answer
    assert [text[one["start"] : one["end"]] for one in first["fields"][:2]] == [answer["item"], answer["city"]]
    doubted = {one["path"] for one in second["fields"] if one["confidence_ppm"] < 800_000}
    assert doubted
    assert main(["run", "a.kolm", DOUBTFUL]) == 0
    line = capsys.readouterr().out
    assert all(path in line.partition("  unsure of ")[2] for path in doubted)
