"""A text task that an adapter over Gemma 3 270M learns in minutes of one core: a delivery, written as a record."""

import hashlib
import json
import random
from typing import Any

from backend.domain.artifact.building import build_kolm
from backend.domain.canonical import canonical_json
from backend.domain.jobs.causal_jobs import CausalOptions, DistillCausalJob
from gpu_runners.distill.causal.train import distill_causal
from gpu_runners.models.causal_base import CausalBase
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members
from tests.gpu_runners.speculation.tiny_task import CITIES, DAYS, DISHES, PATTERNS

SYSTEM = "Write the delivery as a record."
MOST = 60  # tokens of an answer
N_PAIRS = 48


def pairs(n: int) -> list[tuple[str, str]]:
    """Inputs, no two of them the same, with their answers."""
    rng = random.Random(9)
    answers: dict[str, str] = {}
    while len(answers) < n:
        city, day, dish, people = rng.choice(CITIES), rng.choice(DAYS), rng.choice(DISHES), rng.randint(2, 9)
        record = {"city": city, "day": day, "dish": dish, "people": people}
        text = rng.choice(PATTERNS).format(**record)
        answers[text] = json.dumps(record)
    return list(answers.items())


def trained_kolm(base: CausalBase) -> bytes:
    """The signed artifact of an adapter that learned the first pairs."""
    rows = [{"input": text, "output": answer, "weight": 1.0} for text, answer in pairs(N_PAIRS)]
    data = "\n".join(json.dumps(row) for row in rows).encode()
    options = CausalOptions(rank=8, epochs=3, tokens_per_step=512, precision="fp32", patience=0)
    job = DistillCausalJob(
        base_model=base.name,
        system=SYSTEM,
        dataset_sha256=hashlib.sha256(data).hexdigest(),
        options=options.to_json(),
    )
    blob, result = distill_causal(job, data, base=base)
    prompt: dict[str, Any] = {"system": SYSTEM, "answer": {"type": "text"}, "max_new_tokens": MOST}
    content = members() | {
        "adapter.safetensors": blob,
        "adapter_config.json": canonical_json(result.adapter_config),
        "prompt.json": canonical_json(prompt),
    }
    content.pop("labels.json")
    wanted = {"id": base.name, "sha256": base.sha256}
    return build_kolm(content, manifest_fields=fields(base=wanted, task_type="text", name="deliveries"), key=KEY)
