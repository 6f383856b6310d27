"""The advice after a failed gate of a json or text task: `next_steps` has the rules of thumb, this
file the words for answers and fields."""

from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.generative import FieldRow, GenerativeEvaluation
from backend.domain.evaluation.means import Means
from backend.domain.evaluation.next_steps import heldout_needed
from backend.domain.number_words import percent


def for_accuracy(evaluation: GenerativeEvaluation, lower_ppm: int, means: Means) -> str:
    """Cheapest first: a few more gold examples, answers that are not valid, the field that loses most."""
    n, needed = evaluation.n, heldout_needed(evaluation, lower_ppm)
    if needed is not None and needed - n <= max(20, n // 2):
        return (
            f"Add {needed - n} held-out gold examples: {percent(evaluation.accuracy_ppm)} is high enough, but {n} "
            f"examples do not carry its lower bound to {percent(lower_ppm)}; {needed} at the same accuracy would."
        )
    invalid, lost = n - evaluation.answered, n - evaluation.marks_ppm / PPM
    if 2 * invalid > lost:
        return (
            f"{invalid} of {n} answers are not valid (schema or checks) and count for nothing. Look at what they fail "
            f"in the evaluation, raise output.max_tokens if they are cut off, then {means}."
        )
    worst = _costliest(evaluation)
    if worst is None:
        return f"First {means}."
    return f"{_teach(worst)} Or {means}."


def for_baseline(evaluation: GenerativeEvaluation, means: Means) -> str:
    """The advice where the model is no better than its bare base, or where both pass all checks."""
    if evaluation.marks_ppm < evaluation.n * PPM:
        return (
            "The adapted model is no better than what it is compared with. Look at a few training pairs: the teacher's "
            f"answers must be spelt as gold is (say how in the task). Then {means}."
        )
    return (
        "All answers of the model pass the checks, and so do all of its base's: the checks do not tell the model "
        "from its base. Add checks, take accuracy: judge in output, or set gate.beat_majority: false."
    )


def for_worst_field(evaluation: GenerativeEvaluation) -> str:
    row = evaluation.worst_field
    return "No field stands in enough held-out answers to be judged." if row is None else _teach(row)


def _costliest(evaluation: GenerativeEvaluation) -> FieldRow | None:
    """The field with the most misses and inventions together."""
    rows = [row for row in evaluation.per_class if row.n + row.predicted > 2 * row.correct]
    return max(rows, key=lambda row: (row.n + row.predicted - 2 * row.correct, row.label), default=None)


def _teach(row: FieldRow) -> str:
    missed, invented = row.n - row.correct, row.predicted - row.correct
    text = (
        f"The field {row.label!r} loses most: {missed} of {row.n} missed or wrong, {invented} given that gold has not."
    )
    return f"{text} Say in the task how it is filled, and add captures or a slice whose inputs hold it."
