"""`python -m tests.bench.recipe_llama [DATA] [--held 100] [--rounds 3]`: drafts in llama.cpp, one request at a time.

Tasks of `recipe_world`, the adapter merged into the base, the pack made of the training answers. The library is
llama-cpp-python (`make setup-llama`), with our draft model; the server is llama-server of the same sources
(`make setup-llama-server`), with the static look-up file that we write. One process each, ways in turn, another first
in each round; CPU time of the process that computes, the median of the rounds. Every answer is compared with the one
without drafts.

ways of the library: prompt look-up, pack, and pack before prompt look-up, all of them whatever a draft costs
("always"); the last also as the controller lets it. Ways of the server: its n-gram cache alone (what it has seen
itself); with our file; with our file that also knows how answers begin.
"""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.embedded.home import ROOT
from gpu_runners.models.chat import prompt_ids
from gpu_runners.speculation.llama_cpp import write_static_lookup
from gpu_runners.speculation.vllm.wire import write_token_texts
from gpu_runners.speculation.vocabulary import token_texts
from tests.bench.banking77_data import data_folder
from tests.bench.recipe_engines import pack_of
from tests.bench.recipe_world import TASKS, World, smaller, world
from tests.gpu_runners.speculation.llama_server import CONTEXT, SERVER, LlamaServer, llama_server, with_file

PYTHON = ROOT / ".venv-llama" / "bin" / "python"
COLD = "no drafts"
LIBRARY: dict[str, dict[str, Any]] = {
    COLD: {"pack": ""},
    "prompt, always": {"kinds": ["prompt"], "is_gated": False},
    "pack, always": {"kinds": ["pack"], "is_gated": False},
    "pack, prompt, always": {"kinds": ["pack", "prompt"], "is_gated": False},
    "pack, prompt": {"kinds": ["pack", "prompt"], "is_gated": True},
}


@dataclass(slots=True, kw_only=True)
class Measured:
    answers: list[list[int]] = field(default_factory=list)
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    cpu_s: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    if not PYTHON.exists():
        print("there is no llama.cpp here: `make setup-llama`", file=sys.stderr)
        return 1
    print(f"{datetime.date.today()}, load {load()}, {chosen.rounds} rounds\n", flush=True)
    for name in chosen.tasks:
        try:
            task = smaller(world(name, chosen.data), chosen.held)
        except FileNotFoundError as missing:
            print(f"{name} is left out: there is no {missing.filename}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="kolm-bench-") as folder:
            print(_measured(task, Path(folder), chosen), flush=True)
    return 0


def load() -> str:
    return "/".join(f"{value:.1f}" for value in os.getloadavg())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recipe_llama", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["orders", "snips"])
    parser.add_argument("--engines", nargs="+", choices=("library", "server"), default=["library", "server"])
    ways = [way for way in LIBRARY if way != COLD]
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways, help="of the library")
    parser.add_argument("--held", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def _measured(task: World, folder: Path, chosen: argparse.Namespace) -> str:
    model = merged_gguf(task, folder)
    prompts = [prompt_ids(task.base, task.system, text) for text in task.held]
    lines = [f"### {task.name}, {len(prompts)} prompts, a pack of {len(pack_of(task).recipes)} recipes\n"]
    lines.append("| way | tokens per step | drafted | accepted | tokens a CPU second | to none | other answers |")
    lines.append("|" + "---|" * 7)
    if "library" in chosen.engines:
        ways = {way: LIBRARY[way] for way in (COLD, *chosen.ways)}
        lines += _rows("library", by_library(task, model, prompts, folder, chosen.rounds, ways))
    if "server" in chosen.engines and SERVER.exists():
        lines += _rows("server", by_server(task, model, prompts, folder, chosen.rounds))
    return "\n".join(lines) + "\n"


def _rows(engine: str, told: Mapping[str, Measured]) -> list[str]:
    cold = told[COLD]
    n_tokens = sum(map(len, cold.answers))
    rows = []
    for way, one in told.items():
        speed = n_tokens / statistics.median(one.cpu_s)
        n_other = sum(a != b for a, b in zip(one.answers, cold.answers, strict=True))
        ratio = statistics.median(one.cpu_s) / statistics.median(cold.cpu_s)
        rows.append(
            f"| {engine}: {way} | {n_tokens / one.steps:.2f} | {one.drafted} | {one.accepted} | {speed:.0f} "
            f"| {1 / ratio:.2f} | {n_other} of {len(one.answers)} |"
        )
    return rows


def merged_gguf(task: World, folder: Path) -> Path:
    import torch
    from safetensors.torch import save_file

    from gpu_runners.engine.model_runner import ModelRunner

    adapter = task.ref(folder / "adapter").folder
    runner = ModelRunner(task.base, device=torch.device("cpu"), dtype=torch.float32, merged=adapter)
    merged = folder / "merged"
    merged.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (merged / name).write_bytes((task.base.folder / name).read_bytes())
    weights = {name: one.contiguous() for name, one in runner.model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, merged / "model.safetensors")
    _run("tests.gpu_runners.speculation.tiny_gguf", str(merged), str(folder / "model.gguf"))
    return folder / "model.gguf"


def by_library(
    task: World, model: Path, prompts: list[list[int]], folder: Path, rounds: int, ways: Mapping[str, Any]
) -> dict[str, Measured]:
    data = pack_of(task).to_bytes()
    (folder / "recipes.json").write_bytes(data)
    write_token_texts(token_texts(task.base), folder / "texts.json")
    work = {
        "model": str(model),
        "prompts": prompts,
        "most": task.max_new_tokens,
        "end": task.base.eos_ids[0],
        "pack": str(folder / "recipes.json"),
        "pack_sha256": hashlib.sha256(data).hexdigest(),
        "token_texts": str(folder / "texts.json"),
        "tokenizer_sha256": task.base.tokenizer_sha256,
        "rounds": rounds,
        "context": CONTEXT,
        "ways": ways,
    }
    (folder / "work.json").write_text(json.dumps(work))
    told = json.loads(_run("tests.bench.recipe_llama_library", str(folder / "work.json")))
    return {way: Measured(**told[way]) for way in ways}


def by_server(task: World, model: Path, prompts: list[list[int]], folder: Path, rounds: int) -> dict[str, Measured]:
    flags = {COLD: (), "n-gram cache": ("--spec-type", "ngram-cache")}
    for way, prompt_end in (("file", ()), ("file, beginnings", prompts[0][-2:])):
        path = folder / f"{len(prompt_end)}.bin"
        write_static_lookup(
            pack_of(task),
            path,
            tokenizer_sha256=task.base.tokenizer_sha256,
            n_vocab=task.base.vocab_size,
            prompt_end=prompt_end,
        )
        flags[way] = with_file(path)
    told = {way: Measured() for way in flags}
    with contextlib.ExitStack() as stack:
        servers = {
            way: stack.enter_context(llama_server(model, *its, log=folder / f"{i}.log"))
            for i, (way, its) in enumerate(flags.items())
        }
        for number in range(rounds):
            first = number % len(told)
            for way in [*told][first:] + [*told][:first]:
                cpu_s = told[way].cpu_s
                told[way] = _pass(servers[way], prompts, task.max_new_tokens)
                told[way].cpu_s = cpu_s + told[way].cpu_s
    return told


def _pass(server: LlamaServer, prompts: list[list[int]], most: int) -> Measured:
    began = server.cpu_s()
    said = [server.answer(prompt, most=most, cache_prompt=True) for prompt in prompts]
    return Measured(
        answers=[list(one.tokens) for one in said],
        steps=sum(one.n_steps for one in said),
        drafted=sum(one.drafted for one in said),
        accepted=sum(one.accepted for one in said),
        cpu_s=[server.cpu_s() - began],
    )


def _run(module: str, *arguments: str) -> str:
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    command = [str(PYTHON), "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
