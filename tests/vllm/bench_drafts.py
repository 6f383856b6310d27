"""Tokens per forward pass of a real vLLM with drafts near and far, without, and with the prompt's own n-grams.

    make bench-vllm-drafts         (in .venv; the engine in .venv-vllm; some ten minutes on two cores)

160 questions, one answer each, a temperature at a time. Drafts are answers that the same model wrote before at
temperature 1: to the question itself, to its neighbour (the same topic and thing, other days), to another topic; and
the first of these with all letters shuffled. Every forward pass of a request yields one token and those of the proposal
that were accepted, so passes = tokens - accepted; both are the engine's own counters. Wall times are not reported: they
would be those of a toy on a shared machine. Arguments are the kinds of drafts to run, else all are.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.vllm import engine, tiny_model
from workers.teachers.protocol import CompletionRequest, Message
from workers.teachers.vllm.proposer import DraftMatcher
from workers.teachers.vllm.teacher import VllmTeacher

TEMPERATURES = (0.0, 0.7, 1.0)
PER_SOURCE = 4
Slice = tuple[str, str, str]
Source = Callable[[Slice, random.Random], Slice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    temperature: float
    counted: engine.Counters

    def __str__(self) -> str:
        c = self.counted
        per_pass = c.n_generated / (c.n_generated - c.n_accepted)
        share = f"{c.n_accepted / c.n_drafted:.0%}" if c.n_drafted else "–"
        return (
            f"| {self.name} | {self.temperature:g} | {c.n_generated:,} | {c.n_drafted:,} | {c.n_accepted:,} | {share} |"
            f" {per_pass:.2f} |"
        )


SLICES: tuple[Slice, ...] = tuple(
    (topic, item, days) for topic in tiny_model.TOPICS for item in tiny_model.ITEMS for days in tiny_model.DAYS
)


def same(slice_: Slice, rng: random.Random) -> Slice:
    return slice_


def neighbour(slice_: Slice, rng: random.Random) -> Slice:
    topic, item, days = slice_
    return topic, item, rng.choice([other for other in tiny_model.DAYS if other != days])


def far(slice_: Slice, rng: random.Random) -> Slice:
    topic, item, days = slice_
    return rng.choice([other for other in SLICES if other[0] != topic and other[1] != item and other[2] != days])


UNRELATED = "4 of unrelated text"
KINDS: dict[str, tuple[Source, ...]] = {
    "no drafts": (),
    "4 drafts of the same slice": (same,),
    "4 of a neighbour": (neighbour,),
    "4 of a far slice": (far,),
    "4 of a neighbour among 12 far ones": (far, far, neighbour, far),
    UNRELATED: (same,),
}


def main(names: Sequence[str]) -> int:
    folder = engine.made_model()
    print("| drafts | T | tokens | proposed | accepted | share | tokens per pass |")
    print("|---|---|---|---|---|---|---|")
    with serving(folder, speculative=engine.DRAFTS) as (running, teacher):
        stored = written(teacher)
        for temperature in TEMPERATURES:
            for name in names:
                report(running, teacher, name, temperature, lambda i, name=name: offered(stored, name, i))
    with serving(folder, speculative=engine.PROMPT_NGRAM) as (running, teacher):
        for temperature in TEMPERATURES[:1]:  # sampling with this proposer is broken on the CPU
            report(running, teacher, "prompt n-grams (vLLM's `ngram`)", temperature, lambda i: ())
    for n_tokens in (600, 1_800, 8_000):
        print(f"proposing from {n_tokens:,} tokens of drafts: {microseconds(n_tokens):.0f} us a request and step")
    return 0


def microseconds(n_tokens: int, n_steps: int = 2000) -> float:
    """CPU time of one step of one request: a generated token is taken in and a proposal made."""
    rng = random.Random(0)
    matcher = DraftMatcher([[rng.randrange(20) for _ in range(150)] for _ in range(n_tokens // 150)])
    tokens = [rng.randrange(20) for _ in range(n_steps)]
    started = time.process_time()
    for token in tokens:
        matcher.advance(token)
        matcher.propose(8)
    return (time.process_time() - started) / n_steps * 1e6


@contextmanager
def serving(folder: Path, *, speculative: dict[str, object]) -> Iterator[tuple[engine.Engine, VllmTeacher]]:
    with engine.running(folder, speculative=speculative, arguments=engine.AS_TEACHER) as running:
        teacher = VllmTeacher(**engine.teacher_fields(running))
        yield running, teacher
        teacher.close()


def written(teacher: VllmTeacher) -> dict[Slice, tuple[str, ...]]:
    """What an earlier compile would have left in the cache: answers to every slice."""
    requests = [request(slice_, 1.0, n=PER_SOURCE, seed=i) for i, slice_ in enumerate(SLICES)]
    return dict(zip(SLICES, ask(teacher, requests), strict=True))


def offered(stored: dict[Slice, tuple[str, ...]], name: str, number: int) -> tuple[str, ...]:
    rng = random.Random(number)
    texts = tuple(text for source in KINDS[name] for text in stored[source(SLICES[number], rng)])
    return tuple(scrambled(text, rng) for text in texts) if name == UNRELATED else texts


def scrambled(text: str, rng: random.Random) -> str:
    """Words as long, of the same letters, in no language."""
    letters = [letter for letter in text if letter.isalpha()]
    rng.shuffle(letters)
    return "".join(letters.pop() if letter.isalpha() else letter for letter in text)


def report(
    running: engine.Engine,
    teacher: VllmTeacher,
    name: str,
    temperature: float,
    drafts: Callable[[int], tuple[str, ...]],
) -> None:
    before = running.counters()
    ask(
        teacher,
        [request(slice_, temperature, seed=10_000 + i, drafts=drafts(i)) for i, slice_ in enumerate(SLICES)],
    )
    print(Row(name=name, temperature=temperature, counted=running.counters() - before), flush=True)


def request(slice_: Slice, temperature: float, **fields: object) -> CompletionRequest:
    messages = (Message(role="user", content=tiny_model.question(*slice_)),)
    return CompletionRequest(**{"messages": messages, "temperature": temperature, "max_tokens": 96, **fields})


def ask(teacher: VllmTeacher, requests: list[CompletionRequest]) -> list[tuple[str, ...]]:
    with ThreadPoolExecutor(16) as pool:
        done = pool.map(lambda asked: teacher.complete(asked, deadline_s=300), requests)
        return [tuple(choice.text for choice in completion.choices) for completion in done]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(KINDS)))
