"""The draft cache's door: admission of what a selection did not keep."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from backend.drafts.models import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftScope:
    """What must be equal for a draft to be offered at all."""

    family: str
    teacher: str
    embedder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A candidate that passed every deterministic check and was not picked. `token_logprobs` are float16 bytes."""

    candidate_id: UUID
    text: str
    text_key: str
    score: float | None
    signal: str
    logprob: float | None
    token_logprobs: bytes | None
    n_tokens: int
    cost_microusd: int


def admit(
    tenant_id: UUID,
    compile_id: UUID,
    rejects: Sequence[Reject],
    *,
    scope: DraftScope,
    slice_name: str,
    slice_vector: Sequence[float],
) -> None:
    """Keep the rejects of one slice as drafts, in the transaction of the picks; each is kept once."""
    Draft.objects.bulk_create(
        [
            Draft(
                tenant_id=tenant_id,
                compile_id=compile_id,
                slice_name=slice_name,
                slice_embedding=list(slice_vector),
                **asdict(scope),
                **asdict(reject),
            )
            for reject in rejects
        ],
        ignore_conflicts=True,
        batch_size=500,
    )
