"""The line of an empty list is pasted as it stands: a shell with nothing but the key runs it and the API takes it."""

import html
import json
import re
import subprocess

import pytest
from django.test import Client

from tests.backend.console.pages import get, logged_in
from tests.compile_factories import make_artifact, make_compile, make_receipts
from tests.factories import make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

LINE = re.compile(r'<div class="empty">.*?<code>(curl [^<]*)</code>', re.DOTALL)
LISTS = (
    *("", "compiles", "artifacts", "drafts", "playground", "deployments", "bills", "bills?month=2025-01", "budgets"),
    *("webhooks", "api_keys", "audit", "settings"),
)
CURL = """curl() { /usr/bin/env python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@"; }
"""


def lines_of(person, page):
    return [html.unescape(line) for line in LINE.findall(get(person, f"/app/{page}"))]


def sent(line, key):
    """Run the line in a shell of which only `curl` is another: it gives its words, and they are sent to the API."""
    env = {"KOLM_API_KEY": key, "PATH": "/usr/bin:/bin"}
    shell = subprocess.run(["bash", "-c", CURL + line], capture_output=True, text=True, check=True, env=env)
    words = json.loads(shell.stdout)
    after = {flag: [words[i + 1] for i, word in enumerate(words) if word == flag] for flag in ("-H", "-d", "-X")}
    headers = dict(header.split(": ", 1) for header in after["-H"])
    address = next(word for word in words if "/v1/" in word)
    method = (after["-X"] or ["POST" if after["-d"] else "GET"])[0]
    body = after["-d"][0] if after["-d"] else ""
    return Client().generic(method, "/v1/" + address.split("/v1/", 1)[1], body, "application/json", headers=headers)


def test_every_line_of_an_empty_list_is_taken_by_the_api():
    tenant = make_tenant()
    person = logged_in(tenant)
    key = make_api_key(tenant)
    n_written = 0
    for page in LISTS:
        for line in lines_of(person, page):
            answer = sent(line, key)
            assert answer.status_code in (200, 201, 202), (page, line, answer.content[:600])
            n_written += "-d" in line
    assert n_written >= 6


def test_a_team_with_an_artifact_is_given_the_line_that_deploys_it():
    tenant = make_tenant()
    row = make_compile(tenant)
    make_receipts(row)
    make_artifact(row)
    (line,) = lines_of(logged_in(tenant), "deployments")
    assert '"artifact": "art_' in line
