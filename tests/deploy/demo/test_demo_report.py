"""The demo's tables show what the API says, figure for figure."""

import io
from typing import Any

from rich.console import Console

from deploy.demo import demo_report

COMPILE: dict[str, Any] = {
    "id": "cmp_1",
    "name": "refund-router",
    "status": "succeeded",
    "failure": None,
    "k_score_ppm": 880_000,
    "evaluation": {
        "n": 100,
        "correct": 90,
        "accuracy_ppm": 900_000,
        "accuracy_low_ppm": 820_000,
        "accuracy_high_ppm": 950_000,
        "confidence_ppm": 950_000,
        "baselines": [{"name": "majority", "accuracy_ppm": 200_000}],
    },
    "gate": {"passed": True, "floors": [{"passed": True, "message": "fine"}], "next_step": ""},
    "estimate": {"total": {"low_microusd": 1000, "expected_microusd": 2000, "high_microusd": 5000}},
    "spent_microusd": 2500,
    "waste_microusd": 0,
    "started_at": "2026-11-21T06:00:00.000Z",
    "ended_at": "2026-11-21T06:01:30.500Z",
}
STEP: dict[str, Any] = {
    "name": "synthesis",
    "estimate": {"low_microusd": 900, "expected_microusd": 1800, "high_microusd": 4000},
    "spent_microusd": 2100,
    "waste_microusd": 300,
    "started_at": "2026-11-21T06:00:01.000Z",
    "ended_at": None,
}


def printed(what: object) -> str:
    out = io.StringIO()
    Console(width=160, file=out).print(what)
    return out.getvalue()


def test_the_k_score_interval_is_the_accuracys_at_its_weight() -> None:
    text = printed(demo_report.verdict(COMPILE))
    assert "0.880  [0.848, 0.900] at 95 %" in text
    assert "0.900  [0.820, 0.950]  90 of 100" in text
    assert "passed" in text


def test_a_failed_gate_names_the_floor_and_the_next_step() -> None:
    gate = {"passed": False, "floors": [{"passed": False, "message": "too low"}], "next_step": "add examples"}
    text = printed(demo_report.verdict(COMPILE | {"gate": gate, "status": "gate_failed"}))
    assert "FAILED" in text
    assert "too low" in text
    assert "cheapest next step: add examples" in text


def test_a_compile_that_failed_before_its_evaluation_shows_why() -> None:
    failure = {"code": "teacher_failed", "message": "The teacher is away.", "step": "synthesis"}
    failed = COMPILE | {"evaluation": None, "gate": None, "failure": failure, "status": "failed"}
    assert "The teacher is away." in printed(demo_report.verdict(failed))


def test_the_cost_table_shows_estimate_beside_actual_and_waste() -> None:
    text = printed(demo_report.costs(COMPILE, [STEP]))
    assert all(part in text for part in ("$0.0009", "$0.004", "$0.0018", "$0.0021", "$0.0003", "$0.0025", "1 m 30 s"))


def test_a_slice_still_waiting_for_its_selection_is_shown() -> None:
    row = {"name": "s", "label": None, "n_candidates": 0, "k_requested": 4, "k_actual": None, "n_rejected": 0}
    text = printed(demo_report.slices([row | {"reactions": [{"reaction": "exemplars", "round": 1}]}]))
    assert "exemplars" in text
    assert "None" not in text


def test_the_drafts_of_a_compile_are_shown_slice_by_slice_and_a_loss_is_shown_as_one() -> None:
    repeat = {"arm": "offered", "strategy": "repeat", "offered": 48, "accepted": 48, "entered": 47}
    refused = {"arm": "not_worth", "strategy": "judge", "offered": 0, "accepted": 0, "entered": 0}
    rows = [
        {"name": "one", "drafts": repeat | {"saving": {"net_microusd": 314}}},
        {"name": "two", "drafts": refused | {"saving": {"net_microusd": -1}}},
        {"name": "captured", "drafts": None},
    ]
    shown = printed(demo_report.drafts(rows))
    assert "repeat" in shown
    assert "not worth" in shown
    assert "$0.000314" in shown
    assert "-$0.000001" in shown
    assert "captured" not in shown
    saving = {"summary": "Net saving $0.0003, 2 %", "accepted": "9 of 10, 90.0 %", "acceptance": {"n": 10}}
    summary = demo_report.draft_summary(COMPILE | {"drafts": saving}).plain
    assert "Net saving $0.0003, 2 %\n" in summary
    assert "9 of 10, 90.0 %\n" in summary
    assert "near 1 is the best case" in summary
    unasked = demo_report.draft_summary(COMPILE | {"drafts": saving | {"acceptance": {"n": 0}}}).plain
    assert "best case" not in unasked
    assert "no slice has searched" in demo_report.draft_summary(COMPILE | {"drafts": None}).plain


def test_a_bill_is_told_by_step_with_what_kolm_carries() -> None:
    line = {"counted": True, "label": "x", "step": "labeling", "amount_microusd": 2_119}
    lines = [line, line | {"amount_microusd": 1}, line | {"step": "", "label": "credit", "amount_microusd": -120}]
    bill = {
        "lines": [*lines, line | {"counted": False, "amount_microusd": 10**9}],
        "total_microusd": 2_000,
        "waste_microusd": 7,
        "draft_savings": {"net_microusd": -3},
    }
    told = demo_report.bill({"name": "router", "id": "cmp_1"}, bill).plain
    assert "$0.002 for router cmp_1" in told
    assert "labeling $0.00212, credit -$0.00012" in told
    assert "carried by kolm $0.000007, saved by drafts -$0.000003" in told
