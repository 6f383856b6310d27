"""Django's cache as JSON: who can write Valkey must not run code here, as a pickle would. Only JSON's values are
kept; a tuple comes back as a list."""

import json
from typing import Any


class JsonSerializer:
    def dumps(self, value: Any) -> bytes | int:
        """An integer as itself, which Redis can count up."""
        return value if type(value) is int else json.dumps(value).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data)
