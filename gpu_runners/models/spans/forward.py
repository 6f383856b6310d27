"""The forward pass of a span student: windows of tokens to the logits of its heads, for each input. Needs no torch."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gpu_runners.models.encoder_runtimes import Body
from gpu_runners.models.label_adapter import SCALE, Head, unfit
from gpu_runners.models.spans.adapter import CLASSES
from gpu_runners.models.spans.kinds import N_KINDS
from gpu_runners.models.spans.tokens import SpanTokens, Window
from gpu_runners.models.tensor_files import Array

MOST_WINDOWS = 32  # in one forward pass


class SpanForward:
    """`heads` on the states of `body`. `kinds` (N_KINDS, d): what is added to the embeddings of the tokens' words."""

    batch = 32

    def __init__(self, body: Body, heads: Mapping[str, Head], kinds: Array | None = None) -> None:
        self.body, self.device, self._kinds = body, body.device, kinds
        if kinds is not None and kinds.shape != (N_KINDS, body.width):
            raise unfit(f"its kinds are {kinds.shape[1]} wide, the base {body.width}")
        of_tokens = [name for name in heads if not name.startswith(CLASSES)]
        self._classes = {name: head for name, head in heads.items() if name.startswith(CLASSES)}
        for name, head in heads.items():
            if head.weight.shape[1] != body.width:
                raise unfit(f"its head {name!r} is {head.weight.shape[1]} wide, the base {body.width}")
        # one product for all heads of tokens
        self._weight = np.concatenate(
            [heads[name].weight for name in of_tokens] or [np.zeros((0, body.width), np.float32)]
        )
        self._bias = np.concatenate([heads[name].bias for name in of_tokens] or [np.zeros(0, np.float32)])
        self._parts: list[tuple[str, slice]] = []
        at = 0
        for name in of_tokens:
            rows = len(heads[name].bias)
            self._parts.append((name, slice(at, at + rows)))
            at += rows

    def logits(self, texts: Sequence[SpanTokens]) -> Iterator[dict[str, Array]]:
        """Yield of each text the logits of its tokens by the heads of tokens, (n, rows), and of the heads of classes,
        (rows,)."""
        states = iter(self._states([window for text in texts for window in text.windows]))
        for text in texts:
            own = [next(states) for _ in text.windows]
            tokens = self._tokens(text, own)
            scores = tokens @ self._weight.T + self._bias
            mean = np.concatenate(own).mean(axis=0)
            unit = SCALE * mean / max(float(np.linalg.norm(mean)), 1e-12)
            out = {name: scores[:, part] for name, part in self._parts}
            yield out | {name: head.weight @ unit + head.bias for name, head in self._classes.items()}

    def _states(self, windows: Sequence[Window]) -> list[Array]:
        """(t, d) states of each window; windows of like lengths are computed together."""
        order = sorted(range(len(windows)), key=lambda i: len(windows[i].ids))
        out: list[Array] = [np.zeros((0, self.body.width), np.float32)] * len(windows)
        for start in range(0, len(order), MOST_WINDOWS):
            chosen = order[start : start + MOST_WINDOWS]
            rows, kinds = [windows[i].ids for i in chosen], self._kinds
            added = None if kinds is None else [kinds[list(windows[i].kinds)] for i in chosen]
            for i, own in zip(chosen, self.body.states(rows, added), strict=True):
                out[i] = own[: len(windows[i].ids)]
        return out

    def _tokens(self, text: SpanTokens, states: Sequence[Array]) -> Array:
        if len(states) == 1:
            window = text.windows[0]
            return states[0][window.first : window.first + len(window.tokens)]
        rows = [states[window][place] for window, place in text.owners()]
        return np.stack(rows) if rows else np.zeros((0, self.body.width), np.float32)
