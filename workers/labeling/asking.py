"""The calls that ask a teacher for the labels or answers of picks, a batch of calls at a time.

Many servers give one choice whatever `n` says. Where the spec names a number of votes, a pick that has fewer answers
is asked about again, at most so many times, and by several calls at once where one is known to give too few. Where
votes are bought as needed, a pick is content with what its call gave. What an earlier compile's teacher answered to the
same prompt counts, and the rest is asked for.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from django.db.models import F, Func, IntegerField

from backend.compiles.models import Candidate, Compile, TeacherCall
from backend.compiles.states import LABEL_CALLS, CallState, CandidateState
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import Spec, first_votes, label_names, most_votes, votes_as_needed
from workers.drafts.label_drafts import keep_labels, known_labels, note_labels
from workers.labeling.voting import VOTED, Answers, vote_on
from workers.step.batch_planning import StepBatches
from workers.step.durable import CompileRun
from workers.step.teacher_calls import MadeCall, PlannedCall, call_batch
from workers.step.teacher_session import TeacherSession, learnt_dialect, seed_of, teacher_session
from workers.teachers.prompts.answer import item_request
from workers.teachers.protocol import CompletionRequest
from workers.training.sample_pairs import LEAST_PROBABILITY

TOP_TOKENS = 5  # the likeliest at each place that are asked for: what is left over is mostly under a hundredth


def label_picks(run: CompileRun, batches: StepBatches) -> bool:
    """Ask for the labels of every pick. False where the rest waits for a teacher's batch. Raises PaymentRequired where
    the budget has not the money of the next calls; the picks that have their answers have their votes then."""
    with run.transaction():
        base = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        todo = list(base.filter(state=CandidateState.PICKED).order_by("text_key"))
        total = len(todo) + base.filter(state__in=(CandidateState.LABELED, CandidateState.UNVERIFIED)).count()
    if not todo:
        return True
    answers = answers_so_far(run, todo)
    per_call = choices_a_call(run)
    with teacher_session(run) as session:
        todo = _take_known(run, todo, answers, session, total)
        while todo:
            part = todo[: run.spec.teacher.concurrency]
            _save_votes(run, part, answers)  # a process may have died between their last answer and this
            todo = [row for row in todo if row.state == CandidateState.PICKED]
            batch = _next_calls(run, todo, answers, per_call=per_call, width=run.spec.teacher.concurrency)

            def save(compile: Compile, calls: list[MadeCall]) -> None:
                for (row, _), call in zip(batch, calls, strict=True):  # noqa: B023 (called within the turn)
                    answers[row.text_key].append(call.choices)
                if votes_as_needed(run.spec):
                    _be_content([row for row, _ in batch], answers)  # noqa: B023 (called within the turn)

            def all_plans() -> list[PlannedCall]:
                width = len(todo) * most_votes(run.spec)  # noqa: B023 (called within the turn)
                return [plan for _, plan in _next_calls(run, todo, answers, per_call=per_call, width=width)]  # noqa: B023

            if batch:
                plans = [plan for _, plan in batch]
                if batches.defers(session, plans, all_plans):
                    return False
                call_batch(run, StepName.LABELING, session.teacher, session.price, plans, save)
                per_call = _choices_to_ask_for(batch, answers, per_call)
            _save_votes(run, list(dict.fromkeys(row for row, _ in batch)), answers)
            todo = [row for row in todo if row.state == CandidateState.PICKED]
            with run.transaction():
                done = total - len(todo)
                run.progress(StepName.LABELING, done=done, total=total, message=f"{done} of {total} inputs labeled")
    return True


def n_wanted(spec: Spec, row: Candidate) -> int:
    """Answers that this pick waits for."""
    return row.n_wanted or first_votes(spec)


def n_answers(row: Candidate, answers: Answers) -> int:
    """Answers that a pick has, of its calls and of an earlier compile; a call without any counts as one."""
    n_known = len(row.known_answers or ())
    calls = answers[1:] if n_known else answers
    return n_known + max(len(calls), sum(map(len, calls)))


def label_call(run: CompileRun, row: Candidate, n: int, *, nth: int = 0, n_before: int = 0) -> PlannedCall:
    """The `nth` call about this input, for `n` answers beside the `n_before` that it has. Where votes are weighed it
    asks for the log-probs of the labels, and names no seed where it is for several answers: some servers give each of
    them the same seed, and could not be told from a teacher that repeats itself."""
    seed_parts = [str(n_before)] if n_before else []  # another seed: the same one would be the same answer
    request = item_request(
        run.spec,
        row.text,
        n=n,
        temperature=run.spec.sampling.temperature_labels,
        seed=seed_of(run, "labels", row.text_key, *seed_parts),
        n_before=n_before,
    )
    if votes_as_needed(run.spec):
        request = replace(request, top_logprobs=TOP_TOKENS, labels=tuple(label_names(run.spec)))
        request = replace(request, seed=None) if n > 1 else request
    elif run.spec.train.causal.n_soft_targets:
        n_top = run.spec.train.causal.n_soft_targets
        request = replace(request, top_logprobs=n_top, least_probability=LEAST_PROBABILITY)
    return PlannedCall(key=LABEL_CALLS + ":".join([row.text_key, *([str(nth)] if nth else [])]), request=request)


def choices_a_call(run: CompileRun) -> int:
    """The number of answers to ask a call for at most: by the teacher's dialect, and by what most of this compile's
    calls for several gave where that was fewer than they were asked for."""
    n_choices: Func = Func(F("choices"), function="jsonb_array_length", output_field=IntegerField())
    with run.transaction():
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state=CallState.APPLIED)
        made = list(calls.filter(key__startswith=LABEL_CALLS, n__gt=1).values_list("n", n_choices))
    few = sorted(n_choices for n, n_choices in made if n_choices < n)
    most = learnt_dialect(run.tenant_id, run.spec.teacher).max_n
    return max(1, min(few[len(few) // 2], most)) if 2 * len(few) > len(made) else most


def n_label_calls(run: CompileRun) -> Counter[str]:
    """Count the calls that this compile has made about each text_key."""
    with run.transaction():
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state=CallState.APPLIED)
        keys = list(calls.filter(key__startswith=LABEL_CALLS).values_list("key", flat=True))
    return Counter(key.split(":")[1] for key in keys)


def answers_so_far(run: CompileRun, rows: Sequence[Candidate]) -> defaultdict[str, Answers]:
    """The answers by text_key: those of an earlier compile, then of each call that this one has made, the calls of a
    process that stopped in the middle of a text among them."""
    answers: defaultdict[str, Answers] = defaultdict(list)
    for row in rows:
        if row.known_answers:
            answers[row.text_key].append(row.known_answers)
    with run.transaction():
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state=CallState.APPLIED)
        calls = calls.filter(key__startswith=LABEL_CALLS).order_by("started_at")
        for key, choices in calls.values_list("key", "choices"):
            answers[key.split(":")[1]].append(choices)
    return answers


def _take_known(
    run: CompileRun, todo: list[Candidate], answers: defaultdict[str, Answers], session: TeacherSession, total: int
) -> list[Candidate]:
    """Give the inputs that the teacher labelled in an earlier compile, by the same prompt, its answers of then, and
    their votes where they are as many as wanted; returns the others. An input is looked up once, before it is asked
    about."""
    new = [row for row in todo if not answers[row.text_key]]
    with run.transaction():
        known = known_labels(run, new)
    mine = [row for row in new if row.text_key in known.answers]
    for row in mine:
        row.known_answers = known.answers[row.text_key]
        answers[row.text_key].append(known.answers[row.text_key])
    if votes_as_needed(run.spec):
        want_no_more(mine, answers)
    full = [row for row in mine if n_answers(row, answers[row.text_key]) >= n_wanted(run.spec, row)]
    if mine:
        vote_on(run.spec, full, answers)
        with run.transaction() as fenced:
            Candidate.objects.bulk_update(mine, [*VOTED, "known_answers", "n_wanted"])
            note_labels(run, fenced.compile, known, len(new) - len(mine), session.price)
            message = f"{len(mine)} of {total} inputs were labeled before"
            run.progress(StepName.LABELING, done=total - len(todo) + len(full), total=total, message=message)
    return [row for row in todo if row.state == CandidateState.PICKED]


def _next_calls(
    run: CompileRun, rows: Sequence[Candidate], answers: Mapping[str, Answers], *, per_call: int, width: int
) -> list[tuple[Candidate, PlannedCall]]:
    """The calls of the next batch with the pick that each asks about: the first picks' missing answers, `per_call` a
    call, `width` calls at most; where votes are bought as needed, one call a pick."""
    batch: list[tuple[Candidate, PlannedCall]] = []
    for row in rows:
        wanted = n_wanted(run.spec, row)
        n_calls = len(answers[row.text_key]) - bool(row.known_answers)
        missing = wanted - n_answers(row, answers[row.text_key])
        while missing > 0 and len(batch) < width:
            n = min(per_call, missing)
            batch.append((row, label_call(run, row, n, nth=n_calls, n_before=wanted - missing)))
            missing, n_calls = 0 if votes_as_needed(run.spec) else missing - n, n_calls + 1
        if len(batch) == width:
            break
    return batch


def _be_content(rows: Sequence[Candidate], answers: Mapping[str, Answers]) -> None:
    """Let the picks wait for no more answers than their calls gave, inside the transaction that journals these."""
    fewer = want_no_more(rows, answers)
    Candidate.objects.bulk_update(fewer, ["n_wanted"])


def want_no_more(rows: Sequence[Candidate], answers: Mapping[str, Answers]) -> list[Candidate]:
    """Lower what each pick wants to what it has; returns those that wanted more."""
    fewer = [row for row in rows if row.n_wanted > n_answers(row, answers[row.text_key])]
    for row in fewer:
        row.n_wanted = n_answers(row, answers[row.text_key])
    return fewer


def _choices_to_ask_for(
    batch: Sequence[tuple[Candidate, PlannedCall]], answers: Mapping[str, Answers], per_call: int
) -> int:
    """The number of choices to ask a call for next: as many as the batch's calls gave, where one gave fewer than it was
    asked for."""
    sizes = [per_call]
    left = {row.text_key: list(answers[row.text_key]) for row, _ in batch}
    for row, plan in reversed(batch):
        n_choices = len(left[row.text_key].pop())
        asked = plan.request.n if isinstance(plan.request, CompletionRequest) else n_choices
        if n_choices < asked:
            sizes.append(max(1, n_choices))
    return min(sizes)


def _save_votes(run: CompileRun, rows: Sequence[Candidate], answers: Mapping[str, Answers]) -> None:
    """Save the votes of the texts that have all their answers; the others stay picked."""
    full = [row for row in rows if n_answers(row, answers[row.text_key]) >= n_wanted(run.spec, row)]
    if not full:
        return
    vote_on(run.spec, full, answers)
    run.stop.check()
    with run.transaction():
        Candidate.objects.bulk_update(full, VOTED)
        keep_labels(run, full, answers)
