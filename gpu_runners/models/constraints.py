"""Constrained decoding by llguidance: which tokens may come next so that the answer stays what was asked for.

White space outside strings is what `json.dumps` writes, nothing else, and properties come in the schema's order.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import llguidance
import torch

from backend.domain.patterns.characters import UnsafePattern
from backend.domain.patterns.decoding import decodable_schema
from gpu_runners.models.protocol import Constraint, ConstraintKind, Rejected

MAX_CHARS = 64_000
MAX_CHOICES = 2_000
_KEEP = 128
_AT_ONCE = 64  # masks that are unpacked at a time: 64 over 150,000 tokens take 80 MB
_WHITE_SPACE: Any = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}


def n_vocab(tokenizer: Any, vocab_size: int) -> int:
    """The number of tokens in a mask: the base's rows, or the tokenizer's tokens should they be more."""
    return max(vocab_size, int(tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=True)))


class Constraints:
    """Compiled constraints over one tokenizer, by their text."""

    def __init__(self, tokenizer: Any, *, vocab_size: int, eos_ids: Sequence[int]) -> None:
        backend = tokenizer.backend_tokenizer
        text = json.loads(backend.to_str())
        text["truncation"] = text["padding"] = None
        n = n_vocab(tokenizer, vocab_size)
        self._tokenizer = llguidance.LLTokenizer(json.dumps(text), n_vocab=n, eos_token=list(eos_ids))
        self._limits = llguidance.LLParserLimits(
            # a schema is a stranger's: building stops after some 20 ms of work, a mask after some 15
            initial_lexer_fuel=1_000_000,
            step_lexer_fuel=200_000,
            max_lexer_states=50_000,
            max_grammar_size=200_000,
            verbose_errors=False,
        )
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Constraint, Any] = OrderedDict()

    def matcher(self, constraint: Constraint) -> Any:
        """A fresh matcher at its start. Compiling may take 100 ms, so not in the engine's thread. Raises
        Rejected(bad_constraint)."""
        with self._lock:
            compiled = self._compiled.get(constraint)
        if compiled is None:
            compiled = self._compile(constraint)
            with self._lock:
                self._compiled[constraint] = compiled
                while len(self._compiled) > _KEEP:
                    self._compiled.popitem(last=False)
        return compiled.deep_copy()

    def _compile(self, constraint: Constraint) -> Any:
        if len(constraint.value) > MAX_CHARS:
            raise _bad(f"it has more than {MAX_CHARS} characters")
        matcher = llguidance.LLMatcher(self._tokenizer, _grammar(constraint), log_level=0, limits=self._limits)
        if matcher.is_error():
            raise _bad(matcher.get_error().splitlines()[0][:300])
        return matcher


class Masks:
    """The bit masks of a step's constrained rows."""

    def __init__(self, vocab_size: int) -> None:
        self._words = (vocab_size + 31) // 32
        self._executor: Any = None

    def forbidden(
        self, matchers: Sequence[Any | None], drafts: Sequence[Sequence[int]], n_logits: int, device: torch.device
    ) -> torch.Tensor:
        """(n, n_logits) bool on `device`, True where a row's matcher does not take the token: a row of it for each
        matcher and for each of its drafted tokens, if the answer went on with those before; all False without a
        matcher, and behind a drafted token that it does not take."""
        places = [1 + len(draft) for draft in drafts]
        words = torch.full((sum(places), self._words), -1, dtype=torch.int32)
        ahead, at = [], 0
        for matcher, draft, n in zip(matchers, drafts, places, strict=True):
            if matcher is not None and draft:
                ahead.append((matcher, at, list(draft)))
            elif matcher is not None:
                _fill(words[at], matcher)
            at += n
        if ahead:
            self._look_ahead(ahead, words)
        constrained = [m is not None for m, n in zip(matchers, places, strict=True) for _ in range(n)]
        return _unpack(words, constrained, n_logits, device)

    def _look_ahead(self, ahead: Sequence[tuple[Any, int, list[int]]], words: torch.Tensor) -> None:
        """Look ahead with copies (1 us): what a draft brings a matcher to, the answer may never come to."""
        self._executor = self._executor or llguidance.LLExecutor()
        copies = [(matcher.deep_copy(), at, draft) for matcher, at, draft in ahead]
        size = words.shape[1] * words.element_size()
        self._executor.unsafe_compute_mask_ptr_with_draft_token(copies, words.data_ptr(), size, len(words))


def _fill(words: torch.Tensor, matcher: Any) -> None:
    matcher.unsafe_compute_mask_ptr(words.data_ptr(), words.numel() * words.element_size())


def _unpack(words: torch.Tensor, constrained: Sequence[bool], n_logits: int, device: torch.device) -> torch.Tensor:
    forbidden = torch.zeros((len(words), n_logits), dtype=torch.bool, device=device)
    bits = torch.arange(32, dtype=torch.int32, device=device)
    n = min(n_logits, 32 * words.shape[1])
    for begin in range(0, len(words), _AT_ONCE):
        some = words[begin : begin + _AT_ONCE].to(device)
        forbidden[begin : begin + _AT_ONCE, :n] = (((some[:, :, None] >> bits) & 1) == 0).flatten(1)[:, :n]
    if n < n_logits:
        forbidden[:, n:] = torch.tensor(constrained, device=device)[:, None]
    return forbidden


def _grammar(constraint: Constraint) -> str:
    if constraint.kind is ConstraintKind.CHOICES:
        choices = _choices(constraint.value)
        return str(llguidance.LLMatcher.grammar_from_lark("start: " + " | ".join(map(_lark_text, choices))))
    text = '{"type": "object"}' if constraint.kind is ConstraintKind.JSON_OBJECT else constraint.value
    try:
        if not isinstance(schema := json.loads(text), dict):
            raise _bad("a schema is a JSON object")
        text = json.dumps(decodable_schema(schema), ensure_ascii=False)
        return str(llguidance.LLMatcher.grammar_from_json_schema(text, overrides=_WHITE_SPACE))
    except UnsafePattern as error:
        raise _bad(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _bad("it is not JSON") from error


def _choices(value: str) -> list[str]:
    try:
        choices = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _bad("its choices are not JSON") from error
    if not isinstance(choices, list) or not 0 < len(choices) <= MAX_CHOICES:
        raise _bad(f"it needs 1 to {MAX_CHOICES} choices")
    if not all(isinstance(choice, str) and choice for choice in choices):
        raise _bad("a choice is a text that is not empty")
    return choices


def _lark_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _bad(why: str) -> Rejected:
    return Rejected(f"The constraint on the answer cannot be used: {why}.", code="bad_constraint")
