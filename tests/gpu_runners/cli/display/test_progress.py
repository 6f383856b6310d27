"""The view of a compile that waits for a runner."""

from typing import Any

import pytest

from gpu_runners.kolm.events import Event
from gpu_runners.kolm.progress import CompileProgress, LineDisplay

WAITS = "waiting for a runner: place 3 of 12, starts in about 4 min"


def progress(message: str, **data: Any) -> Event:
    values = {"step": "distillation", "done": 0, "total": 0, "message": message, **data}
    return Event(type="step.progress", seq=1, data=values)


def test_a_compile_that_waits_for_a_runner_shows_its_place_and_then_its_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    story = CompileProgress()
    place = {"place": 3, "of": 12, "expected_start_at": "2026-11-29T04:00:00.000Z"}
    LineDisplay(story).take(progress(WAITS, queue=place))
    assert capsys.readouterr().out.strip() == f"distillation {WAITS}"
    assert story.steps["distillation"].message == WAITS
    story.take(progress("calibrate, epoch 1 of 3", done=2, total=18, loss=0.5, eta_s=9.0))
    assert story.steps["distillation"].message == "calibrate, epoch 1 of 3, loss 0.500, 9 s left"
