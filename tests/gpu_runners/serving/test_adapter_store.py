"""From a grant to an adapter: who gets one, from where, and who never does."""

import asyncio
import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.domain.serving.wire import Grant
from gpu_runners.errors import JobFailed
from gpu_runners.http import Unreachable
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.serving.adapter_files import KolmFiles
from gpu_runners.serving.adapter_store import AdapterStore
from gpu_runners.serving.backend_client import ArtifactRefused
from gpu_runners.serving.openai.responder import Refusal
from tests.backend.domain.artifact.tiny_kolm import KEY, keyring
from tests.gpu_runners.serving.small_adapters import ALICE, BOB, grant_for, kolm_of, paper_base, pinned_keyring, signed

BASE = paper_base()


class Place:
    """A store over a backend that is a dict, and a clock that is set."""

    def __init__(self, folder: Path, *, ram_bytes: int = 1 << 20, disk_bytes: int = 1 << 20) -> None:
        self.folder, self.now = folder, 1000.0
        self.kolms: dict[str, bytes] = {}
        self.fetched: Counter[str] = Counter()
        self.status = 0
        self.bases = {BASE.name: BASE}
        self.keyring = pinned_keyring(folder)
        self.sizes = (ram_bytes, disk_bytes)
        self.store = self.made()

    def made(self) -> AdapterStore:
        return AdapterStore(
            kolms=KolmFiles(self.folder / "artifacts", max_bytes=self.sizes[1]),
            unpacked=self.folder / "unpacked",
            ram_bytes=self.sizes[0],
            fetch=self.fetch,
            open_base=self.open_base,
            keyring=self.keyring,
            clock=lambda: self.now,
        )

    async def fetch(self, sha256: str, token: str) -> bytes:
        self.fetched[sha256] += 1
        await asyncio.sleep(0.001)
        if self.status == 503:
            raise Unreachable("down")
        if self.status or sha256 not in self.kolms:
            raise ArtifactRefused(self.status or 404, "no")
        return self.kolms[sha256]

    def open_base(self, name: str) -> CausalBase:
        if name not in self.bases:
            raise JobFailed("not here", code="unknown_base")
        return self.bases[name]

    def put(self, data: bytes) -> bytes:
        self.kolms[hashlib.sha256(data).hexdigest()] = data
        return data

    async def use(self, grant: Grant) -> Path:
        async with self.store.using(grant, signed(grant)) as adapter:
            return adapter.ref.folder

    def used(self, grant: Grant) -> Path:
        return asyncio.run(self.use(grant))

    def refusal(self, grant: Grant) -> Refusal:
        with pytest.raises(Refusal) as refused:
            self.used(grant)
        return refused.value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_granted_adapter_is_a_peft_folder_named_by_its_digest(place: Place) -> None:
    data = place.put(kolm_of(BASE, variant="rslora"))
    grant = grant_for(data)
    folder = place.used(grant)
    assert folder == place.folder / "unpacked" / grant.sha256
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["r"], config["use_rslora"]) == (4, True)
    assert (place.folder / "unpacked").stat().st_mode & 0o777 == 0o700
    assert (place.folder / "artifacts").stat().st_mode & 0o777 == 0o700


def test_many_at_once_fetch_an_adapter_once(place: Place) -> None:
    grant = grant_for(place.put(kolm_of(BASE)))

    async def scene() -> None:
        await asyncio.gather(*(place.use(grant) for _ in range(20)))

    asyncio.run(scene())
    assert place.fetched == {grant.sha256: 1}


def test_who_goes_away_while_it_is_fetched_does_not_spoil_it_for_the_others(place: Place) -> None:
    grant = grant_for(place.put(kolm_of(BASE)))

    async def scene() -> Path:
        first = asyncio.create_task(place.use(grant))
        second = asyncio.create_task(place.use(grant))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(scene()).exists()
    assert place.fetched[grant.sha256] == 1


def test_a_grant_of_another_tenant_is_refused_also_when_the_adapter_is_warm(place: Place) -> None:
    data = place.put(kolm_of(BASE, tenant=ALICE))
    assert place.refusal(grant_for(data, tenant=BOB)).status == 403
    place.used(grant_for(data, tenant=ALICE))
    refused = place.refusal(grant_for(data, tenant=BOB))
    assert (refused.status, refused.code) == (403, "artifact_refused")
    assert place.used(grant_for(data, tenant=ALICE)).exists()


def test_a_refusal_of_one_tenant_is_not_remembered_against_another(place: Place) -> None:
    data = place.put(kolm_of(BASE, tenant=ALICE))
    for _ in range(3):
        place.refusal(grant_for(data, tenant=BOB))
    assert place.used(grant_for(data, tenant=ALICE)).exists()


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a" * 63 + "/", "A" * 64, "", "." * 64, "a" * 65])
def test_a_name_that_is_no_digest_reaches_neither_disk_nor_backend(place: Place, name: str) -> None:
    before = sorted(place.folder.rglob("*"))
    assert place.refusal(grant_for(b"", sha256=name)).code == "bad_grant"
    place.store.revoke(name)
    assert sorted(place.folder.rglob("*")) == before
    assert not place.fetched


def test_other_bytes_than_the_grant_names_are_refused(place: Place) -> None:
    grant = grant_for(kolm_of(BASE, seed=1))
    place.kolms[grant.sha256] = kolm_of(BASE, seed=2)
    assert place.refusal(grant).code == "artifact_altered"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"base_sha256": "0" * 64}, "base_mismatch"),
        ({"tokenizer_sha256": "0" * 64}, "tokenizer_mismatch"),
        ({"format": "kolm.lora-encoder/1"}, "unsupported_task"),
    ],
)
def test_an_adapter_for_another_base_or_tokenizer_is_refused(place: Place, changed: dict[str, str], code: str) -> None:
    assert place.refusal(grant_for(place.put(kolm_of(BASE, **changed)))).code == code


def test_a_base_that_is_not_served_here_is_refused(place: Place) -> None:
    assert place.refusal(grant_for(place.put(kolm_of(paper_base("elsewhere"))))).code == "unknown_base"


def test_a_key_that_is_revoked_later_closes_what_is_on_disk_too(place: Place) -> None:
    grant = grant_for(place.put(kolm_of(BASE)))
    place.used(grant)
    place.keyring.write_text(json.dumps(keyring(KEY, revoked_at="2026-11-22T00:00:00Z")))
    place.store = place.made()
    assert place.refusal(grant).code == "artifact_untrusted"
    place.keyring.unlink()
    place.now += 10
    assert place.refusal(grant).code == "artifact_untrusted"


def test_a_file_that_changed_on_disk_is_fetched_again(place: Place) -> None:
    grant = grant_for(place.put(kolm_of(BASE)))
    place.used(grant)
    (path,) = (place.folder / "artifacts").glob("*.kolm")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    place.store = place.made()
    assert place.used(grant).exists()
    assert place.fetched[grant.sha256] == 2
    assert hashlib.sha256(path.read_bytes()).hexdigest() == grant.sha256


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_folder_that_changed_between_two_uses_is_made_anew(place: Place, keeps_time: bool) -> None:
    """Also where its size and times were put back, once it has not been used for a while."""
    import os

    grant = grant_for(place.put(kolm_of(BASE)))
    file = place.used(grant) / "adapter_model.safetensors"
    good, facts = file.read_bytes(), file.stat()
    file.write_bytes(good[:-4] + b"\x00\x00\x80\x3f")
    if keeps_time:
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        place.now += 60
    place.used(grant)
    assert file.read_bytes() == good
    assert place.store.counts["damaged"] == 1


def test_a_restart_reads_the_disk_and_trusts_no_folder_that_it_did_not_write(place: Place) -> None:
    grant = grant_for(place.put(kolm_of(BASE)))
    file = place.used(grant) / "adapter_model.safetensors"
    good = file.read_bytes()
    file.write_bytes(b"left by somebody")
    place.store = place.made()
    place.used(grant)
    assert file.read_bytes() == good
    assert place.fetched[grant.sha256] == 1
    assert place.store.counts["disk_hits"] == 1


def test_refusals_are_remembered_for_a_few_seconds_and_outages_are_not(place: Place) -> None:
    grant = grant_for(kolm_of(BASE))
    for _ in range(5):
        assert place.refusal(grant).code == "artifact_not_available"
    assert place.fetched[grant.sha256] == 1
    place.put(kolm_of(BASE))
    place.now += 6
    assert place.used(grant).exists()
    other = grant_for(place.put(kolm_of(BASE, seed=5)))
    place.status = 503
    assert place.refusal(other).retry_after_s
    place.status = 0
    assert place.used(other).exists()


def test_a_revoked_adapter_is_gone_from_every_tier_and_stays_gone(place: Place) -> None:
    grant = grant_for(place.put(kolm_of(BASE)))
    folder = place.used(grant)
    place.store.revoke(grant.sha256)
    assert not folder.exists()
    assert not list((place.folder / "artifacts").glob("*.kolm"))
    assert place.refusal(grant).code == "artifact_revoked"
    assert place.store.names() == []
    assert place.fetched[grant.sha256] == 1


def test_an_adapter_revoked_while_it_is_fetched_is_not_handed_out(place: Place) -> None:
    grant = grant_for(place.put(kolm_of(BASE)))

    async def scene() -> None:
        task = asyncio.create_task(place.use(grant))
        await asyncio.sleep(0)
        place.store.revoke(grant.sha256)
        with pytest.raises(Refusal, match="revoked"):
            await task

    asyncio.run(scene())
    assert not list((place.folder / "artifacts").glob("*.kolm"))


def test_numbers_are_one_an_adapter_and_never_used_for_another(place: Place) -> None:
    async def number(seed: int) -> int:
        grant = grant_for(place.put(kolm_of(BASE, seed=seed)))
        async with place.store.using(grant, signed(grant)) as adapter:
            return adapter.ref.number

    async def scene() -> tuple[list[int], list[int]]:
        first = [await number(seed) for seed in range(4)]
        for sha256 in place.store.names():
            place.store._drop(sha256)
        return first, [await number(seed) for seed in reversed(range(4))]

    first, again = asyncio.run(scene())
    assert len(set(first)) == 4
    assert min(first) >= 1
    assert again == first[::-1]


def test_memory_keeps_the_last_used_and_the_pinned_and_never_drops_what_is_in_use(tmp_path: Path) -> None:
    place = Place(tmp_path, ram_bytes=3000)
    grants = [grant_for(place.put(kolm_of(BASE, seed=seed))) for seed in range(4)]
    grants[0] = grant_for(place.kolms[grants[0].sha256], pinned=True)

    async def scene() -> None:
        size = (await folder_size(place, grants[0])) or 0
        place.store._ram_bytes = 2 * size
        async with place.store.using(grants[1], signed(grants[1])) as held:
            for grant in (*grants[2:], *grants[2:]):
                await place.use(grant)
                assert held.ref.folder.exists()
                assert (place.folder / "unpacked" / grants[0].sha256).exists()

    asyncio.run(scene())
    assert place.store.counts["evicted"] >= 3
    assert place.store.n_on_disk == 4


async def folder_size(place: Place, grant: Grant) -> int:
    async with place.store.using(grant, signed(grant)) as adapter:
        return adapter.unpacked.n_bytes


def test_the_disk_keeps_to_its_budget(tmp_path: Path) -> None:
    size = len(kolm_of(BASE))
    place = Place(tmp_path, disk_bytes=int(2.5 * size))
    for seed in range(5):
        place.used(grant_for(place.put(kolm_of(BASE, seed=seed))))
    assert len(list((tmp_path / "artifacts").glob("*.kolm"))) == 2
    assert place.store.disk_bytes <= 2.5 * size


def test_an_idle_adapter_leaves_memory_when_its_deployment_says_so(place: Place) -> None:
    idle = grant_for(place.put(kolm_of(BASE, seed=1)), idle_s=60)
    steady = grant_for(place.put(kolm_of(BASE, seed=2)))
    pinned = grant_for(place.put(kolm_of(BASE, seed=3)), idle_s=60, pinned=True)
    for grant in (idle, steady, pinned):
        place.used(grant)
    assert place.store.idle() == []
    place.now += 61
    assert place.store.idle() == [idle.sha256]
    assert place.store.n_in_ram == 2
    assert place.used(idle).exists()
    assert place.fetched[idle.sha256] == 1


def test_a_tenant_whose_name_is_no_uuid_gets_nothing(place: Place) -> None:
    data = place.put(kolm_of(BASE))
    assert place.refusal(grant_for(data, tenant=base64.b64encode(b"x").decode())).status == 403


def test_an_artifact_without_its_prompt_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.gpu_runners.serving import small_adapters

    real: Callable[..., bytes] = small_adapters.build_kolm
    without = lambda content, **rest: real({k: v for k, v in content.items() if k != "prompt.json"}, **rest)  # noqa: E731
    monkeypatch.setattr(small_adapters, "build_kolm", without)
    assert place.refusal(grant_for(place.put(kolm_of(BASE)))).code == "invalid_artifact"
