"""`kolm bench FILE`: what an artifact's rules and drafted tokens are worth on this machine, on inputs that you choose.

Each arm (`draft_measuring`) answers the same inputs by the same model, greedily: alone, with one source of drafted
tokens, with all of them in a row. `as served` is what the compiler chose, with drafts held back where they do not pay.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.errors import OurError
from backend.domain.number_words import milliseconds
from gpu_runners.cli.artifacts.loading import Refused, model_of, read_inputs, read_trusted, rules_of
from gpu_runners.cli.options import PATH, file_argument, json_option, trust_options
from gpu_runners.cli.terminal import fail

if TYPE_CHECKING:
    from gpu_runners.artifacts.loader import Model
    from gpu_runners.artifacts.rules_first import RulesFirst


_RULE_CALLS_S = 0.2


@click.command()
@file_argument
@click.option(
    "--jsonl",
    is_flag=False,
    flag_value="-",
    type=PATH,
    metavar="IN",
    help='lines of {"input": …} (default: the task\'s own examples)',
)
@click.option("--n", type=int, default=32, metavar="N", help="at most this many inputs (32)")
@click.option("--at-once", type=int, default=1, metavar="N", help="requests at a time (1)")
@click.option("--rounds", type=int, default=3, metavar="N", help="the fastest of this many counts (3)")
@click.option("--draft", metavar="BASE", help="measure this base as a draft model too")
@json_option("one JSON object")
@trust_options("run")
def bench(
    *,
    file: str,
    jsonl: str | None,
    n: int,
    at_once: int,
    rounds: int,
    draft: str | None,
    as_json: bool,
    keyring: str | None,
    allow_untrusted: bool,
) -> int:
    if min(n, at_once, rounds) < 1:
        return fail("--n, --at-once and --rounds are at least 1.", code=2)
    try:
        kolm = read_trusted(file, keyring, allow_untrusted)
        inputs = (_examples(kolm) if jsonl is None else read_inputs(jsonl))[:n]
        if not inputs:
            return fail('the artifact ships no examples; give lines of {"input": …} with --jsonl.', code=2)
        model = model_of(kolm, max_running=at_once, draft=draft)
        result: dict[str, Any] = {"n_inputs": len(inputs), "own_examples": jsonl is None, "at_once": at_once}
        result |= _measure_model(kolm, model, inputs, at_once=at_once, rounds=rounds)
        result["rules"] = _measure_rules(rules_of(kolm), inputs)
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    except OurError as error:  # an input longer than the base's context
        return fail(error.message)
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        _print(result)
    return 0


def _measure_model(
    kolm: Kolm,
    model: "Model",
    inputs: Sequence[str],
    *,
    at_once: int,
    rounds: int,
) -> dict[str, Any]:
    from gpu_runners.artifacts.label_model import LabelModel
    from gpu_runners.artifacts.span_model import SpanModel

    model.rules = None  # measured by themselves
    if isinstance(model, LabelModel | SpanModel):
        times = [model.predict([text])[0]["latency_us"] for text in inputs for _ in range(rounds)]
        engine = {"name": model.engine_name, "device": model.device}
        return {"engine": engine, "model_p50_us": round(statistics.median(times)), "arms": []}
    from gpu_runners.artifacts.draft_measuring import arms_of, measure

    has_draft = "model " in str(model.engine.about.get("drafts"))
    requests = [model.request(text, i) for i, text in enumerate(inputs)]
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as folder:
        arms = arms_of(kolm, model, Path(folder), has_draft=has_draft)
        measured = measure(model.engine, requests, arms, at_once=at_once, rounds=rounds)
    return {"engine": dict(model.engine.about), "arms": [row.summary(measured[0]) for row in measured]}


def _measure_rules(rules: "RulesFirst | None", inputs: Sequence[str]) -> dict[str, int] | None:
    """Measure the rules: how many inputs they answer; the median call, and calls a second over many texts at a time."""
    if rules is None:
        return None
    answered = [rules.answer(text) for text in inputs]
    times, began = [], time.perf_counter()
    while time.perf_counter() - began < _RULE_CALLS_S:
        for text in inputs:
            at = time.perf_counter_ns()
            rules.rule_of(text)
            times.append(time.perf_counter_ns() - at)
    many = [*inputs] * -(-1024 // len(inputs))
    calls, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < _RULE_CALLS_S:
        rules.rules_of(many)
        calls += len(many)
    return {
        "n_rules": rules.rules.n,
        "n_answered": sum(answer is not None for answer in answered),
        "p50_ns": round(statistics.median(times)),
        "calls_a_second": round(calls / elapsed),
    }


def _examples(kolm: Kolm) -> list[str]:
    """The inputs that the artifact's spec shows: gold, exemplars of slices, captures."""
    try:
        spec = json.loads(kolm.members.get("spec.json", b"{}"))
    except ValueError:
        return []
    if not isinstance(spec, dict):
        return []
    gold = (spec.get("examples") or {}).get("inline") or []
    values = [row.get("input") for row in gold if isinstance(row, dict)]
    values += [text for part in spec.get("slices") or [] for text in part.get("exemplars") or []]
    values += (spec.get("captures") or {}).get("inline") or []
    return list(dict.fromkeys(text for text in values if isinstance(text, str)))


def _print(result: dict[str, Any]) -> None:
    from gpu_runners.cli.display.printing import print_table

    origin = "the task's own examples (its pack and rules may know them)" if result["own_examples"] else "your inputs"
    about = result["engine"]
    engine = f"{about.get('name', 'encoder')} on {about['device']}"
    print(f"{result['n_inputs']} of {origin}, {result['at_once']} at a time, {engine}")
    if "model_p50_us" in result:
        print(f"model  p50 {milliseconds(result['model_p50_us'])}; an encoder writes no tokens, so nothing is drafted")
    else:
        rows = [_cells(row, result["n_inputs"]) for row in result["arms"]]
        titles = ["ARM", "TOK/S", "TIMES", "AT MOST", "TOK/STEP", "COVERED", "DRAFTED", "TAKEN", "P50 MS", "SAME"]
        print_table(titles, rows, right=range(1, len(titles)), none="")
    rules = result["rules"]
    if rules is None:
        print("rules  none")
        return
    print(
        f"rules  {rules['n_rules']} answer {rules['n_answered']} of {result['n_inputs']} inputs; p50 "
        f"{milliseconds(rules['p50_ns'] / 1000)}, {rules['calls_a_second']:,} calls/s many at a time"
    )


def _cells(row: dict[str, Any], n_inputs: int) -> tuple[str, ...]:
    return (
        row["arm"],
        _figure(row["tokens_a_second"], 1, 0),
        _figure(row["speedup_milli"], 1_000, 2),
        _figure(row["bound_milli"], 1_000, 2),
        _figure(row["tokens_a_step_milli"], 1_000, 2),
        _figure(row["coverage_ppm"], 10_000, 1, "%"),
        f"{row['drafted']:,}",
        _figure(row["acceptance_ppm"], 10_000, 1, "%"),
        _figure(row["p50_us"], 1_000, 1),
        f"{row['n_identical']}/{n_inputs}",
    )


def _figure(value: int | None, unit: int, digits: int, sign: str = "") -> str:
    return "" if value is None else f"{value / unit:,.{digits}f}{sign}"
