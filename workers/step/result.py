"""The result of a step as the pipeline gets it, and how a step ends: output, receipt, cost, event, in one
transaction."""

from dataclasses import dataclass, field

from django.utils import timezone

from backend.artifacts.receipting import issue_receipt
from backend.compiles import leases
from backend.compiles.booking import Fenced
from backend.compiles.events import append_event
from backend.compiles.lifecycle import transitions
from backend.compiles.models import StepRun
from backend.compiles.notices import notify_progress
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import CompileStatus, StepName, StepStatus
from backend.domain.planning.step_outputs import StepOutput
from workers.step.durable import Canceled, CompileRun


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """The step is finished. `inputs` are digests by name (they go on the receipt), `output` is what it put out; `ends`
    closes the compile with this status."""

    inputs: dict[str, str] = field(default_factory=dict)
    output: StepOutput | None = None
    ends: CompileStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWaiting:
    """A runner has the step's job, and its report wakes the compile; or a vendor has a batch of its calls, and the
    compile's lease is due at the next look."""


def finish_step(run: CompileRun, fenced: Fenced, name: StepName, done: StepDone) -> None:
    """Close a step inside a fenced transaction and sign its receipt; the step that ends the compile ends it here, in
    the same transaction. Raises Canceled where the customer was first."""
    compile = fenced.compile
    if done.ends is not None and compile.status == CompileStatus.CANCELING:
        raise Canceled
    step = StepRun.objects.select_for_update().get(tenant_id=run.tenant_id, compile_id=run.compile_id, name=name)
    step.status = StepStatus.SUCCEEDED
    step.ended_at = timezone.now()
    step.input_sha256 = sha256_of(done.inputs)
    digests = {} if done.output is None else done.output.digests()
    facts = {} if done.output is None else done.output.facts()
    step.output = {"digests": digests, "facts": facts}
    if step.total:
        step.done = step.total
    step.save()
    issue_receipt(compile, step, inputs=done.inputs, outputs=digests, facts=facts)
    leases.note_progress(run.lease)
    data = {"step": name.value, "cost_microusd": step.spent_microusd, "waste_microusd": step.waste_microusd}
    append_event(run.tenant_id, run.compile_id, "step.succeeded", data)
    notify_progress(compile, name)
    if done.ends is not None:
        transitions.move(fenced, done.ends)
        leases.release(run.lease, due_in_s=None)
