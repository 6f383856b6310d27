"""The arms of `tests.bench.causal_distillation`: what each trains on, and its student."""

import argparse
import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.domain.jobs.causal_jobs import CausalOptions, DistillCausalJob, DistillCausalResult, StudentSampling
from gpu_runners.distill.causal.dataset import encode, read_rows
from gpu_runners.distill.causal.soft_targets import TokenTexts
from gpu_runners.distill.causal.student_samples import student_samples
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import AdapterRef
from tests.bench.recipe_world import World
from tests.bench.snips_data import jsonl
from workers.training.sample_pairs import LEAST_PROBABILITY, split_by_samples, with_soft_targets

N_SAMPLES, N_TOP = 3, 20
LEAST = math.log(LEAST_PROBABILITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    samples: str = "consensus"
    soft_weight: float = 0.0
    divergence: str = ""  # of the student's own answers; "" where none train

    def passes(self, epochs: int) -> int:
        """How often an arm goes over its answers where that of all answers does `epochs` times: about as many
        tokens, and of an on-policy arm in two halves."""
        n = epochs * (1 if self.samples == "all" else N_SAMPLES)
        return -(-n // 2) if self.divergence else n


ARMS = {
    "one answer": Arm(),
    "one answer, soft targets at 0.5": Arm(soft_weight=0.5),
    "one answer, soft targets at 1": Arm(soft_weight=1.0),
    "all answers": Arm(samples="all"),
    "all answers, soft targets at 0.5": Arm(samples="all", soft_weight=0.5),
    "all answers, soft targets at 1": Arm(samples="all", soft_weight=1.0),
    "on-policy, forward KL": Arm(divergence="forward_kl"),
    "on-policy, reverse KL": Arm(divergence="reverse_kl"),
    "on-policy, JSD": Arm(divergence="jsd"),
    "soft targets at 1, then on-policy, JSD": Arm(soft_weight=1.0, divergence="jsd"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """Pairs as a compile has them, each with its different `samples`, and the choices of each input."""

    pairs: list[dict[str, Any]]
    choices: dict[str, list[dict[str, Any]]]


def train_arm(
    teacher: World, owner: AdapterRef, lesson: Taught, arm: Arm, seed: int, chosen: argparse.Namespace, folder: Path
) -> AdapterRef:
    """The student of an arm; `owner` is the teacher's adapter."""
    rows = []
    for pair in lesson.pairs:
        plain = {name: pair[name] for name in ("input", "output", "weight")}
        for one in split_by_samples(plain, pair["samples"]) if arm.samples == "all" else [plain]:
            rows.append(with_soft_targets(one, lesson.choices[pair["input"]]) if arm.soft_weight else one)
    job = _job(teacher, arm, seed, chosen)
    blob, result = _distilled(job, rows, teacher.base)
    if arm.divergence:
        inputs = jsonl({"input": pair["input"]} for pair in lesson.pairs)
        config = AdapterConfig.from_json(result.adapter_config)
        samples = student_samples(job, inputs, blob, config, base=teacher.base, seed=seed)
        own = _scored(teacher, owner, [json.loads(line) for line in samples.data.splitlines()])
        again = dataclasses.replace(job, start_config=result.adapter_config)
        blob, result = _distilled(again, own, teacher.base, start=blob)
    config = AdapterConfig.from_json(result.adapter_config)
    folder.mkdir()
    write_peft_folder(folder, from_bytes(blob, config), config)
    return AdapterRef(key=hashlib.sha256(blob).hexdigest(), folder=folder, number=1)


def _job(teacher: World, arm: Arm, seed: int, chosen: argparse.Namespace) -> DistillCausalJob:
    options = CausalOptions(
        rank=chosen.rank,
        alpha=2 * chosen.rank,
        epochs=arm.passes(chosen.epochs),
        tokens_per_step=chosen.tokens_per_step,
        patience=0,
        seed=seed,
        soft_weight=arm.soft_weight,
        divergence=arm.divergence or "jsd",
    )
    sampling = StudentSampling(answer=teacher.answer, max_new_tokens=teacher.max_new_tokens)
    return DistillCausalJob(
        base_model=teacher.base.name,
        system=teacher.system,
        dataset_sha256="",
        options=options.to_json(),
        checkpoint_every_s=1e9,
        sampling=sampling.to_json(),
    )


def _distilled(
    job: DistillCausalJob, rows: list[dict[str, Any]], base: CausalBase, *, start: bytes | None = None
) -> tuple[bytes, DistillCausalResult]:
    from gpu_runners.distill.causal.train import distill_causal

    dataset = jsonl(rows)
    job = dataclasses.replace(job, dataset_sha256=hashlib.sha256(dataset).hexdigest())
    blob, result = distill_causal(job, dataset, base=base, start=start)
    active = result.active
    print(
        f"{len(rows)} answers, {result.n_tokens} tokens, best epoch {active['best_epoch']} of {job.options['epochs']}, "
        f"soft targets {active['soft_targets']}, on-policy {active['on_policy']}",
        flush=True,
    )
    return blob, result


def _scored(teacher: World, owner: AdapterRef, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The student's answers with the teacher's likeliest tokens at each place, as a teacher that is asked for the
    log-probs of a text tells them; its end among them."""
    import torch

    from gpu_runners.distill.causal.batch import make_batch

    base, rows = teacher.base, [one | {"weight": 1.0} for one in samples]
    examples = encode(read_rows(jsonl(rows)), base=base, system=teacher.system, max_tokens=4096).examples
    net, texts = net_of(base, owner), TokenTexts.of(base).texts
    scored = []
    with torch.no_grad():
        for row, example in zip(rows, examples, strict=True):
            logits = net.states(make_batch([[example]], packed=False)).float()
            top = logits.log_softmax(dim=-1).topk(N_TOP)
            places = [
                {"tokens": texts[own], "top": [(texts[i], p) for i, p in zip(ids, ps, strict=True) if p > LEAST]}
                for own, ids, ps in zip(
                    example.ids[example.n_prompt :], top.indices.tolist(), top.values.tolist(), strict=True
                )
            ]
            choice = {
                "text": row["output"].strip(),
                "tokens": [one["tokens"] for one in places],
                "top_logprobs": [one["top"] for one in places],
            }
            scored.append(with_soft_targets(row, [choice]) | {"on_policy": True})
    return scored


def net_of(base: CausalBase, adapter: AdapterRef) -> Any:
    from peft import PeftModel

    from gpu_runners.distill.causal.net import CompletionNet
    from gpu_runners.models.causal_base import load_weights

    return CompletionNet(PeftModel.from_pretrained(load_weights(base), str(adapter.folder)).eval(), direct=False)
