"""Judges that err as told, and the drafts and slices that the tests of the judge share. A judge here is the far side of
the wire: it reads a request as a model would and answers with text."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from backend.domain.drafts.vocabulary import Cost, StoredDraft, Verification
from workers.teachers.prompts.candidate_and_label import unfence
from workers.teachers.protocol import Choice, CompletionRequest
from workers.teachers.verifiers.protocol import (
    Answer,
    Conversation,
    SamplingPolicy,
    TeacherRequest,
    VerificationContext,
)

Judge = Callable[[dict[str, str]], str]

FAR = tuple(
    StoredDraft(draft_id=UUID(int=9000 + i), source_id=UUID(int=9), text=f"far: {i}", n_tokens=3, distance=0.9)
    for i in range(12)
)


def drafts_of(texts: Sequence[str], *, start: int = 1) -> list[StoredDraft]:
    return [
        StoredDraft(draft_id=UUID(int=start + i), source_id=UUID(int=5), text=text, n_tokens=4, distance=0.1)
        for i, text in enumerate(texts)
    ]


def asked_about(*, far: tuple[StoredDraft, ...] = FAR, fresh: tuple[str, ...] = ()) -> VerificationContext:
    return VerificationContext(
        request=CompletionRequest(messages=()),
        policy=SamplingPolicy(temperature=1.0),
        head=("Task: route messages", "Labels: a | b"),
        slice_lines=("Slice: one", "Hint: whatever fits"),
        far=far,
        fresh=fresh,
    )


def shown_in(request: TeacherRequest) -> dict[str, str]:
    """{id: text} of a judge's request, in order."""
    (drafts,) = unfence(request.messages[-1].content)
    return dict(json.loads(drafts))


def answered(text: str, microusd: int = 7) -> Answer:
    return Answer(choices=(Choice(text=text),), cost=Cost(amount_microusd=microusd, n_requests=1))


def hold(conversation: Conversation, judge: Judge) -> tuple[Verification, list[list[TeacherRequest]]]:
    """What the verifier says in the end, and the requests of each round."""
    rounds: list[list[TeacherRequest]] = []
    try:
        requests = next(conversation)
        while True:
            rounds.append(requests)
            requests = conversation.send([answered(judge(shown_in(request))) for request in requests])
    except StopIteration as ended:
        return ended.value, rounds


def say(verdicts: dict[str, bool]) -> str:
    return json.dumps([id_ for id_, is_yes in verdicts.items() if is_yes])


@dataclass
class NoisyJudge:
    """Accepts what starts with "good" or "fresh" with probability `sensitivity`, refuses all else with `specificity`.
    A shown "poison" makes it accept everything with probability `flip`, only the poison itself if `is_targeted`."""

    rng: random.Random
    sensitivity: float = 0.95
    specificity: float = 0.97
    flip: float = 1.0
    is_targeted: bool = False

    def __call__(self, shown: dict[str, str]) -> str:
        return say(self.verdicts(shown))

    def verdicts(self, shown: dict[str, str]) -> dict[str, bool]:
        said = {id_: self._says(text) for id_, text in shown.items()}
        poisons = {id_ for id_, text in shown.items() if text.startswith("poison")}
        if poisons and self.rng.random() < self.flip:
            said |= dict.fromkeys(poisons if self.is_targeted else shown, True)
        return said

    def _says(self, text: str) -> bool:
        is_good = text.startswith(("good", "fresh"))
        return self.rng.random() < (self.sensitivity if is_good else 1 - self.specificity)
