"""Django's cache as JSON: who can write Valkey must not run code here, as a pickle would. Only JSON's values are
kept; a tuple comes back as a list."""

import json
from typing import Any

from django.core.cache.backends.redis import RedisCache, RedisCacheClient

from backend.valkey import PausingRedis


class JsonSerializer:
    def dumps(self, value: Any) -> bytes | int:
        """An integer as itself, which Redis can count up."""
        return value if type(value) is int else json.dumps(value).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data)


class _Client(RedisCacheClient):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._client = PausingRedis


class PausingCache(RedisCache):
    """Django's cache in Valkey, which is left alone for a moment when it did not answer."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._class = _Client
