"""An accepted draft asked about again, in other words and in other company: to measure how many are bad. It changes no
verdict.

Asked at temperature 0 about the same text with the same words, a judge answers alike; that says nothing. Here the draft
is one of a few messages, most of them fresh candidates of its slice, two of another label, and the question is which do
not belong (`prompts.judge_audit`). It is asked until one answer leaves the draft in or two name it. An answer that
leaves a text of another label in is void, and so is one that names every fresh candidate: it was not about the draft.
What this does not show is how far the two questions err together; so no upper bound follows from it.
"""

import random

from backend.domain.drafts.judge_controls import audits_of
from backend.domain.drafts.vocabulary import Cost, DraftVerdict, StoredDraft, VerdictKind, Verification
from workers.teachers.judges.batches import MAX_BATCH_CHARS, NO_DRAFT, Item
from workers.teachers.judges.compile_requests import Plants
from workers.teachers.judges.judged_slices import JudgedSlice, JudgeQuestion
from workers.teachers.prompts.judge_audit import MISPLACED, audit_messages
from workers.teachers.prompts.number_ranges import read_choice
from workers.teachers.verifiers.protocol import Answer, Conversation

MAX_ASKS = 4
N_FRESH = 4
N_NEGATIVE = 2


def audit_slice(question: JudgeQuestion, slice_: JudgedSlice, draft: StoredDraft, rng: random.Random) -> Conversation:
    """An AUDIT verdict for each answer about `draft` (see `judge_controls.audits_of`), VOID for one that was not sound,
    and the verdicts on the controls. `slice_.positives` are the fresh candidates; `question` says how requests are
    made."""
    plants = Plants([slice_], rng)
    verdicts: list[DraftVerdict] = []
    controls: list[DraftVerdict] = []
    cost = Cost()
    while not audits_of(verdicts).n and len(verdicts) < MAX_ASKS and len(draft.text) <= MAX_BATCH_CHARS:
        items = _company(slice_, draft, plants, rng)
        messages = audit_messages(
            question.head, slice_.lines, [item.text for item in items], as_json=question.has_schema
        )
        (answer,) = yield [question.request(messages, len(items), MISPLACED)]
        verdict, planted = _read(items, answer)
        verdicts.append(verdict)
        controls += planted
        cost += answer.cost
    return Verification(
        verdicts=tuple(verdicts),
        controls=tuple(controls),
        cost=cost,
        audit_cost=cost,
        is_void=bool(verdicts) and all(verdict.kind is VerdictKind.VOID for verdict in verdicts),
    )


def _company(slice_: JudgedSlice, draft: StoredDraft, plants: Plants, rng: random.Random) -> list[Item]:
    """The draft among fresh candidates and texts of another label, in random order."""
    fresh = [text for text in slice_.positives if text != draft.text and len(text) <= MAX_BATCH_CHARS // N_FRESH]
    chosen = rng.sample(fresh, min(N_FRESH, len(fresh)))
    items = [Item(text=text, draft_id=NO_DRAFT, kind=VerdictKind.POSITIVE) for text in chosen]
    items += [plants.negative(0).item for _ in range(N_NEGATIVE)]
    items.append(Item(text=draft.text, draft_id=draft.draft_id, kind=VerdictKind.AUDIT, place=0))
    return rng.sample(items, len(items))


def _read(items: list[Item], answer: Answer) -> tuple[DraftVerdict, list[DraftVerdict]]:
    """The verdict on the draft and those on the controls; none of an answer that is none."""
    misplaced = read_choice(answer.choices, len(items), name=MISPLACED)
    answers = [
        DraftVerdict(draft_id=item.draft_id, is_accepted=number not in (misplaced or ()), kind=item.kind)
        for number, item in enumerate(items, 1)
    ]
    (own,) = (verdict for verdict in answers if verdict.kind is VerdictKind.AUDIT)
    controls = [] if misplaced is None else [verdict for verdict in answers if verdict.kind is not VerdictKind.AUDIT]
    is_sound = misplaced is not None and _are_sound(controls)
    kind = VerdictKind.AUDIT if is_sound else VerdictKind.VOID
    verdict = DraftVerdict(
        draft_id=own.draft_id,
        is_accepted=is_sound and own.is_accepted,
        kind=kind,
        cost_microusd=answer.cost.amount_microusd,
    )
    return verdict, controls


def _are_sound(controls: list[DraftVerdict]) -> bool:
    fresh = [verdict.is_accepted for verdict in controls if verdict.kind is VerdictKind.POSITIVE]
    is_fooled = any(verdict.is_accepted for verdict in controls if verdict.kind is VerdictKind.NEGATIVE)
    return not is_fooled and (len(fresh) < 2 or any(fresh))
