"""`kolm ablate`: what it starts, what it prints, and the exit codes that scripts rely on."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.domain.evaluation.paired import Paired
from gpu_runners.cli.api.ablate import sentence, table
from gpu_runners.cli.main import main
from tests.gpu_runners.cli.api.small_ablations import AblationsApi, ablations_api

SPEC = str(Path(__file__).parents[4] / "examples" / "refund-router.yaml")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[AblationsApi]:
    with ablations_api() as api:
        monkeypatch.setenv("KOLM_API_URL", api.url)
        monkeypatch.setenv("KOLM_API_KEY", "kolm_sk_test")
        yield api


@pytest.mark.parametrize("end", ["succeeded", "gate_failed"])
def test_a_spec_is_compiled_then_both_arms_and_the_difference_is_told(
    api: AblationsApi, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    api.end = end
    assert main(["ablate", SPEC]) == 0
    assert [body["arm"] for body in api.bodies] == ["all", "random"]
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[-7] == "selected 36 $0.0004 118 91.0 % [83.7, 95.1]"
    assert lines[-6] == "all 108 $0.0012 208 88.0 % [80.1, 93.0] +3.0 (-3.5 to +9.8) 0.508"
    assert lines[-5].startswith("random 36 $0.0004 208")
    assert lines[-4] == "100 held-out rows; 95 % intervals; p is McNemar's, exact."
    assert lines[-2] == (
        "With 36 labels instead of 108 the selected pool scored +3.0 points (-3.5 to +9.8): no clear difference; "
        "the labels cost 66.6 % less."
    )
    assert lines[-1].startswith("At 36 labels each, the selected pool scored +3.0 points (-3.5 to +9.8) against")
    assert "kolm ablate --of cmp_1" in out
    assert lines.index("arm all (cmp_arm0)") < lines.index("arm random (cmp_arm1)")
    assert out.count("distillation succeeded") == 3


def test_of_takes_a_compile_that_is_there_and_compiles_nothing_again(api: AblationsApi) -> None:
    api.n_told = 99  # it has ended
    assert main(["ablate", "--of", "cmp_1", "--arms", "all"]) == 0
    assert api.bodies == [{"arm": "all"}]
    assert len(api.idempotency_keys) == 1


def test_the_fixed_plan_is_an_arm_where_it_is_named(api: AblationsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.n_told = 99
    assert main(["ablate", "--of", "cmp_1", "--arms", "random,fixed"]) == 0
    assert [body["arm"] for body in api.bodies] == ["random", "fixed"]
    assert (
        capsys.readouterr().out.splitlines()[-1].startswith("With 36 labels by its plan instead of 36 by a fixed one")
    )


def test_another_student_is_an_arm_on_the_same_pairs(api: AblationsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "--of", "cmp_1", "--arms", "frozen"]) == 0
    assert [body["arm"] for body in api.bodies] == ["frozen"]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("Of the same ")
    assert " against logistic regression on the frozen encoder: " in last


def test_of_waits_for_a_compile_that_is_under_way(api: AblationsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "--of", "cmp_1", "--arms", "all"]) == 0
    assert api.n_streams == 2


def test_arms_that_are_there_are_taken_and_those_that_failed_started_again(api: AblationsApi) -> None:
    api.n_told = 99
    api.add("random", status="failed")
    api.add("all")
    assert main(["ablate", "--of", "cmp_1"]) == 0
    assert [body["arm"] for body in api.bodies] == ["random"]


def test_json_is_the_answer_alone(api: AblationsApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", SPEC, "--json", "--arms", "random"]) == 0
    told = capsys.readouterr()
    value = json.loads(told.out)
    assert (value["compile"], value["status"]) == ("cmp_1", "succeeded")
    assert value["ablations"][0]["comparison"]["paired"]["difference_ppm"] == 30_000
    assert "slicing started" in told.err


def test_a_failed_arm_is_exit_code_one_and_the_other_is_told_all_the_same(
    api: AblationsApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.failing = {"all"}
    assert main(["ablate", SPEC]) == 1
    told = capsys.readouterr()
    assert "cmp_arm0 failed: The budget is spent. (budget_exhausted)" in told.err
    assert "At 36 labels each" in told.out
    assert "instead of 108" not in told.out


def test_a_compile_that_failed_has_nothing_to_ablate(api: AblationsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.end = "failed"
    assert main(["ablate", SPEC]) == 1
    assert api.bodies == []
    assert "The teacher did not answer. (teacher_timeout)" in capsys.readouterr().err


def test_a_refusal_is_one_sentence(api: AblationsApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.n_told, api.refuses = 99, True
    assert main(["ablate", "--of", "cmp_1"]) == 1
    assert "Only a compile that was evaluated can be ablated" in capsys.readouterr().err


def test_the_budget_of_an_arm_is_sent_in_micro_dollars(api: AblationsApi) -> None:
    api.n_told = 99
    assert main(["ablate", "--of", "cmp_1", "--arms", "all", "--budget", "0.25"]) == 0
    assert api.bodies == [{"arm": "all", "budget_microusd": 250_000}]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [SPEC, "--of", "cmp_1"],
        [SPEC, "--arms", "some"],
        [SPEC, "--arms", ","],
        [SPEC, "--budget", "much"],
        [SPEC, "--budget", "-1"],
        [SPEC, "--budget", "nan"],
        [SPEC, "--budget", "inf"],
    ],
)
def test_arguments_that_make_no_sense_start_nothing(api: AblationsApi, arguments: list[str]) -> None:
    assert main(["ablate", *arguments]) == 2
    assert api.idempotency_keys == []


@pytest.mark.parametrize(
    ("paired", "word"),
    [
        (Paired(both=60, first=31, second=0, neither=9), "clearly better"),
        (Paired(both=60, first=0, second=31, neither=9), "clearly worse"),
        (Paired(both=60, first=15, second=16, neither=9), "no clear difference"),
    ],
)
def test_the_verdict_follows_the_interval(paired: Paired, word: str) -> None:
    with ablations_api() as api:
        api.paired = paired
        assert word in sentence(api.add("all"))
        assert word in sentence(api.add("random"))
        assert word in sentence(api.add("fixed"))
        assert len(table(api.arms)) == 6
