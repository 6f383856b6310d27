"""A worker that dies right before or right after any SQL statement: whatever the statement was, the next one goes on
from there."""

import os
import subprocess

import pytest

from backend.domain.artifact import kolm_verify
from deploy.embedded.layout import Part
from tests.acceptance.books import check_books, check_nothing_doubled, check_waste, uuid_of
from tests.acceptance.deployment import Customer, Deployment
from tests.acceptance.specs import small_spec
from tests.faults.killing import asleep
from tests.faults.lives import __name__ as LIVES

pytestmark = pytest.mark.timeout(1200)
# another seed, other deaths: a nightly run names more of them, as in KOLM_FAULT_SEEDS=1,2,3
SEEDS = [int(seed) for seed in os.environ.get("KOLM_FAULT_SEEDS", "20261121").split(",")]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_of_many_short_lives_ends_like_one_long_life(
    deployment: Deployment, customer: Customer, seed: int
) -> None:
    with asleep(deployment.child(Part.UPKEEP)), asleep(deployment.child(Part.WORKER)):
        compile_id = customer.compile(small_spec("lives"))
        arguments = (str(uuid_of(compile_id)), str(seed))
        lives = deployment.python("-m", LIVES, *arguments, stdout=subprocess.PIPE, KOLM_DB_POOL="0")
        said = lives.communicate(timeout=280)[0].decode()
    assert lives.returncode == 0, said
    n_lives, *ends = said.split()
    n_deaths = sum(end != "lived" for end in ends)
    print(f"{n_lives} lives, {n_deaths} deaths: {ends}")
    assert n_deaths > 5
    compile = customer.succeeded(compile_id, within_s=1)
    check_books(deployment, customer, compile)
    check_nothing_doubled(deployment, customer, compile)
    check_waste(deployment, compile, n_deaths=n_deaths)
    keyring = customer.api.get("/.well-known/kolm-keys.json").json()
    assert kolm_verify.verify(customer.download(compile["artifact"]), keyring).exit_code == 0
