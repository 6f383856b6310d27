"""What an engine made of proposals, by its own counters: on the receipt, and in the one figure of savings. An engine
that serves others meanwhile, or begins anew, says nothing of ours."""

from collections.abc import Callable
from typing import Any

import pytest

from backend.compiles.draft_savings import savings_of_compile
from backend.compiles.draft_words import engine_words
from backend.domain.drafts.vocabulary import EngineTokens
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.factories import make_tenant
from tests.workers.drafts.test_offering import compile_once, teacher
from tests.workers.pipeline_helpers import ScriptedTeacher, slices, step
from workers.candidates import engine_proposals
from workers.teachers.protocol import Completion, CompletionRequest

pytestmark = pytest.mark.usefixtures("committed_db")
VLLM = {"teacher": {"engine": "vllm"}, "draft_cache": {"verify": "engine"}, "family": "engines"}


class CountedTeacher(ScriptedTeacher):
    """Its engine keeps half of what it writes where a request has drafts; `others` changes what it says of itself."""

    def __init__(self, others: Callable[[EngineTokens, int], EngineTokens | None], write: Any) -> None:
        super().__init__(write=write, counts_tokens=True)
        self._others, self._n_told = others, 0
        self.engine = EngineTokens()

    def complete(self, request: CompletionRequest, *, deadline_s: float, cancelled: Any = None) -> Completion:
        completion = super().complete(request, deadline_s=deadline_s, cancelled=cancelled)
        n = completion.usage.output_tokens
        kept = n // 2 if request.drafts else 0
        with self._turn:
            self.engine += EngineTokens(written=n, proposed=2 * kept, kept=kept)
        return completion

    def counters(self) -> EngineTokens | None:
        self._n_told += 1
        return self._others(self.engine, self._n_told)


def alone(counts: EngineTokens, n_told: int) -> EngineTokens | None:
    return counts


def sibling(monkeypatch: Any, tenant: Tenant, others: Callable[[EngineTokens, int], EngineTokens | None]) -> Any:
    compile_once(monkeypatch, tenant, teacher(), **VLLM)
    asked = CountedTeacher(others, teacher()._write)
    return compile_once(monkeypatch, tenant, asked, task="Is money asked back here?", **VLLM)


def receipt_of(row: Any) -> Any:
    return step(row, StepName.SELECTION).output["facts"]["drafts"]


def engine_of(row: Any) -> EngineTokens:
    with tenant_scope(row.tenant_id):
        known = savings_of_compile(row.tenant_id, row.id)
    assert known is not None
    return known.engine


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def test_the_engines_counts_are_on_the_receipt_and_in_the_figure(tenant, monkeypatch):
    row = sibling(monkeypatch, tenant, alone)
    counts = receipt_of(row)["engine_tokens"]
    assert counts["written"] == sum(part.offer_plan.engine.written for part in slices(row)) > 0
    assert counts["proposed"] == 2 * counts["kept"] > 0
    assert engine_of(row) == EngineTokens(**counts)
    assert engine_of(row).per_pass == pytest.approx(2.0, rel=0.05)
    with tenant_scope(row.tenant_id):
        words = engine_words(savings_of_compile(row.tenant_id, row.id))
    assert words.startswith(f"{counts['kept']:,} of {counts['written']:,} tokens came from drafts: ")


@pytest.mark.parametrize(
    "others",
    [
        pytest.param(lambda counts, n: EngineTokens(written=counts.written * 2 + 99 * n), id="serves others"),
        pytest.param(lambda counts, n: None, id="hides its counters"),
        pytest.param(lambda counts, n: counts if n % 2 else EngineTokens(), id="begins anew"),
        pytest.param(lambda counts, n: EngineTokens(written=counts.written, kept=counts.written), id="makes them up"),
    ],
)
def test_counts_that_are_not_ours_alone_say_nothing(tenant, monkeypatch, others):
    monkeypatch.setattr(engine_proposals, "BEHIND_S", 0.0)
    row = sibling(monkeypatch, tenant, others)
    assert engine_of(row) == EngineTokens()
    assert all(part.drafts["n_proposed"] > 0 for part in slices(row))
    with tenant_scope(row.tenant_id):
        assert engine_words(savings_of_compile(row.tenant_id, row.id)) == ""
