"""The drafts of one compile as its page shows them: the account slice by slice, and the texts that the teacher kept
beside those that it refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.compiles.draft_savings import DraftSavings, savings_of_compile
from backend.compiles.draft_verdicts import AskedDrafts, Opinion, asked_drafts
from backend.compiles.draft_words import (
    acceptance_words,
    engine_words,
    repeatability_words,
    summary,
    teacher_time,
)
from backend.compiles.models import Compile
from backend.console.compiles.slices import MAX_SLICES, Pool
from backend.domain.drafts.vocabulary import Repeatability, Saving
from backend.domain.ids import Prefix, encode_id
from backend.domain.number_words import usd

MAX_TEXTS = 5  # of each verdict, in one slice
MAX_TEXT_SLICES = 12
MAX_OPEN = 2  # slices whose texts are not folded away


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRow:
    """A row of what one slice was offered from the cache. `asked` and `accepted` count the teacher's verdicts; what
    answers the very same prompt is in `entered` alone. `saving` is None before the slice is written."""

    slice: str
    arm: str
    strategy: str
    nearest: float | None
    asked: int
    accepted: int
    entered: int
    saving: Saving | None

    @property
    def costs(self) -> int | None:
        return None if self.saving is None else self.saving.avoided - self.saving.net


def drafts_context(row: Compile, pools: Sequence[Pool]) -> dict[str, Any]:
    """The part of the page about drafts; nothing of a compile that looked for none."""
    n_looked = sum(pool.row.drafts is not None for pool in pools)
    known = savings_of_compile(row.tenant_id, row.id)
    if known is None and not n_looked:
        return {}
    savings, asked = known or DraftSavings(), asked_drafts(row, [pool.row for pool in pools])
    plans = [plan for pool in pools if (plan := pool.row.offer_plan) is not None]
    with_texts = [pool.row for pool in pools if pool.row.position in asked.positions]
    return {
        "drafts": draft_rows(pools, asked)[:MAX_SLICES],
        "savings": savings,
        "n_looked": n_looked,
        "is_idle": not (savings.n_asked or savings.n_repeated or savings.saving.avoided or savings.engine.proposed),
        "figure": figure_words(savings),
        "repeatability": repeatability_words(sum((plan.repeatability for plan in plans), Repeatability())),
        "n_entered": savings.slices.n_reused + savings.labels.n_reused,
        "costs_of_drafts": savings.slices.costs_microusd + savings.labels.costs_microusd,
        "drafts_path": f"/v1/compiles/{encode_id(Prefix.COMPILE, row.id)}/drafts",
        "verdicts": asked.of_slices(with_texts[:MAX_TEXT_SLICES], most=MAX_TEXTS),
        "n_verdict_slices": len(with_texts),
        "are_folded": len(with_texts) > MAX_OPEN,
    }


def figure_words(savings: DraftSavings) -> dict[str, str]:
    """The figure as text, the same on every page."""
    return {
        "summary": summary(savings),
        "net": usd(savings.net_microusd),
        "acceptance": acceptance_words(savings),
        "time": teacher_time(savings.saved_ms),
        "engine": engine_words(savings),
    }


def draft_rows(pools: Sequence[Pool], asked: AskedDrafts) -> list[DraftRow]:
    """Slices that looked into the draft cache."""
    rows = []
    for pool in pools:
        plan = pool.row.offer_plan
        if plan is None:
            continue
        counts, offer = asked.counts_of(pool.row.position), asked.offer_of(pool.row.position)
        rows.append(
            DraftRow(
                slice=pool.row.name,
                arm=plan.arm,
                strategy=plan.strategy or "",
                nearest=plan.nearest_distance,
                asked=counts[Opinion.ACCEPTED] + counts[Opinion.REFUSED],
                accepted=counts[Opinion.ACCEPTED],
                entered=pool.row.n_from_drafts if offer is None else offer.n_reused,
                saving=asked.saving_of(pool.row.position),
            )
        )
    return rows
