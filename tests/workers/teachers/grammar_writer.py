"""What a strict vendor writes where the built-in grammar stands for its model: the same in every run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.workers.teachers.strict_vendors import Endpoint, Vendor, serving
from workers.teachers.grammar.api import chat_completion
from workers.teachers.grammar.model import GrammarModel, asks_label
from workers.teachers.grammar.prompt_reader import read_prompt

LABELS_AT = 0.2  # of a model that takes no temperature: as sure as one that is asked at the spec's default


class GrammarWriter:
    """The script of one endpoint. Draws are seeded by the prompt and by how often it was asked before, so that neither
    the vendor nor the order of calls in flight changes a text."""

    def __init__(self, grammar: GrammarModel) -> None:
        self._grammar = grammar
        self._turns: Counter[str] = Counter()
        self.endpoint: Endpoint | None = None

    def __call__(self, messages: Sequence[Mapping[str, Any]], n: int) -> list[str]:
        """Called by one thread at a time, for the request that its endpoint noted last."""
        prompt = "\n\n".join(str(message["content"]) for message in messages if message["role"] == "user")
        usual = LABELS_AT if asks_label(read_prompt(prompt)) else 1.0
        asked: Mapping[str, Any] = {} if self.endpoint is None else self.endpoint.answered[-1]
        body = {
            "model": "grammar",
            "messages": list(messages),
            "n": n,
            "max_tokens": 500,
            "temperature": asked.get("temperature", usual),
            "seed": self._turns[prompt],
        }
        self._turns[prompt] += 1
        return [str(choice["message"]["content"]) for choice in chat_completion(self._grammar, body)["choices"]]


def written_by(vendor: Vendor, grammar: GrammarModel) -> Endpoint:
    """An endpoint of a vendor whose model is the grammar, not served yet."""
    writer = GrammarWriter(grammar)
    writer.endpoint = Endpoint(vendor, writer)
    return writer.endpoint


@contextmanager
def serving_grammar(vendor: Vendor, grammar: GrammarModel) -> Iterator[Endpoint]:
    """A running endpoint of a vendor whose model is the grammar, for the length of the block."""
    writer = GrammarWriter(grammar)
    with serving(vendor, writer) as endpoint:
        writer.endpoint = endpoint
        yield endpoint
