"""A compile as if a runner had trained and answered: evaluated, and ended below its gate."""

from collections.abc import Callable

from backend.blobs import get_jsonl, put_json
from backend.compiles.models import Compile, StepRun
from backend.domain.lifecycle import CompileStatus, StepName, StepStatus
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS, change, fresh
from tests.workers.pipeline_helpers import step, walk_through
from workers.step.durable import CompileRun

TO_LABELING = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION, StepName.LABELING)


def measured(row: Compile, answer: Callable[[str], str]) -> Compile:
    """Evaluated with `answer` as its model: predictions, costs of a runner, a K-score."""
    heldout = get_jsonl(row.tenant_id, step(row, StepName.SLICING).output["digests"]["gold_heldout"])
    evals = put_json(row.tenant_id, {"predictions": [answer(gold["input"]) for gold in heldout]})
    with tenant_scope(row.tenant_id):
        steps = StepRun.objects.filter(compile=row)
        steps.filter(name=StepName.DISTILLATION).update(status=StepStatus.SUCCEEDED, spent_microusd=2000)
        output = {"digests": {"evals": evals}, "facts": {}}
        done = {"status": StepStatus.SUCCEEDED, "output": output, "spent_microusd": 300}
        steps.filter(name=StepName.EVALUATION).update(**done)
    change(row, status=CompileStatus.GATE_FAILED, k_score_ppm=800_000)
    return fresh(row)


def walked_and_measured(run: CompileRun, row: Compile, answer: Callable[[str], str] | None = None) -> Compile:
    walk_through(run, *TO_LABELING)
    return measured(row, answer or (lambda text: LABELS[0]))
