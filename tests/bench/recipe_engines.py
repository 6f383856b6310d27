"""`python -m tests.bench.recipe_engines [DATA] [--out FILE]`: what drafted tokens give on our engine, source by source.

Each task of `recipe_world`: the same held-out prompts, greedy, answered without drafts and with each way to draft, at
1, 8 and 32 requests at a time, ways in turn and in another order each round. Printed: tokens per forward pass, the
share of drafted tokens that was accepted, coverage (drafted and accepted of all tokens), what an offline replay says of
the same answers, the bound 1 / (1 - coverage) on what free tokens can give, and the wall against no drafts (median and
range of the rounds' ratios). Every answer is compared with the one that came without drafts.

ways: prompt look-up; suffix (arctic-inference's suffix tree, warmed with the training answers, a peer); model (one
layer trained on the training pairs, same tokenizer); schema; pack; chain (pack, schema, prompt).
"""

import argparse
import asyncio
import datetime
import hashlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.pack import RecipePack
from gpu_runners.models.answers import constraint_of
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.protocol import Drafting, DraftKind, GenerationRequest, PackRef
from gpu_runners.speculation.vocabulary import observed_of, token_texts
from tests.bench.banking77_data import data_folder
from tests.bench.recipe_draft_base import draft_base
from tests.bench.recipe_suffix import has_suffix, suffix_drafts
from tests.bench.recipe_world import TASKS, World, smaller, world

WAYS = ("cold", "prompt", "suffix", "model", "schema", "pack", "chain")
KINDS: dict[str, tuple[DraftKind, ...]] = {
    "prompt": (DraftKind.PROMPT,),
    "model": (DraftKind.MODEL,),
    "schema": (DraftKind.SCHEMA,),
    "pack": (DraftKind.PACK,),
    "chain": (DraftKind.PACK, DraftKind.SCHEMA, DraftKind.PROMPT),
    "suffix": (DraftKind.PROMPT,),  # whose place the suffix tree takes
}


@dataclass(slots=True, kw_only=True)
class Measured:
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)  # of the process: what other work on the machine does not change
    n_tokens: int = 0
    n_steps: int = 0  # of the rows: passes that gave a row tokens
    drafted: int = 0
    accepted: int = 0
    n_same: int = 0

    @property
    def tokens_per_step(self) -> float:
        return self.n_tokens / max(1, self.n_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    text: str
    ids: tuple[int, ...]
    n_steps: int
    drafted: int
    accepted: int


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [f"{datetime.date.today()}, load {load}, {chosen.held} prompts a task, {chosen.rounds} rounds"]
    for name in chosen.tasks:
        try:
            task = smaller(world(name, chosen.data), chosen.held)
        except FileNotFoundError as missing:
            print(f"{name} is left out: there is no {missing.filename}", file=sys.stderr)
            continue
        lines += measure_task(task, chosen)
    text = "\n".join(lines)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n", "utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recipe_engines", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--held", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    return parser


def pack_of(task: World) -> RecipePack:
    """What a compile would make of the task's training answers."""
    return build_pack(
        [
            observed_of(task.base, row.output, row.samples, prompt=prompt_ids(task.base, task.system, row.input))
            for row in task.train
        ],
        token_texts(task.base),
        tokenizer_sha256=task.base.tokenizer_sha256,
        base=task.base.name,
        options=PackOptions(),
        end_ids=task.base.eos_ids,
    )


def measure_task(task: World, chosen: argparse.Namespace) -> list[str]:
    from gpu_runners.engine.torch_engine import TorchEngine

    ways = [way for way in chosen.ways if way != "suffix" or has_suffix()]
    if task.answer["type"] == "text" and "schema" in ways:
        ways.remove("schema")
    pack = pack_of(task)
    data = pack.to_bytes()
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as folder:
        path = Path(folder) / "recipes.json"
        path.write_bytes(data)
        ref = task.ref(Path(folder) / "adapter")
        needs_model = "model" in ways
        engine = TorchEngine(
            task.base,
            max_running=max(chosen.batches),
            merged=ref.folder,
            draft_base=draft_base(task) if needs_model else None,
        )
        try:
            found = _rounds(task, engine, ways, PackRef(key=hashlib.sha256(data).hexdigest(), path=path), chosen)
        finally:
            engine.stop()
    what = f"{len(pack.recipes)} recipes and {len(pack.copies)} copy recipes"
    return [f"\n### {task.name}: pack of {what}, {len(data):,} bytes\n", *_table(found)]


def _rounds(
    task: World, engine: Any, ways: Sequence[str], pack: PackRef, chosen: argparse.Namespace
) -> dict[tuple[int, str], Measured]:
    found = {(batch, way): Measured() for batch in chosen.batches for way in ways}
    truth: list[Told] = []
    for number in range(chosen.rounds + 1):  # the first warms up and is not counted
        for batch in chosen.batches:
            order = list(ways)
            random.Random(number).shuffle(order)
            for way in order:
                with suffix_drafts(task, on=way == "suffix"):
                    began, began_cpu = time.perf_counter(), time.process_time()
                    told = asyncio.run(_answer(engine, _requests(task, way, pack), batch))
                    took = time.perf_counter() - began, time.process_time() - began_cpu
                if not truth and way == "cold":
                    truth = told
                if number:
                    _note(found[batch, way], told, took)
        print(f"{task.name}: round {number} of {chosen.rounds}", file=sys.stderr, flush=True)
    for batch in chosen.batches:
        for way in ways:
            told = asyncio.run(_answer(engine, _requests(task, way, pack), batch)) if way != "suffix" else truth
            found[batch, way].n_same = sum(a.ids == b.ids for a, b in zip(truth, told, strict=True))
    return found


def _note(into: Measured, told: Sequence[Told], took: tuple[float, float]) -> None:
    into.walls.append(took[0])
    into.cpus.append(took[1])
    into.n_tokens += sum(len(one.ids) for one in told)
    into.n_steps += sum(one.n_steps for one in told)
    into.drafted += sum(one.drafted for one in told)
    into.accepted += sum(one.accepted for one in told)


def _requests(task: World, way: str, pack: PackRef) -> list[GenerationRequest]:
    constraint = constraint_of(task.answer)
    drafting = None
    if way != "cold":
        drafting = Drafting(kinds=KINDS[way], pack=pack if DraftKind.PACK in KINDS[way] else None)
    return [
        GenerationRequest(
            id=str(i),
            tenant=way,  # what one way learnt of acceptance is not the next one's
            prompt=tuple(prompt_ids(task.base, task.system, text)),
            max_new_tokens=task.max_new_tokens,
            constraint=constraint,
            drafting=drafting,
        )
        for i, text in enumerate(task.held)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    rows: list[Told]
    wall_s: float
    cpu_s: float

    @property
    def n_tokens(self) -> int:
        return sum(len(row.ids) for row in self.rows)


def answers_by_way(task: World, ways: Sequence[str], pack: RecipePack, *, at_once: int = 1) -> dict[str, Answers]:
    """The held-out answers by each way, greedy, `at_once` requests at a time; the first inputs warm the engine up."""
    from gpu_runners.engine.torch_engine import TorchEngine

    data = pack.to_bytes()
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as folder:
        path = Path(folder) / "recipes.json"
        path.write_bytes(data)
        ref = PackRef(key=hashlib.sha256(data).hexdigest(), path=path)
        engine = TorchEngine(task.base, max_running=at_once, merged=task.ref(Path(folder) / "adapter").folder)
        by_way = {}
        try:
            for way in ways:
                requests = _requests(task, way, ref)
                asyncio.run(_answer(engine, requests[:2], at_once))
                began, began_cpu = time.perf_counter(), time.process_time()
                rows = asyncio.run(_answer(engine, requests, at_once))
                wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
                by_way[way] = Answers(rows=rows, wall_s=wall_s, cpu_s=cpu_s)
                print(f"{way}: {len(rows)} answers in {wall_s:.0f} s", file=sys.stderr, flush=True)
        finally:
            engine.stop()
    return by_way


async def _answer(engine: Any, requests: Sequence[GenerationRequest], at_once: int) -> list[Told]:
    places = asyncio.Semaphore(at_once)

    async def one(request: GenerationRequest) -> Told:
        async with places:
            text, ids = "", []
            async for delta in engine.generate(request):
                text += delta.text
                ids += delta.token_ids
                last = delta.counts
        return Told(
            text=text,
            ids=tuple(ids),
            n_steps=last.steps or len(ids),
            drafted=last.drafted_tokens,
            accepted=last.accepted_tokens,
        )

    return list(await asyncio.gather(*[one(request) for request in requests]))


def _table(found: Mapping[tuple[int, str], Measured]) -> Iterator[str]:
    yield "| at once | way | tokens per step | accepted | coverage | bound | wall (median, range) | CPU | same |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for (batch, way), one in found.items():
        cold = found[batch, "cold"]
        walls = sorted(a / b for a, b in zip(cold.walls, one.walls, strict=True))
        cpus = sorted(a / b for a, b in zip(cold.cpus, one.cpus, strict=True))
        coverage = one.accepted / max(1, one.n_tokens)
        accepted = f"{100 * one.accepted / one.drafted:.1f} %" if one.drafted else "-"
        yield (
            f"| {batch} | {way} | {one.tokens_per_step:.2f} | {accepted} | {100 * coverage:.0f} % "
            f"| {1 / (1 - min(coverage, 0.999)):.2f} | {_told(walls)} | {_told(cpus)} | {one.n_same} |"
        )


def _told(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
