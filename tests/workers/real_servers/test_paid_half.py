"""The paid half of a compile, from preflight to labels, at real servers with a real language model behind them: with
the dialect that a spec names, and with nothing known of the endpoint, whose refusals then teach.

It would catch a client that reads no real server's answers, a row that sends what its server refuses, and a row that
leaves out what it takes.
"""

from typing import Any

import pytest

from backend.compiles.models import Compile
from backend.domain.dialects.dialect import Option
from backend.domain.dialects.table import BY_NAME
from tests.compile_factories import fresh, make_compile
from tests.factories import make_tenant
from tests.workers.answer_helpers import json_spec
from tests.workers.pipeline_helpers import candidates, check_money, start, told_apart
from tests.workers.real_servers.wire import Wire
from tests.workers.steps.test_strict_vendors import PRICE, walk_paid_half
from workers.preflight import compile_start
from workers.preflight.compile_start import begin_compile

pytestmark = [pytest.mark.usefixtures("committed_db"), pytest.mark.nightly, pytest.mark.timeout(1800)]
PATIENCE_S = 300.0  # a slow machine's, for one call
KNOWN = pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_start, "DEADLINE_S", PATIENCE_S)


def compile_at(wire: Wire, *, is_known: bool, base: dict[str, Any]) -> Compile:
    teacher = {"provider": "openai_compatible", "base_url": wire.base_url, "model": wire.server.model}
    teacher |= {"price": PRICE, "dialect": wire.server.name if is_known else None, "concurrency": 2}
    return make_compile(make_tenant(), **(base | {"teacher": teacher, "budget": {"usd": 50}}))


def label_base() -> dict[str, Any]:
    return {
        "examples": {"inline": told_apart(24), "holdout": 0.5},
        "sampling": {"n_candidates": 6, "candidate_max_tokens": 64, "label_samples": 3, "on_gap": ["drop_k"]},
    }


@KNOWN
def test_preflight_is_green(wire: Wire, is_known: bool) -> None:
    row = compile_at(wire, is_known=is_known, base=label_base())
    begin_compile(start(row))
    fresh(row)
    lines = {line["check"]: line for line in row.preflight["lines"]}
    assert row.preflight["passed"] is True, row.preflight
    assert lines["teacher"]["status"] == "passed"
    assert (lines["logprobs"]["status"] == "passed") == (Option.LOGPROBS in BY_NAME[wire.server.name].takes)
    assert len(wire.answered) == 1
    if is_known:
        assert wire.refused == []
    check_money(row)


@KNOWN
def test_a_label_task_is_written_and_labelled(wire: Wire, is_known: bool) -> None:
    row = compile_at(wire, is_known=is_known, base=label_base())
    walk_paid_half(row)
    for one in wire.heard:
        print(one.status, str(one.asked)[:1500], str(one.answered)[:600])
    print([(c.state, c.text, c.votes) for c in candidates(row)])
    check_money(row)


@KNOWN
def test_a_json_task_is_answered(wire: Wire, is_known: bool) -> None:
    base = json_spec() | {"sampling": {"n_candidates": 6, "candidate_max_tokens": 64, "label_samples": 2}}
    row = compile_at(wire, is_known=is_known, base=base)
    walk_paid_half(row)
    for one in wire.heard:
        print(one.status, str(one.asked)[:1500], str(one.answered)[:600])
    print([(c.state, c.text, c.votes) for c in candidates(row)])
    check_money(row)
