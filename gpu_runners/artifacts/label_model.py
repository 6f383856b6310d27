"""A label task's model, ready to answer: merged weights, no torch for BERT bases, no state between calls.

From a verified `.kolm` it reads four members: `adapter.safetensors`, `adapter_config.json`, `labels.json` (a JSON list
of names, in the order of the head's rows) and `calibration.json` (`{"temperature_ppm": int}`, with `"abstain_ppm": int`
where the model may be unsure). A fifth, `rules.json`, answers before the model where it is sure; an encoder drafts no
tokens, so `recipes.json` means nothing to it.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, Self, TypedDict, cast

import numpy as np
from scipy.special import softmax

from gpu_runners.artifacts.abstaining import abstain_ppm_of, with_doubts
from gpu_runners.artifacts.rules_first import RulesFirst, predict_with_rules
from gpu_runners.errors import JobFailed
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import Engine, Runtime
from gpu_runners.models.encoder_tokens import TextTokenizer
from gpu_runners.models.label_adapter import Adapter, AdapterConfig, from_bytes, unfit
from gpu_runners.models.tensor_files import Array

ONE_BY_ONE = 16  # up to here each input has its own forward pass and its own honest latency
BATCH = 32
MOST_RANKED = 20  # as many as OpenAI's top_logprobs


class Output(TypedDict):
    """`confidence` in (0, 1], calibrated; `latency_us` is the input's own wall time, or its share of a batch's above 16
    inputs. `rule`, where a rule answered, is its number from 1; `confidence` is then its bound. `is_unsure` is there
    where the task abstains: whether the confidence is below its threshold; a rule's answer is never unsure."""

    label: str
    confidence: float
    latency_us: int
    rule: NotRequired[int]
    is_unsure: NotRequired[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedOutput:
    """One input's row, and its likeliest labels with their calibrated probabilities, likeliest first: MOST_RANKED of
    them, or the label alone with its bound where a rule answered."""

    output: Output
    ranking: tuple[tuple[str, float], ...]


class LabelModel:
    def __init__(
        self,
        *,
        engine: Engine,
        tokenizer: TextTokenizer,
        labels: Sequence[str],
        temperature: float,
        rules: RulesFirst | None = None,
        abstain_ppm: int | None = None,
    ) -> None:
        self.engine, self.tokenizer, self.labels, self.temperature = engine, tokenizer, list(labels), temperature
        self.rules, self.abstain_ppm = rules, abstain_ppm

    @property
    def device(self) -> str:
        return self.engine.device

    @property
    def engine_name(self) -> str:
        return self.engine.name

    def n_tokens(self, text: str) -> int:
        """Count the tokens that are read of an input, special ones included."""
        return len(self.tokenizer.ids([text])[0])

    def about(self) -> dict[str, Any]:
        """Return what `kolm serve` says of the answers."""
        return {"labels": self.labels}

    @classmethod
    def build(
        cls,
        *,
        base: Base,
        runtime: Runtime,
        adapter: Adapter,
        config: AdapterConfig,
        labels: Sequence[str],
        temperature: float,
        rules: RulesFirst | None = None,
        abstain_ppm: int | None = None,
    ) -> Self:
        """Raises JobFailed(invalid_adapter, base_mismatch)."""
        if config.base_sha256 != base.sha256:
            raise JobFailed(
                f"The adapter was trained on another {config.base!r} ({config.base_sha256[:12]}…) than this machine's "
                f"({base.sha256[:12]}…).",
                code="base_mismatch",
            )
        if len(adapter.head.bias) != len(labels):
            raise unfit(f"its head has {len(adapter.head.bias)} rows for {len(labels)} labels")
        tokenizer = TextTokenizer(base, max_tokens=config.max_tokens, prefix=config.prefix)
        engine = runtime.engine(adapter, config)
        return cls(
            engine=engine,
            tokenizer=tokenizer,
            labels=labels,
            temperature=temperature,
            rules=rules,
            abstain_ppm=abstain_ppm,
        )

    @classmethod
    def from_members(cls, members: Mapping[str, bytes], *, base: Base, runtime: Runtime) -> Self:
        """Only for members whose hashes were checked (`kolm_verify.load_verified`)."""
        labels, calibration = read_json(members, "labels.json"), read_json(members, "calibration.json")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise JobFailed("labels.json of the artifact is not a list of names.", code="invalid_artifact")
        temperature_ppm = calibration.get("temperature_ppm") if isinstance(calibration, dict) else None
        if type(temperature_ppm) is not int or temperature_ppm <= 0:
            raise JobFailed("calibration.json of the artifact has no temperature_ppm.", code="invalid_artifact")
        return cls.build(
            base=base,
            runtime=runtime,
            adapter=from_bytes(members["adapter.safetensors"]),
            config=AdapterConfig.from_json(read_json(members, "adapter_config.json")),
            labels=labels,
            temperature=temperature_ppm / 1e6,
            rules=RulesFirst.from_members(members, labels=labels),
            abstain_ppm=abstain_ppm_of(members),
        )

    def warm_up(self) -> None:
        """Make one pass of the model, whatever a rule would say: the first one reads every weight from the file."""
        self._predict(["a"])

    def predict(self, texts: Sequence[str]) -> list[Output]:
        """One row an input, in order."""
        rows = predict_with_rules(self.rules, texts, is_label=True, model=self._predict)
        return cast(list[Output], with_doubts(rows, self.abstain_ppm))

    def predict_ranked(self, text: str) -> RankedOutput:
        """One input's row with the likeliest labels beside it."""
        computed: list[Array] = []

        def model(texts: Sequence[str]) -> list[Output]:
            rows, probabilities = self._answers(texts)
            computed.extend(probabilities)
            return rows

        rows = predict_with_rules(self.rules, [text], is_label=True, model=model)
        (output,) = cast(list[Output], with_doubts(rows, self.abstain_ppm))
        if not computed:
            return RankedOutput(output=output, ranking=((output["label"], output["confidence"]),))
        likeliest = np.argsort(-computed[0], kind="stable")[:MOST_RANKED]
        return RankedOutput(output=output, ranking=tuple((self.labels[i], float(computed[0][i])) for i in likeliest))

    def _predict(self, texts: Sequence[str]) -> list[Output]:
        size = 1 if len(texts) <= ONE_BY_ONE else BATCH
        out: list[Output] = []
        for start in range(0, len(texts), size):
            out += self._answers(texts[start : start + size])[0]
        return out

    def _answers(self, texts: Sequence[str]) -> tuple[list[Output], Array]:
        """The model's rows of a batch, and the probabilities that they were read off."""
        began = time.perf_counter_ns()
        probabilities = self.probabilities(self.tokenizer.ids(texts))
        best = probabilities.argmax(axis=1)
        latency_us = (time.perf_counter_ns() - began) // 1000 // len(texts)
        rows = [
            Output(label=self.labels[i], confidence=round(float(row[i]), 6), latency_us=latency_us)
            for i, row in zip(best, probabilities, strict=True)
        ]
        return rows, probabilities

    def probabilities(self, rows: Sequence[Sequence[int]]) -> Array:
        """(n, n_labels) float32 calibrated probabilities of tokenised inputs, in one forward pass."""
        out: Array = softmax(self.engine.logits(rows) / np.float32(self.temperature), axis=1)
        return out


def read_json(members: Mapping[str, bytes], path: str) -> Any:
    try:
        return json.loads(members[path])
    except (KeyError, ValueError) as error:
        raise JobFailed(f"The artifact's {path} is missing or not JSON.", code="invalid_artifact") from error
