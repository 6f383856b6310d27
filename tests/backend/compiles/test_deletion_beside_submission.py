"""An upload is deleted in the moment in which a compile that names it is submitted."""

import threading

import pytest
from django.db import connection
from django.test import Client

from backend.compiles.lifecycle import submission
from backend.tenants.isolation import tenant_scope
from tests.backend.compiles.test_upload_deletion import send
from tests.compile_factories import small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


def test_a_deletion_waits_for_the_compile_that_is_being_submitted():
    """Before, both went through: the compile began with an upload that was gone."""
    tenant = make_tenant()
    secret = make_api_key(tenant)
    upload = send(Client(), secret)
    has_submitted, may_commit, answers = threading.Event(), threading.Event(), []

    def submit_slowly() -> None:
        try:
            with tenant_scope(tenant.id):
                submission.submit(tenant.id, small_spec(examples={"upload": upload, "holdout": 0.5}), api_key_id=None)
                has_submitted.set()
                may_commit.wait(10)
        finally:
            connection.close()

    def remove() -> None:
        try:
            answers.append(Client().delete(f"/v1/uploads/{upload}", headers=bearer(secret)).status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=submit_slowly), threading.Thread(target=remove)]
    threads[0].start()
    assert has_submitted.wait(10)
    threads[1].start()
    threads[1].join(0.5)
    assert not answers, "it waits"
    may_commit.set()
    for thread in threads:
        thread.join(10)
    assert answers == [409]
