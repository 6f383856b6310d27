"""Take over what a compile labelled, and its pairs, for an ablation with another student."""

from dataclasses import replace

from django.db import connection

from backend.compiles.models import Candidate, Compile, Slice, StepRun
from backend.compiles.states import LABELED_STATES, CandidateState
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import LabelingOut, StepOutput
from workers.step.durable import CompileRun
from workers.step.result import StepDone, finish_step


def copy_labeling(run: CompileRun) -> StepDone:
    """The source's pairs, for an arm with another student: no call, no cost."""
    with run.transaction() as fenced:
        source, step = source_step(fenced.compile, StepName.LABELING)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE compiles_candidate AS mine SET state = theirs.state FROM compiles_candidate AS theirs"
                " WHERE mine.tenant_id = %s AND mine.compile_id = %s AND mine.state = %s AND theirs.tenant_id = %s"
                " AND theirs.compile_id = %s AND theirs.text_key = mine.text_key",
                [run.tenant_id, fenced.compile.id, CandidateState.LABELED.value, run.tenant_id, source.id],
            )
        copied = LabelingOut.from_json(step.output)
        done = StepDone(inputs=as_inputs(copied), output=replace(copied, copied_from=public_id(source)))
        finish_step(run, fenced, StepName.LABELING, done)
    return done


def keep_labeled(run: CompileRun, slice_row: Slice, source: Compile) -> None:
    """Keep what the source has labelled of the slice."""
    with run.transaction():
        theirs = Slice.objects.get(tenant_id=run.tenant_id, compile=source, position=slice_row.position)
        there = Candidate.objects.filter(tenant_id=run.tenant_id, compile=source, state__in=LABELED_STATES)
        labeled = set(there.values_list("text_key", flat=True))
        rows = list(Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID))
        for row in rows:
            row.move(CandidateState.PICKED if row.text_key in labeled else CandidateState.DROPPED)
        Candidate.objects.bulk_update(rows, ["state"], batch_size=500)
        slice_row.k_actual, slice_row.selection = theirs.k_actual, theirs.selection
        slice_row.save()


def source_step(compile: Compile, name: StepName) -> tuple[Compile, StepRun]:
    """The compile that is ablated, and one of its steps. It has ended and never changes again."""
    source = Compile.objects.get(tenant_id=compile.tenant_id, id=compile.ablation_of)
    return source, StepRun.objects.get(tenant_id=compile.tenant_id, compile=source, name=name)


def as_inputs(output: StepOutput) -> dict[str, str]:
    """The output of the source's step, by its names, on the receipt of the step that takes it over."""
    return {f"source_{name}": digest for name, digest in output.digests().items()}


def public_id(source: Compile) -> str:
    return encode_id(Prefix.COMPILE, source.id)
