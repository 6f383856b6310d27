"""`kolm open`: which address it prints, and when a browser is opened."""

import webbrowser

import pytest

from gpu_runners.cli.main import main


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was given, on a machine with a screen."""
    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", urls.append)
    for name in ("CI", "SSH_CONNECTION", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("KOLM_API_URL", "https://kolm.example")
    monkeypatch.setenv("KOLM_API_KEY", "sk_test_x")
    return urls


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ([], "/app/"),
        (["cmp_1"], "/app/compiles/cmp_1"),
        (["art_1"], "/app/artifacts/art_1"),
        (["dep_1"], "/app/deployments/dep_1"),
        (["cmp_../../x"], "/app/compiles/cmp_..%2F..%2Fx"),
    ],
)
def test_the_page_is_printed_and_opened(
    opened: list[str], capsys: pytest.CaptureFixture[str], words: list[str], path: str
) -> None:
    assert main(["open", *words]) == 0
    assert capsys.readouterr().out.strip() == f"https://kolm.example{path}"
    assert opened == [f"https://kolm.example{path}"]


@pytest.mark.parametrize("where", ["--print", "CI", "SSH_CONNECTION"])
def test_where_nobody_would_see_it_the_address_is_printed_alone(
    opened: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    if where.isupper():
        monkeypatch.setenv(where, "1")
    assert main(["open", "cmp_1", *([where] if where == "--print" else [])]) == 0
    assert "/app/compiles/cmp_1" in capsys.readouterr().out
    assert opened == []


def test_an_id_without_a_page_is_a_usage_error(opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", f"tk_{'0' * 26}"]) == 2
    assert "has no page of its own" in capsys.readouterr().err
    assert opened == []
