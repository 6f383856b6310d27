"""The figures of recipes and rules on the pages of compiles and artifacts: what may draft was measured, what was
chosen, which rules answer. Every figure is one of the evaluation step's or the labelling step's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.safestring import SafeString

from backend.blobs import get_blob
from backend.compiles.models import Compile, StepRun
from backend.console.charts import bars
from backend.console.compiles.rows import output_of
from backend.domain.errors import NotFound
from backend.domain.lifecycle import StepName
from backend.domain.number_words import milliseconds
from backend.domain.planning.step_outputs import LabelingOut
from backend.domain.rules.reading import read_rules
from backend.domain.rules.rule_list import InvalidRules
from backend.domain.rules.rule_words import describe

MAX_RULES = 40
_PLAIN = "no drafts"
_WHY_NOT = {
    "gate_missed": "No pack: the gate was missed, or would be with the size of a pack.",
    "budget": "No pack: the budget had no room for the runner's job.",
    "not_wanted": "No pack: the spec asks for none.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredArm:
    """An arm that drafted, and what came of it on the held-out prompts."""

    name: str
    is_chosen: bool
    n_tokens: int
    n_steps: int
    drafted: int
    accepted: int
    wall_us: int
    n_prompts: int

    @property
    def ms_a_prompt(self) -> float:
        return self.wall_us / 1000 / max(1, self.n_prompts)

    @property
    def tokens_a_step(self) -> float | None:
        return self.n_tokens / self.n_steps if self.n_steps else None

    @property
    def accepted_ppm(self) -> int | None:
        return self.accepted * 1_000_000 // self.drafted if self.drafted else None

    @property
    def covered_ppm(self) -> int | None:
        """The share of all tokens that were drafted and right."""
        return self.accepted * 1_000_000 // self.n_tokens if self.n_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    when: str
    gives: str
    right: int
    support: int
    low_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPaths:
    """`recipes` and `rules` are the evaluation's facts of them, `induced` the labelling's of the rules; {} where there
    are none. `why_not` says why there is no pack."""

    recipes: Mapping[str, Any]
    why_not: str
    arms: list[MeasuredArm]
    chart: SafeString | None
    rules: Mapping[str, Any]
    induced: Mapping[str, Any]
    rows: list[RuleRow]
    n_rules: int
    n_heldout: int  # 0 before the evaluation


def fast_paths_of(row: Compile, evaluation: Mapping[str, Any]) -> FastPaths | None:
    """Return the fast paths for a page that has not read the compile's steps."""
    steps = StepRun.objects.of_tenant(row.tenant_id).filter(compile=row, name=StepName.LABELING)
    return fast_paths(row.tenant_id, output_of(LabelingOut, steps), evaluation)


def fast_paths(tenant_id: UUID, labeling: LabelingOut | None, evaluation: Mapping[str, Any]) -> FastPaths | None:
    """`labeling` is that step's output. None for a compile that has come to neither."""
    induced = (None if labeling is None else labeling.rule_induction) or {}
    recipes, rules = evaluation.get("recipes") or {}, evaluation.get("rules") or {}
    why_not = recipes.get("why_not", "")
    if not induced and not rules and not recipes.get("measured") and why_not in ("", "not_wanted"):
        return None
    arms = _arms(recipes)
    rows = _rules(tenant_id, "" if labeling is None else labeling.rules)
    return FastPaths(
        recipes=recipes,
        why_not=why_not and _WHY_NOT.get(why_not, "No pack: the runner could not make one (see the warnings)."),
        arms=arms,
        chart=_chart(arms),
        rules=rules,
        induced=induced,
        rows=rows,
        n_rules=induced.get("n_rules", len(rows)),
        n_heldout=evaluation.get("n", 0),
    )


def _arms(recipes: Mapping[str, Any]) -> list[MeasuredArm]:
    counts = ("n_tokens", "n_steps", "drafted", "accepted", "wall_us", "n_prompts")
    return [
        MeasuredArm(
            name=" + ".join(arm["sources"]) or _PLAIN,
            is_chosen=i == recipes.get("chosen"),
            **{name: arm[name] for name in counts},
        )
        for i, arm in enumerate(recipes.get("measured", []))
    ]


def _chart(arms: list[MeasuredArm]) -> SafeString | None:
    if not arms:
        return None
    return bars(
        [(arm.name, arm.ms_a_prompt) for arm in arms],
        title="Time per answer, by draft source",
        write=lambda ms: "–" if ms is None else milliseconds(ms * 1_000),
        head="Milliseconds per answer",
        tones=["good" if arm.is_chosen else "s1" for arm in arms],
    )


def _rules(tenant_id: UUID, digest: str) -> list[RuleRow]:
    """The first rules of the list; none where the list is gone by age."""
    if not digest:
        return []
    try:
        rules = read_rules(get_blob(tenant_id, digest))
    except (NotFound, InvalidRules):
        return []
    rows = []
    for rule in rules.rules[:MAX_RULES]:
        when, gives = describe(rule, rules)
        evidence = rule.evidence
        rows.append(
            RuleRow(when=when, gives=gives, right=evidence.right, support=evidence.support, low_ppm=evidence.low_ppm)
        )
    return rows
