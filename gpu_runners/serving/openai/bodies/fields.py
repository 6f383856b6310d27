"""One body's parameters, each read once with its type and bounds; what is left over at the end is refused by name."""

from collections.abc import Mapping
from typing import Any

from gpu_runners.serving.openai.bodies.bad_request import BadRequest


class Fields:
    """JSON null counts as absent, as OpenAI has it."""

    def __init__(self, body: Mapping[str, Any], *, inside: str = "") -> None:
        self._left = {name: value for name, value in body.items() if value is not None}
        self._inside = inside

    def take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self.bad(name, "is a text")
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise self.bad(name, "is true or false")
        return bool(value)

    def whole(self, name: str, *, low: int, high: int) -> int | None:
        value = self.take(name)
        if value is not None and (type(value) is not int or not low <= value <= high):
            raise self.bad(name, f"is a whole number from {low} to {high}")
        return value

    def number(self, name: str, *, low: float, high: float) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.bad(name, f"is a number from {low:g} to {high:g}")
        return float(value)

    def take_fixed(self, name: str, *allowed: Any) -> None:
        """A parameter that is known but does nothing here but at these values."""
        value = self.take(name)
        if value is not None and value not in allowed:
            raise self.bad(name, "is not supported by this server", code="unsupported_parameter")

    def end(self) -> None:
        for name in self._left:
            raise self.bad(name[:64], "is not supported by this server", code="unsupported_parameter")

    def bad(self, name: str, why: str, *, code: str = "invalid_value") -> BadRequest:
        return BadRequest(f"`{self._inside}{name}` {why}.", param=f"{self._inside}{name}", code=code)
