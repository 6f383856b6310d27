"""What the drafts of one compile save the next on the real stack, by what the two differ in.

    python -m tests.bench.draft_siblings [--seeds 3] [--n 48] [--k 16] [--input-usd USD --output-usd USD]
        [--verify logprobs] [--changes "task reworded" ...]

The demo's task (examples/refund-router.yaml) and its sister of sixty tokens a message (examples/repair-desk.yaml) are
compiled up to selection by the product's own steps, with the built-in teacher over HTTP; then a sibling that differs in
one thing, of the same tenant, and the same sibling of a tenant without drafts. Net: what the second tenant paid for
synthesis and selection less what the first did, in parts of the former. The teacher's judge is exact and its slices are
disjoint: the best case. Postgres, Valkey and the grammar teacher are this command's own and end with it.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from deploy.demo.next_version import next_version
from deploy.embedded.home import ROOT
from tests.bench.draft_kscore import services

EXAMPLES = {"12 tokens": "refund-router", "60 tokens": "repair-desk"}
Spec = dict[str, Any]


def reworded_task(spec: Spec) -> Spec:
    return spec | {"task": "Sort what people write to us, by what they want done about it."}


def reworded_hints(spec: Spec) -> Spec:
    wordings = {part["name"]: part["hint"] for part in next_version(spec)["slices"]}
    return spec | {"slices": [part | {"hint": wordings.get(part["name"], part["hint"])} for part in spec["slices"]]}


def more_candidates(spec: Spec) -> Spec:
    return spec | {"sampling": spec["sampling"] | {"n_candidates": spec["sampling"]["n_candidates"] + 8}}


CHANGES: Mapping[str, Callable[[Spec], Spec]] = {
    "task reworded": reworded_task,
    "hints reworded": reworded_hints,
    "task and hints reworded": lambda spec: reworded_task(reworded_hints(spec)),
    "next version: hints, a label renamed, a slice new": next_version,
    "N + 8, nothing else": more_candidates,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n", type=int, default=48)
    parser.add_argument("--k", type=int, default=0, help="picks of a fixed plan; 0: plan auto, which asks about all")
    parser.add_argument("--input-usd", type=float, help="a million tokens; default: the built-in teacher's own price")
    parser.add_argument("--output-usd", type=float)
    parser.add_argument("--verify", default="auto", help="the spec's draft_cache.verify")
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=list(CHANGES))
    options = parser.parse_args(arguments)
    price = {"input_usd_per_mtok": options.input_usd, "output_usd_per_mtok": options.output_usd}
    with services():
        print("| messages | the sibling differs in | asked | accepted | cold, micro-USD | net |", flush=True)
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        for length, name in EXAMPLES.items():
            for change in options.changes:
                changed = _Changed(name=name, change=change, n=options.n, k=options.k, verify=options.verify)
                changed = replace(changed, price=price) if options.input_usd else changed
                rows = [_pair(changed, seed) for seed in range(1, options.seeds + 1)]
                nets = [100 * (1 - warm / cold) for _, _, cold, warm in rows]
                asked, accepted, cold = (sum(row[i] for row in rows) for i in range(3))
                print(
                    f"| {length} | {change} | {asked} | {accepted} | {cold / len(rows):.0f} "
                    f"| {statistics.mean(nets):+.1f} % ({min(nets):+.1f} to {max(nets):+.1f}) |",
                    flush=True,
                )
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """An example and what its sibling differs in; `k` picks of a fixed plan, 0 for plan auto."""

    name: str
    change: str
    n: int
    k: int
    verify: str
    price: Mapping[str, float] | None = None


def _pair(changed: _Changed, seed: int) -> tuple[int, int, int, int]:
    """(asked, accepted, what the sibling costs without drafts, what it costs with them), micro-USD."""
    from tests.factories import make_tenant

    spec: Spec = yaml.safe_load((ROOT / "examples" / f"{changed.name}.yaml").read_text())
    sampling = spec["sampling"] | {"n_candidates": changed.n, "seed": seed}
    if changed.k:
        sampling, spec["plan"] = sampling | {"k_select": changed.k}, {"kind": "fixed"}
    spec |= {"sampling": sampling, "draft_cache": {"holdback": 0, "verify": changed.verify}}
    if changed.price is not None:
        spec["teacher"] = spec["teacher"] | {"price": dict(changed.price)}
    sibling = CHANGES[changed.change](spec)
    n_sibling = sibling["sampling"]["n_candidates"] if CHANGES[changed.change] is more_candidates else changed.n
    sibling["sampling"] = sibling["sampling"] | {"n_candidates": n_sibling, "seed": seed + 1000}
    known = make_tenant()
    _to_selection(known, spec)
    asked, accepted, warm = _to_selection(known, sibling)
    _, _, cold = _to_selection(make_tenant(), sibling)
    return asked, accepted, cold, warm


def _to_selection(tenant: Any, spec: Spec) -> tuple[int, int, int]:
    """(asked, accepted, micro-USD that the teacher was paid)."""
    from django.db.models import Sum

    from backend.compiles.lifecycle import submission, transitions
    from backend.compiles.models import TeacherCall
    from backend.domain.lifecycle import CompileStatus, StepName
    from backend.drafts.models import Offer
    from backend.tenants.isolation import tenant_scope
    from tests.compile_factories import hold
    from workers.pipeline import STEP_FUNCTIONS
    from workers.step.durable import begin_step

    with tenant_scope(tenant.id):
        row = submission.submit(tenant.id, dict(spec), api_key_id=None)
        row.refresh_from_db()
    run = hold(row)
    with run.transaction() as fenced:
        transitions.move(fenced, CompileStatus.RUNNING)
    for step in (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION):
        begin_step(run, step)
        STEP_FUNCTIONS[step](run)
    with tenant_scope(tenant.id):
        paid = TeacherCall.objects.filter(tenant_id=tenant.id, compile_id=row.id).aggregate(n=Sum("cost_microusd"))
        offers = Offer.objects.filter(tenant_id=tenant.id, compile_id=row.id).exclude(strategy="repeat")
        counts = offers.aggregate(shown=Sum("n_shown"), accepted=Sum("n_accepted"))
    return counts["shown"] or 0, counts["accepted"] or 0, paid["n"] or 0


if __name__ == "__main__":
    sys.exit(main())
