"""The rules of who may use what: the one thing that `kolm serve FILE` and the server of many tenants answer
differently."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpu_runners.artifacts.encoder_student import EncoderModel, StudentAnswer
from gpu_runners.artifacts.rules_first import RuleAnswer, RulesFirst
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import AdapterRef, Drafting, Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The resources of one call. `prompt` is the artifact's prompt.json (`{}` for a bare base), `model` the name that
    is told back. Metering and revocation are in `engine`, which may be a wrapper made for this one call; `rules` answer
    before it, and each answer of theirs is handed to `note_rule` before it goes out (which may raise Refusal)."""

    engine: Engine
    base: CausalBase
    adapter: AdapterRef | None
    prompt: Mapping[str, Any]
    model: str
    tenant: str = ""
    cache_salt: str = ""
    drafting: Drafting | None = None
    rules: RulesFirst | None = None
    note_rule: Callable[[RuleAnswer], None] = lambda answer: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStudent:
    """A student on an encoder that answers one call. `answer` gives the answer to an input; metering and revocation are
    in it, and it may raise Refusal, Overloaded."""

    student: EncoderModel
    answer: Callable[[str], Coroutine[Any, Any, StudentAnswer]]
    model: str


class Refusal(Exception):
    """The caller may not, or not now. May be raised by `Responder` and by a `Served` engine, also amid an answer."""

    def __init__(self, status: int, code: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after_s = status, code, message, retry_after_s


class Responder(Protocol):
    async def admit(self, headers: Mapping[str, str]) -> str:
        """Decide whether a body that comes with these headers is read at all, and on whose account: who may not send
        one is told before it is. Raises Refusal."""
        ...

    async def resolve(self, model: str, headers: Mapping[str, str]) -> Served | ServedStudent:
        """Look up what `model` stands for, to whom sent these headers (names in lower case). Raises Refusal."""
        ...

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        """OpenAI's model objects that this caller may name. Raises Refusal."""
        ...
