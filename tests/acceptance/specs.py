"""Small specs that compile in seconds: three labels of the demo's gold, a dozen candidates a slice, of which K are
labelled, three epochs."""

import copy
from typing import Any

import yaml

from deploy.embedded.home import ROOT

LABELS = ("refund_request", "refund_policy", "complaint")
GOLD_PER_LABEL = 24
N_CANDIDATES = 12
# what a model of three epochs reaches easily: these tests are about the street, not about quality
EASY_GATE = {"accuracy_lower": 0.5, "worst_class_recall": 0.3, "k_min": 0.5}


def small_spec(name: str, **changes: Any) -> dict[str, Any]:
    """The demo's spec cut down; `changes` are laid over it, dictionaries part by part."""
    demo = yaml.safe_load((ROOT / "examples" / "refund-router.yaml").read_text())
    gold = [
        example
        for label in LABELS
        for example in [row for row in demo["examples"]["inline"] if row["output"] == label][:GOLD_PER_LABEL]
    ]
    spec = {
        "name": name,
        "task": demo["task"],
        "output": {
            "type": "label",
            "labels": [
                {"name": label["name"], "description": label["description"]}
                for label in demo["output"]["labels"]
                if label["name"] in LABELS
            ],
        },
        "slices": [part | {"share": 1 / 3} for part in demo["slices"] if part["label"] in LABELS],
        "sampling": {"n_candidates": N_CANDIDATES, "label_samples": 3, "seed": 7},
        "plan": "fixed",
        "verifiers": demo["verifiers"],
        "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
        "train": {"epochs": 3, "escalate": False},
        "gate": EASY_GATE,
        "examples": {"holdout": 0.5, "inline": gold},
    }
    return _laid_over(spec, changes)


def asks(base_url: str, model: str, **more: Any) -> dict[str, Any]:
    """The `teacher` part that asks the tests' own server; every model there is as good as the grammar's."""
    price = {"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 0.4}
    return {"provider": "openai_compatible", "model": model, "base_url": base_url, "price": price, **more}


def _laid_over(spec: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(spec)
    for key, value in changes.items():
        is_part = isinstance(value, dict) and isinstance(merged.get(key), dict) and key != "teacher"
        merged[key] = _laid_over(merged[key], value) if is_part else value
    return merged
