"""The sender as a process: what a kill in the middle of a request costs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from backend.webhooks import claims
from backend.webhooks.models import DeliveryStatus
from deploy.embedded.home import ROOT
from deploy.embedded.stack import EmbeddedServices
from tests.factories import make_tenant
from tests.webhook_factories import deliveries_of, eventually, make_endpoint, make_event, pass_time
from tests.webhook_receiver import Answer, Receiver

pytestmark = pytest.mark.usefixtures("committed_db", "nothing_due")


@contextmanager
def sender_process(services: EmbeddedServices, receiver: Receiver) -> Iterator["subprocess.Popen[bytes]"]:
    address = conninfo_to_dict(services.env["DATABASE_URL"])
    port, name = address["port"], connection.settings_dict["NAME"]
    url = f"postgresql://{address['user']}:{address['password']}@{address['host']}:{port}/{name}"
    assert make_conninfo(url)
    environ = os.environ | services.env | {"DATABASE_URL": url, "KOLM_ALLOW_PRIVATE_WEBHOOKS": receiver.origin}
    process = subprocess.Popen([sys.executable, "-m", "workers.deliveries"], cwd=ROOT, env=environ)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.nightly
def test_a_kill_between_sending_and_recording_sends_again_under_the_same_id(
    receiver: Receiver, embedded_services: EmbeddedServices
) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    receiver.answer = lambda received: Answer(hold_s=30)
    make_event(tenant)
    with sender_process(embedded_services, receiver) as first:
        eventually(lambda: receiver.got)
        first.send_signal(signal.SIGKILL)
        first.wait()
    receiver.answer = lambda received: Answer()
    pass_time(tenant, timedelta(seconds=claims.LEASE_S))
    with sender_process(embedded_services, receiver) as second:
        eventually(lambda: deliveries_of(tenant)[0].status == DeliveryStatus.SUCCEEDED)
        second.send_signal(signal.SIGTERM)
        assert second.wait(20) == 0
    assert len(receiver.got) == 2
    assert len({received.headers["webhook-id"] for received in receiver.got}) == 1
    assert len({received.body for received in receiver.got}) == 1


@pytest.mark.nightly
def test_a_stop_lets_what_is_under_way_be_recorded(receiver: Receiver, embedded_services: EmbeddedServices) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    receiver.answer = lambda received: Answer(hold_s=2)
    make_event(tenant)
    with sender_process(embedded_services, receiver) as process:
        eventually(lambda: receiver.got)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    (row,) = deliveries_of(tenant)
    assert (row.status, row.attempts) == (DeliveryStatus.SUCCEEDED, 1)
