"""An entry of a question to a judge, and the ids and limits of such questions."""

from dataclasses import dataclass
from uuid import UUID

from backend.domain.drafts.vocabulary import VerdictKind

MAX_BATCH_CHARS = 32_000  # of drafts, some 8,000 tokens beside the prompt
NO_DRAFT = UUID(int=0)  # of a control that is no stored draft
_CONSONANTS = "bcdfghjklmnpqrstvwxz"  # no vowels: an id spells no word
IDS = tuple(one + other for one in _CONSONANTS for other in _CONSONANTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a batch: a draft asked about (`place` in the list of them), or a planted control."""

    text: str
    draft_id: UUID
    kind: VerdictKind
    place: int | None = None
