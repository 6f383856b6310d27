"""Rules of a spec that join fields or need more than a bound: each yields a problem that says what to change."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from backend.domain.cost_tags import tag_problems
from backend.domain.dialects.batches import no_batches
from backend.domain.dialects.dialect import Option
from backend.domain.errors import Problem
from backend.domain.patterns.matching import UnsafePattern, compile_pattern, takes_too_long_to_read
from backend.domain.pointers import suggestion
from backend.domain.spec.addresses import address_problem
from backend.domain.spec.answer_rules import output_problems
from backend.domain.spec.defaults import default_k_select, dialect_of, effective_slices, slice_sizes, train_kind
from backend.domain.spec.inputs import LengthVerifier, RegexVerifier, SimilarityVerifier
from backend.domain.spec.judge_rules import judge_problems
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import LabelOutput, RegexCheck, TextOutput
from backend.domain.spec.problems import MAX_SHOWN
from backend.domain.spec.reward_rules import reward_problems
from backend.domain.unicode_forms import unicode_form

SHARE_TOLERANCE = 0.01
MAX_POOL = 20_000  # candidates of one slice, as many as captures


def rule_problems(spec: Spec) -> list[Problem]:
    """The first broken rules, but those about gold (`answer_rules.gold_problems`), in the order of the document."""
    if _are_patterns_too_slow(spec):
        message = (
            "the patterns of verifiers and output.checks together take too long to read; take fewer or shorter ones, "
            "with fewer letters and ranges beyond ASCII"
        )
        return [Problem(pointer="", message=message, code="bad_pattern")]
    first = (_output, _slices, _sources, _verifiers, _teacher, _sampling)
    rules = (*first, judge_problems, _training, _evaluation, _recipes, _tags)
    return list(islice((problem for rule in rules for problem in rule(spec)), MAX_SHOWN))


def _are_patterns_too_slow(spec: Spec) -> bool:
    """Asked before any is compiled."""
    checks = () if isinstance(spec.output, LabelOutput) else spec.output.checks
    asked = (*spec.verifiers, *checks)
    return takes_too_long_to_read(one.pattern for one in asked if isinstance(one, RegexVerifier | RegexCheck))


def _output(spec: Spec) -> Iterator[Problem]:
    if not isinstance(spec.output, LabelOutput):
        yield from output_problems(spec)
        return
    if spec.output.abstain is not None and train_kind(spec) != "encoder":
        message = f'an encoder alone has calibrated confidences, and train.kind is "{train_kind(spec)}"; remove one'
        yield Problem(pointer="/output/abstain", message=message, code="not_used")
    labels = spec.output.labels
    yield from _repeats("/output/labels", [label.name for label in labels], code="duplicate_label", what="label")
    declared = [label.share for label in labels if label.share is not None]
    if declared and len(declared) < len(labels):
        message = f"{len(declared)} of {len(labels)} labels have a share; give one to each, or to none"
        yield Problem(pointer="/output/labels", message=message, code="shares_incomplete")
    elif declared:
        yield from _sum_to_one("/output/labels", declared)


def _slices(spec: Spec) -> Iterator[Problem]:
    yield from _repeats("/slices", [part.name for part in spec.slices], code="duplicate_slice", what="slice")
    if spec.slices:
        yield from _sum_to_one("/slices", [part.share for part in spec.slices])
    for i, part in enumerate(spec.slices):
        if part.label is not None and isinstance(spec.output, LabelOutput):
            yield from _known_label(f"/slices/{i}/label", part.label, spec.output)
        elif part.label is not None:
            message = f"a {spec.output.type} task has no labels; say in hint what the inputs of this slice look like"
            yield Problem(pointer=f"/slices/{i}/label", message=message, code="not_used")


def _tags(spec: Spec) -> Iterator[Problem]:
    yield from tag_problems(spec.tags, "/tags")


def _sources(spec: Spec) -> Iterator[Problem]:
    captures = spec.captures
    if captures is not None and not captures.inline and captures.upload is None:
        yield Problem(
            pointer="/captures",
            message="has neither inline texts nor an upload; add one, or leave captures out",
            code="empty",
        )


def _verifiers(spec: Spec) -> Iterator[Problem]:
    for i, verifier in enumerate(spec.verifiers):
        if isinstance(verifier, RegexVerifier):
            try:
                compile_pattern(verifier.pattern)
            except UnsafePattern as fault:
                yield Problem(pointer=f"/verifiers/{i}/pattern", message=str(fault), code="bad_pattern")
        elif isinstance(verifier, LengthVerifier) and verifier.min_chars > verifier.max_chars:
            message = f"min_chars {verifier.min_chars} is more than max_chars {verifier.max_chars}; no text can pass"
            yield Problem(pointer=f"/verifiers/{i}/min_chars", message=message, code="out_of_range")
        elif isinstance(verifier, SimilarityVerifier) and verifier.gate:
            message = "similarity ranks candidates and has no line below which one fails; set gate to false"
            yield Problem(pointer=f"/verifiers/{i}/gate", message=message, code="not_used")
    yield from reward_problems(spec)


def _teacher(spec: Spec) -> Iterator[Problem]:
    teacher = spec.teacher
    needs = {"openai_compatible": ("base_url",), "replay": ("recording",), "grammar": ()}
    spoken = ("base_url", "api_key", "dialect", "effort", "thought_tokens")
    takes = {"openai_compatible": spoken, "replay": ("recording",), "grammar": ()}
    for name in needs[teacher.provider]:
        if getattr(teacher, name) is None:
            message = f'the provider "{teacher.provider}" needs "{name}"; add it'
            yield Problem(pointer=f"/teacher/{name}", message=message, code="missing")
    for name in ("base_url", "api_key", "recording", "dialect", "effort", "thought_tokens"):
        if getattr(teacher, name) is not None and name not in takes[teacher.provider]:
            message = f'the provider "{teacher.provider}" takes no "{name}"; remove it or change the provider'
            yield Problem(pointer=f"/teacher/{name}", message=message, code="not_used")
    dialect = dialect_of(teacher)
    if "effort" in takes[teacher.provider] and teacher.effort is not None and Option.EFFORT not in dialect.takes:
        message = f'"{dialect.name}" has no way to say how long this model thinks; remove it, or name another dialect'
        yield Problem(pointer="/teacher/effort", message=message, code="not_used")
    if teacher.mode == "batch" and (dialect.batch is None or teacher.provider != "openai_compatible"):
        why = no_batches(dialect.name) if teacher.provider == "openai_compatible" else f"{teacher.provider} has none"
        message = (
            f'there is no batch endpoint here: {why}. Set "live" or leave it out; a server that speaks OpenAI\'s Files '
            "and Batches is named by dialect: openai"
        )
        yield Problem(pointer="/teacher/mode", message=message, code="no_batch_endpoint")
    if teacher.base_url is not None and (wrong := address_problem(teacher.base_url)) is not None:
        yield Problem(pointer="/teacher/base_url", message=wrong, code="bad_url")


def _sampling(spec: Spec) -> Iterator[Problem]:
    sampling = spec.sampling
    pool, name = _largest_pool(spec)
    if sampling.k_select is not None and sampling.k_select > pool:
        message = f"k_select {sampling.k_select} is more than {name} {pool}; lower it or raise {name}"
        yield Problem(pointer="/sampling/k_select", message=message, code="k_exceeds_n")
    yield from _large_slices(spec)
    most = _most_picks(spec)
    if isinstance(sampling.k_distill, int) and sampling.k_distill > most:
        message = f"k_distill {sampling.k_distill} is more than the {most} inputs selected; lower it or raise k_select"
        yield Problem(pointer="/sampling/k_distill", message=message, code="k_exceeds_n")
    yield from _on_gap(sampling.on_gap)


def _large_slices(spec: Spec) -> Iterator[Problem]:
    """A share makes a slice larger than n_candidates."""
    n, parts = spec.sampling.n_candidates, effective_slices(spec)
    if n * len(parts) <= MAX_POOL:
        return
    for size in slice_sizes(spec):
        if size.n > MAX_POOL:
            message = (
                f'the share of slice "{size.part.name}" makes {size.n:,} of the {n * len(parts):,} candidates its own, '
                f"more than {MAX_POOL:,}; lower n_candidates or the share"
            )
            yield Problem(pointer="/sampling/n_candidates", message=message, code="too_large")


def _on_gap(words: Sequence[str]) -> Iterator[Problem]:
    for i, word in enumerate(words):
        if word in words[:i]:
            message = f'"{word}" stands twice; each is tried once, remove one'
            yield Problem(pointer=f"/sampling/on_gap/{i}", message=message, code="not_used")
        elif "fail" in words[:i]:
            message = f'nothing is tried after "fail"; move "{word}" before it or remove it'
            yield Problem(pointer=f"/sampling/on_gap/{i}", message=message, code="not_used")


def _n_captures(spec: Spec) -> int:
    """Count the captures at most; an upload is not counted here."""
    if spec.captures is None:
        return 0
    return spec.captures.max if spec.captures.upload else min(spec.captures.max, len(spec.captures.inline))


def _largest_pool(spec: Spec) -> tuple[int, str]:
    """The N that one K is taken of, and its name: without slices, captures are the whole pool."""
    n_captures = _n_captures(spec)
    if n_captures and (not spec.slices or n_captures > spec.sampling.n_candidates):
        return n_captures, "the number of captures"
    return spec.sampling.n_candidates, "n_candidates"


def _most_picks(spec: Spec) -> int:
    k, n_captures = spec.sampling.k_select, _n_captures(spec)
    n_slices = 0 if n_captures and not spec.slices else len(effective_slices(spec))
    pools = [spec.sampling.n_candidates] * n_slices + [n_captures]
    return sum(default_k_select(n) if k is None else min(k, n) for n in pools)


_TASKS_OF = {
    "encoder": ("label",),
    "spans": ("json", "text"),
    "causal": ("label", "json", "text"),
    "auto": ("label", "json"),
}


def _training(spec: Spec) -> Iterator[Problem]:
    kind, causal = spec.train.kind, spec.train.causal
    if kind is not None and spec.output.type not in _TASKS_OF[kind]:
        message = f'a {spec.output.type} task is not learned so; leave "{kind}" out'
        yield Problem(pointer="/train/kind", message=message, code="not_used")
    for name, value in (("samples", "all"), ("soft_targets", "top20")):
        if getattr(causal, name) == value and isinstance(spec.output, LabelOutput):
            message = "a label task trains on the label that its votes give; leave it out"
            yield Problem(pointer=f"/train/causal/{name}", message=message, code="not_used")
    yield from _on_policy(spec)
    if (causal.patch_size > 1) != (causal.patch_share > 0):
        message = "patches need both a patch_size above 1 and a patch_share above 0; give both or neither"
        yield Problem(pointer="/train/causal/patch_size", message=message, code="not_used")
    if causal.variant == "qlora" and causal.precision == "fp32":
        message = "qlora computes in bf16; take precision auto or bf16"
        yield Problem(pointer="/train/causal/precision", message=message, code="not_used")


def _on_policy(spec: Spec) -> Iterator[Problem]:
    if not spec.train.causal.on_policy:
        if spec.train.causal.divergence != "jsd":
            message = "a divergence is taken of the student's own answers; set on_policy above 0, or leave it out"
            yield Problem(pointer="/train/causal/divergence", message=message, code="not_used")
        return
    if isinstance(spec.output, LabelOutput):
        message = "a label task trains on the label that its votes give; leave it out"
        yield Problem(pointer="/train/causal/on_policy", message=message, code="not_used")
    elif spec.teacher.provider != "openai_compatible" or spec.teacher.engine != "vllm":
        message = (
            "this teacher does not tell the log-probs of the student's answers; serve one with the base's tokenizer by "
            'vLLM and set teacher.engine to "vllm", or leave it out'
        )
        yield Problem(pointer="/train/causal/on_policy", message=message, code="not_used")


def _evaluation(spec: Spec) -> Iterator[Problem]:
    is_judged = isinstance(spec.output, TextOutput) and spec.output.accuracy == "judge"
    if is_judged and spec.evaluation.teacher_rows:
        message = (
            "the teacher judges the answers of this task and is not compared with itself; leave it out, or let the "
            "checks decide (output.accuracy)"
        )
        yield Problem(pointer="/evaluation/teacher_rows", message=message, code="not_used")


def _recipes(spec: Spec) -> Iterator[Problem]:
    recipes = spec.recipes
    for i, name in enumerate(recipes.sources):
        if name in recipes.sources[:i]:
            message = f'"{name}" stands twice; remove one'
            yield Problem(pointer=f"/recipes/sources/{i}", message=message, code="not_used")
    if "model" in recipes.sources and recipes.draft_base is None:
        message = 'the source "model" needs "draft_base", a smaller base with the same tokenizer; add it'
        yield Problem(pointer="/recipes/draft_base", message=message, code="missing")
    if "model" not in recipes.sources and recipes.draft_base is not None:
        message = 'a draft_base is asked only by the source "model"; add it to sources, or remove draft_base'
        yield Problem(pointer="/recipes/draft_base", message=message, code="not_used")


def _known_label(pointer: str, name: str, output: LabelOutput) -> Iterator[Problem]:
    known = [label.name for label in output.labels]
    if name not in known:
        yield Problem(
            pointer=pointer, message=f'there is no label "{name[:80]}"; {suggestion(name, known)}', code="unknown_label"
        )


def _repeats(pointer: str, names: Sequence[str], *, code: str, what: str) -> Iterator[Problem]:
    """Names are compared as a teacher sees and answers them: in any case, without runs of spaces. Marks count."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if (j := first.setdefault(" ".join(unicode_form("NFC", name).casefold().split()), i)) != i:
            also = f'also at {pointer}/{j}, "{names[j]}", whatever the case and the spaces'
            message = f'{what} "{name}" stands twice ({also}); remove or rename one'
            yield Problem(pointer=f"{pointer}/{i}/name", message=message, code=code)


def _sum_to_one(pointer: str, shares: Sequence[float]) -> Iterator[Problem]:
    total = math.fsum(shares)
    if abs(total - 1) > SHARE_TOLERANCE + 1e-9:
        yield Problem(
            pointer=pointer,
            message=f"the shares sum to {total:g}; change them so that they sum to 1",
            code="shares_do_not_sum",
        )
