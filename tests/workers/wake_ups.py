"""The workers' queue in Redis, as an onlooker sees it."""

import base64
import json
from uuid import UUID

import redis
from django.conf import settings

from backend.queue import QUEUE


def wake_ups_for(compile_id: UUID) -> int:
    """How many messages in the queue ask to look at this compile."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        bodies = [base64.b64decode(json.loads(message)["body"]) for message in client.lrange(QUEUE, 0, -1)]
    return sum(json.loads(body)[1].get("compile_id") == str(compile_id) for body in bodies)
