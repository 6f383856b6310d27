"""The demo's receiver: takes what is signed with its secret, once each, and nothing else."""

import json

import pytest

from backend.domain.webhooks.signing import Scheme, new_secret, signed_headers
from deploy.demo import demo_webhook
from deploy.demo.demo_webhook import Inbox
from deploy.embedded.faults import CannotStart

SECRET = new_secret(Scheme.V1, bytes(32))


def arrive(inbox: Inbox, type: str, *, id: str = "evt_1", secret: str = SECRET) -> int:
    import time

    body = json.dumps({"type": type, "timestamp": "", "data": {"object": {"id": "cmp_1"}}}).encode()
    headers = signed_headers([secret], id, int(time.time()), body)
    return inbox.take({name.title(): value for name, value in headers.items()}, body)


def test_it_reports_what_was_signed_and_counts_a_repeated_delivery_once() -> None:
    inbox = Inbox(SECRET)
    assert [arrive(inbox, "compile.queued", id=id) for id in ("evt_1", "evt_1", "evt_2")] == [204] * 3
    assert arrive(inbox, "compile.succeeded", id="evt_3") == 204
    told = inbox.report("cmp_1").plain
    assert "3 delivered and verified" in told
    assert "2 compile.queued, 1 compile.succeeded" in told


def test_what_another_secret_signed_is_refused_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_webhook, "WAIT_S", 0.05)
    inbox = Inbox(SECRET)
    assert arrive(inbox, "compile.succeeded", secret=new_secret(Scheme.V1, b"x" * 32)) == 400
    with pytest.raises(CannotStart, match="No webhook"):
        inbox.report("cmp_1")
