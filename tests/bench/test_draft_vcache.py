"""The bridge to vCache's code, before a far side written here with the same seams; vCache itself is no part of us."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.bench.draft_policy import vcache_of, vcache_rows
from tests.bench.draft_policy_play import SCENARIOS, Played, play
from tests.bench.draft_policy_streams import N_CANDIDATES, N_KEPT, Stream, draw_streams
from tests.bench.draft_policy_tables import Row, print_requests
from tests.bench.draft_policy_texts import Family, Texts
from tests.bench.draft_vcache import NEVER_CALLED, VCacheItself, load_vcache

# Hits the first entry from the second request on, if what its thread wrote is there; else it asks.
FAR_SIDE = """
import threading, types
from concurrent.futures import ThreadPoolExecutor
from openai import OpenAI

class EmbeddingEngine: ...
class InferenceEngine: ...
class VCacheConfig(types.SimpleNamespace): ...
class HNSWLibVectorDB(types.SimpleNamespace): ...
class InMemoryEmbeddingMetadataStorage: ...
class NoEvictionPolicy: ...
class BenchmarkComparisonSimilarityEvaluator: ...

class Queue:
    def __init__(self, callback_function):
        self.callback_function = callback_function
    def put(self, item):
        raise AssertionError("a thread's queue was used")

class VerifiedDecisionPolicy:
    def __init__(self, delta):
        self.entries = []
    def setup(self, config):
        self.config = config
        self.callback_queue, self.executor = Queue(self.entries.append), ThreadPoolExecutor(1)
    def shutdown(self):
        self.executor.shutdown()
    def process_request(self, prompt, system_prompt, id_set):
        assert self.config.vector_db.max_capacity >= 1 and len(self.config.embedding_engine.get_embedding(prompt)) > 1
        if self.entries:
            return True, self.entries[0], None
        response = self.config.inference_engine.create(prompt, system_prompt)
        self.executor.submit(self.callback_queue.put, response)
        return False, response, None

class BenchmarkVerifiedGlobalDecisionPolicy(VerifiedDecisionPolicy):
    def setup(self, config):
        self.config, self.entries = config, ["0"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "vcache").mkdir()
    (tmp_path / "vcache" / "__init__.py").write_text(FAR_SIDE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("vcache", None)


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Forty slices of six intents in sixteen dimensions."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(6, 20, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    texts = Texts(families=(Family(name="a", intents=tuple(rows)),), outside=rows[0])
    return draw_streams(texts, (0,), 1, seed=2, n_slices=40)[0]


def test_a_hit_takes_the_drafts_of_the_entry_it_hits_and_what_a_thread_would_write_is_there_at_once(
    folder: Path, stream: Stream
) -> None:
    played = play(stream, VCacheItself(load_vcache(folder, None), "an entry", 0.05, stream, 0))
    assert played.n_taken == [0] + [N_CANDIDATES - N_KEPT] * (len(stream) - 1)
    assert played.n_wrong_slice == [0] + [0 if yes else N_CANDIDATES - N_KEPT for yes in stream.matches[1:, 0]]
    first_bad = sum(not stream.is_right[1, 0, place] for place in stream.orders[0][N_KEPT:])
    assert played.n_bad[1] == first_bad


def test_every_policy_and_delta_has_a_row(folder: Path, stream: Stream) -> None:
    rows = vcache_rows(load_vcache(folder, None), [stream])
    assert [row.name for row in rows] == [
        f"vCache itself, {policy}, delta {delta}" for policy in ("an entry", "global") for delta in (0.05, 0.02)
    ]


def test_a_library_that_is_stood_in_for_cannot_be_called_and_is_not_left_behind(folder: Path) -> None:
    before = {name: sys.modules.get(name) for name in NEVER_CALLED}
    vcache = load_vcache(folder, None)
    with pytest.raises(RuntimeError):
        vcache.OpenAI(api_key="")
    assert {name: sys.modules.get(name) for name in NEVER_CALLED} == before


def test_vcache_is_left_out_with_a_word_where_its_folder_or_a_library_is_absent(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vcache_of(None, None) is None
    (folder / "vcache" / "__init__.py").write_text("import a_library_that_is_not_here")
    assert vcache_of(folder, folder / "site") is None
    said = capsys.readouterr().err
    assert said.count("left out") == 2
    assert "a_library_that_is_not_here" in said


def test_errors_are_a_share_of_requests_and_bad_drafts_of_those_reused(capsys: pytest.CaptureFixture[str]) -> None:
    def played(taken: list[int], bad: list[int], wrong: list[int]) -> Played:
        none = [0] * len(taken)
        fresh = [N_CANDIDATES - n for n in taken]
        return Played(n_fresh=fresh, n_taken=taken, n_bad=bad, n_wrong_slice=wrong, n_shown=none, n_requests=none)

    streams = (played([0, 8, 8, 0], [0, 8, 1, 0], [0, 8, 0, 0]), played([0, 0, 0, 4], [0, 0, 0, 1], [0, 0, 0, 0]))
    row = Row(name="vCache itself", played=(streams,) * len(SCENARIOS))
    print_requests([row])
    assert capsys.readouterr().out.rstrip().endswith("| 37.5 % | 12.50 % (25.0) | 33.3 % | 50.0 % |")
    print_requests([row.of_first(2)])
    assert capsys.readouterr().out.rstrip().endswith("| 37.5 % | 12.50 % (25.0) | 33.3 % | 50.0 % |")
