"""Drafts for llama.cpp: in Python through llama-cpp-python, elsewhere as llama-server's static look-up file.

    shelf = PackShelf(lambda: token_texts, tokenizer_sha256=sha256)
    drafting = Drafting(kinds=(DraftKind.PACK, DraftKind.PROMPT), pack=pack_ref)
    drafts = RecipeDrafts(BatchDrafter(shelf, end_ids=eos_ids), drafting, context=4096)
    llama = Llama(model_path, n_ctx=4096, draft_model=drafts, logits_all=True)

llama-cpp-python samples every token from the model and keeps a drafted one where it is the same, so answers are what
they are without drafts. Its own loop samples each of them in Python; where that leaves nothing to gain, drafts stop by
themselves. `logits_all` is needed where the context is longer than `n_batch`; it holds n_ctx x n_vocab floats.

    llama-server -m model.gguf --spec-type ngram-cache --lookup-cache-static recipes.bin

has no such loop, but knows of a pack only what two tokens say of the next. Nothing of llama.cpp is imported here: its
draft models are called, and its file is written by hand. Held to llama-cpp-python 0.3.36, and to the llama-server of
the sources in it, by tests.
"""

import struct
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.domain.recipes.pack import BEGIN, InvalidPack, RecipePack
from gpu_runners.models.protocol import Drafting, GenerationRequest, SourceCount
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.drafter import Drafter

PAIR = 2  # tokens that llama-server looks at
_NGRAM_MAX = 4  # tokens of a key in llama.cpp's file
_NO_TOKEN = -1
_MAX_COUNT = 100  # llama.cpp multiplies it by 100 and by a count of its own context, in 32 bits
_NOTHING = np.empty(0, dtype=np.intc)


@dataclass(slots=True, eq=False)
class _Row:
    """A `DraftedSequence`: one answer."""

    request: GenerationRequest
    tokens: list[int]
    limit: int
    matcher: Any | None = None
    drafter: Drafter | None = None
    draft: list[int] = field(default_factory=list)


class RecipeDrafts:
    """A `LlamaDraftModel` of one `Llama`. It is called with prompt and answer so far, and not told where the answer
    begins: a call that does not go on where the last one was, by what it can have drafted, is an answer's first."""

    def __init__(self, drafts: BatchDrafter, drafting: Drafting, *, context: int) -> None:
        self._drafts, self._drafting, self._context = drafts, drafting, context
        self._seen = _NOTHING
        self._row: _Row | None = None
        self._at_s = 0.0
        self._counts: Counter[tuple[Any, str]] = Counter()

    def __call__(self, input_ids: npt.NDArray[np.intc], /, **_: Any) -> npt.NDArray[np.intc]:
        """Raises Rejected(bad_pack)."""
        row, n_new = self._row, len(input_ids) - len(self._seen)
        goes_on = row is not None and 0 < n_new <= len(row.draft) + 1 and np.array_equal(input_ids[:-n_new], self._seen)
        if row is None or not goes_on:
            n_new = 1
            row = self._begin(input_ids[:-1].tolist())
        elif row.drafter is not None:
            self._drafts.note_step(1, len(row.draft), time.perf_counter() - self._at_s)
        new = input_ids[-n_new:].tolist()
        row.tokens += new
        self._seen = np.array(input_ids, dtype=np.intc)
        row.draft = self._propose(row, new)
        self._at_s = time.perf_counter()
        return np.asarray(row.draft, dtype=np.intc)

    def finish(self) -> tuple[SourceCount, ...]:
        """End an answer: what drafts brought, of all answers until now. The next call begins an answer."""
        self._end()
        kinds = dict.fromkeys(kind for kind, _ in self._counts)
        return tuple(
            SourceCount(kind=kind, drafted=self._counts[kind, "drafted"], accepted=self._counts[kind, "accepted"])
            for kind in kinds
        )

    def _propose(self, row: _Row, new: list[int]) -> list[int]:
        if row.drafter is None:
            return []
        self._drafts.observe_accepted(row, new)
        return self._drafts.propose([row])[0]

    def _begin(self, prompt: list[int]) -> _Row:
        self._end()
        request = GenerationRequest(id="", prompt=tuple(prompt), max_new_tokens=self._context, drafting=self._drafting)
        self._row = _Row(request=request, tokens=prompt, limit=self._context)
        self._drafts.open(self._row)
        return self._row

    def _end(self) -> None:
        if self._row is not None and self._row.drafter is not None:
            for one in self._row.drafter.counts:
                self._counts[one.kind, "drafted"] += one.drafted
                self._counts[one.kind, "accepted"] += one.accepted
            self._drafts.close(self._row)
        self._row = None


def write_static_lookup(
    pack: RecipePack, path: Path, *, tokenizer_sha256: str, n_vocab: int, prompt_end: Sequence[int] = ()
) -> int:
    """llama-server's `--lookup-cache-static` for a model of this tokenizer; returns how many pairs of tokens it is
    about. llama-server checks nothing: a file of another tokenizer drafts what never holds, and where it drafts an id
    that the model does not have, the whole server ends. So both are refused here: InvalidPack.

    Rows of {int32[4] pair, filled up with -1; int32 n; n x (int32 token, int32 count)}, in the machine's byte order:
    llama.cpp reads the file into its own structures (common/ngram-cache.cpp), and the first row of a pair holds.
    Commonest followers first. `prompt_end`: what each prompt ends with (a chat template's last tokens), for there
    llama.cpp looks up what an answer begins with."""
    _check(pack, tokenizer_sha256, n_vocab)
    table = following_pairs(pack, prompt_end)
    with path.open("wb") as file:
        for pair, following in sorted(table.items()):
            file.write(struct.pack(f"={_NGRAM_MAX}i", *pair, *[_NO_TOKEN] * (_NGRAM_MAX - len(pair))))
            file.write(struct.pack("=i", len(following)))
            most = max(_MAX_COUNT, *following.values())
            for token, count in following.most_common():
                file.write(struct.pack("=ii", token, max(1, count * _MAX_COUNT // most)))
    return len(table)


def following_pairs(pack: RecipePack, prompt_end: Sequence[int] = ()) -> dict[tuple[int, int], Counter[int]]:
    """Count what follows each two tokens in the pack's runs, and how often. Recipes overlap (a run begins again inside
    another, behind a longer or shorter context), so a follower's count is that of the recipe that saw it most."""
    table: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for recipe in pack.recipes:
        if not recipe.agreed:  # llama.cpp ends itself at a count of 0
            continue
        begins = recipe.after[:1] == (BEGIN,)
        after = ([*prompt_end, *recipe.after[1:]] if begins else [*recipe.after])[-2:]
        tokens = [*after, *recipe.run]
        for i in range(2, len(tokens)):
            following = table[tokens[i - 2], tokens[i - 1]]
            following[tokens[i]] = max(following[tokens[i]], recipe.agreed)
    return dict(table)


def _check(pack: RecipePack, tokenizer_sha256: str, n_vocab: int) -> None:
    if pack.recipes and pack.tokenizer_sha256 != tokenizer_sha256:
        message = (
            f"The pack is of the tokenizer {pack.tokenizer_sha256[:12]}..., the model has {tokenizer_sha256[:12]}...: "
            "compile for this base, or re-tokenise the pack."
        )
        raise InvalidPack(message, code="tokenizer_mismatch")
    highest = max((max(recipe.after + recipe.run) for recipe in pack.recipes), default=0)
    if highest >= n_vocab:
        raise InvalidPack(f"The pack has the token {highest}, and the model's last one is {n_vocab - 1}.")
