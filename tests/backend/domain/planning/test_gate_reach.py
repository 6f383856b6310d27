"""Whether a gate can be passed at all."""

from typing import Any

import pytest

from backend.domain.errors import InvalidSpec
from backend.domain.planning.gate_reach import check_reachable, most_k_ppm
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.parsing import Spec, parse_spec
from tests.backend.domain.planning.test_trials import json_spec
from tests.backend.domain.spec.test_parsing import document

SEVEN_B = {"base": "Qwen/Qwen2.5-7B-Instruct", "rank": 32}


def label_spec(k_min: float | None = None, **train: Any) -> Spec:
    return parse_spec(document(gate={"k_min": k_min}, train=train))


def with_k_min(spec: Spec, k_min: float) -> Spec:
    return spec.model_copy(update={"gate": spec.gate.model_copy(update={"k_min": k_min})})


def test_a_gate_that_names_no_k_score_is_always_within_reach() -> None:
    for train in ({}, {"rank": 64}, {"kind": "causal", "causal": SEVEN_B}):
        check_reachable(label_spec(**train))
    check_reachable(json_spec(causal=SEVEN_B))


@pytest.mark.parametrize(("spec", "kind"), [(label_spec(), "encoder"), (json_spec(causal=SEVEN_B), "causal")])
def test_the_most_that_can_be_had_is_within_reach_and_nothing_above(spec: Spec, kind: str) -> None:
    most = most_k_ppm(spec, TrialKind(kind))
    check_reachable(with_k_min(spec, most / 1e6))
    with pytest.raises(InvalidSpec) as refused:
        check_reachable(with_k_min(spec, (most + 1) / 1e6))
    (problem,) = refused.value.problems
    assert (problem.pointer, problem.code) == ("/gate/k_min", "gate_unreachable")


def test_the_sentence_says_what_mends_it_and_does() -> None:
    spec = with_k_min(json_spec(causal=SEVEN_B), 0.98)
    with pytest.raises(InvalidSpec, match="not even a perfect model") as refused:
        check_reachable(spec)
    text = refused.value.problems[0].message
    assert "lower train.causal.rank from 32, or take a smaller train.causal.base" in text
    lowered = float(text.split("gate.k_min to ")[1].split(" or less")[0])
    check_reachable(with_k_min(spec, lowered))


def test_a_base_that_is_not_known_is_believed_to_be_small() -> None:
    check_reachable(with_k_min(json_spec(causal={"base": "acme/tiny"}), 1.0))


def test_of_two_kinds_that_are_tried_one_within_reach_is_enough() -> None:
    hard = 0.94
    with pytest.raises(InvalidSpec):
        check_reachable(label_spec(hard, kind="causal", causal=SEVEN_B))
    check_reachable(label_spec(hard, kind="auto", causal=SEVEN_B))


def test_a_kolm_tiny_needs_no_entry_and_minilm_is_weighed() -> None:
    assert most_k_ppm(json_spec(causal={"base": "kolm-tiny-1"}), TrialKind.CAUSAL) == 1_000_000
    assert 900_000 < most_k_ppm(label_spec(), TrialKind.ENCODER) < 1_000_000
