"""The profile of a spec's teacher, known before anybody asks it: identity, capabilities, the note on the model card."""

import functools
import hashlib

from backend.domain.dialects.dialect import Dialect, Option
from backend.domain.spec.defaults import dialect_of
from backend.domain.spec.parsing import Teacher as TeacherSpec
from workers.teachers.grammar.files import shipped_grammar
from workers.teachers.protocol import TeacherCaps, TeacherIdentity

VLLM_TOP_LOGPROBS = 20  # its default; a server started with a larger --max-logprobs tells no more than it is asked

# what the model card of an artifact says of its teacher
CARD_NOTES = {
    "grammar": (
        "Taught by kolm-grammar-1, a demonstration teacher: a hand-written probabilistic grammar and not a language "
        "model. It shows that the pipeline works; do not put this model to real use."
    ),
    "openai_compatible": "",
    "replay": "Taught by recorded answers; only the author of the recording knows which model gave them.",
}


def identity_of(spec: TeacherSpec) -> TeacherIdentity:
    """The identity that the spec names, before anybody is asked. The endpoint is part of it: two servers may call
    different models by one name."""
    if spec.provider == "grammar":
        return TeacherIdentity(provider="grammar", model=spec.model, revision=spec.revision or _grammar_revision())
    endpoint = "" if spec.base_url is None else hashlib.sha256(spec.base_url.encode()).hexdigest()[:8]
    return TeacherIdentity(provider=spec.provider, model=spec.model, revision=spec.revision or "", endpoint=endpoint)


def caps_of(spec: TeacherSpec) -> TeacherCaps:
    """The capabilities of the spec's teacher."""
    if spec.provider == "grammar":
        return TeacherCaps(
            logprobs=True, prompt_logprobs=True, processed_scores=True, prefix=True, max_top_logprobs=1024
        )
    if spec.provider == "openai_compatible":
        is_vllm, dialect = spec.engine == "vllm", dialect_of(spec)
        return TeacherCaps(
            logprobs=Option.LOGPROBS in dialect.takes,
            prompt_logprobs=is_vllm,
            prefix=is_vllm,
            engine_drafts=is_vllm,
            max_top_logprobs=VLLM_TOP_LOGPROBS if is_vllm else _top_logprobs_of(dialect),
        )
    return TeacherCaps()


def _top_logprobs_of(dialect: Dialect) -> int:
    return dialect.max_top_logprobs if Option.TOP_LOGPROBS in dialect.takes else 0


@functools.cache
def _grammar_revision() -> str:
    """The revision of the grammars this release ships. A server started with another file says so in each answer
    (`Completion.revision`)."""
    return shipped_grammar().revision
