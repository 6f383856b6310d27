"""Judges of numbered texts: the far side of the wire, which reads a request as a model would and answers with text; and
the slices that their tests share. A text that opens with the name of its slice belongs there, "poison" nowhere."""

import json
import random
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from backend.domain.drafts.judge_controls import ControlCounts, controls_of
from backend.domain.drafts.vocabulary import Cost, StoredDraft, Verification
from workers.teachers.judges.judged_slices import Control, JudgedSlice, JudgeQuestion
from workers.teachers.prompts.candidate_and_label import unfence
from workers.teachers.prompts.number_ranges import as_ranges
from workers.teachers.protocol import Choice
from workers.teachers.verifiers.protocol import Answer, TeacherRequest

T = TypeVar("T")
COST = Cost(input_tokens=101, output_tokens=13, amount_microusd=77, n_requests=1)
NAMES = ("ask", "late", "rules", "anger", "other")


@dataclass(frozen=True)
class Shown:
    """One numbered text, and the name of the slice that it stands under."""

    slice_name: str
    text: str

    @property
    def belongs(self) -> bool:
        return self.text.startswith(self.slice_name)


NumberedJudge = Callable[[dict[int, Shown]], str]


def shown_in(request: TeacherRequest) -> dict[int, Shown]:
    """{number: text} of a request, in order."""
    content = request.messages[-1].content
    headings = re.findall(r"^Drafts of slice [A-Z]+, (.*):$", content, re.MULTILINE)
    names = headings or re.findall("^Slice: (.*)$", content, re.MULTILINE)
    shown = {}
    for name, fenced in zip(names, unfence(content), strict=True):
        for line in fenced.split("\n"):
            number, text = line.split(" ", 1)
            shown[int(number)] = Shown(name, json.loads(text))
    return shown


def hold(
    conversation: Generator[list[TeacherRequest], list[Answer], T], judge: NumberedJudge, cost: Cost = COST
) -> tuple[T, list[list[TeacherRequest]]]:
    """What the conversation comes to, and the requests of each round."""
    rounds: list[list[TeacherRequest]] = []
    try:
        requests = next(conversation)
        while True:
            rounds.append(requests)
            answers = [Answer(choices=(Choice(text=judge(shown_in(r))),), cost=cost) for r in requests]
            requests = conversation.send(answers)
    except StopIteration as ended:
        return ended.value, rounds


def truthful(shown: dict[int, Shown]) -> str:
    return as_ranges(number for number, one in shown.items() if one.belongs)


def accepts_all(shown: dict[int, Shown]) -> str:
    return as_ranges(shown)


def drafts_of(texts: Sequence[str], start: int = 1) -> tuple[StoredDraft, ...]:
    return tuple(
        StoredDraft(draft_id=UUID(int=start + i), source_id=UUID(int=5), text=text, n_tokens=4, distance=0.1)
        for i, text in enumerate(texts)
    )


def slice_of(key: int, texts: Sequence[str], *, n_fresh: int = 3) -> JudgedSlice:
    """The slice NAMES[key] with these drafts; its negatives are texts of the next slice."""
    name, other = NAMES[key], NAMES[(key + 1) % len(NAMES)]
    negatives = (Control(text=f"{other} negative {i}", draft_id=UUID(int=90_000 + i)) for i in range(20))
    return JudgedSlice(
        key=key,
        lines=(f"Slice: {name}", f"Hint: {name}", f"Label: {key}"),
        drafts=drafts_of(texts, 1000 * key + 1),
        negatives=tuple(negatives),
        positives=tuple(f"{name} fresh {i}" for i in range(n_fresh)),
    )


def mixed(key: int, n: int) -> list[str]:
    """Drafts of slice `key`, every third of which belongs to the one before."""
    return [f"{NAMES[key] if i % 3 else NAMES[key - 1]} {i}" for i in range(n)]


def truth(*sizes: int) -> dict[int, list[bool]]:
    """Which of so many `mixed` drafts of each slice belong there."""
    return {key: [i % 3 > 0 for i in range(n)] for key, n in enumerate(sizes) if n}


def accepted(found: dict[int, Verification]) -> dict[int, list[bool]]:
    return {key: [verdict.is_accepted for verdict in one.verdicts] for key, one in found.items()}


def counted(found: dict[int, Verification]) -> ControlCounts:
    return sum((controls_of(one.controls) for one in found.values()), ControlCounts())


def question_of(*slices: JudgedSlice, has_schema: bool = False) -> JudgeQuestion:
    return JudgeQuestion(
        head=("Task: route messages", "Labels: 0 | 1 | 2 | 3 | 4"), slices=slices, seed=11, has_schema=has_schema
    )


@dataclass
class NoisyJudge:
    """Accepts what belongs with probability `sensitivity`, refuses what does not with `specificity`. A shown "poison"
    makes it accept with probability `flip` what the poison speaks for: `reach` "all", "slice", or numbers on each side
    of its own."""

    rng: random.Random
    sensitivity: float = 0.95
    specificity: float = 0.97
    flip: float = 1.0
    reach: str | int = "all"

    def __call__(self, shown: dict[int, Shown]) -> str:
        accepted = {number for number, one in shown.items() if self._accepts(one)}
        for number, one in shown.items():
            if one.text.startswith("poison") and self.rng.random() < self.flip:
                accepted |= {other for other in shown if self._reaches(number, other, shown)}
        return as_ranges(accepted)

    def _accepts(self, one: Shown) -> bool:
        return self.rng.random() < (self.sensitivity if one.belongs else 1 - self.specificity)

    def _reaches(self, number: int, other: int, shown: dict[int, Shown]) -> bool:
        if isinstance(self.reach, int):
            return abs(number - other) <= self.reach
        return self.reach == "all" or shown[number].slice_name == shown[other].slice_name
