"""What drafts save a customer's own engine, through the product: a compile's candidates with proposals and without.

    python -m tests.vllm.bench_siblings [--n 8]        (the engine in .venv-vllm, over Gemma 3 270M: `make base-gemma`)

The task of the demo is compiled up to selection by the product's own steps, with `engine: vllm`; then a sibling that
differs in one thing, of the same tenant, and the same sibling of a tenant without drafts, in turns. Per sibling: the
engine's own counts of its proposals, its processor time while candidates were written, and the time that a customer
waited for them. A compile whose candidates are all refused leaves no drafts: then nothing is counted.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from backend.domain.drafts.vocabulary import EngineTokens
from deploy.embedded.home import ROOT
from tests.bench.draft_kscore import services
from tests.bench.draft_siblings import CHANGES
from tests.vllm.gemma_engine import GemmaEngine, running_gemma

EXAMPLE = ROOT / "examples" / "refund-router.yaml"
SIBLINGS = ("hints reworded", "task and hints reworded", "N + 8, nothing else")
Spec = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The candidates of one compile: what the engine counted, its processor seconds, and the seconds waited."""

    n_tokens: int
    engine: EngineTokens
    cpu_s: float
    wall_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=48, help="of a candidate")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--slices", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--beside-plain", action="store_true", help="the compile without drafts asks a plain engine")
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=SIBLINGS)
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(services())
        warm = cold = stack.enter_context(running_gemma(folder, device=options.device))
        if options.beside_plain:
            cold = stack.enter_context(running_gemma(folder, device=options.device, proposes=False))
        from django.conf import settings

        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (warm.origin, cold.origin)
        print("| the sibling differs in | seeds | tokens | proposed | kept | tokens a pass | CPU s | waited s |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for change in options.changes:
            pairs = [_pair(cold, warm, change, seed, options) for seed in range(1, options.seeds + 1)]
            print(_row(change, pairs), flush=True)
    return 0


def _row(change: str, pairs: Sequence[tuple[Written, Written]]) -> str:
    counts = sum((warm.engine for _, warm in pairs), EngineTokens())
    n_tokens = sum(warm.n_tokens for _, warm in pairs)
    share = f"{counts.kept / counts.proposed:.0%}" if counts.proposed else "–"
    per_pass = "–" if counts.per_pass is None else f"{counts.per_pass:.2f}"
    cpu = _ratios([(warm.cpu_s / warm.n_tokens, cold.cpu_s / cold.n_tokens) for cold, warm in pairs if warm.n_tokens])
    wall = _ratios(
        [(warm.wall_s / warm.n_tokens, cold.wall_s / cold.n_tokens) for cold, warm in pairs if warm.n_tokens]
    )
    return (
        f"| {change} | {len(pairs)} | {n_tokens:,} | {counts.proposed:,} | {counts.kept:,} ({share}) | {per_pass}"
        f" | {cpu} | {wall} |"
    )


def _ratios(pairs: Sequence[tuple[float, float]]) -> str:
    """The mean ratio of warm to cold for a token, and its range."""
    ratios = [warm / cold for warm, cold in pairs]
    return f"x {statistics.mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "–"


def _pair(
    cold: GemmaEngine, warm: GemmaEngine, change: str, seed: int, options: argparse.Namespace
) -> tuple[Written, Written]:
    """The sibling (without drafts, with them); which of them is written first changes with the seed."""
    from tests.factories import make_tenant

    known = make_tenant()
    _written(warm, known, _spec(warm, seed, options))
    written: dict[bool, Written] = {}
    for has_drafts in (True, False) if seed % 2 else (False, True):
        engine = warm if has_drafts else cold
        sibling = CHANGES[change](_spec(engine, seed, options))
        sibling["sampling"] = sibling["sampling"] | {"seed": seed + 1000}
        written[has_drafts] = _written(engine, known if has_drafts else make_tenant(), sibling)
    return written[False], written[True]


def _spec(engine: GemmaEngine, seed: int, options: argparse.Namespace) -> Spec:
    spec: Spec = yaml.safe_load(EXAMPLE.read_text())
    slices = [part | {"share": 1 / options.slices} for part in spec["slices"][: options.slices]]
    sampling: Spec = {"n_candidates": options.n, "seed": seed, "candidate_max_tokens": options.max_tokens}
    sampling |= {"temperature_inputs": options.temperature, "k_select": options.n // 2, "on_gap": ["drop_k"]}
    teacher: Spec = {
        "provider": "openai_compatible",
        "base_url": engine.base_url,
        "model": engine.model,
        "engine": "vllm",
    }
    teacher |= {"concurrency": 4, "revision": "bench", "price": {"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 0.4}}
    own = {"sampling": sampling, "teacher": teacher, "slices": slices, "verifiers": []}
    return spec | own | {"draft_cache": {"holdback": 0, "verify": "engine"}, "plan": "fixed"}


def _written(engine: GemmaEngine, tenant: Any, spec: Spec) -> Written:
    """Walk one compile up to selection; only its synthesis is measured."""
    from backend.compiles.draft_savings import savings_of_compile
    from backend.compiles.lifecycle import submission, transitions
    from backend.domain.lifecycle import CompileStatus, StepName
    from backend.tenants.isolation import tenant_scope
    from tests.compile_factories import hold
    from workers.pipeline import STEP_FUNCTIONS
    from workers.step.durable import begin_step

    with tenant_scope(tenant.id):
        row = submission.submit(tenant.id, dict(spec), api_key_id=None)
        row.refresh_from_db()
    run = hold(row)
    with run.transaction() as fenced:
        transitions.move(fenced, CompileStatus.RUNNING)
    spent = (0, 0.0, 0.0)
    for step in (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION):
        begin_step(run, step)
        if step is not StepName.SYNTHESIS:
            STEP_FUNCTIONS[step](run)
            continue
        with _measured(engine) as measured:
            STEP_FUNCTIONS[step](run)
        spent = measured()
    with tenant_scope(tenant.id):
        savings = savings_of_compile(tenant.id, row.id)
    counts = EngineTokens() if savings is None else savings.engine
    return Written(n_tokens=spent[0], engine=counts, cpu_s=spent[1], wall_s=spent[2])


@contextlib.contextmanager
def _measured(engine: GemmaEngine) -> Iterator[Any]:
    """(tokens that the engine wrote, its processor seconds, the seconds that passed)."""
    before, cpu, began = engine.n_written(), _cpu_s(engine.process_id), time.perf_counter()
    spent: list[tuple[int, float, float]] = []
    yield lambda: spent[0]
    wall = time.perf_counter() - began
    time.sleep(1.0)  # its counters lag behind its answers
    spent.append((engine.n_written() - before, _cpu_s(engine.process_id) - cpu, wall))


def _cpu_s(process_id: int) -> float:
    """Of the engine with all that it started."""
    leader = psutil.Process(process_id)
    times = [process.cpu_times() for process in (leader, *leader.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


if __name__ == "__main__":
    sys.exit(main())
