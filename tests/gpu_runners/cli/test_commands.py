"""The `kolm` command: what it prints, and the exit codes that scripts rely on."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_runners.cli.main import main
from tests.backend.domain.artifact.tiny_kolm import OTHER_KEY, keyring, receipts, small_kolm
from tests.gpu_runners.cli.small_api import SmallApi, small_api
from tests.gpu_runners.small_task import Trained, kolm_of

ROOT = Path(__file__).parents[3]
SPEC = ROOT / "examples" / "refund-router.yaml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a keyring that trusts the test key."""
    (tmp_path / "keyring.json").write_text(json.dumps(keyring()))
    monkeypatch.setenv("KOLM_KEYRING", str(tmp_path / "keyring.json"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallApi]:
    with small_api() as api:
        monkeypatch.setenv("KOLM_API_URL", api.url)
        monkeypatch.setenv("KOLM_API_KEY", "kolm_sk_test")
        yield api


def test_verify_starts_in_half_a_second_and_loads_no_model_library(home: Path) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    script = (
        "import sys, time; t = time.perf_counter()\n"
        "from gpu_runners.cli.main import main\n"
        "code = main(['verify', 'a.kolm'])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'pydantic', 'httpx'} & set(sys.modules)\n"
        "print(code, sorted(heavy), time.perf_counter() - t < 0.5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT), "KOLM_KEYRING": "keyring.json"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0 [] True"


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


def test_the_exit_codes_of_verify(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, stranger = small_kolm(), small_kolm(OTHER_KEY, **receipts(key=OTHER_KEY))
    files = {"good": data, "altered": data[:-1] + b"x", "stranger": stranger, "text": b"hello"}
    for name, content in files.items():
        (home / name).write_bytes(content)
    codes = {name: main(["verify", name]) for name in files}
    assert codes == {"good": 0, "altered": 1, "stranger": 3, "text": 2}
    assert main(["verify", "missing"]) == 2
    capsys.readouterr()
    assert main(["verify", "good", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "trusted"


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


def test_check_accepts_the_example_and_points_at_what_is_wrong(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SPEC)]) == 0
    (home / "bad.yaml").write_text(SPEC.read_text().replace("\ntask:", "\ntaks:", 1))
    assert main(["check", "bad.yaml"]) == 1
    assert "/taks" in capsys.readouterr().err
    (home / "broken.yaml").write_text("a: [1")
    (home / "binary.yaml").write_bytes(b"\xff\xfe")
    assert [main(["check", name]) for name in ("broken.yaml", "binary.yaml", "missing.yaml")] == [1, 1, 1]


def test_trust_shows_fingerprints_and_pins_only_when_told_to(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "keyring.json").unlink()
    (home / "a.kolm").write_bytes(small_kolm())
    api.keys = keyring()
    assert main(["trust", api.url]) == 1
    assert not (home / "keyring.json").exists()
    assert main(["trust", api.url, "--yes"]) == 0
    assert api.keys["keys"][0]["keyid"][:4] + " " in capsys.readouterr().out
    assert main(["verify", "a.kolm"]) == 0


def test_a_pinned_revocation_is_never_taken_back(home: Path, api: SmallApi) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    (home / "new.json").write_text(json.dumps(keyring(revoked_at="2026-11-21T07:00:00Z")))
    assert main(["trust", "new.json", "--yes"]) == 0
    api.keys = keyring()
    assert main(["trust", api.url, "--yes"]) == 0
    assert main(["verify", "a.kolm"]) == 3


@pytest.mark.parametrize("document", [b"{}", b"[1]", b'{"keys": [{}]}', b"<html>"])
def test_trust_refuses_what_is_no_keyring(home: Path, document: bytes) -> None:
    (home / "x.json").write_bytes(document)
    before = (home / "keyring.json").read_bytes()
    assert main(["trust", "x.json", "--yes"]) == 1
    assert (home / "keyring.json").read_bytes() == before


def test_a_compile_is_followed_to_its_end_and_the_artifact_saved(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(SPEC), "--out", "mine.kolm"]) == 0
    out = capsys.readouterr().out
    assert "estimate $0.0120 (from $0.0100 to $0.0200)" in out
    assert "distillation 3/9 calibrate, loss 0.250, 4 s left" in out
    assert "warning label_skew: one label is rare" in out
    assert out.count("distillation started") == 1
    assert (home / "mine.kolm").read_bytes() == api.artifact
    assert main(["verify", "mine.kolm"]) == 0


def test_a_stream_that_breaks_is_taken_up_where_it_broke(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.break_after = 2
    assert main(["compile", str(SPEC)]) == 0
    out = capsys.readouterr().out
    assert out.count("slicing started") == out.count("slicing succeeded") == out.count("distillation started") == 1
    assert api.n_streams > 1


@pytest.mark.nightly
def test_where_no_stream_gets_through_the_events_are_polled(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.has_no_stream = True
    assert main(["compile", str(SPEC)]) == 0
    assert capsys.readouterr().out.count("distillation succeeded") == 1


def test_a_gate_that_was_not_passed_is_exit_code_four_and_names_the_next_step(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.end = "gate_failed"
    assert main(["compile", str(SPEC)]) == 4
    out = capsys.readouterr().out
    assert "FAILED  the lower bound is 0.71 and 0.80 is needed" in out
    assert "next: add 40 gold examples" in out


def test_a_failed_compile_is_exit_code_one_with_its_reason(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.end = "failed"
    assert main(["compile", str(SPEC)]) == 1
    assert "synthesis: The teacher did not answer. (teacher_timeout)" in capsys.readouterr().err


def test_no_wait_returns_at_once_with_the_id(home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(SPEC), "--no-wait"]) == 0
    assert capsys.readouterr().out.startswith("cmp_1 ")
    assert api.n_streams == 0


def test_a_lost_answer_is_asked_for_again_with_the_same_idempotency_key(home: Path, api: SmallApi) -> None:
    api.n_unavailable = 2
    assert main(["compile", str(SPEC), "--no-wait"]) == 0
    assert len(api.idempotency_keys) == 3
    assert len(set(api.idempotency_keys)) == 1


def test_a_problem_is_shown_with_its_pointers(home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.refuses = True
    assert main(["compile", str(SPEC)]) == 1
    err = capsys.readouterr().err
    assert "The spec breaks a rule." in err
    assert "/examples: 3 examples are held out" in err


def test_an_api_that_is_not_there_is_one_sentence(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "art_1", "--api", "http://127.0.0.1:9"]) == 7
    assert "does not answer" in capsys.readouterr().err


def test_a_download_with_another_digest_is_not_kept(home: Path, api: SmallApi) -> None:
    api.corrupts = True
    assert main(["pull", "art_1"]) == 1
    assert not list(home.glob("*.kolm"))


def test_pull_names_the_file_after_the_artifact(home: Path, api: SmallApi) -> None:
    assert main(["pull", "art_1"]) == 0
    assert (home / "refund-router-1.kolm").read_bytes() == api.artifact


def test_the_score_is_set_beside_that_of_the_last_artifact_of_the_name(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(SPEC), "--compare-last"]) == 0
    assert "There is no earlier artifact 'refund-router'" in capsys.readouterr().out
    api.has_earlier, api.n_told = True, 0
    assert main(["compile", str(SPEC), "--compare-last"]) == 0
    assert "K-score 0.912 against 0.897 of version 0 (art_0): +0.015" in capsys.readouterr().out


def test_json_has_standard_output_to_itself(home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.end = "gate_failed"
    assert main(["compile", str(SPEC), "--watch", "--json"]) == 4
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "gate_failed"
    assert "slicing started" in err


def test_a_text_may_hold_what_python_takes_for_a_line_end(home: Path, trained: Trained) -> None:
    (home / "a.kolm").write_bytes(kolm_of(trained))
    (home / "in.jsonl").write_text('{"input": "where\u2028is my parcel"}\n', encoding="utf-8")
    assert main(["run", "a.kolm", "--jsonl", "in.jsonl"]) == 0
