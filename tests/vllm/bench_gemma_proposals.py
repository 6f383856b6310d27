"""Tokens a pass of a vLLM over Gemma 3 270M, with an earlier slice's answers as drafts and without.

    python -m tests.vllm.bench_gemma_proposals [--n 8] [--tokens 48]        (`make setup-vllm base-gemma`)

For each temperature the production client asks for N messages of the demo's first slices; then for N of the same slice
with its hint reworded, with the first ones as drafts and without, in turns; `--beside-plain` asks an engine of the same
kind that was started without the proposer too, which is what a customer without kolm has. Counts are the engine's own.
Seconds are of one request of N answers each, on whatever machine this is: read their ratio, if anything.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from backend.domain.drafts.vocabulary import EngineTokens
from backend.domain.spec.parsing import parse_spec
from deploy.demo.next_version import next_version
from deploy.embedded.home import ROOT
from tests.vllm.gemma_engine import gemma_teacher, running_gemma
from workers.teachers.prompts.candidate_and_label import candidate_request
from workers.teachers.protocol import CompletionRequest
from workers.teachers.vllm.teacher import VllmTeacher

TEMPERATURES = (1.0, 0.7, 0.3)
DEADLINE_S = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[8])
    parser.add_argument("--drafts", type=int, help="a slice; N unless given")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--slices", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1, help="of each slice")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--beside-plain", action="store_true", help="an engine without the proposer too")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kinds = (True, False) if options.beside_plain else (True,)
        engines = {
            proposes: stack.enter_context(running_gemma(folder, device=options.device, proposes=proposes))
            for proposes in kinds
        }
        teachers = {proposes: gemma_teacher(engine.origin) for proposes, engine in engines.items()}
        print(
            "| N | T | tokens | proposed | kept | tokens a pass | s a token: with drafts / without | / plain engine |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for n in options.n:
            for temperature in TEMPERATURES:
                print(_row(teachers, n, temperature, options), flush=True)
        for teacher in teachers.values():
            teacher.close()
    return 0


def _row(teachers: dict[bool, VllmTeacher], n: int, temperature: float, options: argparse.Namespace) -> str:
    """Each round in another order."""
    example = yaml.safe_load((ROOT / "examples" / "refund-router.yaml").read_text())
    spec, sibling = parse_spec(example), parse_spec(next_version(example))
    counts, ratios = EngineTokens(), {"without": list[float](), "plain": list[float]()}
    for turn in range(options.slices * options.rounds):
        slice_, other = spec.slices[turn % options.slices], sibling.slices[turn % options.slices]
        first = candidate_request(spec, slice_, seed=turn, n=options.drafts or n, temperature=temperature)
        first = replace(first, max_tokens=options.tokens)
        drafts = tuple(choice.text for choice in teachers[True].complete(first, deadline_s=DEADLINE_S).choices)
        again = candidate_request(sibling, other, seed=100 + turn, n=n, temperature=temperature)
        again = replace(again, max_tokens=options.tokens)
        asked = {"with": (True, drafts), "without": (True, ())}
        if False in teachers:
            teachers[False].complete(first, deadline_s=DEADLINE_S)  # as warm as the other
            asked["plain"] = (False, ())
        order = list(asked)[turn % len(asked) :] + list(asked)[: turn % len(asked)]
        spent = {arm: _asked(teachers[asked[arm][0]], replace(again, drafts=asked[arm][1])) for arm in order}
        counts += spent["with"][0]
        for arm in spent.keys() - {"with"}:
            ratios[arm].append(spent["with"][1] / spent[arm][1])
    share = f" ({counts.kept / counts.proposed:.0%})" if counts.proposed else ""
    return (
        f"| {n} | {temperature:g} | {counts.written:,} | {counts.proposed:,} | {counts.kept:,}{share}"
        f" | {counts.per_pass or 1:.2f} | {_spread(ratios['without'])} | {_spread(ratios['plain'])} |"
    )


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "–"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _asked(teacher: VllmTeacher, request: CompletionRequest) -> tuple[EngineTokens, float]:
    """(the engine's counts of one request, nothing where it had no drafts; its seconds a token)."""
    before = teacher.counters() if request.drafts else None
    began = time.perf_counter()
    n_tokens = teacher.complete(request, deadline_s=DEADLINE_S).usage.output_tokens
    passed = time.perf_counter() - began
    if before is None:
        return EngineTokens(), passed / n_tokens
    time.sleep(1.0)  # its counters lag behind its answers
    after = teacher.counters()
    assert after is not None
    return after - before, passed / n_tokens


if __name__ == "__main__":
    sys.exit(main())
