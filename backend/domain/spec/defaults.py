"""The defaults of a spec: slices, shares, N and K, and how much a teacher may write."""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Literal

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.dialects.dialect import Dialect, thought_room
from backend.domain.dialects.table import GRAMMAR, UNKNOWN, dialect_for
from backend.domain.dialects.tools import likely_tool_tokens
from backend.domain.selection.allocation import allocate_by_shares
from backend.domain.spec.inputs import SliceSpec, TextVerifier
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, LabelOutput
from backend.domain.spec.reward import RewardVerifier
from backend.domain.spec.teacher import Teacher
from backend.domain.spec.training import CausalTrain

MOST_VOTES = 5  # answers to one input where the spec names no number
UNPLANNED = frozenset({"random", "all"})  # methods of baselines: they keep what they keep
GENERAL = "general"  # the one slice of a json or text task that names none


def effective_slices(spec: Spec) -> list[SliceSpec]:
    """The spec's slices; without any, one per label with the label's share (even when no shares are declared) and
    description, or of a task without labels one for all inputs.
    """
    if spec.slices:
        return list(spec.slices)
    if not isinstance(spec.output, LabelOutput):
        return [SliceSpec(name=GENERAL, share=1.0)]
    shares = target_shares(spec)
    return [
        SliceSpec(name=label.name, share=shares[label.name], hint=label.description, label=label.name)
        for label in spec.output.labels
        if shares[label.name] > 0
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSize:
    """One slice with its N and K."""

    part: SliceSpec
    n: int
    k: int


def slice_sizes(spec: Spec) -> list[SliceSize]:
    """The effective slices with N and K by their shares. `sampling` names both for a slice of the mean share, so that
    the number of slices times each is what is divided: at least one for each slice, and no K above its N.

    With n_candidates 12, shares of 0.5, 0.3 and 0.2 give N = 18, 11 and 7, and K = 6, 4 and 2.
    """
    parts, sampling = effective_slices(spec), spec.sampling
    shares = [part.share for part in parts]
    ns = allocate_by_shares(sampling.n_candidates * len(parts), shares)
    k_mean = default_k_select(sampling.n_candidates) if sampling.k_select is None else sampling.k_select
    ks = allocate_by_shares(k_mean * len(parts), shares, most=ns)
    return [SliceSize(part=part, n=n, k=k) for part, n, k in zip(parts, ns, ks, strict=True)]


def label_names(spec: Spec) -> list[str]:
    """The labels in the order of the spec; none for another kind of output."""
    return [label.name for label in spec.output.labels] if isinstance(spec.output, LabelOutput) else []


def target_shares(spec: Spec) -> dict[str, float]:
    """The declared share of each label, scaled to sum to 1 exactly as written; even when none is declared."""
    if not isinstance(spec.output, LabelOutput):
        return {}
    declared = {label.name: label.share for label in spec.output.labels}
    total = math.fsum(share for share in declared.values() if share is not None)
    return {name: 1 / len(declared) if share is None else share / total for name, share in declared.items()}


def default_k_select(n: int) -> int:
    """ceil(n/3), the seed's default at synthesis."""
    return -(-n // 3)


def n_distilled(k_distill: int | Literal["half"] | None, n: int) -> int:
    """The number of `n` labelled pairs that train: all where the spec says nothing, ceil(n/2) for half (the seed's
    default at distillation).

    >>> n_distilled(None, 81), n_distilled("half", 81), n_distilled(60, 81)
    (81, 41, 60)
    """
    if k_distill == "half":
        return -(-n // 2)
    return n if k_distill is None else min(k_distill, n)


def votes_as_needed(spec: Spec) -> bool:
    """Say whether an input is asked about once, and again only where its label is unsure."""
    return spec.sampling.label_samples is None and isinstance(spec.output, LabelOutput)


def first_votes(spec: Spec) -> int:
    """Answers that every pick is asked for."""
    return spec.sampling.label_samples or (1 if votes_as_needed(spec) else MOST_VOTES)


def most_votes(spec: Spec) -> int:
    """Answers that a pick is asked for at most."""
    return spec.sampling.label_samples or MOST_VOTES


def buys_in_rounds(spec: Spec) -> bool:
    """Say whether `plan: auto` decides how many inputs are labelled."""
    is_planned = spec.plan.kind == "auto" and spec.sampling.method not in UNPLANNED
    return is_planned and isinstance(spec.output, LabelOutput)


def label_max_tokens(spec: Spec) -> int:
    """Return what a teacher may write for one answer. A label of c characters is at most c tokens, and a few for what
    models put around one ("The label is **refund**."); json and text say their own most.
    """
    if not isinstance(spec.output, LabelOutput):
        return spec.output.max_tokens
    return 24 + max(len(name) for name in label_names(spec))


def dialect_of(teacher: Teacher) -> Dialect:
    """The dialect of a spec's teacher, before it has refused anything."""
    if teacher.provider == "grammar":
        return GRAMMAR
    if teacher.provider == "replay":
        return UNKNOWN
    name = "vllm" if teacher.dialect is None and teacher.engine == "vllm" else teacher.dialect
    return dialect_for(teacher.base_url, teacher.model, name=name)


def thought_tokens(teacher: Teacher) -> int:
    """Tokens that each answer of a spec's teacher needs for thoughts."""
    return thought_room(dialect_of(teacher), teacher.effort, teacher.thought_tokens)


def tool_tokens(spec: Spec) -> int:
    """Tokens that the tool of a json task's schema is expected to add to each prompt; 0 without one."""
    if not (isinstance(spec.output, JsonOutput) and dialect_of(spec.teacher).has_tool):
        return 0
    return likely_tool_tokens(json.dumps(normal_schema(spec.output.answer_schema), ensure_ascii=False))


def reward_of(spec: Spec) -> RewardVerifier | None:
    """The spec's reward, which it has at most one of."""
    return next((verifier for verifier in spec.verifiers if isinstance(verifier, RewardVerifier)), None)


def text_verifiers(spec: Spec) -> list[TextVerifier]:
    """The verifiers that ask nobody."""
    return [verifier for verifier in spec.verifiers if not isinstance(verifier, RewardVerifier)]


def rewarder_of(spec: Spec) -> Teacher | None:
    """The model that gives a spec's rewards, as a teacher of its own: at the reward's address with the key that it
    names there, else at the teacher's with the teacher's key. None for a spec without a reward."""
    asked = reward_of(spec)
    if asked is None:
        return None
    own = {name: value for name in _OF_REWARDER if (value := getattr(asked, name)) is not None}
    if asked.base_url is not None and asked.model is not None:
        at = Teacher(
            provider="openai_compatible",
            model=asked.model,
            base_url=asked.base_url,
            api_key=asked.api_key,
            concurrency=spec.teacher.concurrency,
        )
        return at.model_copy(update=own)
    changes: dict[str, object] = {"fallback_model": None} | own
    if asked.model not in (None, spec.teacher.model):  # the teacher's price and revision are another model's
        changes |= {"model": asked.model, "price": asked.price, "revision": None}
    return spec.teacher.model_copy(update=changes)


def rewarded_by(spec: Spec) -> Spec:
    """The spec with the model that gives its rewards in the teacher's place: how that is asked, and whose key pays."""
    rewarder = rewarder_of(spec)
    return spec if rewarder is None else spec.model_copy(update={"teacher": rewarder})


def judge_of(spec: Spec) -> Teacher | None:
    """The model that judges drafts in the teacher's place, as a teacher of its own: at its own address with the key
    that is named for that, else at the teacher's with the teacher's key. None where the teacher itself judges."""
    asked = spec.draft_cache.judge
    if asked is None:
        return None
    own = {name: getattr(asked, name) for name in ("price", "dialect", "effort", "thought_tokens")}
    if asked.base_url is not None:
        at = Teacher(
            provider="openai_compatible",
            model=asked.model,
            base_url=asked.base_url,
            api_key=asked.api_key,
            concurrency=spec.teacher.concurrency,
        )
        return at.model_copy(update=own)
    changes: dict[str, object] = {"mode": "live", "fallback_model": None, "revision": None}
    changes |= {name: value for name, value in own.items() if value is not None}
    if asked.model != spec.teacher.model:  # what the spec says of the teacher's model holds for no other
        changes |= {"model": asked.model} | {name: own[name] for name in ("price", "effort", "thought_tokens")}
    return spec.teacher.model_copy(update=changes)


def judged_by(spec: Spec) -> Spec:
    """The spec with the model that judges drafts in the teacher's place: how that is asked, and whose key pays."""
    judge = judge_of(spec)
    return spec if judge is None else spec.model_copy(update={"teacher": judge})


def judge_name(spec: Spec) -> str:
    """The name under which evidence about the spec's own judge is kept: model, address and how long it thinks; cut to
    200 characters with a digest. "" where the teacher judges."""
    judge = judge_of(spec)
    if judge is None:
        return ""
    name = f"{judge.model}@{judge.base_url or judge.provider}"
    if judge.effort is not None:
        name += f" effort={judge.effort}"
    return name if len(name) <= 200 else f"{name[:167]}#{hashlib.sha256(name.encode()).hexdigest()[:32]}"


_OF_REWARDER = ("price", "dialect", "effort", "thought_tokens", "concurrency")


def answer_max_tokens(spec: Spec) -> int:
    """Return what a causal model may write for one answer, its end token included; of a label, the label alone."""
    if not isinstance(spec.output, LabelOutput):
        return spec.output.max_tokens
    return 8 + max(len(name) for name in label_names(spec))


def train_kind(spec: Spec) -> str:
    """encoder, spans, causal or auto: as the spec says, else an encoder for labels, spans for json and a causal base
    for text. A json task whose spec says something of a causal base wants one."""
    if spec.train.kind is not None:
        return spec.train.kind
    if isinstance(spec.output, LabelOutput):
        return "encoder"
    is_extraction = isinstance(spec.output, JsonOutput) and spec.train.causal == CausalTrain()
    return "spans" if is_extraction else "causal"


def may_extract(spec: Spec) -> bool:
    """Say whether a span student may be trained, where the pairs allow it; of texts only where the spec asks for it."""
    return not isinstance(spec.output, LabelOutput) and train_kind(spec) in ("spans", "auto")
