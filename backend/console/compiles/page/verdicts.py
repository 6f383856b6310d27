"""The head of a compile's page: did it work, how good is it, what did it cost, what to do next. Each answer is a
sentence with what it rests on; the tabs below have the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.urls import reverse

from backend.compiles.models import Compile, StepRun
from backend.domain.evaluation.alternatives import AlternativeName
from backend.domain.evaluation.gate_floors import ACCURACY_WORDS
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import STEPS, TERMINAL, CompileStatus, StepStatus
from backend.domain.number_words import interval, percent, points, score


class Tone(StrEnum):
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    tone: Tone
    title: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """Something to do, where it is done, and why; `href` is "" for advice alone."""

    words: str
    href: str = ""
    why: str = ""


_RESUME = {
    CompileStatus.CANCELED: "What is done and paid for is kept; Resume continues at the first unfinished step.",
    CompileStatus.EXPIRED: "No worker took it in time. Resume it; finished steps are kept.",
    CompileStatus.FAILED: "Finished steps are kept; Resume continues at this step, with the budget that you set.",
}
_AFTER_PREFLIGHT = (
    "Nothing but the tiny calls was paid. Where the spec is at fault, choose Compile again and change it; where the "
    "vendor or this installation was, Resume."
)


def verdict_of(row: Compile, steps: Sequence[StepRun]) -> Verdict:
    """Say whether it worked; of a compile that runs, how far it is."""
    match CompileStatus(row.status):
        case CompileStatus.SUCCEEDED:
            return Verdict(
                tone=Tone.GOOD,
                title="It worked: the gate is passed",
                sentence="Every floor is met; the model is published and signed.",
            )
        case CompileStatus.GATE_FAILED:
            missed = next((floor for floor in (row.gate or {}).get("floors", []) if not floor["passed"]), None)
            reason = f"{missed['message'][:1].upper()}{missed['message'][1:]}." if missed else ""
            sentence = f"{reason} Nothing is published.".strip()
            return Verdict(tone=Tone.WARN, title="It did not pass its gate", sentence=sentence)
        case CompileStatus.FAILED:
            return Verdict(tone=Tone.BAD, title=f"It failed{_at(row)}", sentence="")
        case CompileStatus.CANCELED | CompileStatus.EXPIRED as status:
            title = "It was canceled" if status is CompileStatus.CANCELED else "It expired"
            return Verdict(tone=Tone.INFO, title=title, sentence="")
        case _:
            return _progress(row, steps)


def quality_words(row: Compile) -> str:
    """The accuracy with its interval and the K-score, in a sentence; "" before the evaluation."""
    measured: Mapping[str, Any] = row.evaluation or {}
    if not measured.get("n"):
        return ""
    kind = ACCURACY_WORDS.get(measured.get("accuracy_kind", ""), "accuracy")
    bounds = interval(measured["accuracy_low_ppm"], measured["accuracy_high_ppm"])
    words = f"{kind.capitalize()} {percent(measured['accuracy_ppm'])} {bounds} on {measured['n']:,} held-out inputs"
    return f"{words}; K-score {score(row.k_score_ppm)}." if row.k_score_ppm is not None else f"{words}."


def rival_words(row: Compile) -> list[str]:
    """Say how the model does beside the teacher, and beside the best of what else could have answered."""
    rivals = (row.evaluation or {}).get("alternatives") or []
    teacher = [one for one in rivals if one["name"] == AlternativeName.TEACHER]
    others = sorted((one for one in rivals if one["name"] != AlternativeName.TEACHER), key=_accuracy, reverse=True)
    return [_beside(one) for one in [*teacher, *others[:1]]]


def next_steps(row: Compile) -> list[NextStep]:
    """The next acts, the likeliest first."""
    status, id = CompileStatus(row.status), encode_id(Prefix.COMPILE, row.id)
    wrong = NextStep(
        words="See what it gets wrong", href=f"{reverse('console:compile', args=[id])}?tab=wrong", why=_wrong_words(row)
    )
    again = NextStep(words="Compile again", href=f"{reverse('console:compile_new')}?from={id}", why="with changes")
    if status == CompileStatus.SUCCEEDED and row.artifact_id is not None:
        asked = f"?artifact={encode_id(Prefix.ARTIFACT, row.artifact_id)}"
        playground, deployments = reverse("console:playground"), reverse("console:deployments")
        return [
            NextStep(words="Try it", href=playground + asked, why="in the playground, beside the teacher"),
            NextStep(words="Deploy it", href=deployments + asked, why="behind POST /v1/chat/completions"),
            wrong,
        ]
    if status == CompileStatus.GATE_FAILED:
        advice = [NextStep(words=row.gate["next_step"])] if (row.gate or {}).get("next_step") else []
        return [*advice, wrong, again]
    if row.failure_code == "preflight_failed":
        return [NextStep(words=_AFTER_PREFLIGHT)]
    if status in _RESUME:
        return [NextStep(words=_RESUME[status])]
    webhook = NextStep(words="Get a notification when it ends", href=reverse("console:webhooks"), why="by a webhook")
    return [] if status in TERMINAL else [webhook]


def _progress(row: Compile, steps: Sequence[StepRun]) -> Verdict:
    done = sum(step.status == StepStatus.SUCCEEDED for step in steps)
    at = next((step for step in steps if step.status == StepStatus.RUNNING), None)
    if row.status == CompileStatus.QUEUED:
        return Verdict(tone=Tone.INFO, title="It is queued", sentence="A worker takes it as soon as one is free.")
    if at is None:
        return Verdict(tone=Tone.INFO, title="It is under way", sentence=f"{done} of {len(STEPS)} steps are done.")
    within = f", {at.done:,} of {at.total:,}" if at.total else ""
    message = f": {at.message}" if at.message else ""
    sentence = f"{at.name.capitalize()}{within}{message}. {done} of {len(STEPS)} steps are done."
    return Verdict(tone=Tone.INFO, title="It is under way", sentence=sentence)


def _at(row: Compile) -> str:
    return f" at {row.failed_step}" if row.failed_step else ""


def _accuracy(rival: Mapping[str, Any]) -> int:
    return int(rival["accuracy_ppm"])


def _beside(rival: Mapping[str, Any]) -> str:
    low, high = points(rival["difference_low_ppm"]), points(rival["difference_high_ppm"])
    theirs, words = percent(rival["accuracy_ppm"]), rival["words"]
    return f"{points(rival['difference_ppm'])} points [{low}, {high}] beside {words}, which has {theirs}."


def _wrong_words(row: Compile) -> str:
    measured = row.evaluation or {}
    if "correct" not in measured or "n" not in measured:
        return "held-out answers, one by one"
    return f"{measured['n'] - measured['correct']:,} of {measured['n']:,} held-out answers"
