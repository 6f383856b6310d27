"""`kolm check`, `compile` and `pull`: what they print, and the exit codes that scripts rely on."""

import json
from pathlib import Path

import pytest

from gpu_runners.cli.main import main
from tests.gpu_runners.cli.api.small_api import SmallApi

SPEC = Path(__file__).parents[4] / "examples" / "refund-router.yaml"


def test_check_accepts_the_example_and_points_at_what_is_wrong(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SPEC)]) == 0
    (home / "bad.yaml").write_text(SPEC.read_text().replace("\ntask:", "\ntaks:", 1))
    assert main(["check", "bad.yaml"]) == 1
    assert "/taks" in capsys.readouterr().err
    (home / "broken.yaml").write_text("a: [1")
    (home / "binary.yaml").write_bytes(b"\xff\xfe")
    assert [main(["check", name]) for name in ("broken.yaml", "binary.yaml", "missing.yaml")] == [1, 1, 1]


def test_a_compile_is_followed_to_its_end_and_the_artifact_saved(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(SPEC), "--out", "mine.kolm"]) == 0
    out = capsys.readouterr().out
    assert "estimate $0.012 (from $0.01 to $0.02)" in out
    assert "distillation 3/9 calibrate, loss 0.250, 4 s left" in out
    assert "warning label_skew: one label is rare" in out
    assert out.count("distillation started") == 1
    assert (home / "mine.kolm").read_bytes() == api.artifact
    assert main(["verify", "mine.kolm"]) == 0


def test_the_last_lines_of_a_compile_are_its_accuracy_and_what_to_type_next(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(SPEC), "--out", "my model.kolm"]) == 0
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "91.2 % [84.0, 95.3] of 100 held-out answers are right; $0.00075 for 1,000 answers beside $0.0308.",
        "answer on this machine: kolm run 'my model.kolm' 'your text'",
        "answer a table: kolm run 'my model.kolm' --in rows.csv --out answers.csv",
        "answer over the API: kolm deployments create refund-router art_1",
        "all of it in the console: kolm open cmp_1",
    ]


@pytest.mark.parametrize(
    ("end", "lines"),
    [
        ("gate_failed", ["wrong held-out answers: kolm show cmp_1 --wrong",
                         "all of it in the console: kolm open cmp_1"]),
        ("failed", ["what happened: kolm logs cmp_1", "go on from there: kolm resume cmp_1",
                    "all of it in the console: kolm open cmp_1"]),
    ],
)  # fmt: skip
def test_a_compile_without_an_artifact_ends_with_what_to_look_at(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str], end: str, lines: list[str]
) -> None:
    api.end = end
    assert main(["compile", str(SPEC)]) != 0
    assert capsys.readouterr().out.splitlines()[-len(lines) :] == lines


@pytest.mark.parametrize(("variable", "value"), [("CI", "true"), ("TERM", "dumb")])
def test_where_nobody_watches_no_character_moves_the_cursor(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str,
    value: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv(variable, value)
    assert main(["compile", str(SPEC)]) == 0
    out = capsys.readouterr().out
    assert "distillation 3/9 calibrate" in out
    assert "\r" not in out


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
    assert "wrong held-out answers: kolm show cmp_1 --wrong" in out
    assert "beside the alternatives, on 100 held-out rows:" in out
    assert " 91.2 % beside  95.0 %  [-9.8, +2.1]  the teacher itself (n = 100)" in out


@pytest.mark.parametrize("command", [["compile", str(SPEC), "--out", "mine.kolm"], ["show", "cmp_1"]])
def test_the_students_that_competed_stand_with_their_k_scores_and_what_rules_answer(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    first = {"kind": "spans", "rank": 16, "k_score_ppm": 795_450, "accuracy_ppm": 645_833, "first_failed": None}
    second = {"kind": "causal", "rank": 8, "k_score_ppm": 494_904, "accuracy_ppm": 83_333, "first_failed": "k_min"}
    third = {"kind": "spans", "rank": 32, "k_score_ppm": 0, "failure": "out_of_memory"}
    api.evaluation = {"trials": [first, second, third], "chosen": 0, "n": 24}
    api.evaluation |= {"rules": {"is_used": True, "n_answered": 9}}
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("students that competed:")
    assert lines[at + 1 : at + 5] == [
        "  K 0.795   64.5 % right  spans, rank 16  kept",
        "  K 0.494    8.3 % right  causal, rank 8  below the gate: k_min",
        "  no model  spans, rank 32: out_of_memory",
        "rules answer 9 of 24 held-out inputs before the model",
    ]


@pytest.mark.parametrize("command", [["compile", str(SPEC), "--out", "mine.kolm"], ["show", "cmp_1"]])
def test_a_compiles_rounds_of_labels_are_a_line_each_with_why_they_stopped(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main(command) == 0
    out = capsys.readouterr().out
    lines = out[out.index("what was bought:") :].splitlines()[1:5]
    assert lines[:3] == [
        "  start     first picks; 100 votes, 100 labelled; cross-validated 71.0 %",
        "  round 1   75 inputs (60 least sure, 15 at random); 75 votes, 175 labelled; cross-validated 80.3 %",
        "  round 2   20 inputs asked again; 20 votes, 175 labelled; cross-validated 81.1 %",
    ]
    assert lines[3].startswith("  stopped   The learning curve is flat: further labels would add next to nothing. ")


@pytest.mark.parametrize("command", [["compile", str(SPEC), "--out", "mine.kolm"], ["show", "cmp_1"]])
def test_what_drafts_saved_a_compile_is_printed_in_the_apis_words(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main(command) == 0
    assert "drafts:" not in capsys.readouterr().out
    api.drafts = {"summary": "Net saving $0.001, 45.5 %", "accepted": "2 of 3", "time_saved": ""}
    assert main(command) == 0
    assert "drafts: Net saving $0.001, 45.5 %\ndrafts: accepted: 2 of 3\n" in capsys.readouterr().out


@pytest.mark.parametrize("end", ["succeeded", "gate_failed"])
def test_a_compile_that_bought_its_labels_at_once_has_no_rounds_to_print(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    api.end, api.labeling = end, {"n_labeled": 175, "label_samples": 5}
    assert main(["compile", str(SPEC)]) == (0 if end == "succeeded" else 4)
    assert "what was bought" not in capsys.readouterr().out


def test_show_prints_the_quality_card_of_an_artifact(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "art_1"]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "the student 91.2 % [84.0, 95.3] 100 5.02 ms $0.00075" in lines
    assert "the teacher itself – – 420 ms a request $0.0308" in lines
    assert "The teacher's price is the mean of what its answers to 100 held-out inputs were billed." in lines
    assert "The compile cost $0.06 and has paid for itself" in lines
    assert "on a runner ($0.00075 for 1,000 answers): after 2,000 answers" in lines
    assert '"break_even"' not in out


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


def test_a_compile_that_waits_for_a_runner_shows_its_place(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.queue = {"place": 3, "of": 12, "expected_start_at": "2026-11-29T10:30:00Z"}
    assert main(["ls"]) == 0
    assert "place 3 of 12" in capsys.readouterr().out
    assert main(["show", "cmp_1"]) == 0
    assert "waits for a runner: place 3 of 12, expected to start about 2026-11-29" in capsys.readouterr().out
    api.queue["expected_start_at"] = None
    assert main(["show", "cmp_1"]) == 0
    assert "waits for a runner: place 3 of 12\n" in capsys.readouterr().out
    api.queue = None
    assert main(["ls"]) == 0
    assert "place" not in capsys.readouterr().out
