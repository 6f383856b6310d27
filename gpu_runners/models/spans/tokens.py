"""Text to windows of token ids with the places of the tokens in it. Needs no torch.

An input longer than the encoder is read in windows that overlap by a quarter; of a token that lies in two, the window
counts in which it lies further from an end. Offsets are code points of the input as it was sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Encoding

from backend.domain.encoders.sentence_settings import readable_tokens
from backend.domain.extraction.word_boundaries import continues_words
from gpu_runners.errors import JobFailed
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_tokens import bare_tokenizer, read_config
from gpu_runners.models.spans.kinds import NO_KIND, kinds_of

OVERLAP = 4  # a window shares a fourth of its tokens with the next
MAX_CHARS = 100_000  # of an input; what follows is not read
LEAST_WINDOW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Token ids with the special tokens and the prefix, and their kinds (`kinds`); `first` is the number of the first
    token of the text among them, and `tokens` are the numbers, within the text, of the text's tokens in it."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...]
    first: int
    tokens: range


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanTokens:
    """`offsets` (start, end) of each token of the text, whether it goes on with the word that the token before began
    (`glued`), and the windows that the text is read in."""

    offsets: tuple[tuple[int, int], ...]
    glued: tuple[bool, ...]
    windows: tuple[Window, ...]

    @property
    def n_ids(self) -> int:
        return sum(len(window.ids) for window in self.windows)

    def owners(self) -> list[tuple[int, int]]:
        """Return of each token of the text the window that counts and its place among that window's ids."""
        best: list[tuple[int, int, int]] = [(-1, 0, 0)] * len(self.offsets)
        for number, window in enumerate(self.windows):
            for at in window.tokens:
                depth = min(at - window.tokens.start, window.tokens.stop - 1 - at)
                if depth > best[at][0]:
                    best[at] = (depth, number, window.first + at - window.tokens.start)
        return [(number, place) for _, number, place in best]


class SpanTokenizer:
    """Reads `prefix` before each window. `max_tokens` are of a window, special tokens and prefix included."""

    def __init__(self, base: Base, *, max_tokens: int, prefix: str = "") -> None:
        self._tokenizer = bare_tokenizer(base)
        most = readable_tokens(read_config(base))
        self.max_tokens = max_tokens if most is None else min(max_tokens, most)
        self.prefix = prefix
        self.before, self.after = self._specials()  # the ids around those of a window
        self.before += tuple(self._tokenizer.encode(prefix, add_special_tokens=False).ids) if prefix else ()
        self.room = self.max_tokens - len(self.before) - len(self.after)
        if self.room < LEAST_WINDOW:
            raise JobFailed(
                f"The encoder {base.name!r} has room for {self.room} tokens of an input beside its prefix. Use another "
                "base.",
                code="base_unsupported",
            )

    def read(self, texts: Sequence[str]) -> list[SpanTokens]:
        """The windows of each text."""
        clean = [text[:MAX_CHARS].encode("utf-8", "replace").decode() for text in texts]  # no lone surrogates
        encodings = self._tokenizer.encode_batch(clean, add_special_tokens=False)
        return [self._windows(text, one) for text, one in zip(clean, encodings, strict=True)]

    def n_tokens(self, text: str) -> int:
        """Count the tokens of a text with the special ones and the prefix, however many windows it has."""
        (read,) = self.read([text])
        return len(read.offsets) + len(self.before) + len(self.after)

    def _specials(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The special tokens before and after a text."""
        probe = self._tokenizer.encode("a")
        real = [i for i, is_special in enumerate(probe.special_tokens_mask) if not is_special]
        return tuple(probe.ids[: real[0]]), tuple(probe.ids[real[-1] + 1 :])

    def _windows(self, text: str, encoding: Encoding) -> SpanTokens:
        ids, offsets = encoding.ids, encoding.offsets
        kinds, windows = kinds_of(text, offsets), []
        before, after = (NO_KIND,) * len(self.before), (NO_KIND,) * len(self.after)
        start, step = 0, self.room - self.room // OVERLAP
        while True:
            stop = min(len(ids), start + self.room)
            inside = (*self.before, *ids[start:stop], *self.after)
            own = (*before, *kinds[start:stop], *after)
            windows.append(Window(ids=inside, kinds=own, first=len(self.before), tokens=range(start, stop)))
            if stop == len(ids):
                return SpanTokens(offsets=tuple(offsets), glued=continues_words(text, offsets), windows=tuple(windows))
            start += step
