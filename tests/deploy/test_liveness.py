"""What does not answer is ended and started again, and what is only slow is left alone."""

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deploy.embedded.home import Home
from deploy.embedded.liveness import LAG_S, SILENT_S, STARTING_S, Watch, answers
from deploy.embedded.ports import free_ports
from deploy.embedded.processes import Child, ChildSpec, kill_group, spawn, stop
from tests.acceptance.deployment import eventually
from tests.deploy.conftest import embedded


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def beating(tmp_path: Path) -> Iterator[Child]:
    """A real process with a file to touch; it sleeps."""
    spec = ChildSpec(
        name="worker",
        command=(sys.executable, "-c", "import time; time.sleep(600)"),
        env=dict(os.environ),
        cwd=tmp_path,
        log=tmp_path / "worker.log",
        alive_file=tmp_path / "worker.alive",
    )
    child = spawn(spec)
    yield child
    kill_group(child.pid, child.created)
    child.process.wait()


def watching(child: Child) -> tuple[Watch, Clock]:
    clock = Clock()
    child.started = clock.now
    return Watch({"worker": child.spec}, clock=clock), clock


def passes(clock: Clock, watch: Watch, seconds: float, *, touch: Path | None = None) -> None:
    """Looks every two seconds, as the supervisor does."""
    for _ in range(int(seconds / 2)):
        clock.now += 2
        if touch is not None:
            touch.write_text("")
            os.utime(touch, (clock.now, clock.now))
        watch.look()


def test_a_part_has_its_time_to_start_and_then_its_silence_counts(beating: Child) -> None:
    watch, clock = watching(beating)
    passes(clock, watch, STARTING_S)
    assert watch.silent_s("worker", beating) == 0
    passes(clock, watch, SILENT_S)
    assert watch.silent_s("worker", beating) == SILENT_S


def test_a_file_that_is_touched_is_a_sign_of_life_and_an_old_one_is_none(beating: Child) -> None:
    assert beating.spec.alive_file is not None
    watch, clock = watching(beating)
    passes(clock, watch, 400, touch=beating.spec.alive_file)
    assert watch.silent_s("worker", beating) == 0
    passes(clock, watch, 32)  # the file lies there still
    assert watch.silent_s("worker", beating) == 32


def test_what_the_supervisor_slept_through_is_nobodys_silence(beating: Child) -> None:
    assert beating.spec.alive_file is not None
    watch, clock = watching(beating)
    passes(clock, watch, 10, touch=beating.spec.alive_file)
    clock.now += 3600
    watch.look()
    assert watch.silent_s("worker", beating) == 0
    passes(clock, watch, 2 * LAG_S)
    assert watch.silent_s("worker", beating) == 2 * LAG_S


def test_a_part_that_nobody_listens_to_is_never_silent(beating: Child, tmp_path: Path) -> None:
    clock = Clock()
    spec = ChildSpec(name="valkey", command=("true",), env={}, cwd=tmp_path, log=tmp_path / "log")
    watch = Watch({"valkey": spec}, clock=clock)
    passes(clock, watch, 1000)
    assert watch.silent_s("valkey", beating) == 0


def test_a_port_that_speaks_no_http_is_silence_and_no_fault() -> None:
    """Of a probe's thread: one that ended would leave a good part unheard, to be killed every two minutes."""

    class Mailman(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"220 mail.example ESMTP\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Mailman) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert not answers(f"http://127.0.0.1:{server.server_address[1]}/healthz")
        finally:
            server.shutdown()
            thread.join()


def test_a_part_is_ended_though_the_clock_was_set_since_it_was_born(beating: Child) -> None:
    """A birth is told by the clock of the moment: after a step the process looks like a stranger's."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    spec = replace(beating.spec, command=(sys.executable, "-c", stubborn), grace_s=0.5)
    child = spawn(spec)
    eventually(lambda: spec.log.exists() and spec.log.stat().st_size > 0, within_s=20, what="it ignores SIGTERM")
    child.created -= 3600
    ending = threading.Thread(target=stop, args=([child],), daemon=True)
    ending.start()
    ending.join(20)
    is_ended = child.has_died()
    child.process.kill()
    assert is_ended


@pytest.mark.nightly
def test_a_supervisor_without_room_on_its_disk_keeps_the_parts_and_starts_what_died(home: Home) -> None:
    """Neither its note nor a part's log can be written; before, the first death then took everything with it."""
    assert embedded(home, "up", "--detach", "--only", "postgres,valkey").returncode == 0
    first = _children(home)
    note, log = home.state.with_name(home.state.name + ".new"), home.log("valkey")
    note.mkdir()
    log.unlink()
    log.mkdir()
    os.kill(int(str(first["valkey"]["pid"])), signal.SIGKILL)
    tried = "valkey: it cannot be started"
    eventually(lambda: tried in home.log("supervisor").read_text(), within_s=30, what="the start fails")
    note.rmdir()
    log.rmdir()
    eventually(lambda: _children(home)["valkey"]["running"], within_s=60, every_s=1.0, what="there is room again")
    now = _children(home)
    assert now["valkey"]["pid"] != first["valkey"]["pid"]
    assert now["postgres"] == first["postgres"]
    embedded(home, "down")


@pytest.mark.nightly
def test_stopped_parts_are_started_again_with_the_reason_in_log_and_status(home: Home) -> None:
    """The audit's frozen web process and worker: before, `make status` called both running, for good."""
    where = {"KOLM_PORT": str(free_ports(1)[0]), "KOLM_SILENT_S": "8"}
    parts = "postgres,valkey,web,worker,upkeep,deliveries"
    done = embedded(home, "up", "--detach", "--only", parts, **where)
    assert done.returncode == 0, done.stderr
    beats = [home.heartbeat(part) for part in ("worker", "upkeep", "deliveries")]
    eventually(lambda: all(path.exists() for path in beats), within_s=90, what="they beat")
    time.sleep(6)  # every part was heard at least once
    first = _children(home)
    frozen = ("web", "worker", "upkeep")
    for part in frozen:
        leader = psutil.Process(int(str(first[part]["pid"])))
        for process in (leader, *leader.children(recursive=True)):
            os.kill(process.pid, signal.SIGSTOP)

    def all_again() -> bool:
        now = _children(home)
        return all(now[part]["pid"] != first[part]["pid"] for part in frozen)

    eventually(all_again, within_s=120, every_s=1.0, what="the frozen parts are started again")
    now = _children(home)
    assert all("did not answer for" in str(now[part]["reason"]) for part in frozen)
    assert now["deliveries"]["pid"] == first["deliveries"]["pid"]  # it moved all the time
    assert embedded(home, "status").stdout.count("did not answer for") == len(frozen)
    assert "web: it did not answer for" in home.log("supervisor").read_text()
    embedded(home, "down")


def _children(home: Home) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(embedded(home, "status", "--json").stdout)["children"]
    return found


@pytest.mark.parametrize("module", ["workers.heartbeat", "gpu_runners.heartbeat"])
def test_a_containers_check_tells_a_fresh_file_from_an_old_one(module: str, tmp_path: Path) -> None:
    path = tmp_path / "alive"

    def status() -> int:
        environ = os.environ | {"KOLM_HEARTBEAT_FILE": str(path)}
        return subprocess.run([sys.executable, "-m", module], env=environ, capture_output=True, check=False).returncode

    assert status() == 1
    path.touch()
    assert status() == 0
    for age_s in (60, -60):  # the clock was set back since: nobody touches it
        os.utime(path, (time.time() - age_s, time.time() - age_s))
        assert status() == 1
