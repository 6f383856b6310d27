"""`rotate_sealing_key [--new | --reseal | --drop]`: docs/keys.md says when. Without an option: how far it is."""

import base64
import secrets
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from backend.domain.errors import CustomerError
from backend.tenants.key_rotation.resealing import count_others, needed_keys, reseal
from backend.tenants.key_rotation.secrets_file import changing_secrets
from backend.tenants.sealing import key_id
from backend.usage.accounts import all_tenants

SAY_EVERY_S = 1.0


class Command(BaseCommand):
    help = "Change the key that seals customers' secrets at rest; without an option, say how far that is."

    def add_arguments(self, parser: CommandParser) -> None:
        part = parser.add_mutually_exclusive_group()
        part.add_argument("--new", action="store_true", help="embedded stack: make a key; the next `make up` takes it")
        part.add_argument(
            "--reseal", action="store_true", help="seal everything again now instead of in the background"
        )
        part.add_argument("--drop", action="store_true", help="take the other keys away, if no value needs them")

    def handle(self, *args: Any, new: bool, reseal: bool, drop: bool, **options: Any) -> None:
        try:
            if new:
                self._make()
            elif reseal:
                self._reseal()
            elif drop:
                self._drop()
            else:
                self._show()
        except CustomerError as fault:
            raise CommandError(fault.message) from None

    def _make(self) -> None:
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        with changing_secrets() as kept:
            others = [kept["sealing_key"], *kept.get("sealing_keys_other", ())]
            kept |= {"sealing_key": key, "sealing_keys_other": others}
        self.stdout.write(f"The key {key_id(key)} seals from the next `make down && make up` on; {_ids(others)} open.")

    def _reseal(self) -> None:
        tenants, reported_at, n_sealed, n_broken = all_tenants(), 0.0, 0, 0
        n_all = count_others(tenants)
        for batch in reseal(tenants):
            n_sealed, n_broken = n_sealed + batch.n_sealed, n_broken + batch.n_broken
            if time.monotonic() - reported_at > SAY_EVERY_S:
                reported_at = time.monotonic()
                self.stdout.write(f"{n_sealed} of {n_all} values are sealed under {_present()}")
                self.stdout.flush()
        self.stdout.write(f"{n_sealed} values are sealed under {_present()}; {count_others(tenants)} are not")
        if n_broken:
            self.stdout.write(f"{n_broken} values open with no key that is configured; they are as they were")

    def _show(self) -> None:
        self.stdout.write(f"{_present()} seals; {_ids(settings.KOLM_SEALING_KEYS_OTHER) or 'no other key'} open(s)")
        for key, n in sorted(needed_keys(all_tenants()).items()):
            self.stdout.write(f"{n} values need {key}" if key else f"{n} values open with no key that is configured")

    def _drop(self) -> None:
        needed = {key: n for key, n in needed_keys(all_tenants()).items() if key not in ("", _present())}
        if needed:
            counts = ", ".join(f"{n} need {key}" for key, n in sorted(needed.items()))
            raise CommandError(f"Not every value is sealed under the present key: {counts}. Run --reseal, or wait.")
        if settings.KOLM_SECRETS_FILE is None:
            self.stdout.write("No value needs another key: take KOLM_SEALING_KEYS_OTHER out of the environment.")
            return
        with changing_secrets() as kept:
            if kept["sealing_key"] != settings.KOLM_SEALING_KEY:
                raise CommandError("secrets.json has another key than this process: `make down && make up` first.")
            kept["sealing_keys_other"] = []
        self.stdout.write("No value needs another key, and secrets.json has none any more.")


def _present() -> str:
    return key_id(settings.KOLM_SEALING_KEY)


def _ids(keys: Any) -> str:
    return ", ".join(key_id(key) for key in keys)
