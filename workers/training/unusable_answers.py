"""The refusal of a compile whose teacher gave not one answer that may train: gold alone makes no student."""

from collections import Counter
from collections.abc import Iterator

from backend.compiles.models import Candidate, TeacherCall
from backend.compiles.states import LABEL_CALLS, CallState, CandidateState
from backend.domain.answers.excerpts import excerpt
from backend.domain.errors import CustomerError
from backend.domain.spec.parsing import LabelOutput
from workers.step.durable import CompileRun

MOST_CALLS = 100  # whose answers are looked at for the words that a message quotes
_FOR_ANSWERS = "say in the task what an answer looks like, correct the schema or the check that refuses them"
_FOR_LABELS = (
    "say in the task that the label alone is the answer and what each label means, name the labels as the teacher "
    "does, switch off thoughts that leave answers empty (teacher.effort)"
)


def check_answers(run: CompileRun) -> None:
    """Raise CustomerError when there are answers and none of them may train; called where no input has a pair."""
    is_label = isinstance(run.spec.output, LabelOutput)
    with run.transaction():
        rows = Candidate.objects.filter(
            tenant_id=run.tenant_id, compile_id=run.compile_id, state=CandidateState.UNVERIFIED
        ).values_list("votes", "reasons")
        counted = Counter(
            reason
            for votes, reasons in rows
            for reason in (["disagreed" if votes else "unread"] if is_label else reasons)
        )
        words = Counter(_words(run) if is_label else ()).most_common(2)
    if not counted:
        return
    reasons_shown = ", ".join(f"{name} {n}" for name, n in counted.most_common(5))
    answered = f" It answered {' or '.join(text for text, _ in words)}, for example." if words else ""
    raise CustomerError(
        f"None of the teacher's answers can be trained on ({reasons_shown}).{answered} Look at the candidates' votes: "
        f"{_FOR_LABELS if is_label else _FOR_ANSWERS}, lower sampling.min_agreement, or name another teacher.",
        code="no_valid_answers",
    )


def _words(run: CompileRun) -> Iterator[str]:
    """The first words of the answers to this compile's own calls."""
    calls = TeacherCall.objects.filter(
        tenant_id=run.tenant_id, compile_id=run.compile_id, key__startswith=LABEL_CALLS, state=CallState.APPLIED
    )
    for choices in calls.order_by("started_at", "key").values_list("choices", flat=True)[:MOST_CALLS]:
        yield from (excerpt(str(choice["text"])) for choice in choices)
