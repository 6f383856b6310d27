"""The labels that an ablation takes over from the compile that it ablates."""

from collections.abc import Sequence

import numpy as np
from django.db import connection
from django.db.models import Q

from backend.compiles.models import Candidate, Compile
from backend.compiles.states import LABELED_STATES, CandidateState
from backend.domain.labeling.linear_head import Flags
from backend.domain.spec.parsing import LabelOutput, first_votes, read_stored_spec
from workers.step.durable import CompileRun

NO_LABEL = ""


def take_labels_over(compile: Compile, source: Compile) -> None:
    """Copy votes, label and agreement of the picks that the source had labelled too, which are asked no more. The
    spec's rules are the same on both sides, so what it could not agree on stays unverified here. Of a label task they
    have the source's answers as well, and so have captures that a round may pick later."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE compiles_candidate AS mine SET label = theirs.label, answer = theirs.answer, votes = theirs.votes,"
            " agreement_ppm = theirs.agreement_ppm, reasons = theirs.reasons,"
            " state = CASE WHEN theirs.state = %s THEN %s ELSE %s END"
            " FROM compiles_candidate AS theirs WHERE mine.tenant_id = %s AND mine.compile_id = %s"
            " AND mine.state = %s AND theirs.tenant_id = %s AND theirs.compile_id = %s"
            " AND theirs.text_key = mine.text_key AND theirs.state = ANY(%s)",
            [
                *(CandidateState.UNVERIFIED.value, CandidateState.UNVERIFIED.value, CandidateState.LABELED.value),
                *(compile.tenant_id, compile.id, CandidateState.PICKED.value),
                *(compile.tenant_id, source.id, [state.value for state in LABELED_STATES]),
            ],
        )
    spec = read_stored_spec(compile.spec)
    if isinstance(spec.output, LabelOutput):
        _note_answers(compile, source, n_first=first_votes(spec))


def are_taken_over(run: CompileRun, rows: Sequence[Candidate]) -> Flags:
    """`(n,)` the rows of an arm that have the source's answers. They are asked no more, and their votes say nothing of
    what the arm asks for; another compile has none of them."""
    with run.transaction() as fenced:
        is_arm = fenced.compile.ablation_of is not None  # which offers itself no drafts: it knows no other answers
    return np.array([is_arm and row.known_answers is not None for row in rows], dtype=np.bool_)


def _note_answers(compile: Compile, source: Compile, *, n_first: int) -> None:
    """The source's votes on the picks, and on captures that are not picked yet, as answers that are known, each as sure
    as the teacher was of them together. What is missing at the first `n_first` was no label."""
    theirs = Candidate.objects.filter(tenant_id=compile.tenant_id, compile=source, state__in=LABELED_STATES)
    known = {key: (votes, scores) for key, votes, scores in theirs.values_list("text_key", "votes", "label_logprobs")}
    may_be_bought = Q(state=CandidateState.DROPPED, slice__is_captured=True)
    mine = Candidate.objects.filter(may_be_bought | Q(state__in=LABELED_STATES), tenant_id=compile.tenant_id)
    mine = mine.filter(compile=compile, text_key__in=list(known)).defer("embedding", "tokens", "token_logprobs")
    rows = list(mine)
    for row in rows:
        votes, scores = known[row.text_key]
        answers = [label for label, n in sorted(votes.items()) for _ in range(n)]
        answers += [NO_LABEL] * (n_first - len(answers))
        row.known_answers = [{"text": answer, "label_logprobs": scores} for answer in answers]
    Candidate.objects.bulk_update(rows, ["known_answers"], batch_size=500)
