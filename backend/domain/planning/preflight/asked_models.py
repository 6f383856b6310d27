"""The models that a compile asks over HTTP: its teacher, the fallback model that writes candidates where the teacher's
repeat themselves, the model that gives rewards, and the one that judges drafts in the teacher's place. A preflight asks
each of them one tiny call, for a line of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from backend.domain.planning.preflight.lines import Check
from backend.domain.spec.defaults import judged_by, reward_of, rewarded_by
from backend.domain.spec.models import Spec
from backend.domain.spec.reward import RewardVerifier

_FIELDS = ("base_url", "api_key", "model", "dialect", "effort", "thought_tokens")
_NAMES = {Check.TEACHER: "teacher", Check.FALLBACK: "fallback model", Check.REWARD: "reward model"}
_NAMES |= {Check.JUDGE: "judge of drafts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """`check` is its line's; `spec` has the model in the teacher's place. `fields` say where the options of a teacher
    stand in the customer's own spec: {"teacher.model": "teacher.fallback_model"}."""

    check: Check
    spec: Spec
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name that a sentence calls it by."""
        return _NAMES[self.check]

    @property
    def is_asked(self) -> bool:
        """Tell whether there is a far side to ask: the built-in teacher and a recording need no call."""
        return self.spec.teacher.provider == "openai_compatible"

    @property
    def reward(self) -> RewardVerifier | None:
        """The reward that this model gives; None of the others."""
        return reward_of(self.spec) if self.check is Check.REWARD else None

    def in_its_words(self, text: str) -> str:
        """A sentence about a teacher as one about this model, with the places of its options in the spec."""
        for option, place in self.fields.items():
            text = text.replace(option, place)
        name = self.name
        return text.replace("The teacher", f"The {name}").replace("the teacher", f"the {name}")


def asked_models(spec: Spec) -> list[AskedModel]:
    """The teacher, whether or not there is a far side to ask, and of the others those that there are to ask."""
    models = [AskedModel(check=Check.TEACHER, spec=spec)]
    if spec.teacher.fallback_model is not None:
        teacher = spec.teacher.model_copy(update={"model": spec.teacher.fallback_model, "fallback_model": None})
        changed = spec.model_copy(update={"teacher": teacher})
        models.append(AskedModel(check=Check.FALLBACK, spec=changed, fields=_FALLBACK_FIELDS))
    if reward_of(spec) is not None:
        models.append(AskedModel(check=Check.REWARD, spec=rewarded_by(spec), fields=_reward_fields(spec)))
    judge = spec.draft_cache.judge
    if judge is not None and spec.draft_cache.enabled and spec.draft_cache.verify != "off":
        is_elsewhere = judge.base_url is not None
        own = [name for name in _FIELDS if is_elsewhere or getattr(judge, name) is not None]
        fields = {f"teacher.{name}": f"draft_cache.judge.{name}" for name in own}
        models.append(AskedModel(check=Check.JUDGE, spec=judged_by(spec), fields=fields))
    return [model for model in models if model.is_asked or model.check is Check.TEACHER]


_FALLBACK_FIELDS = MappingProxyType({"teacher.model": "teacher.fallback_model"})


def _reward_fields(spec: Spec) -> Mapping[str, str]:
    """Find where the options of the model that gives rewards stand: in the verifier, or under the teacher where the
    reward is asked at the teacher's address and has them from there."""
    place, reward = next((i, one) for i, one in enumerate(spec.verifiers) if isinstance(one, RewardVerifier))
    is_elsewhere = reward.base_url is not None
    own = [name for name in _FIELDS if is_elsewhere or getattr(reward, name) is not None or name == "model"]
    return {f"teacher.{name}": f"verifiers[{place}].{name}" for name in own}
