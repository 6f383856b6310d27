"""What steps put out, as rows keep it: every output comes back from its JSON, and rows of before are read."""

import json
from typing import Any

import pytest

from backend.domain.lifecycle import STEPS
from backend.domain.planning.step_outputs import (
    DistillationOut,
    EvaluationOut,
    GateOut,
    LabelingOut,
    PackagingOut,
    SelectionOut,
    SlicingOut,
    StepOutput,
    SynthesisOut,
    VerificationOut,
)
from backend.domain.planning.trials import Trial, TrialKind, TrialReason

TRIAL = Trial(kind=TrialKind.ENCODER, rank=8, alpha=16, why=TrialReason.FIRST)
LABELED: dict[str, Any] = {
    "dataset": "d1", "labels": "l1", "n_labeled": 3, "n_labeled_before": 1, "n_unverified": 2, "n_synthetic_pairs": 2,
    "n_gold_pairs": 4, "n_pairs": 6, "label_samples": 3, "balance": None, "selection": {"n": 3},
}  # fmt: skip
OUTPUTS: list[tuple[StepOutput, dict[str, Any]]] = [
    (
        SlicingOut(
            gold_train="a", gold_heldout="b", n_slices=1, n_gold_train=12, n_gold_heldout=12, n_captures=0,
            embedder="minilm@sha256:0", slices=[{"name": "refund", "n": 4}],
        ),
        {
            "digests": {"gold_train": "a", "gold_heldout": "b"},
            "facts": {
                "n_slices": 1, "n_gold_train": 12, "n_gold_heldout": 12, "n_captures": 0,
                "embedder": "minilm@sha256:0", "slices": [{"name": "refund", "n": 4}],
            },
        },
    ),
    (
        SlicingOut(
            gold_train="a", gold_heldout="b", n_slices=1, n_gold_train=12, n_gold_heldout=12, n_captures=0,
            embedder="minilm@sha256:0", slices=[], is_heldout_named=True, n_gold_left_out=3,
        ),
        {
            "digests": {"gold_train": "a", "gold_heldout": "b"},
            "facts": {
                "n_slices": 1, "n_gold_train": 12, "n_gold_heldout": 12, "n_captures": 0,
                "embedder": "minilm@sha256:0", "slices": [], "is_heldout_named": True, "n_gold_left_out": 3,
            },
        },
    ),
    (
        SynthesisOut(candidates="c", slices=[], drafts={"offered": 0}, n_copied=7, copied_from="cmp_1"),
        {
            "digests": {"candidates": "c"},
            "facts": {"slices": [], "drafts": {"offered": 0}, "n_copied": 7, "copied_from": "cmp_1"},
        },
    ),
    (
        VerificationOut(scores="s", n_candidates=2, n_valid=1, rejected_for={"length": 1}, signal={"refund": "none"}),
        {
            "digests": {"scores": "s"},
            "facts": {"n_candidates": 2, "n_valid": 1, "rejected_for": {"length": 1}, "signal": {"refund": "none"}}
            | {"signals": {}, "verifier": ""},
        },
    ),
    (
        VerificationOut(
            scores="s",
            n_candidates=2,
            n_valid=2,
            rejected_for={},
            signal={"refund": "reward"},
            signals={"reward": 2},
            verifier="default",
            reward={"model": "m", "n_rewarded": 2},
        ),
        {
            "digests": {"scores": "s"},
            "facts": {"n_candidates": 2, "n_valid": 2, "rejected_for": {}, "signal": {"refund": "reward"}}
            | {"signals": {"reward": 2}, "verifier": "default", "reward": {"model": "m", "n_rewarded": 2}},
        },
    ),
    (
        SelectionOut(picks="p", method="auto", n_picked=4, n_drafts=8, slices=[]),
        {"digests": {"picks": "p"}, "facts": {"method": "auto", "n_picked": 4, "n_drafts": 8, "slices": []}},
    ),
    (
        LabelingOut(**LABELED, rules="r1", rule_induction={"n_rules": 1}),
        {
            "digests": {"dataset": "d1", "labels": "l1", "rules": "r1"},
            "facts": {name: value for name, value in LABELED.items() if name not in ("dataset", "labels")}
            | {"rules": {"n_rules": 1}},
        },
    ),
    (
        LabelingOut(**LABELED, completions="c1", observations="o1", unverified_for={}),
        {
            "digests": {"dataset": "d1", "labels": "l1", "completions": "c1", "observations": "o1"},
            "facts": {name: value for name, value in LABELED.items() if name not in ("dataset", "labels")}
            | {"rules": None, "unverified_for": {}},
        },
    ),
    (
        DistillationOut(adapter="a1", trial=TRIAL, attempts=2, job="job_1", training={"n_pairs": 6, "active": {}}),
        {
            "digests": {"adapter": "a1"},
            "facts": {
                "n_pairs": 6, "active": {}, "attempts": 2, "job": "job_1",
                "trial": {"kind": "encoder", "rank": 8, "alpha": 16, "why": "first"},
            },
        },
    ),
    (
        EvaluationOut(evals="e1", figures={"accuracy_ppm": 9}, trials=[{"rank": 8}], chosen=0),
        {"digests": {"evals": "e1"}, "facts": {"accuracy_ppm": 9, "trials": [{"rank": 8}], "chosen": 0}},
    ),
    (
        GateOut(k_score_sha256="k", gate_sha256="g", passed=True, k_score={"composite_ppm": 1}, gate={"passed": True}),
        {
            "digests": {"k_score": "k", "gate": "g"},
            "facts": {"passed": True, "k_score": {"composite_ppm": 1}, "gate": {"passed": True}},
        },
    ),
    (
        PackagingOut(kolm="f", artifact="art_1", version=1, size_bytes=9),
        {"digests": {"kolm": "f"}, "facts": {"artifact": "art_1", "version": 1, "size_bytes": 9}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("output", "stored"), OUTPUTS)
def test_an_output_is_kept_under_the_names_of_before_and_comes_back(output: StepOutput, stored: dict[str, Any]):
    assert json.loads(json.dumps(output.to_json())) == stored
    assert type(output).from_json(stored) == output


def test_every_step_has_an_output():
    assert {type(output).STEP for output, _ in OUTPUTS} == set(STEPS)


@pytest.mark.parametrize("kind", [SlicingOut, SynthesisOut, VerificationOut, SelectionOut, LabelingOut])
def test_facts_that_an_older_release_did_not_tell_are_read_as_empty(kind: type[StepOutput]):
    output = kind.from_json({"digests": dict.fromkeys(kind.DIGESTS.values(), "d"), "facts": {}})
    assert set(output.digests().values()) == {"d"}
    assert not any(output.facts().values())


def test_a_step_that_is_not_finished_has_no_output():
    with pytest.raises(KeyError):
        SlicingOut.from_json({})
