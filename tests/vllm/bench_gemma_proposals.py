"""Tokens a pass of a vLLM over Gemma 3 270M, with an earlier slice's answers as drafts and without.

    python -m tests.vllm.bench_gemma_proposals [--n 8] [--tokens 48]        (`make setup-vllm base-gemma`)

For each temperature the production client asks for N messages of the demo's first slices; then for N of the same slice
with its hint reworded, with the first N as drafts and without, in turns. Counts are the engine's own. Seconds are of
one request of N answers each, on whatever machine this is: read their ratio, if anything.
"""

import argparse
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
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--slices", type=int, default=2)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, running_gemma(Path(folder)) as engine:
        teacher = gemma_teacher(engine.origin)
        print("| T | tokens | proposed | kept | tokens a pass | seconds a token, with drafts in parts of without |")
        print("| --- | --- | --- | --- | --- | --- |")
        for temperature in TEMPERATURES:
            print(_row(teacher, temperature, options), flush=True)
        teacher.close()
    return 0


def _row(teacher: VllmTeacher, temperature: float, options: argparse.Namespace) -> str:
    example = yaml.safe_load((ROOT / "examples" / "refund-router.yaml").read_text())
    spec, sibling = parse_spec(example), parse_spec(next_version(example))
    counts, ratios = EngineTokens(), []
    for nth in range(options.slices):
        fields = {"n": options.n, "temperature": temperature}
        first = candidate_request(spec, spec.slices[nth], seed=nth, **fields)
        first = replace(first, max_tokens=options.tokens)
        drafts = tuple(choice.text for choice in teacher.complete(first, deadline_s=DEADLINE_S).choices)
        again = candidate_request(sibling, sibling.slices[nth], seed=100 + nth, **fields)
        again = replace(again, max_tokens=options.tokens)
        order = [drafts, ()] if nth % 2 else [(), drafts]
        spent = {bool(each): _asked(teacher, replace(again, drafts=each)) for each in order}
        counts += spent[True][0]
        ratios.append(spent[True][1] / spent[False][1])
    share = f" ({counts.kept / counts.proposed:.0%})" if counts.proposed else ""
    return (
        f"| {temperature:g} | {counts.written:,} | {counts.proposed:,} | {counts.kept:,}{share} | {counts.per_pass:.2f}"
        f" | {statistics.mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
    )


def _asked(teacher: VllmTeacher, request: CompletionRequest) -> tuple[EngineTokens, float]:
    """(the engine's counts of one request, its seconds a token)."""
    before, began = teacher.counters(), time.perf_counter()
    n_tokens = teacher.complete(request, deadline_s=DEADLINE_S).usage.output_tokens
    passed = time.perf_counter() - began
    time.sleep(1.0)  # its counters lag behind its answers
    after = teacher.counters()
    assert before is not None
    assert after is not None
    return after - before, passed / n_tokens


if __name__ == "__main__":
    sys.exit(main())
