"""What we write for llama-server, held to llama-server itself where it was built."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.pack import RecipePack
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.speculation.llama_cpp import write_static_lookup
from gpu_runners.speculation.vocabulary import token_texts
from tests.gpu_runners.speculation.llama_server import SERVER, DidNotStart, LlamaServer, Said, llama_server, with_file
from tests.gpu_runners.speculation.test_llama_cpp import run
from tests.gpu_runners.speculation.tiny_task import prompts
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401

MOST = 40
N_SEEN = 60
N_ASKED = 30


@pytest.fixture(scope="module")
def base(tiny_bases: Path) -> CausalBase:  # noqa: F811
    if not SERVER.exists():
        pytest.skip("no llama-server here: `make setup-llama-server` builds it into .venv-llama")
    return open_causal_base(TINY, base_dir=tiny_bases)


@pytest.fixture(scope="module")
def model(base: CausalBase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama-server") / "tiny.gguf"
    run("tests.gpu_runners.speculation.tiny_gguf", str(base.folder), str(path))
    return path


@pytest.fixture(scope="module")
def asked(base: CausalBase) -> list[list[int]]:
    return prompts(base, N_SEEN + N_ASKED)


@pytest.fixture(scope="module")
def plain(model: Path, asked: list[list[int]], tmp_path_factory: pytest.TempPathFactory) -> list[Said]:
    with llama_server(model, log=tmp_path_factory.mktemp("plain") / "log") as server:
        return [server.answer(prompt, most=MOST) for prompt in asked]


@pytest.fixture(scope="module")
def pack(base: CausalBase, plain: list[Said]) -> RecipePack:
    seen = [said.tokens for said in plain[:N_SEEN]]
    return build_pack(
        [Observed(tokens=tokens, agreed=(1,) * len(tokens), n_samples=1) for tokens in seen],
        token_texts(base),
        tokenizer_sha256=base.tokenizer_sha256,
        base=base.name,
        options=PackOptions(),
        end_ids=base.eos_ids,
    )


def written(base: CausalBase, pack: RecipePack, path: Path, **more: Any) -> Path:
    write_static_lookup(pack, path, tokenizer_sha256=base.tokenizer_sha256, n_vocab=base.vocab_size, **more)
    return path


@pytest.fixture(scope="module")
def server(
    base: CausalBase, model: Path, pack: RecipePack, asked: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaServer]:
    folder = tmp_path_factory.mktemp("drafting")
    path = written(base, pack, folder / "recipes.bin", prompt_end=asked[0][-2:])
    with llama_server(model, *with_file(path), log=folder / "log") as one:
        yield one


def test_without_a_file_nothing_is_drafted(plain: list[Said]) -> None:
    assert sum(said.drafted for said in plain) == 0
    assert all(said.n_steps == said.n_predicted > 5 for said in plain)


def test_the_file_drafts_and_answers_stay(server: LlamaServer, plain: list[Said], asked: list[list[int]]) -> None:
    said = [server.answer(prompt, most=MOST) for prompt in asked[N_SEEN:]]
    assert [one.tokens for one in said] == [one.tokens for one in plain[N_SEEN:]]
    drafted, accepted = sum(one.drafted for one in said), sum(one.accepted for one in said)
    n_tokens = sum(one.n_predicted for one in said)
    assert 0 < accepted <= drafted
    assert accepted > n_tokens / 3
    assert accepted > drafted / 3


def test_sampled_answers_of_a_seed_stay(
    server: LlamaServer, model: Path, asked: list[list[int]], tmp_path: Path
) -> None:
    how = {"temperature": 0.8, "seed": 7}
    drafted = [server.answer(prompt, most=MOST, **how) for prompt in asked[:10]]
    with llama_server(model, log=tmp_path / "log") as one:
        cold = [one.answer(prompt, most=MOST, **how) for prompt in asked[:10]]
    assert [one.tokens for one in drafted] == [one.tokens for one in cold]
    assert sum(one.accepted for one in drafted) > 0


def row(pair: tuple[int, int], *following: tuple[int, int]) -> bytes:
    counted = b"".join(struct.pack("=ii", *one) for one in following)
    return struct.pack("=4ii", *pair, -1, -1, len(following)) + counted


def test_a_file_of_another_tokenizer_drafts_what_never_holds(
    base: CausalBase, model: Path, plain: list[Said], asked: list[list[int]], tmp_path: Path
) -> None:
    """llama-server says nothing, so `write_static_lookup` refuses such a pack."""
    path = tmp_path / "other.bin"
    pairs = {pair for said in plain for pair in zip(said.tokens, said.tokens[1:], strict=False)}
    path.write_bytes(b"".join(row(pair, ((pair[0] + 1) % base.vocab_size, 9)) for pair in sorted(pairs)))
    with llama_server(model, *with_file(path), log=tmp_path / "log") as server:
        said = [server.answer(prompt, most=MOST) for prompt in asked[:10]]
    assert [one.tokens for one in said] == [one.tokens for one in plain[:10]]
    assert sum(one.drafted for one in said) > 10 * sum(one.accepted for one in said)


def test_a_token_that_the_model_lacks_ends_llama_server(
    base: CausalBase, model: Path, plain: list[Said], asked: list[list[int]], tmp_path: Path
) -> None:
    """With all answers in it: why `write_static_lookup` is told how many tokens there are."""
    path = tmp_path / "unknown.bin"
    path.write_bytes(row((plain[0].tokens[0], plain[0].tokens[1]), (base.vocab_size, 9)))
    with llama_server(model, *with_file(path), log=tmp_path / "log") as server:
        with pytest.raises(OSError, match=r"closed connection|refused|reset"):
            server.answer(asked[0], most=MOST)
        assert not server.is_up()


@pytest.mark.parametrize("damage", ["cut", "counts", "missing"])
def test_a_damaged_file_ends_llama_server_at_its_start(
    base: CausalBase, model: Path, pack: RecipePack, tmp_path: Path, damage: str
) -> None:
    path = written(base, pack, tmp_path / "recipes.bin")
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(whole[:-3] if damage == "cut" else row((1, 2), (3, 0)))
    with pytest.raises(DidNotStart), llama_server(model, *with_file(path), log=tmp_path / "log"):
        pass
