"""Heads on the states of the real, frozen MiniLM."""

import numpy as np
import torch

from backend.domain.encoders.sentence_settings import Pooling
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.plan import ExtractionPlan, Way
from gpu_runners.distill.label.nets import load_engine
from gpu_runners.distill.spans.dataset import align_pairs, example_of, read_pairs
from gpu_runners.distill.spans.frozen_heads import FrozenStates
from gpu_runners.models.bases import Base
from gpu_runners.models.label_adapter import SCALE, Head
from gpu_runners.models.spans.adapter import head_sizes
from gpu_runners.models.spans.tokens import SpanTokenizer
from tests.gpu_runners.small_spans import SCHEMA, span_dataset, span_job, span_pairs


def frozen_states(base: Base, plan: ExtractionPlan, n: int) -> FrozenStates:
    pairs = read_pairs(span_dataset(span_pairs(n)))
    leaves = Assembler(SCHEMA, plan).leaves
    tokens = SpanTokenizer(base, max_tokens=64).read([pair.text for pair in pairs])
    parts = zip(pairs, align_pairs(plan, leaves, pairs), tokens, strict=True)
    engine = load_engine(base, device=torch.device("cpu"), pooling=Pooling.MEAN, precision="fp32")
    examples = [example_of(plan, leaves, *each) for each in parts]
    return FrozenStates(engine.lora(rank=1, alpha=1), examples, width=engine.width)


def right_members(states: FrozenStates, head: Head, rule: int) -> float:
    """The share of texts whose members are all right."""
    right = 0
    for kept, example in zip(states.kept, states.examples, strict=True):
        logits = SCALE * (kept.means.numpy() @ head.weight.T)[0] + head.bias
        right += set(np.flatnonzero(logits > 0)) == set(example.classes[rule])
    return right / len(states.examples)


def test_the_head_of_a_list_of_members_begins_at_a_regression_for_each_of_them(base: Base) -> None:
    _, _, plan = span_job(span_pairs(60))
    (rule,) = (i for i, one in enumerate(plan.rules) if one.way is Way.MANY)
    states = frozen_states(base, plan, 60)
    heads = states.first_heads(head_sizes(plan, has_lists=True), range(60), many={rule})
    head = heads[f"classes.{rule}"]
    assert right_members(states, head, rule) >= 0.95
    nothing = Head(weight=np.zeros_like(head.weight), bias=np.zeros_like(head.bias))
    assert right_members(states, nothing, rule) < 0.8


def test_a_member_that_no_pair_has_begins_as_improbable(base: Base) -> None:
    _, _, plan = span_job(span_pairs(60))
    (rule,) = (i for i, one in enumerate(plan.rules) if one.way is Way.MANY)
    states = frozen_states(base, plan, 60)
    alone = [i for i, example in enumerate(states.examples) if not example.classes[rule]]
    head = states.first_heads(head_sizes(plan, has_lists=True), alone, many={rule})[f"classes.{rule}"]
    assert not head.weight.any()
    assert (head.bias < -3).all()


def test_a_class_that_no_pair_has_begins_as_improbable_beside_regressions_of_the_others(base: Base) -> None:
    _, _, plan = span_job(span_pairs(60))
    rule = next(i for i, one in enumerate(plan.rules) if one.way is Way.CLOSED and one.path == "/action")
    states = frozen_states(base, plan, 60)
    sizes = {f"classes.{rule}": 3}  # as if a third class lay among the pairs that are held back
    head = states.first_heads(sizes, range(60), many=set())[f"classes.{rule}"]
    logits = np.concatenate([SCALE * (kept.means.numpy() @ head.weight.T) + head.bias for kept in states.kept])
    wanted = [example.classes[rule][0] for example in states.examples]
    assert (logits.argmax(axis=1) == wanted).mean() >= 0.95
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert shares[:, 2].max() < 0.05


def test_heads_of_tokens_begin_at_the_shares_of_their_rows(base: Base) -> None:
    _, _, plan = span_job(span_pairs(60))
    states = frozen_states(base, plan, 60)
    sizes = head_sizes(plan, has_lists=True)
    many = {i for i, one in enumerate(plan.rules) if one.way is Way.MANY}
    heads = states.first_heads(sizes, range(60), many=many)
    tags = [tag for example in states.examples for tag in example.tags[0]]
    shares = np.exp(heads["tags.0"].bias)
    assert np.isclose(shares.sum(), 1)
    assert abs(shares[0] - tags.count(0) / len(tags)) < 0.02
    assert not heads["tags.0"].weight.any()
    opens = [one for example in states.examples for one in example.opens if one >= 0]
    assert abs(1 / (1 + np.exp(-heads["opens"].bias[0])) - sum(opens) / len(opens)) < 0.02
