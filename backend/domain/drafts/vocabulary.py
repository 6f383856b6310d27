"""The draft cache's vocabulary: what a draft is offered as, what is said of it, what that cost and saved.

A draft is text that the teacher wrote for an earlier slice. It enters a new pool only with a certificate, and saves
only what remains after its verification is paid: net = avoided output - verification - embedding - audits -
exploration.

The rules that decide about a draft are in `acceptance_rules` (log-probs), `judge_controls` (a judge and how far it can
be trusted); when one is shown at all, in `calibration` and `policy`; what it costs, in `costs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from uuid import UUID


class Certificate(StrEnum):
    """The certificates of an accepted draft, strongest first."""

    EXACT = "exact"  # distributed as the teacher's own answer
    BOUNDED = "bounded"  # within a stated total variation of it
    TYPICAL = "typical"  # passed a test that the teacher's own answers pass with a stated rate
    JUDGED = "judged"  # the teacher said that it would have written it; the judge's error rates are estimated
    DELEGATED = "delegated"  # another model says so of the teacher; its errors are measured by the teacher's audits
    GATED = "gated"  # passed the task's own verifier; says nothing about the teacher


class Strategy(StrEnum):
    """The ways of verifying drafts, best available first. REPEAT is for labels: the same prompt, word for word."""

    ENGINE = "engine"  # proposed to the engine that serves the teacher
    LOGPROBS = "logprobs"  # scored by the teacher, token by token
    JUDGE = "judge"  # one batched question to the teacher
    DELEGATE = "delegate"  # the same question to another, cheaper model that the spec names
    GATE = "gate"  # the task's verifier alone; opt-in
    REPEAT = "repeat"  # the teacher answered this very prompt before


CERTIFIES = {Strategy.JUDGE: Certificate.JUDGED, Strategy.DELEGATE: Certificate.DELEGATED}  # of those asked by picks


class Kinship(StrEnum):
    """The relation of a draft's source to the slice at hand, as far as names tell it. Closest first."""

    SLICE = "slice"  # the same name; its label is the same, or is no label of this spec any more: it was renamed
    LABEL = "label"  # another slice of the same label
    OTHER = "other"


class DraftState(StrEnum):
    LIVE = "live"
    QUARANTINED = "quarantined"  # a control failed beside it; shown no more
    RETIRED = "retired"


class Arm(StrEnum):
    """The outcomes of a slice that looked for drafts."""

    OFFERED = "offered"
    PROBED = "probed"  # shown against the expectation, so that a wrong curve can mend (lock-out guard)
    HELD_BACK = "held_back"  # at random, so that the saving and the quality can be compared
    NOT_WORTH = "not_worth"  # no draft's expected net was positive
    NO_DRAFTS = "no_drafts"
    SUSPENDED = "suspended"  # too many bad drafts: the family generates afresh
    OFF = "off"


class VerdictKind(StrEnum):
    VERDICT = "verdict"
    VOID = "void"  # said beside a failed control, or by another revision: counts for nothing
    AUDIT = "audit"  # an accepted draft asked about again
    NEGATIVE = "negative"  # a planted draft of a far slice: accepting it is an error
    POSITIVE = "positive"  # a planted fresh candidate of this slice: refusing it is an error


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTokens:
    """An engine's own counts: tokens `written`, tokens of drafts `proposed` to it, and those of them that it `kept`,
    which are among the written ones. A pass of the engine writes one token of an answer and what it keeps there.

    >>> EngineTokens(written=300, proposed=400, kept=200).per_pass
    3.0
    """

    written: int = 0
    proposed: int = 0
    kept: int = 0

    @property
    def per_pass(self) -> float | None:
        """Return the tokens of an answer that a pass wrote, 1 without drafts; None where nothing was written."""
        return self.written / (self.written - self.kept) if self.written > self.kept else None

    def __add__(self, other: "EngineTokens") -> "EngineTokens":
        return EngineTokens(
            written=self.written + other.written,
            proposed=self.proposed + other.proposed,
            kept=self.kept + other.kept,
        )

    def __sub__(self, earlier: "EngineTokens") -> "EngineTokens":
        return EngineTokens(
            written=self.written - earlier.written,
            proposed=self.proposed - earlier.proposed,
            kept=self.kept - earlier.kept,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatability:
    """The distance between two plain runs of one score: the sum of the total variations at `n_tokens` places, as far
    as the engine tells their alternatives.

    >>> Repeatability(n_tokens=50, tv_sum=0.02).per_token
    0.0004
    """

    n_tokens: int = 0
    tv_sum: float = 0.0

    @property
    def per_token(self) -> float | None:
        """Return the mean total variation of a token; None where nothing was scored twice."""
        return self.tv_sum / self.n_tokens if self.n_tokens else None

    def __add__(self, other: "Repeatability") -> "Repeatability":
        return Repeatability(n_tokens=self.n_tokens + other.n_tokens, tv_sum=self.tv_sum + other.tv_sum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The billed cost of calls, from the usage they reported and the price in force."""

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    n_requests: int = 0
    amount_microusd: int = 0
    price_version: str = ""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            n_requests=self.n_requests + other.n_requests,
            amount_microusd=self.amount_microusd + other.amount_microusd,
            price_version=other.price_version or self.price_version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDraft:
    """A draft as it comes out of the cache. `tokens` and `token_logprobs` (processed, of the distribution it was
    sampled from) have one entry a token, the end of the text included; None where the teacher told none."""

    draft_id: UUID
    source_id: UUID
    text: str
    n_tokens: int
    distance: float  # cosine, of its source's slice to the slice at hand
    logprob: float | None = None  # under the prompt it was written for
    is_kept: bool = False  # its own selection picked it: no product draft
    tokens: tuple[str, ...] | None = None
    token_logprobs: tuple[float, ...] | None = None
    kinship: Kinship = Kinship.OTHER
    cost_microusd: int = 0  # what the teacher billed for writing it


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftVerdict:
    """`text` is what enters the pool: the draft, or under an exact rule its kept tokens and what the teacher wrote
    after them (then `is_accepted` is false and `certificate` still holds for the text). "" where nothing enters."""

    draft_id: UUID
    is_accepted: bool
    text: str = ""
    n_tokens: int = 0  # of `text`
    kept_tokens: int = 0
    certificate: Certificate | None = None
    kind: VerdictKind = VerdictKind.VERDICT
    tv_bound: float | None = None
    cost_microusd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The account of one slice or of many, whole micro-USD.

    >>> Saving(avoided=100, verification=30, audits=5).net
    65
    """

    avoided: int = 0
    verification: int = 0
    embedding: int = 0
    audits: int = 0
    exploration: int = 0

    @property
    def net(self) -> int:
        return self.avoided - self.verification - self.embedding - self.audits - self.exploration

    def __add__(self, other: "Saving") -> "Saving":
        return Saving(
            avoided=self.avoided + other.avoided,
            verification=self.verification + other.verification,
            embedding=self.embedding + other.embedding,
            audits=self.audits + other.audits,
            exploration=self.exploration + other.exploration,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """All that a verifier said about the drafts of one slice. `controls` are the planted ones; `cost` covers every
    request, `audit_cost` the part that only measured."""

    verdicts: tuple[DraftVerdict, ...]
    controls: tuple[DraftVerdict, ...] = ()
    cost: Cost = field(default_factory=Cost)
    audit_cost: Cost = field(default_factory=Cost)
    is_void: bool = False  # a control failed, or the answer was malformed: nothing is accepted
    kept_tokens: Mapping[Certificate, int] = field(default_factory=lambda: MappingProxyType({}))
    repeatability: Repeatability = field(default_factory=Repeatability)
