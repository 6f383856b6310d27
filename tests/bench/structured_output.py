"""Structured output beside free text, in valid answers per dollar: `python -m tests.bench.structured_output [DATA]`
prints the tables of docs/benchmarks/structured-output.md.

A real server over Gemma 3 270M is asked for the answer to each input as labelling asks for it, three ways in turn: held
to the spec's schema (`response_format: json_schema`), held to JSON (`json_object`), and in words alone. The prompt is
the same, schema included, and so are temperature and seed. An answer is valid where labelling would let it vote: it is
read, fits the schema and passes the spec's checks. What the server bills is counted in tokens; the price is a declared
row's.

    orders         the gold inputs of tests/acceptance/order_fields.yaml
    orders-shown   the same, with three gold pairs written into the task: Gemma is no instruct model, and follows what
                   it is shown better than what it is asked; inputs that are shown are not asked about
    snips          the first inputs of SNIPS' validation side, three training pairs in the task; DATA has `snips/`

Answers are kept in --keep FILE as they come; a run with the same file goes on where it ended.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import yaml

from backend.domain.answers.json_values import field_scores
from backend.domain.dialects.dialect import Dialect, ResponseFormat
from backend.domain.dialects.table import BY_NAME
from backend.domain.money.vendor_prices import shipped_prices
from backend.domain.spec.parsing import Spec, parse_spec
from tests.acceptance.json_specs import ORDER_FIELDS
from tests.bench.banking77_data import data_folder
from tests.bench.paired import RESAMPLES, compare
from tests.bench.snips_data import TASK, read_snips
from tests.web_stack import machine
from tests.workers.real_servers.servers import BY_NAME as KINDS
from tests.workers.real_servers.servers import RealServer
from workers.scoring.answer_checks import failed_checks
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.prompts.answer import answer_output, answer_request, parse_answer_choice
from workers.teachers.protocol import TeacherCaps, TeacherIdentity

WAYS = (ResponseFormat.SCHEMA, ResponseFormat.OBJECT, ResponseFormat.FREE)
PRICED = ("api.openai.com", "gpt-4o-mini")  # the row that prices the tokens; no vendor sells a Gemma of this size
N_SHOWN = 3
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`inputs` are asked about; `gold` holds their answers."""

    name: str
    spec: Spec
    inputs: tuple[str, ...]
    gold: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One answer to one input, with what it was billed."""

    server: str
    task: str
    way: str
    input: int
    text: str
    finish: str
    input_tokens: int
    output_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Per input, in its order: whether the answer may vote, its fields' F1 (0 where it may not), and its tokens."""

    valid: tuple[bool, ...]
    f1: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    n_cut: int
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    tasks = [task for name in chosen.tasks.split(",") if (task := task_of(name, chosen)) is not None]
    kept: list[Asked] = []
    with tempfile.TemporaryDirectory(prefix="kolm-bench-structured-") as scratch:
        keep = chosen.keep or Path(scratch) / "answers.jsonl"
        for name in chosen.servers.split(","):
            missing = KINDS[name].missing()
            if missing:
                print(f"{name} is left out: {missing}", flush=True)
                continue
            with KINDS[name].running(Path(scratch)) as server:
                print(f"{name} {server.version}", flush=True)
                for task in tasks:
                    kept += ask(server, task, keep)
    print(report(tasks, kept))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.structured_output", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--servers", default="llama-server", help="among llama-server, vllm and transformers")
    parser.add_argument("--tasks", default="orders,orders-shown,snips")
    parser.add_argument("--rows", type=int, default=60, help="inputs of each task, at most")
    parser.add_argument("--keep", type=Path, help="where the answers are kept")
    return parser


def task_of(name: str, chosen: argparse.Namespace) -> Task | None:
    """The task of that name; None, with a word, where its data is not here."""
    if name == "snips":
        try:
            snips = read_snips(chosen.data)
        except FileNotFoundError as missing:
            print(f"snips is left out: there is no {missing.filename}; give the folder that has snips/ in it.")
            return None
        output = {"type": "json", "schema": snips.schema, "max_tokens": 160}
        base: dict[str, Any] = {"name": "snips", "task": TASK, "output": output}
        pairs = [(one.text, one.answer) for one in (*snips.train[:N_SHOWN], *snips.validate)]
        shown = N_SHOWN
    else:
        base = yaml.safe_load(ORDER_FIELDS.read_text())
        gold = base["examples"]["inline"]
        step = max(1, len(gold) // N_SHOWN)
        first = [gold[i * step] for i in range(N_SHOWN)]  # of different actions: the file goes by them
        rest = [row for row in gold if row not in first]
        stride = max(1, len(rest) // chosen.rows)
        pairs = [(row["input"], row["output"]) for row in (*first, *rest[::stride])]
        shown = N_SHOWN if name == "orders-shown" else 0
    told = " ".join(f"Example: {text} -> {json.dumps(answer)}" for text, answer in pairs[:shown])
    asked = pairs[N_SHOWN : N_SHOWN + chosen.rows]
    examples = {"inline": [{"input": text, "output": answer} for text, answer in asked], "holdout": 0.5}
    teacher = {"provider": "openai_compatible", "base_url": "http://127.0.0.1/v1", "model": "m"}
    teacher["price"] = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0}
    spec = base | {"task": f"{base['task']} {told}".strip(), "examples": examples, "teacher": teacher}
    spec["gate"] = {"min_heldout": 5, "accuracy_lower": 0.5}  # as few as are asked about: nothing is compiled
    inputs, answers = zip(*asked, strict=True)
    return Task(name=name, spec=parse_spec(spec), inputs=inputs, gold=answers)


def ask(server: RealServer, task: Task, keep: Path) -> list[Asked]:
    """The answers to every input, the ways in turn, another first each time."""
    known = {(one.server, one.task, one.way, one.input): one for one in _read(keep)}
    teachers = {way: _teacher(server, replace(BY_NAME[server.name], response_format=way)) for way in WAYS}
    answers: list[Asked] = []
    for i in range(len(task.inputs)):
        for way in (*WAYS[i % len(WAYS) :], *WAYS[: i % len(WAYS)]):
            key = (server.name, task.name, way.value, i)
            if key not in known:
                known[key] = _ask_one(teachers[way], server, task, way, i)
                with keep.open("a") as file:
                    file.write(json.dumps(asdict(known[key])) + "\n")
            answers.append(known[key])
        print(f"{server.name} {task.name} {i + 1} of {len(task.inputs)}", file=sys.stderr, flush=True)
    for teacher in teachers.values():
        teacher.close()
    return answers


def _teacher(server: RealServer, dialect: Dialect) -> OpenAICompatibleTeacher:
    parts = urlsplit(server.origin)
    return OpenAICompatibleTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model=server.model),
        base_url=server.base_url,
        api_key=None,
        caps=TeacherCaps(),
        dialect=dialect,
        allowed_origins=frozenset({f"{parts.scheme}://{parts.netloc}"}),
    )


def _ask_one(teacher: OpenAICompatibleTeacher, server: RealServer, task: Task, way: ResponseFormat, i: int) -> Asked:
    temperature = task.spec.sampling.temperature_labels
    request = answer_request(task.spec, task.inputs[i], n=1, temperature=temperature, seed=i)
    started = time.monotonic()
    completion = teacher.complete(replace(request, logprobs=False), deadline_s=PATIENCE_S)
    (choice,) = completion.choices
    return Asked(
        server=server.name,
        task=task.name,
        way=way.value,
        input=i,
        text=choice.text,
        finish=choice.finish_reason,
        input_tokens=completion.usage.input_tokens,
        output_tokens=completion.usage.output_tokens,
        seconds=time.monotonic() - started,
    )


def _read(keep: Path) -> list[Asked]:
    return [Asked(**json.loads(line)) for line in keep.read_text().splitlines()] if keep.is_file() else []


def score(task: Task, answers: Sequence[Asked]) -> Score:
    """The answers of one way, judged as labelling judges them."""
    answers = sorted(answers, key=lambda one: one.input)
    read = [parse_answer_choice(task.spec, one.text) for one in answers]
    rows = [(task.inputs[one.input], got.text) for one, got in zip(answers, read, strict=True) if got is not None]
    failed = iter(failed_checks(answer_output(task.spec), rows) if rows else [])
    valid = tuple(got is not None and not next(failed) for got in read)
    f1 = [
        field_scores(got.value, task.gold[one.input]).f1_ppm / 1e6 if is_valid and got is not None else 0.0
        for one, got, is_valid in zip(answers, read, valid, strict=True)
    ]
    return Score(
        valid=valid,
        f1=tuple(f1),
        input_tokens=tuple(one.input_tokens for one in answers),
        output_tokens=tuple(one.output_tokens for one in answers),
        n_cut=sum(one.finish == "length" for one in answers),
        seconds=sum(one.seconds for one in answers),
    )


def report(tasks: Sequence[Task], answers: Sequence[Asked]) -> str:
    return "\n".join(_report(tasks, answers))


def _report(tasks: Sequence[Task], answers: Sequence[Asked]) -> Iterator[str]:
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    yield f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {machine()}, load {load}, priced as {' '.join(PRICED)}."
    yield ""
    yield (
        "| server | task | asked for | valid | field F1 | cut | input tokens | output tokens | valid per 1,000 output "
        "tokens | valid per dollar | s an answer |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    beside: list[str] = []
    for server in dict.fromkeys(one.server for one in answers):
        for task in tasks:
            mine = [one for one in answers if (one.server, one.task) == (server, task.name)]
            scores = {way: score(task, [one for one in mine if one.way == way]) for way in WAYS}
            for way, one in scores.items():
                yield _row(server, task.name, way, one)
            free = scores[ResponseFormat.FREE]
            for way in WAYS[:2]:
                beside.append(_beside(server, task.name, way, scores[way], free))
    yield ""
    yield (
        "| server | task | beside free text | valid, difference (95 %) | exact McNemar p | valid per dollar, ratio "
        "(95 %) | valid per output token, ratio (95 %) |"
    )
    yield "|---|---|---|---|---|---|---|"
    yield from beside


def _row(server: str, task: str, way: ResponseFormat, one: Score) -> str:
    n, n_valid = len(one.valid), sum(one.valid)
    cells = (
        *(server, task, f"`{way}`", f"{n_valid} of {n}", f"{mean(one.f1):.3f}", str(one.n_cut)),
        *(f"{sum(one.input_tokens):,}", f"{sum(one.output_tokens):,}"),
        f"{1000 * n_valid / sum(one.output_tokens):.1f}",
        f"{n_valid / float(costs_usd(one).sum()):,.0f}",
        f"{one.seconds / n:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def costs_usd(one: Score) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """The price of each answer, in dollars, (n,) float64; no input is taken for cached."""
    row = shipped_prices().find(*PRICED)
    if row is None:
        raise SystemExit(f"the table of prices has no {PRICED[1]} any more: name another row in PRICED")
    in_usd, out_usd = float(row.input_usd_per_mtok), float(row.output_usd_per_mtok)
    return (np.array(one.input_tokens) * in_usd + np.array(one.output_tokens) * out_usd) / 1e6


def _beside(server: str, task: str, way: ResponseFormat, one: Score, free: Score) -> str:
    compared = compare(one.valid, free.valid)
    share = f"{100 * compared.difference:+.1f} ({100 * compared.low:+.1f} to {100 * compared.high:+.1f}) points"
    per_dollar = ratio(one.valid, costs_usd(one), free.valid, costs_usd(free))
    per_token = ratio(one.valid, one.output_tokens, free.valid, free.output_tokens)
    return f"| {server} | {task} | `{way}` | {share} | {compared.p:.2g} | {per_dollar} | {per_token} |"


def ratio(
    first: Sequence[bool], first_costs: Sequence[float], second: Sequence[bool], second_costs: Sequence[float]
) -> str:
    """The first's valid answers per unit of cost as a multiple of the second's, with the bootstrap interval over
    inputs; words where the second has none.

    >>> ratio([True] * 8, [1.0] * 8, [True] * 8, [2.0] * 8)
    '2.00 (2.00 to 2.00)'
    """
    columns = [np.asarray(column, dtype=float) for column in (first, first_costs, second, second_costs)]
    if not columns[2].any():
        return "free text has none"
    picks = np.random.default_rng(0).integers(0, len(columns[0]), (RESAMPLES, len(columns[0])))
    valid, cost, other, other_cost = (column[picks].sum(axis=1) for column in columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = (valid / cost) / (other / other_cost)
    low, high = np.nanquantile(drawn, [0.025, 0.975], method="nearest")
    n_valid, n_cost, n_other, n_other_cost = (column.sum() for column in columns)
    return f"{(n_valid / n_cost) / (n_other / n_other_cost):.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
