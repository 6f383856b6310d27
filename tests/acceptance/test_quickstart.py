"""The script of docs/quickstart.md, as it stands there: from a CSV to an answer by OpenAI's own client, and a bill."""

import re
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Customer, Deployment
from tests.acceptance.first_compile_page import LABELS, make_desk
from tests.acceptance.teacher_server import TeacherServer

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]
PAGE = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")


def test_the_quickstart_ends_with_an_answer_and_a_bill(
    deployment: Deployment,
    customer: Customer,
    teacher: TeacherServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_desk(tmp_path, monkeypatch)
    environment = {"KOLM_API_URL": deployment.url, "KOLM_API_KEY": customer.key, "TEACHER_KEY": "sk-test-of-the-page"}
    environment |= {"TEACHER_URL": teacher.url, "TEACHER_MODEL": "steady-page"}
    for name, value in (environment | {"TEACHER_PRICE_IN": "0.5", "TEACHER_PRICE_OUT": "1.5"}).items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {}
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), "quickstart.md", "exec"), names)
    names["openai"].close()
    printed = capsys.readouterr().out
    assert names["answer"].choices[0].message.content in LABELS
    assert re.search(r"^student +\d+\.\d % ", printed, re.MULTILINE), printed
    assert names["bill"].total_microusd > 0
