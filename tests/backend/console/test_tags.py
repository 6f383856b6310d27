"""How the console writes things. Exact, because bills are written this way."""

import subprocess
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.paginator import Paginator
from django.template import engines
from django.test import RequestFactory

from backend.console.api_examples import curl_line
from backend.console.templatetags import kolm

HOSTILE = "<img src=x onerror=alert(1)>\"'"


def render(source: str, **context: object) -> str:
    request = RequestFactory().get("/app/x?status=failed&page=2")
    return engines["django"].from_string("{% load kolm %}" + source).render(context, request)


@pytest.mark.parametrize(
    ("microusd", "text", "exact"),
    [
        (0, "$0", "$0"),
        (1, "$0.000001", "$0.000001"),
        (1_234_567, "$1.23", "$1.234567"),
        (18_912, "$0.0189", "$0.018912"),
        (-500_000, "−$0.50", "-$0.50"),
        (12_345_678_900_000, "$12,345,678.90", "$12,345,678.90"),
        (Decimal("0.5"), "$0", "$0"),
    ],
)
def test_money_has_three_digits_and_the_exact_amount_on_hover(microusd, text, exact):
    value = exact.replace("$", "").replace(",", "")
    assert kolm.usd(microusd) == f'<data class="usd" value="{value}" title="{exact}">{text}</data>'


def test_no_amount_is_a_dash_and_a_difference_has_its_sign():
    assert (kolm.usd(None), kolm.signed_usd(None)) == ("–", "–")
    assert kolm.signed_usd(1_250_000).endswith(">+$1.25</data>")
    assert kolm.signed_usd(-1).endswith(">−$0.000001</data>")
    shown = engines["django"].from_string("{% load kolm %}{{ amount|signed_usd }}").render({"amount": 1_250_000})
    assert shown == kolm.signed_usd(1_250_000)  # an element and not its text


def test_a_time_is_in_milliseconds_however_short():
    assert [kolm.ms(us) for us in (18, 83_399, 201_768_000, None)] == ["0.018 ms", "83.4 ms", "201,768 ms", "–"]


def test_shares_and_sizes():
    assert (kolm.ppm(897_000), kolm.ppm(None), kolm.ppm_pct(897_400), kolm.pct(0.05)) == (
        "0.897",
        "–",
        "89.7 %",
        "5.0 %",
    )
    assert [kolm.bytes_(n) for n in (0, 999, 1_234_567, 5 * 10**15)] == ["0 B", "999 B", "1.2 MB", "5000.0 TB"]
    assert kolm.count(1_234_567) == "1,234,567"


def test_durations():
    seconds = [0.344, 12, 59.6, 185, 7_620, 356_400, timedelta(minutes=3, seconds=5)]
    texts = ["0.34 s", "12 s", "1 m 00 s", "3 m 05 s", "2 h 07 m", "4 d 3 h", "3 m 05 s"]
    assert [kolm.duration_s(s) for s in seconds] == texts


def test_times_are_for_machines_too():
    at = datetime(2026, 11, 22, 1, 50, 3, tzinfo=UTC)
    assert kolm.when(at) == '<time datetime="2026-11-22T01:50:03+00:00" data-local>22 Nov 2026 01:50 UTC</time>'
    assert kolm.when("2026-11-22T02:50:03+01:00") == kolm.when(at)
    assert kolm.when(None) == "–"
    now = datetime.now(UTC)
    for seconds, words in ((3, "just now"), (70, "1 minute ago"), (3 * 3600, "3 hours ago"), (-7200, "in 2 hours")):
        assert f">{words}<" in kolm.ago(now - timedelta(seconds=seconds))


def test_what_people_wrote_is_escaped_everywhere():
    sources = [
        "{% copyable v %}",
        "{% copyable v v v %}",
        "{% status v %}",
        "{% help_tip v %}",
        '{% api_request "GET" v %}',
        "{% empty v v v v %}",
        "{{ v|json_pretty }}",
        "{{ v|words }}",
        "{{ v|keys }}",
        "{% chart v %}",
    ]
    for source in sources:
        assert "<img" not in render(source, v=HOSTILE), source


def test_a_status_is_a_dot_and_a_word():
    assert kolm.status_dot("gate_failed") == (
        '<span class="status"><span class="dot warn" aria-hidden="true"></span>gate failed</span>'
    )
    assert 'dot live"' in kolm.status_dot("running")
    assert 'dot idle"' in kolm.status_dot("never heard of")


def test_an_id_is_whole_and_can_be_copied():
    html = kolm.copyable("cmp_0123", "/app/compiles/cmp_0123")
    assert '<a class="mono" href="/app/compiles/cmp_0123">cmp_0123</a>' in html
    assert 'data-copy="cmp_0123"' in html
    assert kolm.copyable("") == "–"


def test_the_shown_request_is_what_a_shell_would_send(settings):
    """Given to a real shell, whose curl is an `echo` of its words."""
    settings.KOLM_PUBLIC_URL = "https://kolm.example"
    body = {"url": "https://x.example/it's", "events": ["*"]}
    line = curl_line("POST", "/v1/webhook_endpoints?a=b&c=$(id)", body)
    script = 'curl() { printf "%s\\n" "$@"; }; date() { echo 17; }; unset RANDOM; KOLM_API_KEY=sk_test\n' + line
    words = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert words == [
        "-s",
        "https://kolm.example/v1/webhook_endpoints?a=b&c=$(id)",
        "-H",
        "Authorization: Bearer sk_test",
        "-H",
        "Idempotency-Key: 17-",
        "-H",
        "Content-Type: application/json",
        "-d",
        '{"url": "https://x.example/it\'s", "events": ["*"]}',
    ]
    assert curl_line("DELETE", "/v1/x").startswith("curl -s -X DELETE https://kolm.example/v1/x ")
    assert "-X" not in curl_line("GET", "/v1/x")


def test_the_pager_keeps_the_filters():
    page = Paginator(range(100), 10).page(2)
    html = render("{% pager p %}", p=page)
    assert 'href="?status=failed&amp;page=1"' in html
    assert 'href="?status=failed&amp;page=3"' in html
    assert "11–20 of 100" in html
    cursors = render("{% pager p %}", p={"next": "abc", "previous": None})
    assert "cursor=abc" in cursors
    assert "Newer" not in cursors
