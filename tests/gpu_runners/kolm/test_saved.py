"""Where a client asks and as whom."""

import json
import stat
from pathlib import Path

import pytest

from gpu_runners import kolm
from gpu_runners.kolm import saved
from gpu_runners.kolm.saved import Access, Profile, access, forget, save


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str]:
    return {"KOLM_CONFIG": str(tmp_path / "deep" / "config.json")}


def test_what_is_given_wins_over_the_environment_and_that_over_what_was_saved(config: dict[str, str]) -> None:
    save("default", Profile(url="https://saved.example", key="sk_saved"), config)
    environ = config | {"KOLM_API_URL": "https://env.example", "KOLM_API_KEY": "sk_env"}
    assert access("sk_given", "https://given.example/", None, environ) == Access(
        url="https://given.example", key="sk_given"
    )
    assert access(None, None, None, environ) == Access(url="https://env.example", key="sk_env")
    assert access(None, None, None, config) == Access(url="https://saved.example", key="sk_saved")
    assert access(None, None, None, {"HOME": "/nowhere"}) == Access(url=saved.DEFAULT_URL, key=None)


def test_a_saved_key_goes_to_its_own_address_alone(config: dict[str, str]) -> None:
    save("default", Profile(url="https://saved.example", key="sk_saved"), config)
    assert access(None, "https://elsewhere.example", None, config).key is None
    assert access(None, None, None, config | {"KOLM_API_URL": "https://elsewhere.example"}).key is None
    assert access(None, "https://SAVED.example/", None, config).key == "sk_saved"


def test_a_named_profile_wins_over_the_environment_and_must_be_there(config: dict[str, str]) -> None:
    save("staging", Profile(url="https://staging.example", key="sk_staging"), config)
    environ = config | {"KOLM_API_URL": "https://env.example", "KOLM_API_KEY": "sk_env"}
    assert access(None, None, "staging", environ) == Access(url="https://staging.example", key="sk_staging")
    with pytest.raises(kolm.KolmError, match="no saved login 'prod'"):
        access(None, None, "prod", environ)


def test_the_file_is_the_owners_alone_and_forgets_one_log_in_at_a_time(config: dict[str, str]) -> None:
    path = save("default", Profile(url="https://a.example", key="sk_a"), config)
    save("other", Profile(url="https://b.example", key="sk_b"), config)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (forget("default", config), forget("default", config)) == (True, False)
    assert list(json.loads(path.read_text())["profiles"]) == ["other"]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("text", ["{", "[]", '{"profiles": {"default": {"url": "x"}}}', '{"profiles": 3}'])
def test_a_broken_file_is_named_and_not_overwritten(config: dict[str, str], text: str) -> None:
    path = Path(config["KOLM_CONFIG"])
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(kolm.KolmError, match=r"config\.json"):
        access(None, None, None, config)
    with pytest.raises(kolm.KolmError):
        save("default", Profile(url="https://a.example", key="sk_a"), config)
    assert path.read_text() == text
