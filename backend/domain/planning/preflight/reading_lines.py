"""The lines about texts that an encoder does not read as they are meant: cut at its length, or of a language that its
tokenizer spells letter by letter. Tokens are estimated by the scripts of the characters (`token_counts`); a worker with
the tokenizer at hand looks again while it labels."""

from collections.abc import Sequence

from backend.domain.planning.preflight.lines import Check, PreflightLine, warning_line
from backend.domain.planning.token_counts import Counting, Script, count_tokens, counting_of_base, script_of
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.defaults import train_kind
from backend.domain.spec.models import Spec

SPECIAL_TOKENS = 2  # around a text
MOST_ENCODER_TOKENS = 512  # that a spec may ask for
MANY = 10  # a tenth of the texts
STEP = 32
# of the tokens that a tokenizer of the language would make, beside those of an English encoder's: 0.98 and more of six
# English sets, 0.75 and less of other languages whose letters show it
LEAST_FLUENCY = 0.9


def reading_lines(spec: Spec, *, texts: Sequence[str], embedder: str) -> list[PreflightLine]:
    """Warnings where many of the texts are longer than an encoder reads, and where most are of a script or language
    that the embedder, or the base, was not trained on. `embedder` is the name of the one that places the texts."""
    if not texts:
        return []
    readers = {"embedder": embedder}
    kind = train_kind(spec)
    if kind in (TrialKind.ENCODER, TrialKind.SPANS):
        readers["train.base"] = spec.train.base
    foreign = [field for field, name in readers.items() if not _knows_language(name, texts)]
    return [*(_cut_lines(spec, texts) if kind == TrialKind.ENCODER else ()), *(_language_lines(foreign))]


def _cut_lines(spec: Spec, texts: Sequence[str]) -> list[PreflightLine]:
    counting, limit = counting_of_base(spec.train.base), spec.train.max_tokens
    sizes = [count_tokens(text, counting) + SPECIAL_TOKENS for text in texts]
    n_cut = sum(size > limit for size in sizes)
    if n_cut * MANY < len(sizes) or not n_cut:
        return []
    enough = sorted(sizes)[-1 - len(sizes) // (2 * MANY)]
    raised = min(MOST_ENCODER_TOKENS, -(-int(enough + 1) // STEP) * STEP)
    advice = (
        f"Raise train.max_tokens to {raised} if the base reads so many, or shorten" if raised > limit else "Shorten"
    )
    return [
        warning_line(
            Check.BASE,
            f"{n_cut} of {len(sizes)} examples and captures have more than the {limit} tokens of train.max_tokens, as "
            "far as their characters show it: the student reads their beginnings alone.",
            code="inputs_cut",
            what_to_do=f"{advice} the inputs so that what decides comes first.",
        )
    ]


def _knows_language(name: str, texts: Sequence[str]) -> bool:
    if counting_of_base(name) is not Counting.ENCODER:
        return True
    english, usual = (sum(count_tokens(text, by) for text in texts) for by in (Counting.ENCODER, Counting.MODEL))
    alphabet = [char for text in texts for char in text if char.isalpha()]
    # words of Thai are one unknown token each
    n_unknown = sum(script_of(char) in (Script.THAI, Script.OTHER) for char in alphabet)
    return usual >= LEAST_FLUENCY * english and n_unknown * 2 <= len(alphabet)


def _language_lines(fields: Sequence[str]) -> list[PreflightLine]:
    if not fields:
        return []
    which = " and ".join(fields)
    return [
        warning_line(
            Check.EMBEDDER,
            f"Most examples and captures are of a language that an English encoder spells in small pieces ({which}): "
            "inputs are chosen worse, and the student learns less.",
            code="language_not_known",
            what_to_do=f"Name a multilingual model as {which}; which ones there are is in docs/embedders.md.",
        )
    ]
