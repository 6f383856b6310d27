"""Deployments and chats, by the client and by the commands, against the real web process; the server behind its gateway
is an ASGI app on loopback."""

import io
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields
from typing import Any

import httpx
import pytest

from backend.domain.serving.wire import ServerRegistration
from gpu_runners import kolm
from gpu_runners.cli.main import main
from tests.backend.serving.worlds import BASE, FarSide, chunk, served
from tests.gpu_runners.kolm.generative_world import __name__ as WORLD
from tests.gpu_runners.wire import Say, wire
from tests.web_stack import WebStack

pytestmark = [pytest.mark.timeout(120)]
Run = Callable[..., tuple[int, str, str]]
OF_ONE = {"raw", "last_24h", "ran", "history"}  # members of one deployment's answer alone


@pytest.fixture(scope="module")
def world(stack: WebStack) -> dict[str, str]:
    """{key, first, second}: a tenant and its two artifacts."""
    process = stack.deployment.python("-m", WORLD, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=60)
    made: dict[str, str] = json.loads(out.splitlines()[-1])
    return made


@pytest.fixture
def client(stack: WebStack, world: dict[str, str]) -> Iterator[kolm.Client]:
    with kolm.Client(world["key"], stack.deployment.url) as client:
        yield client
        for row in client.deployments.list():
            client.deployments.delete(row.id)


@pytest.fixture(scope="module")
def far_address() -> Iterator[tuple[FarSide, str]]:
    """One address for all tests: the gateway looks at its servers' addresses once in a while, not at each request."""
    side = FarSide()
    with served(side) as url:
        yield side, url


@pytest.fixture
def far(stack: WebStack, far_address: tuple[FarSide, str], settings: Any) -> FarSide:
    """A server of the deployment that has just said hello, and was asked nothing yet."""
    settings.KOLM_RUNNER_TOKEN = stack.deployment.plan.backend_environment()["KOLM_RUNNER_TOKEN"]
    side, url = far_address
    for each in fields(FarSide):
        setattr(side, each.name, getattr(FarSide(), each.name))
    hello = ServerRegistration(
        name="loopback", url=url, bases=[BASE], engine={"name": "torch"}, max_running=8, n_running=0, n_waiting=0,
        adapters=[], draining=False,
    )  # fmt: skip
    headers = {"Authorization": f"Bearer {settings.KOLM_RUNNER_TOKEN}"}
    path = f"{stack.deployment.url}/internal/runner/servers"
    assert httpx.post(path, json=hello.to_json(), headers=headers, trust_env=False).status_code == 200
    return side


@pytest.fixture
def run(
    stack: WebStack, world: dict[str, str], client: kolm.Client, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:  # fmt: skip
    """`run("deployments", "ls")` -> (exit code, out, err), as the tenant; its deployments are gone afterwards."""
    monkeypatch.setenv("KOLM_API_URL", stack.deployment.url)
    monkeypatch.setenv("KOLM_API_KEY", world["key"])

    def act(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return act


def test_a_deployment_from_its_making_to_its_end(client: kolm.Client, world: dict[str, str]) -> None:
    deployments = client.deployments
    made = deployments.create("orders", world["first"], idle_minutes=30)
    assert {each.name for each in fields(made)} - OF_ONE <= set(made.raw)
    assert (made.state, made.artifact, made.idle_minutes, made.base) == ("active", world["first"], 30, BASE)
    changed = deployments.change(made.id, canary={"artifact": world["second"], "share": "0.25"}, pinned=True)
    assert changed.canary == {"artifact": world["second"], "share_ppm": 250_000}
    assert (changed.pinned, changed.version) == (True, 2)
    promoted = deployments.promote(made.id)
    assert (promoted.artifact, promoted.previous_artifact, promoted.canary) == (world["second"], world["first"], None)
    assert deployments.rollback(made.id).artifact == world["first"]
    assert deployments.promote(made.id, world["second"]).artifact == world["second"]
    assert deployments.drain(made.id).state != "active"
    assert deployments.start(made.id).state == "active"
    found = deployments.get(made.id)
    assert {each.name for each in fields(found)} - {"raw"} <= set(found.raw)
    assert len(found.history) == found.version
    assert deployments.hours(made.id, hours=2) == []
    assert [row.id for row in deployments.list()] == [made.id]
    with pytest.raises(kolm.Conflict) as refused:
        deployments.create("orders", world["first"])
    assert refused.value.code == "deployment_exists"
    deployments.delete(made.id)
    assert list(deployments.list()) == []


def test_a_chat_is_answered_whole_as_text_and_as_it_comes(
    client: kolm.Client, world: dict[str, str], far: FarSide
) -> None:
    client.deployments.create("orders", world["first"])
    answer = client.chats.create("orders", [{"role": "user", "content": "two lamps"}], max_tokens=9)
    assert answer["choices"][0]["message"]["content"] == '{"label": "refund"}'
    assert client.chats.text(world["first"], "two lamps") == '{"label": "refund"}'
    pieces = [chunk["choices"][0]["delta"]["content"] for chunk in client.chats.stream("orders", "two lamps")]
    assert pieces == ["it is ", "here"]
    assert [body["messages"] for body in far.bodies] == [[{"role": "user", "content": "two lamps"}]] * 3
    assert (far.bodies[0]["max_tokens"], far.bodies[2]["stream"]) == (9, True)


def test_a_stream_that_is_closed_ends_the_answer_on_the_server(
    client: kolm.Client, world: dict[str, str], far: FarSide
) -> None:
    far.gate = threading.Event()
    with closing(client.chats.stream(world["first"], "two lamps")) as chunks:
        next(chunks)
    assert far.disconnected.wait(20)


def test_a_refusal_of_the_gateway_has_its_code_and_request(client: kolm.Client) -> None:
    for ask in (client.chats.create, lambda *asked: list(client.chats.stream(*asked))):
        with pytest.raises(kolm.NotFound, match="There is no model") as refused:
            ask("nobody", "two lamps")
        assert refused.value.code == "model_not_found"
        assert str(refused.value.request_id).startswith("req_")


def test_a_chat_that_may_have_arrived_is_not_sent_again() -> None:
    busy = Say(status=503, body={"error": {"message": "Full.", "type": "server_error", "code": "overloaded"}})
    for say in (busy, Say(cuts=True)):
        with wire(say) as server, kolm.Client("sk_test_x", server.url) as client:
            for ask in (client.chats.create, lambda *asked, client=client: list(client.chats.stream(*asked))):
                with pytest.raises((kolm.ServerError, kolm.NotReachable)):
                    ask("orders", "two lamps")
            assert len(server.asked) == 2


def test_the_commands_do_what_the_client_does(run: Run, world: dict[str, str]) -> None:
    assert "There is no deployment" in run("deployments", "ls")[1]
    code, out, _ = run("deployments", "create", "orders", world["first"], "--idle-minutes", "5", "--pinned", "yes")
    assert (code, "kolm chat orders" in out) == (0, True)
    shown = json.loads(run("deployments", "ls", "--json")[1])
    assert (shown["name"], shown["idle_minutes"], shown["pinned"]) == ("orders", 5, True)
    changes = ["--canary", f"{world['second']}=0.05", "--shadow", "0.01=2", "--rollback-on-regression", "yes"]
    changed = json.loads(run("deployments", "set", "orders", *changes, "--json")[1])
    assert changed["canary"] == {"artifact": world["second"], "share_ppm": 50_000}
    assert changed["shadow"] == {"share_ppm": 10_000, "microusd_per_day": 2_000_000}
    assert changed["drift"]["rollback"] is True
    assert f"{world['second']} 5 %" in " ".join(run("deployments", "ls")[1].split())
    assert json.loads(run("deployments", "set", "orders", "--no-canary", "--json")[1])["canary"] is None
    assert world["second"] in run("deployments", "promote", "orders", "--artifact", world["second"])[1]
    assert "is rolled back" in run("deployments", "rollback", shown["id"])[1]
    assert "is draining" in run("deployments", "drain", "orders")[1]
    code, _, err = run("chat", "orders", "two lamps")
    assert (code, "drained" in err or "takes no requests" in err) == (1, True)
    assert "takes requests" in run("deployments", "start", "orders")[1]
    assert json.loads(run("deployments", "rm", "orders", "--json")[1]) == {"id": shown["id"], "deleted": True}
    code, _, err = run("deployments", "rm", "orders")
    assert (code, "There is no deployment 'orders'" in err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "orders"),
        ("set", "orders", "--canary", "art_x"),
        ("set", "orders", "--shadow", "=2"),
        ("create", "orders", "art_x", "--canary", "0.5"),
    ],
)
def test_settings_that_make_no_sense_are_told_before_anybody_is_asked(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = run("deployments", *arguments, "--api", "http://127.0.0.1:9")
    assert (code, out) == (2, "")
    assert err


def test_kolm_chat_prints_the_answer_as_it_comes(
    run: Run, world: dict[str, str], far: FarSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.pieces = (chunk("two "), chunk("lämps"), b"data: [DONE]\n\n")
    assert run("chat", world["first"], "what was it?", "--max-tokens", "7") == (0, "two lämps\n", "")
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    code, out, _ = run("chat", world["first"], "--temperature", "0", "--json")
    assert (code, json.loads(out)["choices"][0]["message"]["content"]) == (0, '{"label": "refund"}')
    assert [body["messages"][0]["content"] for body in far.bodies] == ["what was it?", "from a pipe\n"]
    assert (far.bodies[0]["max_tokens"], far.bodies[1]["temperature"]) == (7, 0)
    monkeypatch.setattr("sys.stdin", io.StringIO("  \n"))
    assert run("chat", world["first"])[0] == 2


def test_a_server_that_dies_in_the_middle_of_a_stream_is_an_error(
    client: kolm.Client, world: dict[str, str], far: FarSide
) -> None:
    """The last test with a server: the gateway asks this one no more for a while."""
    far.dies_after = 1
    chunks = client.chats.stream(world["first"], "two lamps")
    assert next(chunks)["choices"][0]["delta"]["content"] == "it is "
    with pytest.raises(kolm.ServerError) as broken:
        next(chunks)
    assert broken.value.code == "server_lost"
