"""The server of many tenants on a real vLLM engine, on the CPU: what our own engine is held to in
tests/gpu_runners/serving/test_server.py, and vLLM's own traps."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from backend.domain.serving.wire import Grant
from gpu_runners.engine.planning import devices
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from tests.gpu_runners.serving.running_server import RunningServer, bearer, endless, n_tokens, running_server
from tests.gpu_runners.serving.small_adapters import ALICE, BOB, attention_shapes, grant_for, kolm_of
from tests.gpu_runners.serving.small_backend import SmallBackend, small_backend
from tests.tiny_bases import tiny_bases  # noqa: F401
from tests.vllm import engine

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
NAME = "kolm-tiny-1"
PYTHON = engine.VENV / "bin" / "python"
NAMES = ("still", "alice-1", "alice-2", "bob")


@pytest.fixture(scope="module")
def base(tiny_bases: Path) -> CausalBase:  # noqa: F811
    if not engine.COMMAND.exists():
        pytest.skip("no vLLM here: `make setup-vllm` installs one into .venv-vllm")
    return open_causal_base(NAME, base_dir=tiny_bases)


@pytest.fixture(scope="module")
def kolms(base: CausalBase) -> dict[str, bytes]:
    """`still` adds nothing: its answers are the bare base's, beside those of adapters that change much."""
    shapes = attention_shapes(base)
    return {
        name: kolm_of(
            base,
            seed=seed,
            tenant=BOB if name == "bob" else ALICE,
            shapes=shapes,
            scale=0.0 if name == "still" else 0.3,
            rank=8,
            alpha=16,
        )
        for seed, name in enumerate(NAMES)
    }


@pytest.fixture(scope="module")
def backend(kolms: dict[str, bytes]) -> Iterator[SmallBackend]:
    with small_backend() as backend:
        backend.kolms = {grant_for(data).sha256: data for data in kolms.values()}
        yield backend


def serve(folder: Path, backend: SmallBackend, base: CausalBase):  # type: ignore[no-untyped-def]
    return running_server(
        folder,
        backend.url,
        base.folder.parent,
        python=str(PYTHON),
        KOLM_SERVER_ENGINE="vllm",
        KOLM_SERVER_SLOTS="4",
        KOLM_SERVER_MAX_RANK="8",
        within_s=120,
    )


@pytest.fixture(scope="module")
def server(
    backend: SmallBackend, base: CausalBase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with serve(tmp_path_factory.mktemp("vllm-server"), backend, base) as server:
        yield server


@pytest.fixture(scope="module")
def grants(kolms: dict[str, bytes]) -> "Grants":
    return Grants(kolms)


class Grants:
    """A fresh grant a request."""

    def __init__(self, kolms: dict[str, bytes]) -> None:
        self._kolms, self._n = kolms, 0

    def __call__(self, name: str) -> Grant:
        self._n += 1
        return grant_for(self._kolms[name], tenant=BOB if name == "bob" else ALICE, request=f"req-{self._n}")


@pytest.fixture(scope="module")
def alone(server: RunningServer, grants: Grants) -> dict[str, str]:
    """What each adapter answers when nobody else asks. The first starts the engine."""
    first = httpx.post(
        f"{server.url}/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1},
        headers=bearer(grants("still")),
        timeout=300,
    )
    assert first.status_code == 200, first.text + server.log.read_text()[-3000:]
    return {name: server.text(grants(name)) for name in NAMES}


def test_each_adapter_in_one_batch_answers_as_it_does_alone(
    server: RunningServer, grants: Grants, alone: dict[str, str]
) -> None:
    assert len(set(alone.values())) == len(NAMES)
    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(lambda name: (name, server.text(grants(name))), NAMES * 6))
    assert [text for _, text in together] == [alone[name] for name, _ in together]


def test_an_adapter_that_adds_nothing_answers_as_the_base_does_in_our_own_engine(
    backend: SmallBackend, base: CausalBase, grants: Grants, alone: dict[str, str], tmp_path: Path
) -> None:
    """Prompt, tokenizer and weights are the same on both sides: the tokenizer trap would show here. vLLM computes in
    bfloat16 where the processor has it, ours in float32: there the adapters of random weights part by rounding."""
    names = ("still",) if devices.cpu().has_bf16 else NAMES
    with running_server(tmp_path, backend.url, base.folder.parent, KOLM_SERVER_ENGINE="torch") as ours:
        assert {name: ours.text(grants(name)) for name in names} == {name: alone[name] for name in names}


def test_a_schema_is_kept_with_the_white_space_of_json_dumps(
    server: RunningServer, grants: Grants, alone: dict[str, str]
) -> None:
    schema = {
        "type": "object",
        "properties": {"item": {"enum": ["lamp", "chair"]}, "urgent": {"type": "boolean"}},
        "required": ["item", "urgent"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "order", "schema": schema, "strict": True}}
    text = server.text(grants("alice-1"), response_format=wanted, max_tokens=60)
    assert json.dumps(json.loads(text)) == text
    assert set(json.loads(text)) == {"item", "urgent"}


def test_a_stream_is_the_whole_answer_in_pieces_and_seeds_repeat(
    server: RunningServer, grants: Grants, alone: dict[str, str]
) -> None:
    with server.stream(grants("alice-1")) as told:
        chunks = list(told)
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == alone["alice-1"]
    assert len(chunks) > 10
    sampled = [server.text(grants("alice-2"), temperature=1.3, seed=seed) for seed in (4, 4, 5)]
    assert sampled[0] == sampled[1] != sampled[2]


def test_who_hangs_up_frees_the_engine(server: RunningServer, backend: SmallBackend, grants: Grants) -> None:
    with server.stream(grants("alice-1"), **endless()) as told:
        for n, _ in enumerate(told):
            if n == 5:
                break
    running = f'kolm_server_engine_running{{base="{NAME}"}}'
    backend.wait_until(lambda: server.metrics()[running] == 0)


def test_what_is_booked_is_what_the_engine_counted(server: RunningServer, backend: SmallBackend) -> None:
    backend.wait_until(lambda: server.metrics()["kolm_server_journal_unbooked"] == 0)
    counted, rows = server.metrics(), list(backend.rows.values())
    mine = [row for row in rows if row.finish_reason]
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        total = counted[f'kolm_server_engine_{name}_total{{base="{NAME}"}}']
        assert counted[f"kolm_server_{name}_total"] == total
        assert sum(getattr(row, name) for row in mine) >= total


def test_an_artifact_revoked_in_mid_answer_ends(server: RunningServer, backend: SmallBackend, grants: Grants) -> None:
    grant, chunks = grants("alice-2"), []
    with server.stream(grant, **endless()) as told:
        for chunk in told:
            chunks.append(chunk)
            if len(chunks) == 5:
                backend.revoked.append(grant.sha256)
    assert "error" in chunks[-1]
    assert server.ask(grants("alice-2")).status_code == 410
    assert server.ask(grants("bob")).status_code == 200


def test_after_kill_9_what_clients_received_is_booked(
    server: RunningServer, backend: SmallBackend, base: CausalBase, grants: Grants
) -> None:
    """Last: it ends the engine that the others use. The next process needs no engine to tell."""
    grant, received = grants("alice-1"), 0

    def listen() -> None:
        nonlocal received
        with server.stream(grant, **endless()) as told:
            for n, chunk in enumerate(told):
                received += n_tokens(chunk)
                if n == 10:
                    server.kill()

    with pytest.raises(httpx.TransportError):
        listen()
    token = bearer(grant)["Authorization"].removeprefix("Bearer ")
    with serve(server.log.parent, backend, base):
        backend.wait_until(lambda: any(row.grant == token for row in backend.rows.values()))
    (row,) = (row for row in backend.rows.values() if row.grant == token)
    assert row.finish_reason == "failed"
    assert received <= row.completion_tokens <= received + 5
