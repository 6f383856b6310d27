"""A teacher's log-probs of the labels, through the steps on real rows with a recorded teacher."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS
from tests.factories import make_tenant
from tests.workers.labeling.test_purchases import ALL, TEXTS, make, other, right_label
from tests.workers.pipeline_helpers import calls, candidates, check_money, start, step, taught_by, walk_through
from workers.teachers.replay import ReplayTeacher

pytestmark = pytest.mark.usefixtures("committed_db")
UNLIKELY = dict.fromkeys(TEXTS[18:22], 0.01)  # what its log-probs give the answer that was drawn


def scores(text: str, sure: float) -> dict[str, float]:
    right = right_label(text)
    return {right: math.log(sure), other(right): math.log(1 - sure)}


def scored(monkeypatch: Any, sure: Mapping[str, float]) -> None:
    """A teacher that is right, as sure of each text as `sure` says, of the others 0.999."""
    rows = [
        {
            "item": text,
            "completions": [{"text": right_label(text), "label_logprobs": scores(text, sure.get(text, 0.999))}],
        }
        for text in TEXTS
    ]
    taught_by(monkeypatch, ReplayTeacher("\n".join(map(json.dumps, rows)).encode()))  # type: ignore[arg-type]


@pytest.mark.nightly
def test_an_answer_that_the_teacher_itself_finds_unlikely_is_asked_about_again(monkeypatch):
    scored(monkeypatch, UNLIKELY)
    row = make()
    walk_through(start(row), *ALL)
    rows = {one.text: one for one in candidates(row, state__in=["trained", "left_out", "unverified"])}
    assert all(sum(rows[text].votes.values()) > 1 for text in UNLIKELY)
    asked = [call for call in calls(row) if call.step == StepName.LABELING]
    assert len(asked) < 1.4 * len(TEXTS)
    assert rows[TEXTS[0]].label_logprobs == {
        label: pytest.approx(score, abs=1e-4) for label, score in scores(TEXTS[0], 0.999).items()
    }
    assert max(rows[TEXTS[18]].posterior.values()) < max(rows[TEXTS[0]].posterior.values())
    noise = step(row, StepName.LABELING).output["facts"]["noise"]
    assert noise["n_scored"] == len(TEXTS)
    assert noise["temperature_ppm"] > 0
    assert all("tokens" not in choice or not choice["tokens"] for call in asked for choice in call.choices)
    check_money(row)


@pytest.mark.nightly
def test_a_named_number_of_votes_asks_for_no_log_probs(monkeypatch):
    scored(monkeypatch, {})
    row = make(sampling={"k_select": 20, "label_samples": 2})
    walk_through(start(row), *ALL)
    assert {one.label_logprobs is None for one in candidates(row)} == {True}
    assert "temperature_ppm" not in step(row, StepName.LABELING).output["facts"]["noise"]


@pytest.mark.nightly
def test_log_probs_of_an_earlier_compile_count_in_the_next(monkeypatch):
    scored(monkeypatch, UNLIKELY)
    tenant = make_tenant()
    parts = {"draft_cache": {"enabled": True}}
    walk_through(start(make(tenant, **parts)), *ALL)
    again = make(tenant, **parts)
    walk_through(start(again), *ALL)
    assert not [call for call in calls(again) if call.step == StepName.LABELING]
    rows = candidates(again, state__in=["trained", "left_out", "unverified"])
    with tenant_scope(again.tenant_id):
        assert all(one.known_answers for one in rows)
    assert all(set(one.label_logprobs) == set(LABELS) for one in rows)
