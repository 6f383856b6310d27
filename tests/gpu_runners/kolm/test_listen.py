"""`kolm webhooks listen` as a process, following a real deployment's events to a receiver on this machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from deploy.embedded.home import ROOT
from deploy.embedded.ports import free_ports
from gpu_runners import kolm
from tests.acceptance.deployment import Customer, eventually
from tests.compile_factories import small_spec
from tests.gpu_runners.kolm.receiver import Receiver, receiving
from tests.web_stack import WebStack

pytestmark = [pytest.mark.timeout(180)]


@contextmanager
def listening(stack: WebStack, customer: Customer, port: int, *more: str) -> Iterator["subprocess.Popen[str]"]:
    variables = os.environ | {"KOLM_API_URL": stack.deployment.url, "KOLM_API_KEY": customer.key}
    command = [sys.executable, "-m", "gpu_runners.cli", "webhooks", "listen", "--json"]
    forward = ("--forward", f"http://127.0.0.1:{port}/hooks")
    process = subprocess.Popen(
        [*command, *forward, *more],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where the suite runs behind an `&`
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def ready(process: "subprocess.Popen[str]") -> str:
    """The signing secret of the first line."""
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    assert line["object"] == "listening"
    return str(line["secret"])


def types(receiver: Receiver) -> list[str]:
    return [json.loads(got.body)["type"] for got in receiver.got]


def test_events_come_signed_once_each_and_in_order_and_the_lines_say_how_it_went(
    stack: WebStack, customer: Customer, client: kolm.Client
) -> None:
    with receiving() as receiver, listening(stack, customer, receiver.server_port) as process:
        secret = ready(process)
        ids = [client.compiles.create(small_spec(name=f"heard-{i}")).id for i in range(3)]
        for id in ids:
            client.compiles.cancel(id)
        eventually(lambda: len(receiver.got) >= 6, within_s=30)
        assert types(receiver) == ["compile.queued"] * 3 + ["compile.canceled"] * 3
        for got in receiver.got:
            Webhook(secret).verify(got.body, got.headers)  # the standard's own library
            assert kolm.verify(got.body, got.headers, secret)["type"].startswith("compile.")
        told = [json.loads(process.stdout.readline()) for _ in range(6)]  # type: ignore[union-attr]
        assert [line["event"] for line in told] == [got.headers["webhook-id"] for got in receiver.got]
        assert all(line["status"] == 200 and line["latency_ms"] >= 0 for line in told)


@pytest.mark.nightly
def test_what_happens_while_the_receiver_or_the_deployment_is_away_arrives_later_and_once(
    stack: WebStack, customer: Customer, client: kolm.Client
) -> None:
    (port,) = free_ports(1)
    with listening(stack, customer, port) as process:
        ready(process)
        first = client.compiles.create(small_spec(name="away-1")).id
        stack.restart_web()
        client.compiles.cancel(first)
        with receiving(port) as receiver:
            eventually(lambda: len(receiver.got) >= 2, within_s=60)
            client.compiles.cancel(client.compiles.create(small_spec(name="away-2")).id)
            eventually(lambda: len(receiver.got) >= 4, within_s=30)
            assert types(receiver) == ["compile.queued", "compile.canceled"] * 2
            assert len({got.headers["webhook-id"] for got in receiver.got}) == 4


def test_a_state_file_lets_the_next_run_go_on_where_this_one_stopped(
    stack: WebStack, customer: Customer, client: kolm.Client, tmp_path: Path
) -> None:
    kept = tmp_path / "state.json"
    state = ("--state", str(kept), "--events", "compile.canceled")
    with receiving() as receiver:
        receiver.status = 500  # an answer all the same
        with listening(stack, customer, receiver.server_port, *state) as process:
            ready(process)
            client.compiles.cancel(client.compiles.create(small_spec(name="run-1")).id)
            eventually(lambda: len(receiver.got) == 1, within_s=30)
            line = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            assert json.loads(kept.read_text()) == {"after": line["event"]}  # before the line was printed
        client.compiles.cancel(client.compiles.create(small_spec(name="between")).id)
        with listening(stack, customer, receiver.server_port, *state) as process:
            ready(process)
            eventually(lambda: len(receiver.got) >= 2, within_s=30)
        names = [json.loads(got.body)["data"]["object"]["name"] for got in receiver.got]
        assert names == ["run-1", "between"]


@pytest.mark.parametrize(
    "arguments", [["--forward", "localhost:3000"], ["--forward", "http://x", "--secret", "whsec_?"]]
)
def test_an_address_or_a_secret_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    from gpu_runners.cli.main import main

    assert main(["webhooks", "listen", *arguments]) == 2
