"""A trained student's own answers to inputs, in the form in which it is served: what on-policy distillation asks the
teacher about."""

import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend.domain.jobs.causal_jobs import DistillCausalJob, StudentSampling
from gpu_runners.distill.label.dataset import read_inputs
from gpu_runners.engine.sync import generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.errors import JobFailed
from gpu_runners.models.answers import constraint_of
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.chat import prompts_of
from gpu_runners.models.protocol import EngineFailed, GenerationRequest, Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentSamples:
    """`data` is a JSONL blob of `{"input": str, "output": str}` lines; of an empty answer there is none. `n_read` and
    `n_written` are tokens."""

    data: bytes
    n_read: int
    n_written: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def student_samples(
    job: DistillCausalJob,
    inputs: bytes,
    adapter: bytes,
    config: AdapterConfig,
    *,
    base: CausalBase,
    seed: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> StudentSamples:
    """One answer to each input that fits, each with a seed of its own. Raises JobFailed (invalid_dataset, invalid_job,
    generation_failed)."""
    sampling = StudentSampling.from_json(job.sampling)
    texts, constraint = read_inputs(inputs), constraint_of(sampling.answer)
    with tempfile.TemporaryDirectory(prefix="kolm-samples-") as name:
        write_peft_folder(Path(name), from_bytes(adapter, config), config)
        engine = TorchEngine(base, merged=Path(name))
        try:
            requests = [
                GenerationRequest(
                    id=str(i),
                    prompt=tuple(prompt),
                    max_new_tokens=sampling.max_new_tokens,
                    temperature=sampling.temperature,
                    seed=_seed_of(texts[i], seed),
                    constraint=constraint,
                )
                for i, prompt in enumerate(prompts_of(base, job.system, texts))
                if len(prompt) < engine.context
            ]
            answers = generate_all(engine, requests, on_done=lambda done: on_progress(done, len(requests)))
        except (Rejected, EngineFailed) as error:
            raise JobFailed(f"The training inputs cannot be answered: {error}", code="generation_failed") from error
        finally:
            engine.stop()
    rows = [
        {"input": texts[int(request.id)], "output": answer.text}
        for request, answer in zip(requests, answers, strict=True)
        if answer.text.strip()
    ]
    return StudentSamples(
        data="".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(),
        n_read=sum(answer.counts.prompt_tokens for answer in answers),
        n_written=sum(answer.counts.completion_tokens for answer in answers),
    )


def _seed_of(text: str, seed: int) -> int:
    """The seed of an input's answer, which does not depend on the inputs beside it."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=seed.to_bytes(8, "big", signed=True))
    return int.from_bytes(digest.digest()[:4], "big")
