"""The next version of an example, as its owner might write it: every hint in other words, one label renamed, one slice
new, and the same gold. No prompt stays word for word, so nothing is reused unasked: what the earlier version left over
is offered to the teacher, who judges it.

    python -m deploy.demo.next_version examples/refund-router.yaml > next.json && kolm compile next.json

The new names are in the grammar teacher's files (`synonyms`, `slices`): it knows slices and labels by their names and
reads no hint, where a language model would read descriptions and hints.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """`hints` has one for each slice of the earlier version; `renamed` is (label, new name). The new slice takes
    `new_share` from the share of `taken_from`, whose label it has."""

    hints: Mapping[str, str]
    renamed: tuple[str, str]
    new_slice: str
    new_hint: str
    taken_from: str
    new_share: float = 0.08
    n_candidates: int = 88


CHANGES: Mapping[str, Changes] = {
    "refund-router": Changes(
        hints={
            "direct_request": "The shopper wants to be paid back, for faulty, wrong or late goods or a wrong charge.",
            "late_refund": "Money was promised or a parcel returned; the shopper wants to know when the sum arrives.",
            "policy_question": "How refunds and returns work: deadlines, costs, exceptions. No money is wanted.",
            "angry_no_ask": "The shopper lets off steam about goods, people or the app, and asks for no money.",
            "everything_else": "Whatever fits nowhere else: stock, accounts, invoices, shops, parcels, praise.",
        },
        renamed=("other", "anything_else"),
        new_slice="delivery_question",
        new_hint="Where a parcel is, when it comes, where it can be sent and what that costs.",
        taken_from="everything_else",
    ),
    "repair-desk": Changes(
        hints={
            "water_trouble": "Pipes, taps, drains and toilets that drip, burst or clog; say what was damaged.",
            "power_failure": "Current is gone, a breaker trips, an outlet sparks; say which appliance and when.",
            "no_heat": "The flat or the water is cold, or the boiler or a radiator fails; say how cold it is.",
            "door_trouble": "Somebody cannot lock, unlock, open or shut a door, or keys are gone; say who that hits.",
            "vermin_seen": "Animals that should not be there, or what they left behind, and the remedies so far.",
        },
        renamed=("pests", "pest_control"),
        new_slice="lights_out",
        new_hint="A lamp or its switch flickers, buzzes, stays dark or stays on; say where and since when.",
        taken_from="power_failure",
    ),
}


def next_version(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with the changes of its name; KeyError where there are none."""
    changes = CHANGES[spec["name"]]
    old, new = changes.renamed
    labels = [label | {"name": new if label["name"] == old else label["name"]} for label in spec["output"]["labels"]]
    gold = [row | {"output": new if row["output"] == old else row["output"]} for row in spec["examples"]["inline"]]
    # a share of the slices is held back at random for comparison; six slices are too few to show that
    return dict(spec) | {
        "output": spec["output"] | {"labels": labels},
        "slices": _slices(spec["slices"], changes),
        "sampling": spec["sampling"] | {"n_candidates": changes.n_candidates},
        "draft_cache": {"holdback": 0},
        "examples": spec["examples"] | {"inline": gold},
    }


def _slices(parts: list[dict[str, Any]], changes: Changes) -> list[dict[str, Any]]:
    old, new = changes.renamed
    slices = []
    for part in parts:
        label = new if part["label"] == old else part["label"]
        changed = part | {"hint": changes.hints[part["name"]], "label": label}
        if part["name"] != changes.taken_from:
            slices.append(changed)
            continue
        slices.append(changed | {"share": round(part["share"] - changes.new_share, 4)})
        slices.append({"name": changes.new_slice, "share": changes.new_share, "label": label, "hint": changes.new_hint})
    return slices


def main() -> int:
    (path,) = sys.argv[1:]
    print(json.dumps(next_version(yaml.safe_load(Path(path).read_text())), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
