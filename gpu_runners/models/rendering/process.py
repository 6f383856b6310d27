"""`python -m gpu_runners.models.rendering.process SECONDS BYTES`: renders chat templates under limits.

A template is a program. Its sandbox keeps it from files and from the interpreter, not from loops without an end, from
texts that double until the memory is full, or from lists that hold themselves ten times over; most of that happens in
calls that nothing inside Python can interrupt. So the kernel holds the limits: a timer of processor seconds that ends
this process, and a limit on its memory.

It reads JSON lines on stdin, a chat each, and answers with a line: `{"text": ...}` or `{"refusal": ...}`.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import jinja2

from gpu_runners.models.rendering.renderer import USED_UP

# what a template may come to
_FAULTS = (
    jinja2.TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
MOST_CHARS = 1 << 23  # of a rendered chat; a million tokens have about half of that


def main(most_s: float, most_bytes: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # it ends with its parent, by the end of stdin
        signal.signal(number, signal.SIG_IGN)
    from transformers.utils.chat_template_utils import render_jinja_template

    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no reply
    _limit_memory(most_bytes)
    for line in sys.stdin:
        _limit_time(most_s)
        reply = json.dumps(_reply(render_jinja_template, json.loads(line)))
        _limit_time(0.0)
        replies.write(reply + "\n")
        replies.flush()


def _reply(render: Any, request: dict[str, Any]) -> dict[str, str]:
    try:
        texts, _ = render(
            conversations=[request["messages"]],
            tools=request["tools"],
            chat_template=request["template"],
            add_generation_prompt=request["asks"],
            **request["more"],
        )
        text = str(texts[0])
    except MemoryError:
        os._exit(USED_UP)  # nothing can be relied on any more
    except _FAULTS as error:
        return {"refusal": f"{error}"[:500] or type(error).__name__}
    if len(text) > MOST_CHARS:
        os._exit(USED_UP)
    return {"text": text}


def _limit_time(most_s: float) -> None:
    """End this process after so many of its processor's seconds; 0: never."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, most_s)


def _limit_memory(most_bytes: int) -> None:
    """Allow what this process has by now, and so many bytes more. A system without such limits has the timer alone."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + most_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
