"""The sign of life of the backend's processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.embedded.home import ROOT
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


@pytest.mark.nightly
def test_a_worker_beats_while_its_broker_hangs(tmp_path: Path) -> None:
    """It takes the connection and says nothing. Before, a worker that was started meanwhile was killed every two
    minutes."""
    alive = tmp_path / "alive"
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silence:
        address = f"redis://127.0.0.1:{silence.getsockname()[1]}/0"
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "workers.main", "worker", "--pool", "threads"],
            cwd=ROOT,
            env=os.environ | {"REDIS_URL": address, "KOLM_HEARTBEAT_FILE": str(alive)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            eventually(alive.exists, within_s=90, every_s=0.5, what="it beats")
        finally:
            worker.kill()
            worker.wait()
