"""Deployments as values: which artifact answers a request, which server it goes to, what it costs at most.

A deployment is a name under which a primary artifact answers, with a canary for a share of the requests. A server
serves the adapters of any tenant over one base.
"""

import hashlib
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.domain.money.pricing import MICRO, Price, PriceBook

PPM = 1_000_000
DEFAULT_MAX_TOKENS = 1_024  # what an answer is taken to use at most when its request names no bound
MAX_CHOICES = 16
TEMPLATE_TOKENS = 64  # a chat template's own words, for each message
PROMPT_SKU, CACHED_SKU, COMPLETION_SKU = (f"serving.{kind}_token" for kind in ("prompt", "cached", "completion"))


class DeploymentState(StrEnum):
    """`draining` lets requests under way end and takes no new ones; after DRAIN_S it reads `stopped`."""

    ACTIVE = "active"
    DRAINING = "draining"
    STOPPED = "stopped"


DRAIN_S = 900.0  # as long as a request may run (serving_wire.GRANT_S)


class StudentKind(StrEnum):
    """The student of an artifact, as servers know them: an adapter of a causal base, or merged weights of an encoder
    that choose a label or tag spans. Only the first writes tokens."""

    CAUSAL = "causal"
    LABEL = "label"
    SPANS = "spans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """The part of an artifact that matters to serving it. `student` is None of what no server knows."""

    base_id: str
    base_sha256: str
    task_type: str
    n_prompt_bytes: int  # of prompt.json: what the task itself adds to every prompt
    student: StudentKind | None


def answering(manifest: Mapping[str, Any]) -> Answering:
    """Read the identity from an artifact's signed manifest."""
    base = manifest.get("base") or {}
    sizes = {member["path"]: int(member["size"]) for member in manifest.get("members", [])}
    task_type = str(manifest.get("task_type", ""))
    return Answering(
        base_id=str(base.get("id", "")),
        base_sha256=str(base.get("sha256", "")),
        task_type=task_type,
        n_prompt_bytes=sizes.get("prompt.json", 0),
        student=_student(sizes, task_type),
    )


def _student(members: Container[str], task_type: str) -> StudentKind | None:
    if "prompt.json" in members:
        return StudentKind.CAUSAL
    if "extraction.json" in members:
        return StudentKind.SPANS
    return {"label": StudentKind.LABEL, "json": StudentKind.CAUSAL, "text": StudentKind.CAUSAL}.get(task_type)


def mismatch(canary: Answering, primary: Answering, *, is_same_form: bool) -> str | None:
    """Return why one cannot answer in the place of the other, as a sentence; None when it can. `is_same_form`: whether
    their tasks answer with the same schema or labels, which counts where base or student differ.

    >>> label = Answering(base_id="b", base_sha256="1", task_type="label", n_prompt_bytes=0, student=None)
    >>> mismatch(label, label, is_same_form=False) is None
    True
    """
    if canary.task_type != primary.task_type:
        return (
            f"The artifact answers a {canary.task_type} task and the deployment a {primary.task_type} task; who calls "
            "it would get answers of another kind. Make a deployment of its own for it."
        )
    if (canary.base_sha256, canary.student) == (primary.base_sha256, primary.student):
        return None
    if canary.student == primary.student == StudentKind.CAUSAL:
        return (
            f"The artifact is an adapter for {canary.base_id} ({canary.base_sha256[:12]}) and the deployment's base is "
            f"{primary.base_id} ({primary.base_sha256[:12]}), and a server has one causal base. Compile it for the "
            "same base, or make a deployment of its own for it."
        )
    if not is_same_form:
        what = {"json": "schema", "label": "set of labels"}.get(canary.task_type, "form")
        return (
            f"The artifact's student is another one than the deployment's, and it answers by another {what}; who "
            f"calls it would get answers of another kind. Compile it with the deployment's {what}, or make a "
            "deployment of its own for it."
        )
    return None


def takes_canary(sticky: str, salt: str, share_ppm: int) -> bool:
    """Return whether the request of `sticky` (a user, a session) is the canary's: always the same answer for the same
    two texts, for a share of all texts, and a greater share keeps those that a smaller one had."""
    return _unit(f"{salt}/{sticky}") < share_ppm / PPM


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """`key` is the server's id; `n_here` what this gateway process has under way there and the server may not have
    told of yet."""

    key: str
    n_running: int
    n_waiting: int
    max_running: int
    n_here: int = 0

    @property
    def load(self) -> float:
        busy = max(self.n_running + self.n_waiting, self.n_here)
        return busy / max(1, self.max_running)


def in_order(adapter_sha256: str, servers: Iterable[ServerLoad]) -> list[ServerLoad]:
    """Servers for a request of this adapter, best first. Each adapter has an order of its own (rendezvous hashing), so
    that its requests meet where it is loaded and a server that goes moves its own adapters only; a full server is
    passed over for the next one with room, and where none has any, the least loaded goes first."""
    ranked = sorted(servers, key=lambda server: _unit(f"{server.key}/{adapter_sha256}"), reverse=True)
    with_room = [server for server in ranked if server.load < 1.0]
    full = sorted((server for server in ranked if server.load >= 1.0), key=lambda server: server.load)
    return with_room + full


def worst_tokens(
    body: Mapping[str, Any], *, n_body_bytes: int, n_prompt_bytes: int, writes_tokens: bool = True
) -> tuple[int, int]:
    """Return at most how many (prompt, completion) tokens a request uses: each of its answers reads its prompt for
    itself. A byte-level tokenizer makes no more tokens than there are bytes. `body` has whole numbers where OpenAI's
    has them."""
    messages = body.get("messages") or body.get("input")
    n_messages = len(messages) if isinstance(messages, list) else 1
    bounds = (_count(body.get(name)) for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"))
    n_answer = next(filter(None, bounds), DEFAULT_MAX_TOKENS)
    n_prompt = n_body_bytes + n_prompt_bytes + TEMPLATE_TOKENS * (n_messages + 1)
    return n_prompt * _n_choices(body), n_answer * n_answers(body) if writes_tokens else 0


def n_answers(body: Mapping[str, Any]) -> int:
    """Return how many answers a request asks for, each of which is told on its own: prompts times choices."""
    prompt = body.get("prompt")
    n_prompts = len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)) else 1
    return n_prompts * _n_choices(body)


def _n_choices(body: Mapping[str, Any]) -> int:
    return min(MAX_CHOICES, max(1, _count(body.get("n")), _count(body.get("best_of"))))


def worst_microusd(book: PriceBook, n_prompt: int, n_completion: int) -> int:
    """Return what they cost, at least one micro-USD: something is promised for every request."""
    usd = n_prompt * book.prices[PROMPT_SKU].usd_per_unit + n_completion * book.prices[COMPLETION_SKU].usd_per_unit
    return max(1, math.ceil(usd * MICRO))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    kind: str  # prompt | cached | completion
    price: Price
    quantity: int
    amount_microusd: int


def token_costs(book: PriceBook, *, prompt: int, cached: int, completion: int) -> tuple[TokenCost, ...]:
    """A usage row by kind of token; `cached` are among `prompt`. Rounded so that the amounts sum to the exact cost
    rounded once. The completion is always there: it is what says that the row was booked.

    >>> from backend.domain.money.pricing import price_book
    >>> [cost.amount_microusd for cost in token_costs(price_book(), prompt=1000, cached=0, completion=100)]
    [50, 20]
    """
    parts, exact, booked = [], MICRO * 0, 0
    quantities = ((PROMPT_SKU, prompt - cached), (CACHED_SKU, cached), (COMPLETION_SKU, completion))
    for sku, quantity in quantities:
        exact += quantity * book.prices[sku].usd_per_unit * MICRO
        upto = round(exact)
        if quantity or sku == COMPLETION_SKU:
            kind = sku.removeprefix("serving.").removesuffix("_token")
            parts.append(TokenCost(kind=kind, price=book.prices[sku], quantity=quantity, amount_microusd=upto - booked))
            booked = upto
    return tuple(parts)


# --- times, as a histogram that adds up ---------------------------------------------------------------------

N_BUCKETS = 96
_FIRST_US = 100.0  # bucket 0 holds everything below
_GROWTH = 1.18920711500272  # 2 ** (1/4): a quantile is right to within a fifth


def bucket_of(us: int) -> int:
    """The bucket of a time in microseconds: 100 us to about 24 minutes, then the last one."""
    edge, at = _FIRST_US, 0
    while us > edge and at < N_BUCKETS - 1:
        edge, at = edge * _GROWTH, at + 1
    return at


def quantile_us(counts: Sequence[int], share: float) -> int | None:
    """The upper edge of the bucket that the quantile is in; None without counts."""
    wanted, seen = share * sum(counts), 0
    for at, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return round(_FIRST_US * _GROWTH**at)
    return None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _unit(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
