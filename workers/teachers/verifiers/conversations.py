"""Many conversations held as one: each draft has its own, and the batches that they yield go out together."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from backend.domain.drafts.vocabulary import Cost, DraftVerdict, StoredDraft
from workers.teachers.verifiers.protocol import Answer, TeacherRequest

T = TypeVar("T")
Part = Generator[list[TeacherRequest], list[Answer], T]


class Refused(Exception):
    """This draft cannot be verified: what came back is not about it, or does not add up. Nothing enters for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    verdict: DraftVerdict
    cost: Cost


def with_cost(draft: StoredDraft, part: Part[DraftVerdict]) -> Part[Billed]:
    """`part` with its cost. Its draft is refused where it raises Refused, or where the answers come from more than one
    revision of the teacher: they are not about one distribution then."""
    cost, revisions = Cost(), set[str]()
    refused = DraftVerdict(draft_id=draft.draft_id, is_accepted=False)
    try:
        requests = next(part)
        while True:
            answers = yield requests
            for answer in answers:
                cost += answer.cost
                revisions |= {answer.revision} - {""}
            if len(revisions) > 1:
                part.close()
                verdict = refused
                break
            requests = part.send(answers)
    except StopIteration as ended:
        verdict = ended.value
    except Refused:
        verdict = refused
    return Billed(verdict=replace(verdict, cost_microusd=cost.amount_microusd), cost=cost)


def together(parts: Sequence[Part[T]]) -> Part[list[T]]:
    """Hold conversations side by side: what the parts return, in their order. Each batch holds the requests of all that
    are still talking."""
    returned: dict[int, T] = {}
    asking: dict[int, list[TeacherRequest]] = {}

    def go_on(n: int, answers: list[Answer] | None) -> None:
        try:
            asking[n] = next(parts[n]) if answers is None else parts[n].send(answers)
        except StopIteration as ended:
            returned[n] = ended.value
            asking.pop(n, None)

    for n in range(len(parts)):
        go_on(n, None)
    while asking:
        answers = yield [request for requests in asking.values() for request in requests]
        at = 0
        for n, requests in list(asking.items()):
            go_on(n, answers[at : at + len(requests)])
            at += len(requests)
    return [returned[n] for n in range(len(parts))]
