"""The pilot of a compile's labels: some of the first picks are asked for several answers by their one call, which says
how often the teacher errs and whether it repeats itself before more is bought."""

from backend.compiles.models import Candidate, TeacherCall
from backend.compiles.states import LABEL_CALLS, CandidateState
from backend.domain.labeling.rounds import random_order
from backend.domain.labeling.votes_again import PILOT_ROWS, PILOT_VOTES
from backend.domain.spec.parsing import votes_as_needed
from workers.step.durable import CompileRun
from workers.step.teacher_session import learnt_dialect, learnt_thoughts


def open_pilot(run: CompileRun) -> None:
    """Let PILOT_ROWS of the first picks, drawn at random, want PILOT_VOTES answers, before any is asked about. Not
    where a further answer is as dear as a call: of a teacher that thinks, or that gives one answer a call; nor of a
    recording, whose answers are as many as it has. One that gives fewer than it is asked for is billed for no more than
    it gives."""
    teacher = run.spec.teacher
    if not votes_as_needed(run.spec) or teacher.provider == "replay" or learnt_thoughts(run.tenant_id, teacher):
        return
    if learnt_dialect(run.tenant_id, teacher).max_n < PILOT_VOTES:
        return
    with run.transaction() as fenced:
        mine = {"tenant_id": run.tenant_id, "compile_id": run.compile_id}
        is_begun = TeacherCall.objects.filter(**mine, key__startswith=LABEL_CALLS).exists()
        if is_begun or fenced.compile.ablation_of or Candidate.objects.filter(**mine, n_wanted__gt=0).exists():
            return
        picks = list(Candidate.objects.filter(**mine, state=CandidateState.PICKED).order_by("text_key"))
        chosen = random_order([row.text_key for row in picks], run.spec.sampling.seed)[:PILOT_ROWS]
        for at in chosen.tolist():
            picks[at].n_wanted = PILOT_VOTES
        Candidate.objects.bulk_update([picks[at] for at in chosen.tolist()], ["n_wanted"])
