"""The labels that an ablation takes over from the compile that it ablates."""

from django.db import connection

from backend.compiles.models import Candidate, Compile
from backend.compiles.states import LABELED_STATES, CandidateState
from backend.domain.spec.parsing import most_votes, read_stored_spec


def take_labels_over(compile: Compile, source: Compile) -> None:
    """Copy votes, label and agreement of the picks that the source had labelled too, which are asked no more. The
    spec's rules are the same on both sides, so what it could not agree on stays unverified here. Captures that a round
    may pick later bring the source's answers."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE compiles_candidate AS mine SET label = theirs.label, answer = theirs.answer, votes = theirs.votes,"
            " agreement_ppm = theirs.agreement_ppm, reasons = theirs.reasons, n_wanted = %s,"
            " state = CASE WHEN theirs.state = %s THEN %s ELSE %s END"
            " FROM compiles_candidate AS theirs WHERE mine.tenant_id = %s AND mine.compile_id = %s"
            " AND mine.state = %s AND theirs.tenant_id = %s AND theirs.compile_id = %s"
            " AND theirs.text_key = mine.text_key AND theirs.state = ANY(%s)",
            [
                most_votes(read_stored_spec(compile.spec)),
                *(CandidateState.UNVERIFIED.value, CandidateState.UNVERIFIED.value, CandidateState.LABELED.value),
                *(compile.tenant_id, compile.id, CandidateState.PICKED.value),
                *(compile.tenant_id, source.id, [state.value for state in LABELED_STATES]),
            ],
        )
    _note_answers(compile, source)


def _note_answers(compile: Compile, source: Compile) -> None:
    """The source's votes on captures that are not picked yet, as answers that are known."""
    theirs = Candidate.objects.filter(tenant_id=compile.tenant_id, compile=source, slice__is_captured=True)
    votes = dict(theirs.filter(state__in=LABELED_STATES).values_list("text_key", "votes"))
    mine = Candidate.objects.filter(tenant_id=compile.tenant_id, compile=compile, state=CandidateState.DROPPED)
    rows = list(mine.filter(slice__is_captured=True, text_key__in=[key for key, counts in votes.items() if counts]))
    for row in rows:
        counts = sorted(votes[row.text_key].items())
        row.known_answers = [{"text": answer} for answer, n in counts for _ in range(n)]
    Candidate.objects.bulk_update(rows, ["known_answers"], batch_size=500)
