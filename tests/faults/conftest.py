"""A supervised deployment of its own: these tests kill its processes, and its supervisor starts them again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.deployment import Customer, Deployment, supervised
from tests.acceptance.teacher_server import TeacherServer, teacher_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.faults)


@pytest.fixture(scope="session")
def teacher() -> Iterator[TeacherServer]:
    with teacher_server() as server:
        yield server


@pytest.fixture(scope="session")
def deployment(teacher: TeacherServer) -> Iterator[Deployment]:
    with supervised(allow_teachers=teacher.origin) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def customer(deployment: Deployment) -> Iterator[Customer]:
    with deployment.customer("Acme") as customer:
        yield customer
