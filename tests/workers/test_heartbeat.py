"""The sign of life of the backend's processes."""

from pathlib import Path

from tests.acceptance.deployment import eventually
from workers.heartbeat import STUCK_S, Heartbeat, of_process


def test_a_loop_that_is_stuck_falls_silent_and_one_that_turns_does_not(tmp_path: Path) -> None:
    now = 0.0
    heart = Heartbeat(tmp_path / "alive", clock=lambda: now)
    assert heart.beat()  # without a loop there is nothing to be stuck in
    heart.turn()
    now = STUCK_S
    assert heart.beat()
    now += 1
    assert not heart.beat()
    heart.turn()
    assert heart.beat()


def test_a_process_beats_where_it_is_told_to(tmp_path: Path) -> None:
    of_process({"KOLM_HEARTBEAT_FILE": str(tmp_path / "alive")}).start()
    eventually((tmp_path / "alive").exists, within_s=20)
    of_process({}).start()
    assert not of_process({}).beat()


def test_a_file_that_cannot_be_touched_ends_nothing(tmp_path: Path) -> None:
    assert Heartbeat(tmp_path / "no" / "folder").beat()
