"""The commands up, down, status, env and wipe, with the two servers; what the other parts add is tried by the
acceptance tests.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import psycopg
import pytest
import redis

from deploy.embedded.faults import CannotStart
from deploy.embedded.home import ROOT, Home
from deploy.embedded.layout import Part
from deploy.embedded.ports import free_ports
from deploy.embedded.processes import created_at
from deploy.embedded.stack import EmbeddedServices
from tests.deploy.conftest import bare_environ, embedded

DATA = ("up", "--detach", "--only", "postgres,valkey")


def exports(home: Home) -> dict[str, str]:
    lines = embedded(home, "env").stdout.splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def state(home: Home) -> dict[str, object]:
    return json.loads(embedded(home, "status", "--json").stdout)


def children(home: Home) -> dict[str, int]:
    return {name: child["pid"] for name, child in state(home)["children"].items()}


def eventually(holds: Callable[[], bool], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.nightly
def test_data_survives_down_and_up(home: Home) -> None:
    assert embedded(home, *DATA).returncode == 0
    address = exports(home)
    with psycopg.connect(address["DATABASE_OWNER_URL"]) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("GRANT SELECT ON kept TO kolm_app")
    redis.Redis.from_url(address["REDIS_URL"]).set("kept", "1")
    assert embedded(home, "down").returncode == 0
    assert embedded(home, *DATA).returncode == 0
    with psycopg.connect(exports(home)["DATABASE_URL"]) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    assert redis.Redis.from_url(exports(home)["REDIS_URL"]).get("kept") == b"1"
    assert embedded(home, "down").returncode == 0


@pytest.mark.nightly
def test_up_while_up_says_so_and_changes_nothing(home: Home) -> None:
    embedded(home, *DATA)
    before = children(home)
    again = embedded(home, *DATA)
    assert (again.returncode, children(home)) == (0, before)
    assert "already up" in again.stdout
    embedded(home, "down")


def test_a_supervisor_killed_with_9_leaves_nothing_running(home: Home) -> None:
    embedded(home, *DATA)
    pids = children(home).values()
    os.kill(int(str(state(home)["supervisor"])), signal.SIGKILL)
    assert eventually(lambda: all(created_at(pid) is None for pid in pids))
    assert "not up" in embedded(home, "status").stdout


@pytest.mark.nightly
def test_after_a_killed_supervisor_the_stack_starts_again_with_its_data(home: Home) -> None:
    embedded(home, *DATA)
    with psycopg.connect(exports(home)["DATABASE_OWNER_URL"]) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("GRANT SELECT ON kept TO kolm_app")
    os.kill(int(str(state(home)["supervisor"])), signal.SIGKILL)
    assert embedded(home, *DATA).returncode == 0
    with psycopg.connect(exports(home)["DATABASE_URL"]) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    embedded(home, "down")


@pytest.mark.nightly
def test_the_whole_stack_comes_up_and_dies_with_its_supervisor_grandchildren_too(home: Home) -> None:
    done = embedded(home, "up", "--detach", KOLM_PORT=str(free_ports(1)[0]))
    assert done.returncode == 0, done.stderr
    supervisor = psutil.Process(int(str(state(home)["supervisor"])))
    assert set(children(home)) == set(Part)
    assert json.loads(home.keyring.read_text())["keys"]
    started = supervisor.children(recursive=True)
    supervisor.kill()
    assert eventually(lambda: all(created_at(process.pid) is None for process in started))


@pytest.mark.nightly
def test_an_interrupt_ends_a_stack_in_the_foreground(home: Home) -> None:
    command = [sys.executable, "-m", "deploy.embedded", "up", "--only", "postgres,valkey"]
    env = bare_environ() | {"KOLM_HOME": str(home.path)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as front:
        assert front.stdout is not None
        assert "kolm is up" in front.stdout.readline()
        pids = children(home).values()
        front.send_signal(signal.SIGINT)
        assert front.wait(timeout=20) == 0
    assert all(created_at(pid) is None for pid in pids)


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["postgres", "valkey"])
def test_a_killed_server_is_started_again(home: Home, victim: str) -> None:
    embedded(home, *DATA)
    first = children(home)[victim]
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: children(home)[victim] != first)
    address = exports(home)

    def serves() -> bool:
        try:
            psycopg.connect(address["DATABASE_URL"]).close()
            return bool(redis.Redis.from_url(address["REDIS_URL"]).ping())
        except (psycopg.OperationalError, redis.ConnectionError):
            return False

    assert eventually(serves)
    assert state(home)["children"][victim]["restarts"] >= 1
    embedded(home, "down")


@pytest.mark.nightly
def test_two_stacks_on_one_machine_take_different_internal_ports(home: Home) -> None:
    variables = bare_environ()
    with EmbeddedServices(variables=variables) as first, EmbeddedServices(variables=variables) as second:
        assert first.env["DATABASE_URL"] != second.env["DATABASE_URL"]
        assert redis.Redis.from_url(second.env["REDIS_URL"]).ping()
        taken = first.stack.plan.ports
        assert not set(taken.values()) & set(second.stack.plan.ports.values())


def test_the_web_port_in_use_is_one_sentence_that_names_the_way_out(home: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = embedded(home, "up", "--detach", "--only", "postgres,valkey,web", KOLM_PORT=str(port))
    assert done.returncode == 1
    assert f"Port {port} on 127.0.0.1 is in use" in done.stderr
    assert f"KOLM_PORT={port + 1}" in done.stderr
    assert "Traceback" not in done.stderr


def test_addresses_from_outside_are_used_instead_of_starting_servers(home: Home) -> None:
    outside = {"DATABASE_URL": "postgresql://a:b@127.0.0.1:1/x", "REDIS_URL": "redis://127.0.0.1:2/0"}
    services = EmbeddedServices(home.path, variables=outside)
    assert services.stack.plan.parts == ()
    assert {name: services.env[name] for name in outside} == outside
    services.close()


def test_the_secrets_are_private_and_made_once(home: Home) -> None:
    EmbeddedServices(home.path).close()
    first = home.secrets.read_text(), home.signing_key.read_text()
    EmbeddedServices(home.path).close()
    assert (home.secrets.read_text(), home.signing_key.read_text()) == first
    assert [path.stat().st_mode & 0o777 for path in (home.secrets, home.signing_key)] == [0o600, 0o600]


def test_no_secret_stands_on_a_command_line(home: Home) -> None:
    with EmbeddedServices(home.path, variables=bare_environ()) as services:
        kept = json.loads(home.secrets.read_text())
        secrets = [*kept.pop("sealing_keys_other"), *kept.values()]
        lines = [" ".join(psutil.Process(child.pid).cmdline()) for child in services.stack.children.values()]
        assert not [line for line in lines for secret in secrets if secret in line]


def test_the_runner_gets_no_database_no_broker_and_no_key(home: Home) -> None:
    services = EmbeddedServices(home.path, variables={"PATH": "/bin", "KOLM_SECRET": "x", "AWS_SECRET_ACCESS_KEY": "y"})
    names = services.stack.plan.runner_environment()
    assert {"KOLM_API_URL", "KOLM_RUNNER_TOKEN"} <= set(names)
    assert not {"DATABASE_URL", "REDIS_URL", "KOLM_SEALING_KEY", "KOLM_SECRET", "AWS_SECRET_ACCESS_KEY"} & set(names)
    services.close()


def test_runner_and_server_see_the_accelerators_that_whoever_started_them_sees(home: Home) -> None:
    chosen = {"CUDA_VISIBLE_DEVICES": "1", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}
    services = EmbeddedServices(home.path, services=("runner", "server"), variables={"PATH": "/bin", **chosen})
    plan = services.stack.plan
    for environment in (plan.runner_environment(), plan.server_environment()):
        assert chosen.items() <= environment.items()
    assert not chosen.keys() & plan.bare_environment().keys()
    services.close()


def test_the_server_gets_no_database_no_broker_and_no_key_and_keeps_its_usage_at_home(home: Home) -> None:
    services = EmbeddedServices(
        home.path,
        services=("server",),
        variables={"PATH": "/bin", "KOLM_SERVER_SLOTS": "3", "AWS_SECRET_ACCESS_KEY": "y"},
    )
    env = services.stack.plan.server_environment()
    assert not {
        "DATABASE_URL",
        "REDIS_URL",
        "KOLM_SEALING_KEY",
        "KOLM_SEALING_KEYS_OTHER",
        "AWS_SECRET_ACCESS_KEY",
    } & set(env)
    assert (env["KOLM_SERVER_SLOTS"], env["KOLM_SERVER_DIR"]) == ("3", str(home.path / "server"))
    assert env["KOLM_BASE_DIR"].endswith("build/bases")
    services.close()


def test_wipe_needs_yes_and_takes_only_what_is_ours(home: Home) -> None:
    EmbeddedServices(home.path).close()
    (home.path / "mine.txt").write_text("keep")
    assert embedded(home, "wipe").returncode == 1
    assert home.secrets.exists()
    assert embedded(home, "wipe", "--yes").returncode == 0
    assert [path.name for path in home.path.iterdir()] == ["mine.txt"]


def test_a_home_that_cannot_be_written_is_one_sentence(home: Home) -> None:
    (home.path / "file").write_text("")
    done = embedded(Home(path=home.path / "file" / "inside"), "up")
    assert done.returncode == 1
    assert "KOLM_HOME" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_nearly_full_disk_is_one_sentence(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=200 << 20))
    with pytest.raises(CannotStart, match="Only 200 MiB are free"):
        home.create()
