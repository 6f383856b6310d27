"""The kinds of tokens that an exported JavaScript counts, beside Python's."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_runners.exports.onnx.span_runners import KINDS_JAVASCRIPT
from gpu_runners.models.bases import Base
from gpu_runners.models.spans.kinds import kinds_of
from gpu_runners.models.spans.tokens import SpanTokenizer

TEXTS = [
    "",
    " ",
    "Hi Anna,\nsend 2 LAMPS to iCity. 12a_b! Thanks\r\nBo",
    "Zu\u0308rich Größe ÉTÉ 日本で3つ \U0001f600 Ⅷ ǅ ﬁne ½",
    "order #W0110-A... Really?! yes",
]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node on this machine")
def test_javascript_counts_the_kinds_of_python(base: Base, tmp_path: Path) -> None:
    (tmp_path / "kinds.mjs").write_text(KINDS_JAVASCRIPT, "utf-8")
    read = SpanTokenizer(base, max_tokens=256).read(TEXTS)
    asked = [[text, one.offsets] for text, one in zip(TEXTS, read, strict=True)]
    program = "import { kindsOf } from './kinds.mjs'; console.log(JSON.stringify(%s.map((one) => kindsOf(...one))));"
    (tmp_path / "run.mjs").write_text(program % json.dumps(asked), "utf-8")
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [list(kinds_of(text, one.offsets)) for text, one in zip(TEXTS, read, strict=True)]
