"""A json and a text task cut down: what compiles in seconds on the tiny base."""

import copy
from pathlib import Path
from typing import Any

import yaml

from deploy.embedded.home import ROOT

N_GOLD = 48
ORDER_FIELDS = Path(__file__).with_name("order_fields.yaml")


def small_orders(name: str, **changes: Any) -> dict[str, Any]:
    """ORDER_FIELDS with a dozen candidates a slice and two epochs; `changes` replace parts."""
    return _small(ORDER_FIELDS, name, n_candidates=12, n_gold=N_GOLD) | changes


def small_mails(name: str, **changes: Any) -> dict[str, Any]:
    """`examples/order-extractor.yaml` cut down: a span student on a dozen candidates a slice and three epochs."""
    demo: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "order-extractor.yaml").read_text())
    spec = copy.deepcopy(demo) | {"name": name, "family": name}
    spec["sampling"] |= {"n_candidates": 10, "k_select": 8, "k_distill": 40, "label_samples": 2}
    spec["train"] = {"escalate": False, "spans": {"epochs": 3, "rank": 4, "alpha": 8}}
    drawn = [row for row in demo["examples"]["inline"] if "split" not in row]
    spec["examples"] = {"holdout": 0.5, "inline": drawn[::4]}
    spec["gate"] = {"k_min": 0.0, "accuracy_lower": 0.0, "beat_majority": False, "worst_class_recall": 0.0}
    spec["gate"] |= {"alternatives": "report"}
    return spec | changes


def small_tickets(name: str, **changes: Any) -> dict[str, Any]:
    """`examples/ticket-summary.yaml` cut down: a span student of texts on a dozen candidates a slice and four
    epochs."""
    demo: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "ticket-summary.yaml").read_text())
    spec = copy.deepcopy(demo) | {"name": name, "family": name}
    spec["sampling"] |= {"n_candidates": 12, "k_select": 10, "label_samples": 2}
    spec["train"] = {"kind": "spans", "escalate": False, "spans": {"epochs": 4, "rank": 8, "alpha": 16}}
    drawn = [row for row in demo["examples"]["inline"] if "split" not in row]
    trained = [row for row in demo["examples"]["inline"] if "split" in row]
    spec["examples"] = {"holdout": 0.5, "inline": [*drawn[::4], *trained[::6]]}
    spec["gate"] = {"k_min": 0.0, "accuracy_lower": 0.0, "beat_majority": False, "alternatives": "report"}
    return spec | changes


def small_choice(name: str, **changes: Any) -> dict[str, Any]:
    """ORDER_FIELDS with one of its fields, so that rules can give whole answers, and `train.kind: auto`: a span
    student, a causal base and rules compete on pairs that all of them can learn from."""
    spec = _small(ORDER_FIELDS, name, n_candidates=24, n_gold=N_GOLD)
    asked = ("order_number",)
    spec["task"] = "Read a customer's mail and copy the order number from it; null without one."
    schema = spec["output"]["schema"]
    schema |= {"required": list(asked), "properties": {field: schema["properties"][field] for field in asked}}
    spec["output"]["checks"] = [{"kind": "copied", "field": "/order_number", "name": "order number is in the mail"}]
    spec["examples"]["inline"] = [
        row | {"output": {field: row["output"][field] for field in asked}} for row in spec["examples"]["inline"]
    ]
    spec["sampling"] |= {"k_select": 20, "k_distill": 100}
    spec["train"] |= {"kind": "auto", "spans": {"epochs": 3, "rank": 4, "alpha": 8}}
    spec["recipes"] |= {"min_rule_precision": 0.5}
    spec["gate"] |= {"alternatives": "report"}
    return spec | changes


def small_summaries(name: str, **changes: Any) -> dict[str, Any]:
    """`examples/order-summary.yaml` smaller still: a text task, whose answers the teacher judges in pairs."""
    return _small(ROOT / "examples" / "order-summary.yaml", name, n_candidates=8, n_gold=40) | changes


def _small(path: Path, name: str, *, n_candidates: int, n_gold: int) -> dict[str, Any]:
    demo: dict[str, Any] = yaml.safe_load(path.read_text())
    spec = copy.deepcopy(demo)
    spec |= {"name": name, "family": name}
    spec["sampling"] |= {"n_candidates": n_candidates, "k_select": 8, "k_distill": 30, "label_samples": 2}
    spec["train"]["causal"] |= {"epochs": 2}
    spec["train"]["escalate"] = False
    spec["recipes"] = {"budget_s": 1.0}
    spec["examples"] = {"holdout": 0.5, "inline": demo["examples"]["inline"][:n_gold]}
    # two epochs on forty pairs: these tests are about the street, not about quality
    spec["gate"] = {"k_min": 0.0, "accuracy_lower": 0.0, "beat_majority": False, "worst_class_recall": 0.0}
    return spec
