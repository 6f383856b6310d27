"""A task that a random base of two layers learns in seconds: the colour in the text decides the whole answer."""

import dataclasses
import hashlib
import itertools
import json
import warnings
from typing import Any

from backend.domain.jobs.causal_jobs import CausalOptions, DistillCausalJob, DistillCausalResult
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder
from gpu_runners.models.causal_base import CausalBase, load_weights

SYSTEM = "the order of tea and coffee"
ANSWERS = {"tea": '{"name": "tea", "n": 12}', "coffee": "false", "é": '["a", "b"] true'}


def rows(n: int = 24) -> list[dict[str, Any]]:
    words = ["the", "order", "costs", "and", "null", "name", "value"]
    texts = itertools.product(words, words, ANSWERS)
    return [
        {"input": f"{a} {colour} {b}{' the' * (i % 9)}", "output": ANSWERS[colour], "weight": 1.0 + i % 2}
        for i, (a, b, colour) in enumerate(itertools.islice(texts, n))
    ]


def jsonl(data: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(row) for row in data).encode()


def make_job(base: CausalBase, *, checkpoint_every_s: float = 1e9, **options: Any) -> DistillCausalJob:
    """A job with the options that matter."""
    given = {"epochs": 2, "tokens_per_step": 256, "precision": "fp32"} | options
    return DistillCausalJob(
        base_model=base.name,
        system=SYSTEM,
        dataset_sha256=hashlib.sha256(jsonl(rows())).hexdigest(),
        options=CausalOptions(**given).to_json(),
        checkpoint_every_s=checkpoint_every_s,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    job: DistillCausalJob
    blob: bytes
    result: DistillCausalResult


def with_adapter(base: CausalBase, blob: bytes, result: DistillCausalResult, folder: Any) -> Any:
    """The base under the adapter, as PEFT loads it from the folder that `write_peft_folder` writes."""
    from peft import PeftModel

    config = AdapterConfig.from_json(result.adapter_config)
    write_peft_folder(folder, from_bytes(blob, config), config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft 0.21 asks transformers 5.23 by a deprecated name
        return PeftModel.from_pretrained(load_weights(base), str(folder)).eval()
