"""Those who wait look by themselves while nobody can be heard."""

import asyncio
import time

import pytest

from backend.valkey import pause
from backend.wakeups_async import listening_async


@pytest.mark.nightly
def test_who_listens_looks_again_soon_while_valkey_hangs() -> None:
    """Its connection stands, so that an announcement is missed without a fault; before, each wait was a whole one."""

    async def listen() -> float:
        async with listening_async("hanging") as wait:
            await wait(5.0)  # the subscription's own announcement
            pause.note_failure()
            began = time.monotonic()
            await wait(60.0)
            return time.monotonic() - began

    try:
        assert asyncio.run(listen()) < 30
    finally:
        pause.note_answer()
