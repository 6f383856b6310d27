"""An artifact's rules.json in front of its model: what a rule is sure of, no model is asked.

Rules that cannot be read, or answer what the task does not know, cost their artifact the speed-up and nothing else.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from backend.domain.rules.closure import compile_batch, compile_numbers, compile_rules
from backend.domain.rules.extraction import FieldPlace, compile_places
from backend.domain.rules.reading import read_rules
from backend.domain.rules.rule_list import InvalidRules, LabelRule, RuleList

log = logging.getLogger("kolm.serving")
ONE_BY_ONE = 16
Row = TypeVar("Row", bound=Mapping[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleAnswer:
    """`rule` is the number of the rule that answered, from 1, as `kolm rules` lists them; 0: the field rules of a json
    task together. `bound_ppm` is the lower bound of a label rule's precision, or of a json task's whole list; 0 where
    it was not measured. `fields` are a json answer's, where they were read. `latency_us` is this text's own time, or
    its share of many texts'."""

    text: str
    rule: int
    bound_ppm: int
    latency_us: int
    fields: Sequence[FieldPlace] = ()

    @property
    def about(self) -> dict[str, Any]:
        """The members beside an answer: `rule`, and of a json task `fields`, and `confidence` where it was measured. An
        answer that is right as a whole is right in each of its fields, so that the bound is theirs too."""
        beside: dict[str, Any] = {"confidence": self.bound_ppm / 1e6} if self.bound_ppm else {}
        if self.rule:
            return beside | {"rule": self.rule}
        fields = [one._asdict() | {"confidence_ppm": self.bound_ppm} for one in self.fields] if self.bound_ppm else []
        return beside | {"fields": fields, "rule": self.rule}

    def row(self, *, is_label: bool) -> dict[str, Any]:
        """The row as `LabelModel.predict`, `SpanModel.predict` and `GenerativeModel.predict` give theirs, with the
        rule's number."""
        if is_label:
            answer: dict[str, Any] = {"label": self.text, "confidence": self.bound_ppm / 1e6}
        else:
            answer = {"output": self.text, "finish_reason": "stop", "n_tokens": 0}
        return answer | {"latency_us": self.latency_us} | self.about


class RulesFirst:
    """`labels` are the answers that a label task knows; None for a json task. `rule_of` and `rules_of` are the compiled
    list itself: a text's rule (an index), or a json task's answer; None: ask the model."""

    def __init__(self, rules: RuleList, *, labels: Sequence[str] | None) -> None:
        self.rules = rules
        self._answers: list[tuple[str, int] | None] = []
        self.rule_of: Callable[[str], int | str | None]
        self.rules_of: Callable[[Sequence[str]], Sequence[int | str | None]]
        self._places = compile_places(rules)
        if rules.task == "json":
            self.rule_of, self.rules_of = compile_rules(rules), compile_batch(rules)
            return
        number = self.rule_of = compile_numbers(rules)
        self.rules_of = lambda texts: [number(text) for text in texts]
        for rule in rules.rules:
            answer = rule.answer if isinstance(rule, LabelRule) else ""
            is_known = labels is None or answer in labels
            self._answers.append((answer, rule.evidence.low_ppm) if is_known else None)

    @classmethod
    def from_members(cls, members: Mapping[str, bytes], *, labels: Sequence[str] | None) -> Self | None:
        """None for an artifact without rules, or with rules that cannot be read. Only for members whose hashes were
        checked."""
        try:
            rules = read_rules(members.get("rules.json", b"[]"))
        except InvalidRules as error:
            log.warning("the artifact's rules.json is left out, its model answers: %s", error)
            return None
        return cls(rules, labels=labels) if rules.n else None

    def answer(self, text: str) -> RuleAnswer | None:
        """None: ask the model."""
        began = time.perf_counter_ns()
        rule = self.rule_of(text)
        fields = self._fields(text, rule)
        return self._rule_answer(rule, fields, time.perf_counter_ns() - began)

    def answers(self, texts: Sequence[str]) -> list[RuleAnswer | None]:
        """`answer` of each; many are cheaper together."""
        if len(texts) <= ONE_BY_ONE:
            return [self.answer(text) for text in texts]
        began = time.perf_counter_ns()
        rules = self.rules_of(texts)
        fields = [self._fields(text, rule) for text, rule in zip(texts, rules, strict=True)]
        each_ns = (time.perf_counter_ns() - began) // len(texts)
        return [self._rule_answer(rule, places, each_ns) for rule, places in zip(rules, fields, strict=True)]

    def _fields(self, text: str, rule: int | str | None) -> Sequence[FieldPlace]:
        """The fields of a json answer; none where there is no answer, or no bound to say of them."""
        return self._places(text) if isinstance(rule, str) and self.rules.low_ppm else ()

    def _rule_answer(self, rule: int | str | None, fields: Sequence[FieldPlace], latency_ns: int) -> RuleAnswer | None:
        """`rule` is the number of a label rule, or a json task's answer. A rule that answers what is no label of the
        task is as good as none."""
        latency_us = -(-latency_ns // 1000)
        if isinstance(rule, str):
            return RuleAnswer(text=rule, rule=0, bound_ppm=self.rules.low_ppm, latency_us=latency_us, fields=fields)
        answer = None if rule is None else self._answers[rule]
        if rule is None or answer is None:
            return None
        return RuleAnswer(text=answer[0], rule=rule + 1, bound_ppm=answer[1], latency_us=latency_us)


def predict_with_rules(
    rules: RulesFirst | None,
    texts: Sequence[str],
    *,
    is_label: bool,
    model: Callable[[Sequence[str]], Sequence[Row]],
) -> list[dict[str, Any]]:
    """One row a text, in order: the rules' where they are sure, else the model's, which sees the others alone."""
    answers = [None] * len(texts) if rules is None else rules.answers(texts)
    left = [text for text, answer in zip(texts, answers, strict=True) if answer is None]
    rest = iter(model(left) if left else [])
    return [dict(next(rest)) if answer is None else answer.row(is_label=is_label) for answer in answers]


def labels_of(members: Mapping[str, bytes]) -> list[str] | None:
    """The labels that a verified artifact answers with; None for other tasks."""
    labels = _json(members, "labels.json")
    if not isinstance(labels, list):
        prompt = _json(members, "prompt.json")
        answer = prompt.get("answer") if isinstance(prompt, dict) else None
        labels = answer.get("labels") if isinstance(answer, dict) and answer.get("type") == "label" else None
    return [str(label) for label in labels] if isinstance(labels, list) else None


def _json(members: Mapping[str, bytes], path: str) -> Any:
    try:
        return json.loads(members.get(path, b"null"))
    except ValueError:
        return None
