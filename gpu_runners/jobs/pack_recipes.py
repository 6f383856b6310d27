"""The job that makes a task's recipe pack: observe the teacher's samples, build the pack, and choose what drafts by
measuring on held-out prompts with the engine and the adapter that will be served."""

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.domain.jobs.recipe_jobs import PackRecipesJob, PackRecipesResult
from backend.domain.recipes.feedback import PackFeedback, checked_feedback
from backend.domain.recipes.inputs import frame_of
from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.mining.merging import (
    learned_answers,
    merge_previous,
    merge_previous_copies,
    missed_by_shape,
)
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.pack import InvalidPack, Recipe, RecipePack, read_pack
from backend.domain.recipes.registry.cold_start import epoch_recipes
from backend.domain.recipes.registry.epochs import InvalidEpoch, read_epoch
from gpu_runners.artifacts.pack_attachment import MountedPack
from gpu_runners.distill.label.dataset import read_inputs
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.errors import JobFailed
from gpu_runners.jobs.arm_measuring import Arm, choices, chosen_arm, measure_arms, own_pace_ppm
from gpu_runners.models.answers import constraint_of
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder
from gpu_runners.models.causal_base import CausalBase, check_fit, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.protocol import AdapterRef, EngineFailed, GenerationRequest, Rejected
from gpu_runners.speculation.vocabulary import observed_of, token_texts

MAX_SAMPLES = 32
_UNLIKE = ("a", "7 b.")  # inputs that share nothing: what their prompts share is the frame of all
OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackInputs:
    """The job's blobs; None for those that it does not name."""

    observations: bytes
    prompts: bytes
    adapter: bytes
    earlier: bytes | None = None
    feedback: bytes | None = None
    epoch: bytes | None = None


def read_inputs_of(folder: Path) -> PackInputs:
    """Read the inputs as the training worker put them there."""
    inputs = {path.name: path.read_bytes() for path in folder.iterdir() if path.name in PackInputs.__slots__}
    return PackInputs(**inputs)


def pack_recipes(
    job: PackRecipesJob,
    inputs: PackInputs,
    *,
    base_dir: Path | None = None,
    on_progress: OnProgress = lambda done, total, note: None,
) -> tuple[bytes, PackRecipesResult]:
    """recipes.json and the result that names it. Raises JobFailed (invalid_dataset, invalid_adapter, base_mismatch,
    unknown_base, unsupported_base, unknown_tokenizer, generation_failed)."""
    started = time.monotonic()
    base = open_causal_base(job.base_model, base_dir=base_dir, expect_sha256=job.base_model_sha256)
    on_progress(0, 1, "observing the teacher's answers")
    pack = _build(job, inputs, base)
    draft_base = open_causal_base(job.draft_base, base_dir=base_dir) if "model" in job.sources else None
    if draft_base is not None and draft_base.tokenizer_sha256 != base.tokenizer_sha256:
        raise JobFailed(
            f"{job.draft_base!r} has another tokenizer than {job.base_model!r} and cannot draft for it; name another "
            "recipes.draft_base, or leave it out.",
            code="base_mismatch",
        )
    engine = TorchEngine(base, draft_base=draft_base)
    try:
        arms = _measure(job, inputs, base, engine, pack, on_progress)
        about = dict(engine.about)
    except (Rejected, EngineFailed) as error:
        raise JobFailed(f"The held-out prompts cannot be answered: {error}", code="generation_failed") from error
    finally:
        engine.stop()
    chosen, reason = chosen_arm(arms)
    data = replace(pack, sources=arms[chosen].sources).to_bytes()
    same = [mine == plain for mine, plain in zip(arms[chosen].answers, arms[0].answers, strict=True)]
    return data, PackRecipesResult(
        pack_sha256=hashlib.sha256(data).hexdigest(),
        measured=[arm.to_json() for arm in arms],
        chosen=chosen,
        reason=reason,
        stats=pack.stats | {"n_recipes": len(pack.recipes), "size_bytes": len(data)},
        n_identical=sum(same),
        own_pace_ppm=own_pace_ppm(arms[chosen], arms[0]),
        device=str(about["device"]),
        engine=about,
        runner_ms=round((time.monotonic() - started) * 1000),
    )


def _build(job: PackRecipesJob, inputs: PackInputs, base: CausalBase) -> RecipePack:
    texts = token_texts(base)
    try:
        options = PackOptions.from_json(job.options)
    except (ValueError, TypeError) as error:
        raise JobFailed(f"The job's options cannot be read: {error}", code="invalid_job") from error
    earlier, feedback = _earlier(inputs, base)
    kept = [] if earlier is None else merge_previous(earlier, feedback)
    kept_copies = [] if earlier is None else merge_previous_copies(earlier, feedback)
    if inputs.epoch is not None:
        kept += _from_epoch(inputs.epoch, base, texts)
    # the choice of sources is written in afterwards
    room = replace(options, max_bytes=max(1, options.max_bytes - 64))
    return build_pack(
        [*_observe(job, inputs.observations, base), *learned_answers(feedback, len(texts))],
        texts,
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        options=room,
        kept=kept,
        kept_copies=kept_copies,
        frame=frame_of([prompt_ids(base, job.system, text) for text in _UNLIKE]),
        end_ids=base.eos_ids,
        missed=missed_by_shape(feedback),
    )


def _observe(job: PackRecipesJob, data: bytes, base: CausalBase) -> Iterator[Observed]:
    """Rows without an input are of plain recipes alone. Raises JobFailed(invalid_dataset)."""
    for n, line in enumerate(data.splitlines(), start=1):
        match _json(line):
            case {"output": str(output), "samples": list(samples), **rest} if all(isinstance(s, str) for s in samples):
                text = rest.get("input")
                prompt = prompt_ids(base, job.system, text) if isinstance(text, str) else ()
                yield observed_of(base, output, samples[:MAX_SAMPLES], prompt=prompt)
            case _:
                raise JobFailed(f"Line {n} of the observations is not {{output, samples}}.", code="invalid_dataset")


def _earlier(inputs: PackInputs, base: CausalBase) -> tuple[RecipePack | None, list[PackFeedback]]:
    """An earlier pack and what was reported of it. What cannot be read is as good as none."""
    if inputs.earlier is None:
        return None, []
    try:
        earlier = read_pack(inputs.earlier, tokenizer_sha256=base.tokenizer_sha256)
        return earlier, [checked_feedback(_json(line)) for line in (inputs.feedback or b"").splitlines()]
    except (InvalidPack, ValueError):
        return None, []


def _from_epoch(data: bytes, base: CausalBase, texts: list[bytes]) -> list[Recipe]:
    def encode(text: str) -> list[int]:
        ids: list[int] = base.tokenizer.encode(text, add_special_tokens=False)
        return ids

    try:
        return epoch_recipes(read_epoch(data), encode, texts)
    except InvalidEpoch:
        return []


def _measure(
    job: PackRecipesJob,
    inputs: PackInputs,
    base: CausalBase,
    engine: TorchEngine,
    pack: RecipePack,
    on_progress: OnProgress,
) -> list[Arm]:
    config = AdapterConfig.from_json(job.adapter_config)
    check_fit(config, base)
    with tempfile.TemporaryDirectory(prefix="kolm-recipes-") as folder:
        write_peft_folder(Path(folder), from_bytes(inputs.adapter, config), config)
        adapter = AdapterRef(key=job.adapter_sha256, folder=Path(folder), number=1)
        arms = [_arm(pack, sources, Path(folder) / f"arm-{i}") for i, sources in enumerate(_choices(job, pack))]
        return measure_arms(
            engine,
            arms,
            _requests(job, inputs.prompts, base, adapter, longest=engine.context),
            budget_s=job.budget_s,
            on_progress=lambda done, total: on_progress(done, total, "measuring what drafts"),
        )


def _choices(job: PackRecipesJob, pack: RecipePack) -> list[tuple[str, ...]]:
    """The sources that can draft here: a pack that has recipes, a schema where there is one."""
    cannot = {"pack"} if pack.is_empty else set()
    cannot |= {"schema"} if constraint_of(job.answer) is None else set()
    return choices([name for name in job.sources if name not in cannot])


def _arm(pack: RecipePack, sources: tuple[str, ...], folder: Path) -> Arm:
    """Mount the pack as a server does. The choice is part of the bytes, so that no arm learns what another measured."""
    folder.mkdir()
    mine = replace(pack, sources=sources)
    mounted = MountedPack(pack=mine, data=mine.to_bytes(), learns=False)
    return Arm(sources=sources, drafting=mounted.drafting(folder))


def _requests(
    job: PackRecipesJob, prompts: bytes, base: CausalBase, adapter: AdapterRef, *, longest: int
) -> list[Callable[[], GenerationRequest]]:
    """One a prompt that fits. Raises JobFailed(invalid_dataset) where none does."""
    constraint = constraint_of(job.answer)

    def request(text: str) -> GenerationRequest:
        return GenerationRequest(
            id="measured",
            prompt=tuple(prompt_ids(base, job.system, text)),
            max_new_tokens=job.max_new_tokens,
            adapter=adapter,
            constraint=constraint,
        )

    fitting = [text for text in read_inputs(prompts) if len(request(text).prompt) < longest]
    if not fitting:
        raise JobFailed("No held-out prompt fits this base's context.", code="invalid_dataset")
    return [lambda text=text: request(text) for text in fitting]  # type: ignore[misc]


def _json(line: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
