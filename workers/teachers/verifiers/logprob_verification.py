"""Along one draft: chunk after chunk is scored, until a token is not kept; then the next token, and the rest."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backend.domain.drafts.acceptance_rules import (
    Distribution,
    ImpossibleDraft,
    agrees,
    argmax_rule,
    sample_stop,
    stored_residual,
)
from backend.domain.drafts.token_distributions import draw, total_variation
from backend.domain.drafts.vocabulary import Certificate, DraftVerdict, Repeatability, StoredDraft
from workers.teachers.protocol import Choice, CompletionRequest, Message, ScoreRequest
from workers.teachers.verifiers.acceptance_rules import Rule, chunk_stops
from workers.teachers.verifiers.conversations import Part, Refused
from workers.teachers.verifiers.protocol import Answer, VerificationContext
from workers.teachers.verifiers.token_scores import TokenDistribution, Tokens, distributions_of, score_request

TOKENS_A_ROUND, MAX_ROUNDS = 16, 64  # of single tokens, where the residual is not known
NEGLIGIBLE = 1e-9
CERTAIN = 1 - 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCase:
    """One draft and how it is verified. `old` are the messages that it was an answer to; `rng` is its own.
    `is_reproducible`: a score comes out the same each time, so that stored log-probs can be held against it. Where
    there is `repeats`, the first score is asked for twice, and what the two differ by is noted there."""

    draft: StoredDraft
    asked: VerificationContext
    old: tuple[Message, ...] | None
    rule: Rule
    n_top: int
    chunk_tokens: int
    selection_tv: float
    is_reproducible: bool
    rng: random.Random
    repeats: list[Repeatability] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedPrefix:
    """The first `n` tokens are kept and `token` comes next, None where the teacher writes it with the rest. `tv` bounds
    what the walk itself is off by."""

    n: int
    token: str | None = None
    tv: float = 0.0


def verify_one(case: DraftCase, tokens: Tokens) -> Part[DraftVerdict]:
    """The whole conversation about one draft. Raises Refused."""
    kept = yield from (_argmax(case, tokens) if case.rule is Rule.ARGMAX else _walk(case, tokens))
    return (yield from _finish(case, tokens, kept))


def _chunks(n: int, size: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < n:
        stop = min(n, start + size)
        stop = n if stop == n - 1 else stop  # the end is known with the last word
        yield start, stop
        start = stop


def _score(case: DraftCase, messages: tuple[Message, ...], text: str) -> ScoreRequest:
    return score_request(messages, text, case.asked.policy, case.n_top)


def _argmax(case: DraftCase, tokens: Tokens) -> Part[AcceptedPrefix]:
    for start, stop in _chunks(len(tokens.names), case.chunk_tokens):
        (answer,) = yield from _scores(case, tokens, (case.asked.request.messages,), start, stop)
        places = distributions_of(tokens, start, stop, answer)
        ranked = [
            place.alternatives if len(place.alternatives) > 1 or place.probability >= CERTAIN else {}
            for place in places
        ]
        n = argmax_rule(tokens.names[start:stop], ranked)
        if n < stop - start:
            return AcceptedPrefix(n=start + n)
    return AcceptedPrefix(n=len(tokens.names))


def _walk(case: DraftCase, tokens: Tokens) -> Part[AcceptedPrefix]:
    tv = 0.0
    for start, stop in _chunks(len(tokens.names), case.chunk_tokens):
        new, old = yield from _distributions(case, tokens, start, stop)
        if case.rule is Rule.STORED and not _are_known(new):
            raise Refused  # the rule was chosen because the teacher promised otherwise
        stored = None if tokens.logprobs is None else tokens.logprobs[start:stop]
        if case.is_reproducible and not _are_as_stored(old, stored):
            raise Refused  # another revision, or another temperature, than the one that wrote the draft
        try:
            stops = chunk_stops(case.rule, tokens.names[start:stop], new, old, stored)
        except ImpossibleDraft:
            raise Refused from None
        outcome = sample_stop(stops, case.rng.random())
        tv += sum((1 - p.probability) * p.probability ** (TOKENS_A_ROUND * MAX_ROUNDS) for p in new if p.whole is None)
        if outcome.n_kept < stop - start:
            n = start + outcome.n_kept
            token = yield from _next_token(case, tokens, n, new[outcome.n_kept], outcome.residual)
            return AcceptedPrefix(n=n, token=token, tv=tv)
    return AcceptedPrefix(n=len(tokens.names), tv=tv)


def _are_known(places: list[TokenDistribution]) -> bool:
    """Say whether all places are known whole, up to one where the draft cannot go on."""
    reached = list(itertools.takewhile(lambda place: place.probability > 0, places))
    return all(place.whole is not None for place in places[: len(reached) + 1])


def _are_as_stored(old: list[TokenDistribution] | None, stored: tuple[float, ...] | None) -> bool:
    if old is None or stored is None:
        return True
    return all(p.probability > 0 and agrees(q, math.log(p.probability)) for p, q in zip(old, stored, strict=True))


def _distributions(
    case: DraftCase, tokens: Tokens, start: int, stop: int
) -> Part[tuple[list[TokenDistribution], list[TokenDistribution] | None]]:
    """The distributions of one chunk under the new prompt, and under the old one where the rule needs all of q."""
    prompt = case.asked.request.messages
    if case.old is None or case.rule not in (Rule.TOKEN, Rule.BLOCK):
        (answer,) = yield from _scores(case, tokens, (prompt,), start, stop)
        return distributions_of(tokens, start, stop, answer), None
    answers = yield from _scores(case, tokens, (prompt, case.old), start, stop)
    return distributions_of(tokens, start, stop, answers[0]), distributions_of(tokens, start, stop, answers[1])


def _scores(
    case: DraftCase, tokens: Tokens, prompts: Sequence[tuple[Message, ...]], start: int, stop: int
) -> Part[list[Answer]]:
    """The scores of the first `stop` tokens under each prompt."""
    requests = [_score(case, prompt, tokens.text(stop)) for prompt in prompts]
    is_repeated = case.repeats is not None and start == 0
    answers = yield [*requests, *(requests[:1] if is_repeated else [])]
    if case.repeats is not None and is_repeated:
        case.repeats.append(_repeatability(tokens, stop, answers[0], answers[-1]))
    return answers[: len(requests)]


def _repeatability(tokens: Tokens, stop: int, one: Answer, other: Answer) -> Repeatability:
    places = zip(distributions_of(tokens, 0, stop, one), distributions_of(tokens, 0, stop, other), strict=True)
    apart = [total_variation(a.alternatives, b.alternatives) for a, b in places]
    return Repeatability(n_tokens=len(apart), tv_sum=math.fsum(apart))


def _next_token(
    case: DraftCase, tokens: Tokens, n: int, new: TokenDistribution, residual: Distribution | None
) -> Part[str]:
    """Draw the token that stands where the draft's token `n` was not kept."""
    if case.rule is Rule.STORED:
        residual = yield from _ask_residual(case, tokens, n, new)
    elif residual is None and new.whole is not None:
        raise Refused  # a stop that only rounding makes possible
    if residual is None or not tokens.has_end:
        return (yield from _another_token(case, tokens, n))
    return draw(residual, case.rng.random())


def _ask_residual(case: DraftCase, tokens: Tokens, n: int, new: TokenDistribution) -> Part[Distribution]:
    """The residual of the stored rule: all of q at this one place is asked for under the old prompt."""
    if case.old is None or tokens.logprobs is None:
        raise Refused
    (answer,) = yield [_score(case, case.old, tokens.text(n + 1))]
    (old,) = distributions_of(tokens, n, n + 1, answer)
    if new.whole is None or old.whole is None or old.probability <= 0:
        raise Refused
    if not agrees(tokens.logprobs[n], math.log(old.probability)):
        raise Refused  # another revision, or another policy, than the one that wrote the draft
    residual = stored_residual(new.whole, old.whole)
    if residual is None:
        raise Refused
    return residual


def _another_token(case: DraftCase, tokens: Tokens, n: int) -> Part[str]:
    """The teacher's next token, given that it is not the draft's: asked for until it is another one. "" is the end."""
    unwanted = tokens.names[n] if n < tokens.n_text else ""
    for _ in range(MAX_ROUNDS):
        (answer,) = yield [_going_on(case, tokens.text(n), max_tokens=1, n=TOKENS_A_ROUND)]
        for choice in answer.choices:
            if choice.text != unwanted:
                return choice.text
    raise Refused


def _going_on(case: DraftCase, prefix: str, *, max_tokens: int, n: int = 1) -> CompletionRequest:
    policy = case.asked.policy
    return replace(
        case.asked.request,
        n=n,
        prefix=prefix,
        max_tokens=max_tokens,
        temperature=policy.temperature,
        top_p=policy.top_p,
        top_k=policy.top_k,
        # of the draft's own stream: under one seed the rests of many drafts would be alike
        seed=case.rng.getrandbits(31),
        drafts=(),
    )


def _finish(case: DraftCase, tokens: Tokens, kept: AcceptedPrefix) -> Part[DraftVerdict]:
    is_whole = kept.n == len(tokens.names)
    end = tokens.names[-1] if tokens.has_end else ""
    text = tokens.text(kept.n)
    if is_whole and tokens.has_end:
        return _verdict(case, kept, text, n_tokens=kept.n, is_accepted=True)
    n_tokens = kept.n + (kept.token is not None)
    if kept.token is not None and kept.token in ("", end):
        return _verdict(case, kept, text, n_tokens=n_tokens, is_accepted=False)
    text += kept.token or ""
    left = case.asked.request.max_tokens - n_tokens
    if left <= 0:
        return _verdict(case, kept, text, n_tokens=n_tokens, is_accepted=False)
    (answer,) = yield [_going_on(case, text, max_tokens=left)]
    if not answer.choices:
        raise Refused
    rest: Choice = answer.choices[0]
    n_tokens += rest.n_tokens
    return _verdict(case, kept, text + rest.text, n_tokens=n_tokens, is_accepted=is_whole and not rest.text)


def _verdict(case: DraftCase, kept: AcceptedPrefix, text: str, *, n_tokens: int, is_accepted: bool) -> DraftVerdict:
    tv = kept.tv + (0.0 if case.rule in (Rule.POINT, Rule.ARGMAX) else case.selection_tv)
    certificate = Certificate.EXACT if tv <= NEGLIGIBLE else Certificate.BOUNDED
    return DraftVerdict(
        draft_id=case.draft.draft_id,
        is_accepted=is_accepted,
        text=text,
        n_tokens=n_tokens,
        kept_tokens=kept.n,
        certificate=certificate if text else None,
        tv_bound=min(1.0, tv) if certificate is Certificate.BOUNDED else None,
    )
