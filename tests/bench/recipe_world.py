"""The tasks of the recipe benches: what a teacher said of training inputs, an adapter of kolm-tiny-1 that was trained
on it, and inputs that neither saw. Trained once into build/bench-recipes, minutes to a quarter of an hour of one core
each.

orders and summaries are tests/acceptance/order_fields.yaml and examples/order-summary.yaml with the built-in grammar
as teacher (three samples an input); snips is SNIPS as JSON with its annotations as the teacher (one).
"""

import dataclasses
import hashlib
import json
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.domain.answers.json_values import answer_text
from backend.domain.jobs.causal_jobs import CausalOptions, DistillCausalJob
from backend.domain.spec.defaults import effective_slices
from backend.domain.spec.parsing import Spec, parse_spec
from backend.domain.spec.task_prompt import answer_form, system_prompt
from deploy.embedded.home import ROOT
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.protocol import AdapterRef
from gpu_runners.tiny_base.train import NAME, ensure
from tests.acceptance.json_specs import ORDER_FIELDS
from tests.bench.snips_data import TASK as SNIPS_TASK
from tests.bench.snips_data import jsonl, read_snips
from workers.teachers.grammar.files import shipped_grammar
from workers.teachers.grammar.model import GrammarModel, Policy
from workers.teachers.prompts.answer import item_request
from workers.teachers.prompts.candidate_and_label import candidate_request, parse_message
from workers.training.votes import agree, valid_answers

TASKS = ("orders", "summaries", "snips")
KEPT = ROOT / "build" / "bench-recipes"
N_HELD = 300
_FILES = {"orders": ORDER_FIELDS, "summaries": ROOT / "examples" / "order-summary.yaml"}
_N_TRAIN = {"orders": 400, "summaries": 400, "snips": 1_200}
_OPTIONS = {
    "orders": CausalOptions(rank=16, alpha=32, learning_rate=0.004, epochs=8, tokens_per_step=1024, patience=0),
    "summaries": CausalOptions(rank=16, alpha=32, learning_rate=0.004, epochs=8, tokens_per_step=1024, patience=0),
    "snips": CausalOptions(rank=32, alpha=64, epochs=5, tokens_per_step=2048),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`samples` are the valid answers that the teacher gave, `output` the one that was taken."""

    input: str
    output: str
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    name: str
    base: CausalBase
    system: str
    answer: dict[str, Any]
    max_new_tokens: int
    train: tuple[Row, ...]
    held: tuple[str, ...]
    adapter: bytes
    config: AdapterConfig

    def ref(self, folder: Path) -> AdapterRef:
        folder.mkdir(parents=True, exist_ok=True)
        write_peft_folder(folder, from_bytes(self.adapter, self.config), self.config)
        return AdapterRef(key=hashlib.sha256(self.adapter).hexdigest(), folder=folder, number=1)


def tiny_base() -> CausalBase:
    bases = ROOT / "build" / "bases"
    ensure(bases, say=_say)
    return open_causal_base(NAME, base_dir=bases)


def world(
    name: str,
    data: Path,
    *,
    base: CausalBase | None = None,
    options: CausalOptions | None = None,
    n_train: int | None = None,
    kept: Path = KEPT,
) -> World:
    """The task over `base` (default: kolm-tiny-1), with an adapter that was trained on the first `n_train` rows. Raises
    FileNotFoundError where `data` lacks snips/."""
    base, (spec, rows, held) = base or tiny_base(), taught(name, data)
    train = rows[:n_train]
    dataset = jsonl({"input": row.input, "output": row.output, "weight": 1.0} for row in train)
    job = DistillCausalJob(
        base_model=base.name,
        system=system_prompt(spec),
        dataset_sha256=hashlib.sha256(dataset).hexdigest(),
        options=(options or _OPTIONS[name]).to_json(),
        checkpoint_every_s=1e9,
    )
    adapter, config = _trained(job, dataset, base, kept)
    return World(
        name=name,
        base=base,
        system=job.system,
        answer=answer_form(spec),
        max_new_tokens=spec.output.max_tokens,  # type: ignore[union-attr]
        train=tuple(train),
        held=tuple(held),
        adapter=adapter,
        config=config,
    )


def _trained(job: DistillCausalJob, dataset: bytes, base: CausalBase, kept: Path) -> tuple[bytes, AdapterConfig]:
    from gpu_runners.distill.causal.train import distill_causal
    from gpu_runners.distill.checkpoint import Hooks, StepDone

    name = hashlib.sha256(json.dumps([job.to_json(), base.sha256], sort_keys=True).encode()).hexdigest()[:16]
    folder = kept / name
    if not (folder / "adapter_config.json").exists():
        _say(f"training an adapter of {job.options['epochs']} epochs into {folder}")

        def on_step(done: StepDone) -> None:
            if done.step % 50 == 0:
                _say(f"{done.step}/{done.n_steps} {done.loss:.3f}")

        began = time.monotonic(), time.process_time()
        blob, result = distill_causal(job, dataset, base=base, hooks=Hooks(on_step=on_step))
        wall_s, cpu_s = time.monotonic() - began[0], time.process_time() - began[1]
        _say(f"{result.n_tokens} tokens in {wall_s:.0f} s, {cpu_s:.0f} CPU s: {result.training_log}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "adapter").write_bytes(blob)
        (folder / "adapter_config.json").write_text(json.dumps(result.adapter_config))
    return (
        (folder / "adapter").read_bytes(),
        AdapterConfig.from_json(json.loads((folder / "adapter_config.json").read_text())),
    )


def taught(name: str, data: Path) -> tuple[Spec, list[Row], list[str]]:
    """The spec, what the teacher answered, held-out inputs."""
    return _snips(data) if name == "snips" else _grammar(name)


def _snips(data: Path) -> tuple[Spec, list[Row], list[str]]:
    snips = read_snips(data)
    upload = "upl_" + "0" * 26
    spec = parse_spec(
        {
            "name": "snips",
            "task": SNIPS_TASK,
            "output": {"type": "json", "schema": snips.schema, "max_tokens": 160},
            "teacher": {"provider": "replay", "model": "snips-annotations", "recording": upload},
            "captures": {"upload": upload},
            "examples": {"upload": upload},
            "train": {"causal": {"base": NAME}},
        }
    )
    held = [u.text for u in snips.validate][:N_HELD]
    others = [u for u in snips.train if u.text not in {u.text for u in snips.validate}]
    rows = []
    for u in random.Random(7).sample(others, _N_TRAIN["snips"]):
        said = answer_text(u.answer, snips.schema)
        rows.append(Row(input=u.text, output=said, samples=(said,)))
    return spec, rows, held


def _grammar(name: str) -> tuple[Spec, list[Row], list[str]]:
    """Inputs and answers as a compile asks for them; the held-out inputs are other messages of the same grammar."""
    import yaml

    value = yaml.safe_load(_FILES[name].read_text("utf-8"))
    spec = parse_spec(value)
    model = GrammarModel(shipped_grammar())
    inputs = _messages(spec, model, _N_TRAIN[name] + N_HELD)
    held, asked = inputs[:N_HELD], inputs[N_HELD:]
    rows = []
    for text in asked:
        said = _said(model, item_request(spec, text, n=3, temperature=0.7, seed=7), temperature=0.7)
        rows.append((text, said))
    agreed = agree(spec, rows)
    kept = []
    for (text, said), one in zip(rows, agreed, strict=True):
        if one.is_verified:
            valid = tuple(text for text in valid_answers(spec, text, said) if text is not None)
            kept.append(Row(input=text, output=one.answer, samples=valid))
    return spec, kept, held


def _messages(spec: Spec, model: GrammarModel, n: int) -> list[str]:
    found: dict[str, None] = {}
    slices, seed = effective_slices(spec), 0
    while len(found) < n:
        part = slices[seed % len(slices)]
        request = candidate_request(spec, part, n=8, temperature=1.0, seed=seed)
        for text in _said(model, request, temperature=1.0):
            message = parse_message(text)
            if message:
                found.setdefault(message)
        seed += 1
    rows = sorted(found)
    random.Random(7).shuffle(rows)
    return rows[:n]


def _said(model: GrammarModel, request: Any, *, temperature: float) -> list[str]:
    content = request.messages[-1].content
    policy = Policy(temperature=temperature, max_tokens=request.max_tokens)
    return [written.text for written in model.answer(content, n=request.n, seed=request.seed, policy=policy)]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def smaller(world: World, n: int) -> World:
    """With the first n held-out inputs alone."""
    return dataclasses.replace(world, held=world.held[:n])
