"""The rules of the house that import-linter cannot see."""

import ast
import os
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.urls import URLPattern, URLResolver, get_resolver

from backend.console.middleware import is_console
from backend.queue import TaskName
from backend.tenants.isolation import TenantOwned

ROOT = Path(__file__).parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = next(c["layers"] for c in CONTRACTS if c.get("containers") == ["backend"])
HEIGHT = {name: -i for i, row in enumerate(LAYERS) for name in re.findall(r"\w+", row)}
OURS = [model for model in apps.get_models() if model.__module__.startswith("backend.")]
DOMAIN = sorted((ROOT / "backend/domain").rglob("*.py"))
DOMAIN_MAY_IMPORT = sys.stdlib_module_names | {
    "backend",
    "numpy",
    "scipy",
    "re2",  # customers' regular expressions
    "cryptography",
    "rfc8785",
    "pydantic",
    "pydantic_core",
}
COLUMNAR_FILES = {"pyarrow"}  # an extra, inside the functions of the one file that reads them (decision 0059)
SLOW = {"jsonschema"}  # half a second of CPU: the API's description wants it, no process at its start
MODEL_LIBRARIES = {"torch", "transformers", "peft", "sentence_transformers", "sklearn", "vllm"}
COLD_START = 5.0  # times what Django, numpy and pydantic take: seconds would depend on what else the machine does
# Tables that processes for all tenants read; each says so in its module's docstring.
SHARED_TABLES = {
    "AccountDefault",
    "BillingDue",
    "BillingTurn",
    "CatalogEntry",
    "CompileLease",
    "DeliveryDue",
    "Epoch",
    "Erasure",
    "Incident",
    "Outbox",
    "PriceBookRow",
    "RetentionDue",
    "RevokedDigest",
    "Runner",
    "RunnerJob",
    "RunnerPlace",
    "RunnerTurn",
    "Server",
    "SigningKey",
    "StripeEvent",
}


def imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            roots.add(str(node.module).split(".")[0])
    return roots


@pytest.mark.parametrize("path", DOMAIN, ids=[path.name for path in DOMAIN])
def test_domain_imports_mathematics_and_cryptography_alone(path):
    is_columnar = path == ROOT / "backend/domain/source_data/columnar.py"
    assert imported_roots(path) <= DOMAIN_MAY_IMPORT | (COLUMNAR_FILES if is_columnar else set())


def test_the_offline_verifier_needs_cryptography_alone():
    assert imported_roots(ROOT / "backend/domain/artifact/kolm_verify.py") <= sys.stdlib_module_names | {"cryptography"}


@pytest.mark.parametrize("model", OURS, ids=lambda m: m._meta.label)
def test_foreign_keys_point_down_the_layers(model):
    """A ForeignKey("app.Model") string is an import that import-linter cannot read."""
    for field in model._meta.get_fields():
        target = field.related_model if field.concrete and field.is_relation else None
        if target in OURS:
            assert HEIGHT[target._meta.app_label] <= HEIGHT[model._meta.app_label], field


@pytest.mark.parametrize("model", OURS, ids=lambda m: m._meta.label)
def test_every_table_belongs_to_a_tenant_or_says_why_not(model):
    names = [field.name for field in model._meta.concrete_fields]
    if issubclass(model, TenantOwned):
        assert names[0] == "tenant_id"
    else:
        assert model.__name__ in SHARED_TABLES | {"Tenant"}


@pytest.mark.parametrize("model", [m for m in OURS if issubclass(m, TenantOwned)], ids=lambda m: m._meta.label)
def test_an_index_of_a_tenants_table_begins_with_the_tenant(model):
    for index in model._meta.indexes:
        if index.name.endswith("_ttl"):  # the sweep of what has expired serves all tenants
            continue
        assert index.fields[:1] == ["tenant_id"], index.name
    for constraint in model._meta.constraints:
        if getattr(constraint, "fields", ()):
            assert constraint.fields[0] == "tenant_id", constraint.name


def test_every_app_of_ours_is_a_layer():
    assert {model._meta.app_label for model in OURS} <= set(HEIGHT)


def test_the_web_process_starts_without_a_model_library_and_soon():
    code = "import backend.asgi, backend.urls, sys; print(*sys.modules)"
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("KOLM_", "DATABASE_", "REDIS_", "DJANGO_"))
    }
    ours_s, djangos_s = [], []
    for _ in range(3):
        out, took_s = processor_time_of(code, environment)
        assert not (MODEL_LIBRARIES | SLOW) & set(out.split())
        ours_s.append(took_s)
        djangos_s.append(processor_time_of("import django.core.asgi, django.urls, numpy, pydantic", environment)[1])
        if min(ours_s) < COLD_START * min(djangos_s):
            return
    pytest.fail(f"a cold start takes {min(ours_s):.2f} s of processor time, its libraries {min(djangos_s):.2f} s of it")


def processor_time_of(code: str, environment: Mapping[str, str]) -> tuple[str, float]:
    """What the code prints in a Python of its own, and the seconds that it worked."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_workers_know_every_task_by_name():
    """`backend.queue` cannot import the workers, so a name may be the only thing they share."""
    tasks = (ROOT / "workers/tasks.py").read_text()
    for task in TaskName:
        assert f"name=TaskName.{task.name}.value" in tasks, task


def test_no_address_is_there_twice_and_public_ones_are_under_v1():
    paths = routes(get_resolver().url_patterns)
    assert len(paths) == len(set(paths))
    api = ("v1/", "internal/", ".well-known/", "docs", "healthz", "readyz")
    assert [p for p in paths if not p.startswith(api) and not is_console(f"/{p}")] == []


def routes(patterns: list[URLPattern | URLResolver], prefix: str = "") -> list[str]:
    found = []
    for pattern in patterns:
        here = prefix + str(pattern.pattern)
        found += routes(pattern.url_patterns, here) if isinstance(pattern, URLResolver) else [here]
    return found


def test_settings_are_those_of_production():
    assert settings.DEBUG is False
    assert settings.USE_TZ
    assert settings.DATABASES["default"]["ATOMIC_REQUESTS"]
    assert [name.rpartition(".")[2] for name in settings.REST_FRAMEWORK["DEFAULT_RENDERER_CLASSES"]] == ["JSONRenderer"]
