"""Templates rendered in a process apart: the text is the library's, and what does not come to an end costs one
chat."""

import fcntl
import os
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.rendering.renderer import RENDERER, Renderer, Renderers, TemplateRefused
from tests.gpu_runners.small_base import TEMPLATE, make_base

CHAT: list[Any] = [{"role": "user", "content": "Where is it?"}]
ENDLESS = "{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3
DOUBLING = "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}"
NESTED = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"

POWER, PRODUCT, WIDE = "{{ 99999999 ** 99999999 }}", "{{ 'x' * 99999999999 }}", "{{ 'x'.center(99999999999) }}"
HOSTILE = [ENDLESS, DOUBLING, NESTED, POWER, PRODUCT, WIDE]


@pytest.fixture
def strict() -> Iterator[Renderer]:
    renderer = Renderer(most_s=0.5, most_bytes=256 << 20)
    yield renderer
    renderer.close()


def stop(process: "subprocess.Popen[str]") -> None:
    """Stop it, and return when it stands."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def wait_until_written(process: "subprocess.Popen[str]") -> None:
    """Wait until bytes lie in the pipe to a process that stands."""
    assert process.stdin is not None
    until = time.monotonic() + 30
    while struct.unpack("i", fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, b"\0" * 4)) == (0,):
        assert time.monotonic() < until, "no chat was written"
        time.sleep(0.01)


def rendered(renderer: Renderer | Renderers, template: str) -> str:
    return renderer.render(template, CHAT, tools=None, asks=True, more={"bos_token": "<s>"})


def test_a_chat_is_rendered_as_the_library_does_it() -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{{ tools | tojson }}"
    )
    assert rendered(RENDERER, template) == "<s>user: Where is it?\nnull"


def test_a_refusal_and_a_fault_of_a_template_have_their_words() -> None:
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        rendered(RENDERER, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateRefused, match="division"):
        rendered(RENDERER, "{{ 1 / 0 }}")
    with pytest.raises(TemplateRefused):
        rendered(RENDERER, "{% if %}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_a_process_that_is_ended_from_outside_is_no_fault_of_the_template(strict: Renderer, number: int) -> None:
    assert rendered(strict, "{{ messages[0].content }}") == "Where is it?"
    process = strict._process
    assert process is not None
    process.send_signal(signal.SIGTERM)  # as a service's end sends it to all of its processes: not this one's business
    assert rendered(strict, "{{ messages[0].content }}") == "Where is it?"
    stop(process)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(rendered, strict, "{{ messages[0].content }}")
        wait_until_written(process)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        with pytest.raises(JobFailed) as caught:
            waiting.result()
    assert (caught.value.code, caught.value.retryable) == ("runner_crashed", True)
    assert rendered(strict, "{{ messages[0].content }}") == "Where is it?"


def test_an_exchange_that_is_broken_off_leaves_its_answer_to_nobody(
    strict: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rendered(strict, "one") == "one"
    assert strict._process is not None
    pipe = strict._process.stdout
    assert pipe is not None

    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(strict._process, "stdout", SimpleNamespace(readline=interrupted, close=pipe.close))
    with pytest.raises(KeyboardInterrupt):
        rendered(strict, "two")
    assert rendered(strict, "three") == "three"


def test_a_short_chat_does_not_stand_behind_a_long_one() -> None:
    both = Renderers()
    busy = both._free.get()
    try:
        assert rendered(both, "short") == "short"
    finally:
        both._free.put(busy)
        both.close()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "template",
    [
        ENDLESS,
        DOUBLING,
        NESTED,
        "{{ 99999999 ** 99999999 }}",
        "{{ 'x' * 99999999999 }}",
        "{{ 'x'.center(99999999999) }}",
    ],
)
def test_a_template_without_an_end_costs_its_chat_and_not_the_next_one(strict: Renderer, template: str) -> None:
    with pytest.raises(JobFailed, match="takes more than") as caught:
        rendered(strict, template)
    assert (caught.value.code, caught.value.retryable) == ("bad_chat", False)
    assert rendered(strict, "{{ messages[0].content }}") == "Where is it?"


@pytest.mark.nightly
def test_a_base_with_such_a_template_answers_the_other_inputs(tmp_path: Path) -> None:
    """As a runner's playground meets it: the template runs with each input."""
    folder = make_base(tmp_path / "small").folder
    (folder / "chat_template.jinja").write_text(
        "{% if 'forever' in messages[-1].content %}" + ENDLESS + "{% endif %}" + TEMPLATE
    )
    base = open_causal_base("small", base_dir=tmp_path)
    with pytest.raises(JobFailed) as caught:
        prompt_ids(base, "", "forever and a day")
    assert caught.value.code == "bad_chat"
    assert prompt_ids(base, "", "the order of tea")
