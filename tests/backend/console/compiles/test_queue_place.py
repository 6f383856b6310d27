"""The line of a step that waits for a runner, on the compile's page."""

import pytest

from backend.compiles.models import StepRun
from backend.domain.lifecycle import CompileStatus, StepName, StepStatus
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import change, make_compile, public_id
from tests.factories import make_tenant

WAITS = "waiting for a runner: place 3 of 12, starts in about 4 min"


@pytest.mark.django_db
def test_a_step_that_waits_for_a_runner_says_its_place_and_its_expected_start() -> None:
    tenant = make_tenant()
    row = make_compile(tenant)
    change(row, status=CompileStatus.RUNNING)
    with tenant_scope(tenant.id):
        StepRun.objects.filter(compile=row, name=StepName.DISTILLATION).update(
            status=StepStatus.RUNNING, message=WAITS, queue={"place": 3, "of": 12, "expected_start_at": None}
        )
    assert WAITS in get(logged_in(tenant, Role.VIEWER), f"/app/compiles/{public_id(row)}")
