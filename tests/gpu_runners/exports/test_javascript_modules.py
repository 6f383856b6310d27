"""The modules beside an exported run.mjs give the numbers of their counterparts in Python."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.domain.extraction.word_boundaries import continues_words
from gpu_runners.exports.onnx.runners import JAVASCRIPT
from gpu_runners.models.bases import Base
from gpu_runners.models.spans.kinds import kinds_of
from gpu_runners.models.spans.tokens import SpanTokenizer
from gpu_runners.models.spans.viterbi import likeliest

TEXTS = [
    "",
    " ",
    "Hi Anna,\nsend 2 LAMPS to iCity. 12a_b! Thanks\r\nBo",
    "Zu\u0308rich Größe ÉTÉ 日本で3つ \U0001f600 Ⅷ ǅ ﬁne ½",
    "order #W0110-A... Really?! yes",
    "a\u0345b \u0334x \u05d0\u05b0 हिन्दी \u1fc1o ᾳ각 각 𠮷野 x\u200dy ٣٤a",
]
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node on this machine")


def ask(folder: Path, module: str, function: str, asked: list[Any]) -> Any:
    """Return what the function gives for each list of arguments."""
    shutil.copy(JAVASCRIPT / f"{module}.mjs", folder)
    program = "import { %s as f } from './%s.mjs'; console.log(JSON.stringify(%s.map((one) => f(...one))));"
    (folder / "ask.mjs").write_text(program % (function, module, json.dumps(asked)), "utf-8")
    done = subprocess.run(["node", "ask.mjs"], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_javascript_counts_the_kinds_of_python(base: Base, tmp_path: Path) -> None:
    read = SpanTokenizer(base, max_tokens=256).read(TEXTS)
    asked = [[text, one.offsets] for text, one in zip(TEXTS, read, strict=True)]
    wanted = [list(kinds_of(text, one.offsets)) for text, one in zip(TEXTS, read, strict=True)]
    assert ask(tmp_path, "kinds", "kindsOf", asked) == wanted


def test_javascript_ends_words_where_python_does(tmp_path: Path) -> None:
    asked = [(text, [(at, at + 1) for at in range(len(text))]) for text in TEXTS]
    wanted = [list(continues_words(text, offsets)) for text, offsets in asked]
    assert any(any(row) and not all(row) for row in wanted)
    assert ask(tmp_path, "word_boundaries", "continuesWords", asked) == wanted


def test_javascript_finds_the_likeliest_tags_of_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sizes = [(int(rng.integers(0, 9)), 1 + 2 * int(rng.integers(0, 4))) for _ in range(60)]
    rows = [rng.normal(size=size) for size in sizes]
    glued = [[bool(i) and bool(rng.integers(2)) for i in range(n)] if k % 2 else [] for k, (n, _) in enumerate(sizes)]
    asked = [[one.tolist(), own] for one, own in zip(rows, glued, strict=True)]
    wanted = [likeliest(one, own).tolist() for one, own in zip(rows, glued, strict=True)]
    assert ask(tmp_path, "viterbi", "likeliest", asked) == wanted
