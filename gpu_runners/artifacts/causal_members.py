"""Which kind of model an artifact holds, told without importing torch."""

import json
from collections.abc import Mapping

from gpu_runners.models.causal_adapter import FORMAT


def is_causal(members: Mapping[str, bytes]) -> bool:
    """Whether a verified artifact's adapter is for a causal base."""
    try:
        config = json.loads(members.get("adapter_config.json", b"{}"))
    except ValueError:
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT
