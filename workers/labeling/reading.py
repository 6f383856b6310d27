"""Warnings of inputs that the embedder or the student does not read as they are meant, by the embedder's own
tokenizer: such as are cut, and such as are of a language that it spells in small pieces."""

from collections.abc import Sequence

from backend.compiles.models import Candidate
from backend.domain.lifecycle import StepName
from backend.domain.planning.token_counts import Counting, alphabetic_part, count_tokens
from backend.domain.spec.outputs import LabelOutput
from workers.embedding.protocol import Spelling
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of

MOST_LOOKED_AT = 2_000
LEAST_TEXTS = 20  # below which a language is not to be seen
MANY = 20  # a twentieth of the inputs
# of the tokens that a tokenizer of the language would make: at least 1.02 in any 40 texts of six English sets, 0.81 and
# less in sentences of fifteen other languages that MiniLM was not trained on
LEAST_FLUENCY = 0.9


def warn_of_inputs(run: CompileRun) -> None:
    """Warn once of each, before the first label is paid for."""
    if not isinstance(run.spec.output, LabelOutput):
        return
    with run.transaction():
        rows = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).exclude(embedding=None)
        texts = list(rows.order_by("text_key").values_list("text", flat=True)[:MOST_LOOKED_AT])
    embedder = embedder_of(run)
    spellings = embedder.spell(texts)
    warnings = {
        "inputs_cut": cut_warning(spellings, embedder=embedder.max_tokens, student=run.spec.train.max_tokens),
        "language_not_known": language_warning(texts, spellings),
    }
    with run.transaction():
        for code, message in warnings.items():
            if message:
                run.warn_once(code, message, step=StepName.LABELING.value)


def cut_warning(spellings: Sequence[Spelling], *, embedder: int, student: int) -> str:
    """The advice about inputs that are longer than `embedder` or `student` tokens; "" where nearly none is."""
    n, limit = len(spellings), min(embedder, student)
    n_cut = sum(one.n_tokens > limit for one in spellings)
    if n_cut * MANY < n or not n_cut:
        return ""
    longest = max(one.n_tokens for one in spellings)
    by = "train.max_tokens" if student <= embedder else "the embedder"
    advice = "Raise train.max_tokens, or shorten" if student < min(longest, embedder) else "Shorten"
    return (
        f"{n_cut} of {n} inputs have more than the {limit} tokens that {by} allows (the longest has {longest}): their "
        f"ends are not read. {advice} the inputs so that what decides comes first."
    )


def language_warning(texts: Sequence[str], spellings: Sequence[Spelling]) -> str:
    """The advice about inputs of a language that the tokenizer spells in small pieces; "" where it knows theirs."""
    n_tokens = sum(one.n_alphabetic_tokens for one in spellings)
    usual = sum(count_tokens(alphabetic_part(text), Counting.MODEL) for text in texts)
    if len(texts) < LEAST_TEXTS or usual >= LEAST_FLUENCY * n_tokens:
        return ""
    return (
        f"The embedder makes {n_tokens / usual:.1f} times as many tokens of the inputs as a model that knows their "
        "language: it was trained on another, so inputs are chosen worse and the student learns less. Name a "
        "multilingual model as embedder and as train.base."
    )
