"""The way from a text to the classes and spans that an exported span student reads in it. `kolm export` copies this
file and those that it imports beside the student: they need numpy and tokenizers.

Tags are the likeliest sequence under the plan's constraints, as in `kolm run`. Spans are the text as it stands there:
values are not converted, lists not put together, and the whole is not fitted to the schema. Of a long text the first
window is read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from backend.domain.extraction.word_boundaries import continues_words
from gpu_runners.models.spans.kinds import kinds_of
from gpu_runners.models.spans.viterbi import likeliest

Logits = Mapping[str, NDArray[Any]]  # of one text, by the names of the model's outputs
Offsets = Sequence[tuple[int, int]]


class SpanReader:
    """`folder` is the exported one, `session` what onnxruntime opened its model.onnx with."""

    def __init__(self, folder: Path, session: Any) -> None:
        self.plan = json.loads((folder / "extraction.json").read_text("utf-8"))
        reading = json.loads((folder / "export.json").read_text("utf-8"))["reading"]
        self._before, self._after = reading["before"], reading["after"]
        self._room = reading["max_length"] - len(self._before) - len(self._after)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._session = session
        self._inputs = {one.name for one in session.get_inputs()}
        self._outputs = [one.name for one in session.get_outputs()]

    def read(self, text: str) -> dict[str, Any]:
        """{"classes": {path: class or classes}, "spans": [{"path", "start", "end", "text"}, ...]}; a field of a list of
        objects has `opens` and, where its object has any, `classes`."""
        offsets, logits = self.logits(text)
        spans = sorted(self._spans(text, offsets, logits), key=lambda span: int(span["start"]))
        texts = [{"text": text[span["start"] : span["end"]]} for span in spans]
        return {"classes": self._classes(logits), "spans": [a | b for a, b in zip(spans, texts, strict=True)]}

    def logits(self, text: str) -> tuple[Offsets, Logits]:
        """The places of the tokens of the first window, and its logits, those of token heads of these tokens alone."""
        cut = self._tokenizer.encode(text, add_special_tokens=False)
        offsets = cut.offsets[: self._room]
        ids = np.array([[*self._before, *cut.ids[: self._room], *self._after]])
        kinds = np.zeros_like(ids)
        own = slice(len(self._before), len(self._before) + len(offsets))
        kinds[0, own] = kinds_of(text, offsets)
        values = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_kinds": kinds}
        values = {name: value for name, value in values.items() if name in self._inputs}
        out = dict(zip(self._outputs, self._session.run(self._outputs, values), strict=True))
        return offsets, {name: value[0] if value.ndim == 2 else value[0, own] for name, value in out.items()}

    def _classes(self, logits: Logits) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for number, rule in enumerate(self.plan["rules"]):
            row = logits.get(f"classes.{number}")
            if row is not None and rule["way"] == "many":
                out[rule["path"]] = [choice for choice, logit in zip(rule["choices"], row, strict=True) if logit > 0]
            elif row is not None:
                out[rule["path"]] = rule["choices"][row.argmax()]
        return out

    def _spans(self, text: str, offsets: Offsets, logits: Logits) -> Iterator[dict[str, Any]]:
        glued = continues_words(text, offsets) if self.plan["whole_words"] else ()
        for number, layer in enumerate(self.plan["layers"]):
            tags = likeliest(logits[f"tags.{number}"].astype(np.float64), glued).tolist()
            for at, tag in enumerate(tags):
                if tag % 2:  # 1 + 2 i begins leaf i of the layer, 2 + 2 i goes on
                    last = at
                    while tags[last + 1 : last + 2] == [tag + 1]:
                        last += 1
                    path = self.plan["rules"][layer[tag // 2]]["path"]
                    place = {"path": path, "start": offsets[at][0], "end": offsets[last][1]}
                    yield place | self._element(path, at, logits)

    def _element(self, path: str, at: int, logits: Logits) -> dict[str, Any]:
        """Say whether a field of a list of objects opens a new object, and the classes of that."""
        if "/*/" not in path:
            return {}
        own = path.split("/*/")[0]
        rules = [(number, rule) for number, rule in enumerate(self.plan["rules"]) if f"elements.{number}" in logits]
        classes = {
            rule["path"]: rule["choices"][logits[f"elements.{number}"][at].argmax()]
            for number, rule in rules
            if rule["path"].split("/*/")[0] == own
        }
        return {"opens": bool(logits["opens"][at, 0] > 0)} | ({"classes": classes} if classes else {})
