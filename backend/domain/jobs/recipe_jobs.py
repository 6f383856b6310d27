"""The job that makes a recipe pack, as it crosses the seam between the backend and a runner (`runner_jobs` has the
rules of that seam): only a runner has the base's tokenizer and engine."""

from dataclasses import dataclass
from typing import Any

from backend.domain.jobs.runner_jobs import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRecipesJob(Wire):
    """Observe the teacher's samples, build a pack, and choose what drafts for this task by measuring on prompts.

    `observations_sha256` is a JSONL blob of `{"input": str, "output": str, "samples": [str, ...]}`; `prompts_sha256`
    of `{"input": str}`. `earlier_sha256` is an earlier pack of the task's family, `feedback_sha256` a JSONL blob of
    PackFeedback rows, `epoch_sha256` an epoch of the registry; "" for none. `options` is PackOptions.to_json().
    `budget_s` bounds the measuring. `draft_base`: a base that may draft for `base_model`, "" for none."""

    base_model: str
    base_model_sha256: str
    system: str
    answer: dict[str, Any]
    max_new_tokens: int
    adapter_sha256: str
    adapter_config: dict[str, Any]
    observations_sha256: str
    prompts_sha256: str
    earlier_sha256: str
    feedback_sha256: str
    epoch_sha256: str
    options: dict[str, Any]
    sources: list[str]  # what may be chosen: pack, schema, prompt, model
    draft_base: str
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRecipesResult(Wire):
    """`pack_sha256` is a recipes.json blob with the choice in it. `measured`: one row an arm, `{"sources": [...],
    "n_prompts", "n_tokens", "n_steps", "wall_us", "drafted", "accepted", "p50_us", "by_source": [{"kind", "drafted",
    "accepted"}], "latencies_us": [...]}`, all on the same prompts, the first without drafts.
    `chosen` is the number of an arm; `reason` says why in a sentence. `own_pace_ppm` is the own time of its answers in
    millionths of that without drafts (0: not measured). `stats` are whole numbers about the pack."""

    pack_sha256: str
    measured: list[dict[str, Any]]
    chosen: int
    reason: str
    stats: dict[str, int]
    n_identical: int  # prompts whose answer was the same in the chosen arm as without drafts
    device: str
    engine: dict[str, Any]
    runner_ms: int
    own_pace_ppm: int = 0
