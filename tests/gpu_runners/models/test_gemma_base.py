"""A real language model as a base, where `make base-gemma` has made one."""

from pathlib import Path

import pytest

from deploy.gemma.__main__ import NAME
from gpu_runners.engine.sync import generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.protocol import GenerationRequest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]  # its tokenizer alone takes 13 s of an idle core
BASES = Path(__file__).parents[3] / "build" / "bases"
SHOTS = (
    "Name the capital of the country.\n\ncountry: France\ncapital: Paris\n\ncountry: Spain\ncapital: Madrid\n\n"
    "country: Japan\ncapital:"
)


@pytest.fixture(scope="module")
def gemma() -> CausalBase:
    if not (BASES / NAME).is_dir():
        pytest.skip("no Gemma here: `make base-gemma` fetches and converts it")
    return open_causal_base(NAME, base_dir=BASES)


def test_its_turns_end_where_its_template_ends_them(gemma: CausalBase) -> None:
    ends = [gemma.tokenizer.convert_ids_to_tokens(i) for i in gemma.eos_ids]
    assert ends == ["<end_of_turn>", "<eos>"]
    assert gemma.template.folds_system is False  # ours has a place for it, at the head of the user's first turn
    prompt = gemma.tokenizer.decode(prompt_ids(gemma, "Be brief.", "Hello"))
    assert prompt == "<bos><start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n<start_of_turn>model\n"


def test_our_engine_reads_it_right(gemma: CausalBase) -> None:
    """It is no instruct model: it goes on with what it is shown."""
    prompt = (gemma.tokenizer.bos_token_id, *gemma.tokenizer.encode(SHOTS, add_special_tokens=False))
    engine = TorchEngine(gemma)
    try:
        (answer,) = generate_all(engine, [GenerationRequest(id="0", prompt=prompt, max_new_tokens=4)])
    finally:
        engine.stop()
    assert answer.text.strip().startswith("Tokyo")
