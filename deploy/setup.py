"""Makes .venv from requirements.lock.txt: `python3 -m deploy.setup`. Done once; then it only compares two
stamps.

Standard library only, and in the Python of 2016 down to the version check, so that an old interpreter gets far enough
to say that it is too old. Nothing is compiled: every package comes as a wheel, or set-up says which one has none for
this machine.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "kolm needs Python 3.11 or newer and this is %d.%d (%s); name a newer one: make PYTHON=/path/to/python3.11 ..."
        % (sys.version_info[0], sys.version_info[1], sys.executable)
    )

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock.txt"
LOG = VENV / "setup.log"
CONSOLE = ROOT / "backend" / "console"
# of npm's packages, what pages load; axe-core is for the browser tests alone and stays in node_modules
VENDORED = {
    "htmx.min.js": "htmx.org/dist/htmx.min.js",
    "uplot.min.js": "uplot/dist/uPlot.iife.min.js",
    "uplot.min.css": "uplot/dist/uPlot.min.css",
    "codemirror.LICENSE.txt": "@codemirror/view/LICENSE",
}
# CodeMirror comes as modules: package.json's `bundle` makes one file of what this names (docs/decisions/0057)
BUNDLE_OF, BUNDLE = "codemirror.mjs", "codemirror.min.js"
TORCH = "torch==2.13.0"
NEEDED_BYTES = 4 << 30

# what pip says -> what we say; the first that occurs in its output wins
PIP_FAULTS = (
    ("No space left on device", "The disk filled up while installing; free some space and run this again."),
    (
        "DO NOT MATCH THE HASHES",
        "A downloaded package is not the one that kolm was locked to: its hash differs. Try another network or mirror.",
    ),
    (
        "No matching distribution found",
        "No prebuilt wheel of a package fits this Python and machine (Linux with glibc 2.28, Macs with Apple silicon).",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "The package index's certificate is not trusted here; behind a proxy, set PIP_CERT to its certificate.",
    ),
    (
        "NewConnectionError",
        "The package index cannot be reached; the first set-up needs the network (or a mirror in PIP_INDEX_URL).",
    ),
    (
        "ConnectTimeout",
        "The package index cannot be reached; the first set-up needs the network (or a mirror in PIP_INDEX_URL).",
    ),
    (
        "Permission denied",
        "A file in .venv belongs to somebody else (was it made by root?); remove .venv and run this again.",
    ),
)


class CannotSetUp(Exception):
    """One sentence for a person."""


def main() -> int:
    try:
        check_machine()
        set_up()
    except CannotSetUp as fault:
        print(fault, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Set-up was interrupted; running it again goes on from here.", file=sys.stderr)
        return 1
    return 0


def check_machine() -> None:
    if sys.platform not in ("linux", "darwin"):
        raise CannotSetUp("The embedded stack runs on Linux and macOS; on Windows use it inside WSL.")
    if not os.access(ROOT, os.W_OK):
        raise CannotSetUp(f"{ROOT} cannot be written by this user; clone kolm to a folder of your own.")


def set_up() -> None:
    packages = digest(LOCK.read_bytes() + TORCH.encode() + sys.version.encode())
    project = digest((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode())
    if stamp("packages") != packages:
        check_space()
        started = time.monotonic()
        create_venv()
        say("installing the locked packages (500 MB) ...")
        pip("install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK))
        # torch last and by itself: its wheel and hash differ by platform; what it depends on is here already
        say("installing torch (200 MB; on Linux far more unless PIP_EXTRA_INDEX_URL names a CPU index) ...")
        pip("install", "--only-binary", ":all:", TORCH)
        pip("check")
        set_stamp("packages", packages)
        say(f"installed in {time.monotonic() - started:.0f} s")
    if stamp("project") != project:
        remove_old_name()
        pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        set_stamp("project", project)
    set_up_assets()
    set_up_docs()


def remove_old_name() -> None:
    """Remove the distribution under the name `kolm`, which it had until 2026-11 and which a stranger's on the public
    index has (docs/decisions/0023). Before the new one is installed, for both own bin/kolm."""
    if any(VENV.glob("lib/python*/site-packages/kolm-*.dist-info")):
        pip("uninstall", "--yes", "kolm")


def set_up_assets() -> None:
    """Set up what the console's pages load: npm's packages by their lock, our own files, hashed names for all of
    them."""
    own = sorted(path for path in (CONSOLE / "static").rglob("*") if path.is_file())
    fetched = b"".join((CONSOLE / name).read_bytes() for name in ("package-lock.json", "package.json", BUNDLE_OF))
    files = digest(b"".join(str(path).encode() + path.read_bytes() for path in own) + fetched)
    if stamp("assets") == files and (ROOT / "build" / "static" / "staticfiles.json").exists():
        return
    if stamp("npm") != digest(fetched) or not (CONSOLE / "vendored").exists():
        say("fetching the console's scripts (npm) ...")
        fetch_scripts()
        set_stamp("npm", digest(fetched))
    unused = ("--ignore", "rest_framework", "--ignore", "django_htmx")
    collect = ("manage.py", "collectstatic", "--noinput", "--verbosity", "0", *unused)
    within = (str(VENV / "bin" / "python"), "-m", "deploy.embedded.within", "--no-servers")
    run(*within, *collect, fault="The console's static files could not be collected.")
    set_stamp("assets", files)


def set_up_docs() -> None:
    """Build the documentation that the web process serves at /docs/, in a few seconds; it looks itself whether anything
    has changed. A page that cannot be built is no reason not to start: /docs/ then says what to run."""
    within = (str(VENV / "bin" / "python"), "-m", "deploy.docs_site")
    try:
        run(*within, fault="The documentation could not be built; the rest works.")
    except CannotSetUp as fault:
        say(str(fault))


def fetch_scripts() -> None:
    npm = shutil.which("npm") or node_wheel()
    run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=CONSOLE, fault="npm could not fetch them.")
    shutil.rmtree(CONSOLE / "vendored", ignore_errors=True)
    (CONSOLE / "vendored" / "vendor").mkdir(parents=True)
    for name, path in VENDORED.items():
        shutil.copyfile(CONSOLE / "node_modules" / path, CONSOLE / "vendored" / "vendor" / name)
    bundle = (npm, "run", "--silent", "bundle", "--", f"--outfile=vendored/vendor/{BUNDLE}")
    run(*bundle, cwd=CONSOLE, fault="The spec editor's script could not be bundled.")


def node_wheel() -> str:
    """npm from a wheel, into .venv: for machines without Node.js."""
    lock = ROOT / "deploy" / "node.lock.txt"
    pip("install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(lock))
    return str(VENV / "bin" / "npm")


def run(*command: str, fault: str, cwd: Path = ROOT) -> None:
    with LOG.open("a+") as log:
        start = log.seek(0, os.SEEK_END)
        environ = {**os.environ, "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=cwd, env=environ
        )
        log.seek(start)
        output = log.read()
    if done.returncode != 0:
        raise CannotSetUp(f"{fault} Last words: {_last_line(output)} (all of them: {LOG})")


def create_venv() -> None:
    """A new .venv, unless the one there was made by this very interpreter."""
    python = VENV / "bin" / "python"
    if python.exists() and _version_of(python) == sys.version:
        return
    say(f"creating {VENV} ...")
    shutil.rmtree(VENV, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        output = done.stdout + done.stderr
        if "ensurepip" in output:
            raise CannotSetUp(
                "Python's venv module is incomplete here; on Debian and Ubuntu: apt install python3-venv."
            )
        raise CannotSetUp(f"Python could not create {VENV}: {_last_line(output)}")


def _version_of(python: Path) -> str:
    done = subprocess.run(
        [str(python), "-c", "import sys, pip; print(sys.version, end='')"], capture_output=True, text=True
    )
    return done.stdout


def check_space() -> None:
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES:
        raise CannotSetUp(
            f"Only {free / (1 << 30):.1f} GiB are free at {ROOT}; the first set-up needs {NEEDED_BYTES >> 30} GiB."
        )


def pip(*arguments: str) -> None:
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    with LOG.open("a+") as log:
        start = log.seek(0, os.SEEK_END)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
        log.seek(start)
        output = log.read()
    if done.returncode != 0:
        sentence = next(
            (sentence for sign, sentence in PIP_FAULTS if sign in output), "pip could not install the packages."
        )
        raise CannotSetUp(f"{sentence} pip's last words: {_last_line(output)} (all of them: {LOG})")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["nothing"])[-1].strip()[:300]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stamp(name: str) -> str:
    path = VENV / f".kolm-{name}"
    return path.read_text() if path.exists() else ""


def set_stamp(name: str, value: str) -> None:
    (VENV / f".kolm-{name}").write_text(value)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
