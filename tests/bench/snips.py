"""`python -m tests.bench.snips [DATA]`: SNIPS as a JSON task. Prints the table of docs/benchmarks/snips.md.

By default one compile through the public API of a stack of its own: the training split's utterances uploaded as
captures, its annotations as the recording of a replay teacher (so the teacher is the people who annotated SNIPS), the
validation split as gold that is all held out. With --runner the same pairs go to the trainer and the engine without a
stack: every training utterance taken trains, or with --half the half that `k_distill: half` keeps. Either way the bare
base answers too, held to the same schema.

DATA is the folder that has `snips/` in it (default $KOLM_DATA, else ../shared/data).
"""

import argparse
import datetime
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import BadAnswer, FieldCounts, answer_text, field_scores, parse_answer
from backend.domain.jobs.causal_jobs import CausalOptions, DistillCausalJob, EvaluateCausalJob
from backend.domain.selection.select import select
from backend.domain.spec.defaults import n_distilled
from backend.domain.spec.parsing import Spec, parse_spec
from backend.domain.spec.task_prompt import answer_form, system_prompt
from deploy.embedded.home import ROOT
from gpu_runners.tiny_base.train import NAME, ensure
from tests.bench.banking77_data import data_folder
from tests.bench.snips_data import TASK, Snips, Utterance, examples, jsonl, read_snips

MAX_ANSWER = 160
WITHIN_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """`f1`: of all fields together. `mean_f1`: of the utterances' own. Shares of the held-out utterances."""

    n: int
    valid: float
    f1: float
    mean_f1: float
    exact: float
    intent: float


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    try:
        snips = read_snips(chosen.data)
    except FileNotFoundError as missing:
        print(f"There is no {missing.filename}: give the folder that has snips/ in it, or set KOLM_DATA.")
        return 1
    chosen.student = "causal" if chosen.runner or chosen.bare else chosen.student
    if chosen.base == NAME and chosen.student != "spans":
        ensure(ROOT / "build" / "bases", say=lambda line: print(line, file=sys.stderr, flush=True))
    train = tuple(random.Random(chosen.seed).sample(snips.train, min(chosen.n_train, len(snips.train))))
    held_texts = {u.text for u in snips.validate}
    held = snips.validate[: chosen.n_held_out]
    part = Snips(train=tuple(u for u in train if u.text not in held_texts), validate=held)
    part = Snips(train=_half(part.train) if chosen.half else part.train, validate=held)
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{datetime.date.today()}, load {load}, {chosen.base}, {len(part.train)} utterances, seed {chosen.seed}")
    way = by_base if chosen.bare else by_runner if chosen.runner else by_stack
    print(way(part, snips.schema, chosen))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.snips", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--student", choices=["causal", "spans", "auto"], default="spans", help="what a compile trains")
    parser.add_argument("--runner", action="store_true", help="a causal base without a stack")
    parser.add_argument("--bare", action="store_true", help="the bare base alone, under the same constraint")
    parser.add_argument("--base", default=NAME, help="a folder of build/bases: gemma-3-270m after make base-gemma")
    parser.add_argument("--n-train", type=int, default=4000)
    parser.add_argument("--n-held-out", type=int, help="the first so many alone (default: all)")
    parser.add_argument("--half", action="store_true", help="train on the half that `k_distill: half` keeps")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--tokens-per-step", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=7)
    return parser


def _half(train: tuple[Utterance, ...]) -> tuple[Utterance, ...]:
    """The half that the second selection of a compile keeps where the teacher always agrees with itself."""
    from backend.domain.answers.candidates import text_key
    from tests.bench.selection_quality_texts import TextRows

    rows = TextRows("snips")
    rows.embed([u.text for u in train])
    keys = [text_key(u.text) for u in train]
    k = n_distilled("half", len(train))
    picks = select(rows.of([u.text for u in train]), [1.0] * len(train), keys, k=k, method="two_step", score_floor=0.0)
    return tuple(train[i] for i in sorted(picks.picks))


def spec_of(schema: dict[str, Any], chosen: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """A gate that lets through what is not broken: here is measured, not decided."""
    return {
        "name": "snips",
        "task": TASK,
        "output": {"type": "json", "schema": schema, "max_tokens": MAX_ANSWER},
        "sampling": {"label_samples": 1, "seed": chosen.seed},
        "train": {
            "kind": chosen.student,
            "escalate": False,
            "causal": {
                "base": chosen.base,
                "rank": chosen.rank,
                "alpha": 2 * chosen.rank,
                "epochs": chosen.epochs,
                "tokens_per_step": chosen.tokens_per_step,
                "seed": chosen.seed,
            },
        },
        "gate": {"k_min": 0.0, "accuracy_lower": 0.0, "worst_class_recall": 0.0, "beat_majority": False},
        **more,
    }


def by_stack(part: Snips, schema: dict[str, Any], chosen: argparse.Namespace) -> str:
    """Through the public API alone; the artifact's answers are asked of the API and scored here."""
    from tests.bench.banking77 import stack

    with stack() as deployment, deployment.customer("bench") as customer:

        def upload(purpose: str, body: bytes) -> str:
            query = {"purpose": purpose, "sha256": hashlib.sha256(body).hexdigest()}
            headers = {"Content-Type": "application/x-ndjson"}
            answer = customer.api.post("/v1/uploads", params=query, content=body, headers=headers)
            assert answer.status_code == 201, answer.text
            return str(answer.json()["id"])

        recorded = jsonl({"item": u.text, "completions": [{"text": answer_text(u.answer, schema)}]} for u in part.train)
        spec = spec_of(
            schema,
            chosen,
            captures={
                "upload": upload("captures", jsonl({"input": u.text} for u in part.train)),
                "max": len(part.train),
            },
            examples={"upload": upload("examples", examples(part.validate)), "holdout": 1.0},
            teacher={
                "provider": "replay",
                "model": "snips-annotations",
                "recording": upload("recording", recorded),
                "price": {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0},
                "concurrency": 32,
            },
        )
        spec["sampling"] |= {"k_select": len(part.train), "k_distill": len(part.train)}
        started = time.monotonic()
        compile = customer.succeeded(customer.compile(spec), within_s=WITHIN_S)
        wall_s = time.monotonic() - started
        outputs: list[str] = []
        for first in range(0, len(part.validate), 64):
            body = {"inputs": [u.text for u in part.validate[first : first + 64]]}
            answer = customer.api.post(f"/v1/artifacts/{compile['artifact']}/run", json=body, timeout=300)
            assert answer.status_code == 200, answer.text
            outputs += [
                json.dumps(row["output"]) if not isinstance(row["output"], str) else row["output"]
                for row in answer.json()["outputs"]
            ]
    own = score(outputs, part.validate, schema)
    kept = ("n", "accuracy_kind", "accuracy_ppm", "accuracy_low_ppm", "accuracy_high_ppm", "validity_ppm", "baselines")
    said = json.dumps({name: compile["evaluation"][name] for name in kept})
    return f"{table({'compiled artifact': own})}\n\n{wall_s:.0f} s; its own evaluation: {said}"


def by_runner(part: Snips, schema: dict[str, Any], chosen: argparse.Namespace) -> str:
    from gpu_runners.distill.causal.train import distill_causal
    from gpu_runners.distill.checkpoint import Hooks, StepDone
    from gpu_runners.jobs.causal_evaluation import evaluate_causal
    from gpu_runners.models.causal_base import open_causal_base

    spec = _read_spec(schema, chosen)
    base = open_causal_base(chosen.base, base_dir=ROOT / "build" / "bases")
    system = system_prompt(spec)
    dataset = jsonl({"input": u.text, "output": answer_text(u.answer, schema), "weight": 1.0} for u in part.train)
    options: CausalOptions = spec.train.causal.options()
    job = DistillCausalJob(
        base_model=chosen.base,
        system=system,
        dataset_sha256=hashlib.sha256(dataset).hexdigest(),
        options=options.to_json(),
        checkpoint_every_s=1e9,
    )

    def on_step(done: StepDone) -> None:
        if done.step % 20 == 0:
            print(f"{done.step}/{done.n_steps} {done.loss:.3f} {done.note}", file=sys.stderr, flush=True)

    started = time.monotonic(), time.process_time()
    blob, result = distill_causal(job, dataset, base=base, hooks=Hooks(on_step=on_step))
    trained = time.monotonic() - started[0], time.process_time() - started[1]
    began = time.monotonic()
    answered = evaluate_causal(
        EvaluateCausalJob(
            base_model=chosen.base,
            base_model_sha256=base.sha256,
            system=system,
            answer=answer_form(spec),
            max_new_tokens=MAX_ANSWER,
            adapter_sha256=result.adapter_sha256,
            adapter_config=result.adapter_config,
            inputs_sha256="",
            rules_sha256="",
        ),
        jsonl({"input": u.text} for u in part.validate),
        blob,
        base=base,
    )
    scores = {
        "adapter": score(answered.outputs, part.validate, schema),
        "bare base, same constraint": score(answered.baseline_outputs, part.validate, schema),
    }
    return (
        f"{table(scores)}\n\ntrained in {trained[0]:.0f} s wall, {trained[1]:.0f} CPU s "
        f"({result.active['device_name']}); both answered in {time.monotonic() - began:.0f} s; "
        f"{result.n_parameters:,} parameters; "
        f"{result.active['batching']}; validation loss {result.training_log[-1].get('validation_loss')}"
    )


def by_base(part: Snips, schema: dict[str, Any], chosen: argparse.Namespace) -> str:
    from gpu_runners.engine.sync import generate_all
    from gpu_runners.engine.torch_engine import TorchEngine
    from gpu_runners.models.answers import constraint_of
    from gpu_runners.models.causal_base import open_causal_base
    from gpu_runners.models.chat import prompt_ids
    from gpu_runners.models.protocol import GenerationRequest

    spec = _read_spec(schema, chosen)
    base = open_causal_base(chosen.base, base_dir=ROOT / "build" / "bases")
    system, constraint = system_prompt(spec), constraint_of(answer_form(spec))
    requests = [
        GenerationRequest(
            id=str(i),
            prompt=tuple(prompt_ids(base, system, u.text)),
            max_new_tokens=MAX_ANSWER,
            constraint=constraint,
        )
        for i, u in enumerate(part.validate)
    ]
    engine = TorchEngine(base)
    try:
        answers = generate_all(engine, requests)
    finally:
        engine.stop()
    return table({"bare base, same constraint": score([a.text for a in answers], part.validate, schema)})


def _read_spec(schema: dict[str, Any], chosen: argparse.Namespace) -> Spec:
    upload = "upl_" + "0" * 26  # nothing is uploaded: the spec is for its system message and its options
    teacher = {"provider": "replay", "model": "snips-annotations", "recording": upload}
    uploads = {"captures": {"upload": upload}, "examples": {"upload": upload}}
    return parse_spec(spec_of(schema, chosen, teacher=teacher, **uploads))


def score(outputs: Sequence[str], gold: Sequence[Utterance], schema: dict[str, Any]) -> Score:
    """An answer that cannot be read has no field."""
    fits = validator(schema)
    counts, own, valid, exact, intent = FieldCounts(tp=0, fp=0, fn=0), [], 0, 0, 0
    for output, utterance in zip(outputs, gold, strict=True):
        try:
            value = parse_answer(output)
        except BadAnswer:
            value = None
        valid += value is not None and not fits(value)
        exact += value == utterance.answer
        intent += isinstance(value, dict) and value.get("intent") == utterance.answer["intent"]
        one = field_scores(value, utterance.answer)
        counts, own = counts + one, [*own, one.f1_ppm / 1e6]
    n = len(gold)
    return Score(n=n, valid=valid / n, f1=counts.f1_ppm / 1e6, mean_f1=mean(own), exact=exact / n, intent=intent / n)


def table(scores: dict[str, Score]) -> str:
    head = "| | valid | field F1 | mean field F1 | exact | intent |\n|---|---|---|---|---|---|"
    rows = [
        f"| {name} | " + " | ".join(f"{100 * value:.1f} %" for key, value in asdict(s).items() if key != "n") + " |"
        for name, s in scores.items()
    ]
    return "\n".join([head, *rows])


if __name__ == "__main__":
    sys.exit(main())
