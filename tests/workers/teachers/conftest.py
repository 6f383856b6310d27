"""The example's spec, the grammar and its HTTP server; no test may leave a server's thread behind."""

import threading
from collections.abc import Iterator

import pytest
import yaml

from backend.domain.spec.parsing import Spec, parse_spec
from workers.teachers.grammar.files import DEFAULT_GRAMMAR, shipped_grammar
from workers.teachers.grammar.model import GrammarModel
from workers.teachers.grammar.pcfg import Grammar
from workers.teachers.grammar.server import GrammarServer, serving

EXAMPLE = DEFAULT_GRAMMAR.parents[4] / "examples" / "refund-router.yaml"


@pytest.fixture(scope="session")
def spec() -> Spec:
    return parse_spec(yaml.safe_load(EXAMPLE.read_text()))


@pytest.fixture(scope="session")
def grammar() -> Grammar:
    return shipped_grammar()


@pytest.fixture(scope="module")
def grammar_server(grammar: Grammar) -> Iterator[GrammarServer]:
    before = set(threading.enumerate())
    with serving(GrammarModel(grammar)) as server:
        yield server
    started = [thread.name for thread in set(threading.enumerate()) - before]
    assert [name for name in started if name == "grammar-server" or "process_request_thread" in name] == []


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    left = [t.name for t in threading.enumerate() if t.name.startswith("hostile")]
    assert left == []
