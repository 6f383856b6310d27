"""One artifact's answers measured arm by arm: what each source of drafted tokens takes off them.

Every arm answers the same requests by the same engine. Rounds go through all arms in turn, and an arm's time is that of
its fastest round: what other processes took is nobody's speed.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.domain.artifact.kolm_verify import Kolm
from gpu_runners.artifacts.generative_model import GenerativeModel
from gpu_runners.artifacts.pack_attachment import PACK_FILE, mounted_pack
from gpu_runners.engine.sync import Finished, read_to_end
from gpu_runners.errors import JobFailed
from gpu_runners.models.protocol import (
    Drafting,
    DraftKind,
    Engine,
    EngineFailed,
    GenerationRequest,
    Overloaded,
    PackRef,
    Rejected,
)

_MAX_DRAFT = 16  # without a pack that says its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    name: str
    drafting: Drafting | None


@dataclass(slots=True, kw_only=True)
class Measured:
    """The measurement of one arm: the counts of a round (the first, where they differ) and the times of the fastest."""

    name: str
    texts: list[str]
    n_tokens: int
    n_steps: int
    drafted: int
    accepted: int
    wall_us: int
    p50_us: int

    def summary(self, cold: "Measured") -> dict[str, Any]:
        """Whole numbers; rates in ppm or thousandths."""
        left = self.n_tokens - self.accepted
        same = sum(a == b for a, b in zip(self.texts, cold.texts, strict=True))
        return {
            "arm": self.name,
            "n_tokens": self.n_tokens,
            "n_steps": self.n_steps,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "wall_us": self.wall_us,
            "p50_us": self.p50_us,
            "tokens_a_second": _share(self.n_tokens, self.wall_us, of=1_000_000),
            "speedup_milli": _share(cold.wall_us, self.wall_us, of=1_000),
            "tokens_a_step_milli": _share(self.n_tokens, self.n_steps, of=1_000),
            "coverage_ppm": _share(self.accepted, self.n_tokens, of=1_000_000),
            "acceptance_ppm": _share(self.accepted, self.drafted, of=1_000_000),
            "bound_milli": _share(self.n_tokens, left, of=1_000),
            "n_identical": same,
        }


def arms_of(kolm: Kolm, model: GenerativeModel, folder: Path, *, has_draft: bool) -> list[Arm]:
    """Alone, each source, all of them in a row, which all draft always, and what the compiler chose. `folder` is where
    the pack may lie meanwhile."""
    pack = mounted_pack(kolm.members, tokenizer_sha256=model.base.tokenizer_sha256)
    ref, names = None, {"prompt look-up": DraftKind.PROMPT}
    if has_draft:
        names = {"draft model": DraftKind.MODEL} | names
    if model.constraint is not None:
        names = {"schema": DraftKind.SCHEMA} | names
    if pack is not None and pack.pack.recipes:
        names = {"pack": DraftKind.PACK} | names
        (folder / PACK_FILE).write_bytes(pack.data)
        ref = PackRef(key=pack.sha256, path=folder / PACK_FILE)
    most = _MAX_DRAFT if pack is None else pack.pack.max_draft
    arms = [Arm(name="cold", drafting=None)]
    for name, kinds in [*((name, (kind,)) for name, kind in names.items()), ("chain", tuple(names.values()))]:
        used = ref if DraftKind.PACK in kinds else None
        arms.append(Arm(name=name, drafting=Drafting(kinds=kinds, pack=used, max_draft=most, is_gated=False)))
    served = model.drafting and replace(model.drafting, learns=False)
    return [*arms, Arm(name="as served", drafting=served)] if served else arms


def measure(
    engine: Engine,
    requests: Sequence[GenerationRequest],
    arms: Sequence[Arm],
    *,
    at_once: int,
    rounds: int,
) -> list[Measured]:
    """One row an arm, in order. Raises JobFailed for inputs that the engine does not take."""
    fastest: dict[str, Measured] = {}
    try:
        for turn in range(rounds + 1):  # the first warms up: imports, compiled constraints, a pack's index
            part = requests if turn else requests[:2]
            for arm in arms:
                asked = [replace(request, id=f"{turn}-{request.id}", drafting=arm.drafting) for request in part]
                row = _row(arm.name, *asyncio.run(_time(engine, asked, at_once=at_once)))
                if turn:
                    fastest[arm.name] = _faster(fastest.get(arm.name), row)
    except (Rejected, EngineFailed) as error:
        raise JobFailed(str(error), code=error.code) from error
    except Overloaded as error:
        raise JobFailed(str(error), code="busy") from error
    return [fastest[arm.name] for arm in arms]


async def _time(
    engine: Engine, requests: Sequence[GenerationRequest], *, at_once: int
) -> tuple[list[Finished], list[int], int]:
    """(answers, microseconds of each, microseconds of all)."""
    places = asyncio.Semaphore(at_once)

    async def one(request: GenerationRequest) -> tuple[Finished, int]:
        async with places:
            began = time.perf_counter_ns()
            answer = await read_to_end(engine, request)
            return answer, (time.perf_counter_ns() - began) // 1000

    began = time.perf_counter_ns()
    rows = await asyncio.gather(*(one(request) for request in requests))
    wall_us = (time.perf_counter_ns() - began) // 1000
    return [answer for answer, _ in rows], [us for _, us in rows], wall_us


def _row(name: str, answers: Sequence[Finished], each_us: Sequence[int], wall_us: int) -> Measured:
    counts = [answer.counts for answer in answers]
    return Measured(
        name=name,
        texts=[answer.text for answer in answers],
        n_tokens=sum(c.completion_tokens for c in counts),
        n_steps=sum(c.steps for c in counts),
        drafted=sum(c.drafted_tokens for c in counts),
        accepted=sum(c.accepted_tokens for c in counts),
        wall_us=wall_us,
        p50_us=round(statistics.median(each_us)),
    )


def _faster(before: Measured | None, now: Measured) -> Measured:
    if before is None:
        return now
    before.wall_us, before.p50_us = min(before.wall_us, now.wall_us), min(before.p50_us, now.p50_us)
    return before


def _share(part: int, whole: int, *, of: int) -> int | None:
    return part * of // whole if whole else None
