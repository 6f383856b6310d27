"""The files for other deployments agree with the code and with each other; nothing here starts a container."""

import re
import shutil
import subprocess
from pathlib import Path

import yaml

from deploy.embedded import postgres
from deploy.setup import ROOT

COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
EXAMPLE = (ROOT / "deploy" / "env.example").read_text()
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
VARIABLE = re.compile(r"\b((?:KOLM|DATABASE|REDIS)_[A-Z_]+)\b")
OF_BASES = {"KOLM_BASE_DIR", "KOLM_BASE_CACHE_BYTES", "HF_HUB_OFFLINE", "HF_TOKEN", "HF_ENDPOINT"}
# set by the stack for itself, or read by compose only
NOT_A_SETTING = {"KOLM_OWNER_PASSWORD", "KOLM_APP_PASSWORD", "REDIS_PASSWORD"}


def documented() -> set[str]:
    return set(re.findall(r"^#?([A-Z][A-Z_]+)=", EXAMPLE, re.MULTILINE))


def read_by_the_code() -> set[str]:
    """Names of variables in the sources, as quoted strings."""
    sources = [path for top in ("backend", "workers", "gpu_runners") for path in (ROOT / top).rglob("*.py")]
    names = {name for path in sources for name in re.findall(r'"((?:KOLM|DATABASE|REDIS)_[A-Z_]+)"', path.read_text())}
    return {name for name in names if not name.endswith("_BYTES")}


def test_every_variable_that_the_code_reads_is_explained() -> None:
    assert read_by_the_code() - documented() == set()


def test_compose_sets_only_variables_that_exist() -> None:
    services = COMPOSE["services"].values()
    used = {name for service in services for name in service.get("environment", {}) if VARIABLE.fullmatch(name)}
    assert used - documented() - NOT_A_SETTING == set()


def settings_of_the_backend() -> set[str]:
    """Names of the variables whose comment in env.example begins with a process of the backend, in brackets."""
    processes: set[str] = set()
    names = set()
    for line in EXAMPLE.splitlines():
        if tag := re.match(r"# \[([a-z, ]+)\]", line):
            processes = set(tag[1].split(", "))
        elif (variable := re.match(r"#?([A-Z][A-Z_]+)=", line)) and processes & {"web", "worker", "upkeep"}:
            names.add(variable[1])
    return names


def test_compose_passes_on_every_setting_of_the_backend() -> None:
    of_the_image, of_the_embedded_stack = "OMP_NUM_THREADS", "KOLM_SILENT_S"
    for process in ("web", "worker", "upkeep", "deliveries"):
        reaching = set(COMPOSE["services"][process]["environment"])
        assert settings_of_the_backend() - reaching == {of_the_image, of_the_embedded_stack}
    assert COMPOSE["services"]["web"]["environment"]["KOLM_MAIL_URL"] == "${KOLM_MAIL_URL:?}"


def test_compose_starts_every_part_of_the_stack() -> None:
    parts = {"postgres", "valkey", "grammar", "web", "worker", "upkeep", "deliveries", "runner", "server"}
    assert parts | {"migrate"} == set(COMPOSE["services"])


def test_no_recipe_lets_a_text_into_the_databases_log() -> None:
    """What tests/deploy/test_postgres_log.py proves of the embedded server's settings, said of the others too."""
    needed = {
        name: value for name, value in postgres.SETTINGS.items() if name.startswith("log_") and name != "log_timezone"
    }
    needed["track_activities"] = "off"
    command = COMPOSE["services"]["postgres"]["command"]
    assert {f"{name}={value}" for name, value in needed.items()} <= set(command)
    assert command.count("-c") == len(command[1:]) / 2
    for name, value in needed.items():
        assert f"{name} = {value}" in EXAMPLE


def test_no_recipe_writes_what_was_asked_into_a_log() -> None:
    """Access logs hold paths, and in those stand tokens of invitations; a crash report of Valkey quotes clients."""
    assert "access-log" not in DOCKERFILE + str(COMPOSE)
    valkey = COMPOSE["services"]["valkey"]["command"]
    assert valkey[valkey.index("--hide-user-data-from-log") + 1] == "yes"


def test_compose_gives_the_runner_no_database_and_no_broker() -> None:
    environment = COMPOSE["services"]["runner"]["environment"]
    own = {"KOLM_API_URL", "KOLM_RUNNER_TOKEN", "KOLM_KEYRING", "KOLM_HEARTBEAT_FILE"}
    assert set(environment) == own | OF_BASES


OF_SERVER = {"KOLM_API_URL", "KOLM_RUNNER_TOKEN", "KOLM_KEYRING", "KOLM_MAX_BLOB_BYTES"}


def test_compose_gives_the_server_no_database_and_no_broker_and_publishes_no_port_of_it() -> None:
    server = COMPOSE["services"]["server"]
    own = {name for name in server["environment"] if name.startswith("KOLM_SERVER_")}
    assert set(server["environment"]) - own == OF_SERVER | OF_BASES
    assert "ports" not in server


def test_whether_a_runner_asks_a_hub_is_the_operators_choice() -> None:
    """A constant in an image or a recipe would take it; an empty value in compose passes on what the operator set."""
    runner = DOCKERFILE.split(" AS runner\n")[1]
    assert "HF_HUB_OFFLINE=" not in runner.replace("HF_HUB_OFFLINE=1 forbids it", "")
    for part in ("runner", "server"):
        environment = COMPOSE["services"][part]["environment"]
        assert {environment[name] for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_ENDPOINT")} == {None}
    assert "HF_HUB_OFFLINE" not in {line.partition("=")[0] for line in EXAMPLE.splitlines()}


def test_only_the_migration_knows_the_owner() -> None:
    services = COMPOSE["services"]
    knowing = [name for name, service in services.items() if "DATABASE_OWNER_URL" in service.get("environment", {})]
    assert knowing == ["migrate"]


def test_every_build_target_and_copied_file_exists() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    targets = {s["build"]["target"] for s in COMPOSE["services"].values() if "build" in s}
    assert targets <= stages
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_the_images_run_as_a_user_without_rights() -> None:
    for target in ("web", "worker", "runner"):
        stage = DOCKERFILE.split(f" AS {target}\n")[1].split("\nFROM ")[0]
        assert "\nUSER kolm" in stage


def test_shell_scripts_parse() -> None:
    scripts = [ROOT / ".ci" / "run", *(ROOT / "deploy").rglob("*.sh")]
    for script in scripts:
        assert subprocess.run([shutil.which("bash") or "sh", "-n", str(script)]).returncode == 0
        assert Path(script).stat().st_mode & 0o111


def test_ci_runs_what_make_test_runs() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
