"""`kolm logs`: a compile's events as lines and as JSON."""

import json

import pytest

from gpu_runners.cli.main import main
from tests.gpu_runners.cli.api.small_api import EVENTS, SmallApi


def test_the_events_so_far_are_lines_and_nothing_is_waited_for(
    api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", "cmp_1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(EVENTS) + 2
    assert lines[1].strip() == "slicing started"
    assert lines[3].strip() == "weather.changed  to=rain"  # a type that this command is too old for
    assert lines[6].strip() == "distillation 3/9 calibrate, loss 0.250, 4 s left"
    assert api.n_streams == 0


def test_following_goes_on_to_the_end(api: SmallApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.break_after = 3
    assert main(["logs", "cmp_1", "-f"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(EVENTS) + 2
    assert api.n_streams > 1


def test_as_json_each_event_is_the_apis(api: SmallApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "cmp_1", "--json", "--after", "8"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["seq"] for row in rows] == [9, 10, 11]
    assert rows[0]["type"] == "gate.decided"
    assert rows[0]["data"]["k_score_ppm"] == 912_345


def test_no_such_compile_is_one_sentence(api: SmallApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "cmp_2"]) == 1
    assert capsys.readouterr().err.startswith("kolm: There is no /v1/compiles/cmp_2/events")
