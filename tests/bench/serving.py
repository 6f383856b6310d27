"""The server of many tenants beside bare engines, on one machine, in one run (issue 6, line 15).

    python -m tests.bench.serving [--engine torch] [--rounds 3] [--seconds 8] [--clients 1,8,32]
                                  [--out docs/benchmarks/serving.md]

Arms, all over one random-weights base of 24 million weights (its answers never end early, so that every arm does equal
work), each a process of its own, asked by turns in every round:

    server        `python -m gpu_runners.serving` with grants, verified adapters, fairness and the usage journal
    bare          the same engine and adapter without those: `kolm serve FILE`, or `vllm serve --lora-modules`
    transformers  `transformers serve --continuous-batching`, the base alone: it knows no adapters
    100 adapters  the server again, each request with the next of 100 adapters

The backend is a double that books everything at once. `transformers serve` and vLLM come from .venv-vllm and are left
out where that is not installed; what is left out is said.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import accelerate
import httpx

from deploy.embedded.ports import free_ports
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from tests.bench.serving_load import Headers, Load, load, median
from tests.gpu_runners.serving.running_server import bearer, running_server
from tests.gpu_runners.serving.small_adapters import attention_shapes, grant_for, kolm_of, pinned_keyring
from tests.gpu_runners.serving.small_backend import SmallBackend, small_backend
from tests.tiny_bases import BASES
from tests.vllm import engine as vllm_engine
from tests.web_stack import machine

NAME, N_TOKENS, N_ADAPTERS = "kolm-bench-24m", 48, 100
VLLM_PYTHON = vllm_engine.VENV / "bin" / "python"


@dataclass(frozen=True, kw_only=True)
class Arm:
    """`model` names what is asked for; `headers` are those of the n-th request."""

    name: str
    url: str
    model: str
    headers: Headers
    log: Path


def main() -> int:
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="kolm-bench-serving-") as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        base = bench_base(folder / "bases")
        backend = stack.enter_context(small_backend())
        kolms = [
            kolm_of(base, seed=seed, shapes=attention_shapes(base), scale=0.02, rank=8, alpha=16)
            for seed in range(N_ADAPTERS)
        ]
        backend.kolms = {grant_for(data).sha256: data for data in kolms}
        arms, left_out = _arms(
            stack, folder, base, backend, kolms, engine=given.engine, with_transformers=not given.without_transformers
        )
        table = measure(arms, clients=given.clients, rounds=given.rounds, seconds=given.seconds)
    report = _report(table, left_out, given)
    print(report)
    if given.out:
        given.out.write_text(report)
    return 0


def bench_base(folder: Path) -> CausalBase:
    """Random weights, the tokenizer and chat template of kolm-tiny-1."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from gpu_runners.tiny_base.train import ensure

    tiny, target = BASES / "kolm-tiny-1", folder / NAME
    if not (tiny / "tokenizer.json").is_file():
        ensure(BASES)
    shutil.copytree(tiny, target, ignore=shutil.ignore_patterns("*.safetensors", "*.jsonl"))
    config = LlamaConfig(
        **(
            json.loads((tiny / "config.json").read_text())
            | {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "head_dim": 64}
            | {"num_attention_heads": 8, "num_key_value_heads": 4, "initializer_range": 0.05}
        )
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(target)
    return open_causal_base(NAME, base_dir=folder)


def measure(
    arms: list[Arm], *, clients: list[int], rounds: int, seconds: float
) -> dict[tuple[str, int], tuple[Load, list[Load]]]:
    """(the middle one, all) by arm and number of clients; every arm has its turn in every round."""
    found: dict[tuple[str, int], list[Load]] = {}
    for arm in arms:  # engines start, adapters are fetched, kernels are warm
        many = 4 * N_ADAPTERS if arm.name == "100 adapters" else 1
        _one(arm, n_clients=4, seconds=max(2.0, many * 0.02), patience=True)
    for number in range(rounds):
        for n_clients in clients:
            for arm in arms if number % 2 == 0 else reversed(arms):
                one = _one(arm, n_clients=n_clients, seconds=seconds)
                found.setdefault((arm.name, n_clients), []).append(one)
                print(f"round {number} {n_clients:3} clients {arm.name:14} {one.tokens_per_s:8.1f} tok/s", flush=True)
    return {key: (median(loads), loads) for key, loads in found.items()}


def _one(arm: Arm, *, n_clients: int, seconds: float, patience: bool = False) -> Load:
    until = time.monotonic() + (400 if patience else 0)
    while True:
        found = asyncio.run(
            load(arm.url, lambda _: arm.model, arm.headers, n_clients=n_clients, seconds=seconds, n_tokens=N_TOKENS)
        )
        if not found.failures:
            return found
        if time.monotonic() > until:
            raise SystemExit(f"{arm.name}: {found.failures[:3]}\n{arm.log.read_text()[-2000:]}")
        print(f"{arm.name} is not ready: {found.failures[0]}", flush=True)
        time.sleep(2)


def _arms(
    stack: contextlib.ExitStack,
    folder: Path,
    base: CausalBase,
    backend: SmallBackend,
    kolms: list[bytes],
    *,
    engine: str,
    with_transformers: bool,
) -> tuple[list[Arm], list[str]]:
    has_vllm = vllm_engine.COMMAND.exists()
    if engine == "vllm" and not has_vllm:
        raise SystemExit("no vLLM here: `make setup-vllm` installs one into .venv-vllm")
    (folder / "server").mkdir()
    server = stack.enter_context(
        running_server(
            folder / "server",
            backend.url,
            base.folder.parent,
            python=str(VLLM_PYTHON) if engine == "vllm" else sys.executable,
            within_s=120,
            KOLM_SERVER_ENGINE=engine,
            KOLM_SERVER_SLOTS="32",
            KOLM_SERVER_MAX_RANK="8",
            KOLM_SERVER_MAX_CONTEXT="512",
        )
    )

    def one_adapter(number: int) -> dict[str, str]:
        return bearer(grant_for(kolms[0], request=f"one-{time.time_ns()}-{number}"))

    def by_turns(number: int) -> dict[str, str]:
        return bearer(grant_for(kolms[number % N_ADAPTERS], request=f"turn-{time.time_ns()}-{number}"))

    arms = [Arm(name="server", url=server.url, model="m", headers=one_adapter, log=server.log)]
    arms.append(_bare_vllm(stack, folder, base, kolms[0]) if engine == "vllm" else _bare(stack, folder, base, kolms[0]))
    if with_transformers and has_vllm:
        arms.append(_transformers(stack, folder, base))
    arms.append(Arm(name="100 adapters", url=server.url, model="m", headers=by_turns, log=server.log))
    return arms, [] if with_transformers and has_vllm else ["transformers serve"]


def _bare(stack: contextlib.ExitStack, folder: Path, base: CausalBase, kolm: bytes) -> Arm:
    port, file = free_ports(1)[0], folder / "one.kolm"
    file.write_bytes(kolm)
    command = [
        sys.executable,
        "-m",
        "gpu_runners.cli",
        "serve",
        str(file),
        "--port",
        str(port),
        "--max-running",
        "32",
    ]
    env = {"KOLM_KEYRING": str(pinned_keyring(folder)), "KOLM_BASE_DIR": str(base.folder.parent)}
    log = _started(stack, "bare", command, folder, env)
    name = first_model(port)
    return Arm(name="bare", url=f"http://127.0.0.1:{port}", model=name, headers=lambda _: {}, log=log)


def first_model(port: int) -> str:
    """The model that a server names first, once it answers."""
    return str(_answered(port, "/v1/models").json()["data"][0]["id"])


def _answered(port: int, path: str, log: Path | None = None) -> httpx.Response:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            response = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=10)
            if response.status_code == 200:
                return response
        time.sleep(0.5)
    raise SystemExit(f"nothing answers on {port}: {log.read_text()[-1500:] if log else ''}")


def _bare_vllm(stack: contextlib.ExitStack, folder: Path, base: CausalBase, kolm: bytes) -> Arm:
    """The tokenizer in a folder of its own (see `gpu_runners.engine.vllm_engine`)."""
    from backend.domain.artifact.kolm_verify import read_kolm
    from gpu_runners.engine.vllm_engine import tokenizer_folder
    from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder

    members, adapter = read_kolm(kolm).members, folder / "adapter"
    adapter.mkdir()
    config = AdapterConfig.from_json(json.loads(members["adapter_config.json"]))
    write_peft_folder(adapter, from_bytes(members["adapter.safetensors"], config), config)
    port = free_ports(1)[0]
    command = [str(vllm_engine.COMMAND), "serve", str(base.folder), "--port", str(port), "--host", "127.0.0.1"]
    command += ["--tokenizer", str(tokenizer_folder(base, folder / "tokenizers")), "--max-model-len", "512"]
    command += ["--dtype", "float32", "--block-size", "32", "--enforce-eager", "--max-num-seqs", "32", "--enable-lora"]
    command += [
        "--max-loras",
        "33",
        "--max-cpu-loras",
        "128",
        "--max-lora-rank",
        "8",
        "--lora-modules",
        f"one={adapter}",
    ]
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    log = _started(stack, "bare-vllm", command, folder, env)
    first_model(port)
    return Arm(name="bare", url=f"http://127.0.0.1:{port}", model="one", headers=lambda _: {}, log=log)


def _transformers(stack: contextlib.ExitStack, folder: Path, base: CausalBase) -> Arm:
    port = free_ports(1)[0]
    command = [str(vllm_engine.VENV / "bin" / "transformers"), "serve", str(base.folder), "--continuous-batching"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    lent = folder / "lent"  # it wants accelerate, which .venv-vllm does not have
    lent.mkdir()
    for path in Path(accelerate.__file__).parent.parent.glob("accelerate*"):
        (lent / path.name).symlink_to(path)
    log = _started(stack, "transformers", command, folder, {"PYTHONPATH": str(lent)})
    _answered(port, "/health", log)  # its list of models is that of a download cache
    return Arm(
        name="transformers", url=f"http://127.0.0.1:{port}", model=str(base.folder), headers=lambda _: {}, log=log
    )


def _started(stack: contextlib.ExitStack, name: str, command: list[str], folder: Path, env: dict[str, str]) -> Path:
    """Ended by its process id with all it started, when the stack closes. Gives its log."""
    log = folder / f"{name}.log"
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    if "gpu_runners.cli" in command:
        own["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])

    @contextlib.contextmanager
    def running() -> Iterator[None]:
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env=kept | own | env, cwd=folder, stdout=out, stderr=out, start_new_session=True
            )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    stack.enter_context(running())
    return log


def _report(
    table: dict[tuple[str, int], tuple[Load, list[Load]]], left_out: list[str], given: argparse.Namespace
) -> str:
    command = " ".join(["python -m tests.bench.serving", *sys.argv[1:]])
    lines = [
        "# Serving: the server of many tenants beside bare engines",
        "",
        f"`{command}` on {time.strftime('%d %b %Y', time.gmtime())}, {machine()}.",
        f"Engine: {given.engine}. Each figure is the middle one of {given.rounds} rounds of {given.seconds:g} s,",
        "the arms taking turns;",
        f"greedy answers of {N_TOKENS} tokens, streamed, over a random-weights base of 24 million weights in float32.",
        *(f"Left out: {one}." for one in left_out),
        "",
        "| clients | arm | tokens/s | (all rounds) | first token p50 ms | p99 ms | beside bare |",
        "|---|---|---|---|---|---|---|",
    ]
    for (arm, n_clients), (one, loads) in sorted(table.items(), key=lambda item: item[0][1]):
        bare = table[("bare", n_clients)][0].tokens_per_s
        rounds = " ".join(f"{each.tokens_per_s:.0f}" for each in loads)
        first = [seconds for each in loads for seconds in each.first_s]
        pooled = Load(n_clients=n_clients, first_s=first)
        lines.append(
            f"| {n_clients} | {arm} | {one.tokens_per_s:.0f} | {rounds} | {pooled.first_ms(50):.0f} | "
            f"{pooled.first_ms(99):.0f} | {one.tokens_per_s / bare:.3f} |"
        )
    for n_clients in sorted({n for _, n in table}):
        ratio = table[("100 adapters", n_clients)][0].tokens_per_s / table[("server", n_clients)][0].tokens_per_s
        lines += ["", f"100 adapters by turns against one, {n_clients} clients: {ratio:.3f} of the throughput."]
    return "\n".join(lines) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The server of many tenants beside bare engines.")
    parser.add_argument("--engine", choices=("torch", "vllm"), default="torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8, 32])
    parser.add_argument("--without-transformers", action="store_true", help="leave `transformers serve` out")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
