"""Rules of a spec's reward that join fields."""

from collections.abc import Iterator

from backend.domain.errors import Problem
from backend.domain.spec.addresses import address_problem
from backend.domain.spec.models import Spec
from backend.domain.spec.reward import RewardVerifier

_OF_A_CHAT = ("dialect", "effort", "thought_tokens")
_OF_AN_ADDRESS = ("api_key", "price", "dialect")


def reward_problems(spec: Spec) -> Iterator[Problem]:
    """The broken rules of the rewards among the verifiers."""
    seen = False
    for i, verifier in enumerate(spec.verifiers):
        if not isinstance(verifier, RewardVerifier):
            continue
        if seen:
            message = "one reward ranks the candidates; remove this one, or put both into one rubric"
            yield Problem(pointer=f"/verifiers/{i}", message=message, code="not_used")
        seen = True
        yield from _endpoint(spec, verifier, f"/verifiers/{i}")


def _endpoint(spec: Spec, reward: RewardVerifier, pointer: str) -> Iterator[Problem]:
    if reward.base_url is not None:
        if (wrong := address_problem(reward.base_url, is_chat=reward.is_chat)) is not None:
            yield Problem(pointer=f"{pointer}/base_url", message=wrong, code="bad_url")
        if reward.model is None:
            message = 'a reward with a "base_url" needs the "model" that it asks there; add it'
            yield Problem(pointer=f"{pointer}/model", message=message, code="missing")
    elif not reward.is_chat:
        message = f'"{reward.api}" is spoken by a server of its own; add its "base_url" and "model", or take api "chat"'
        yield Problem(pointer=f"{pointer}/base_url", message=message, code="missing")
    elif spec.teacher.provider != "openai_compatible":
        message = (
            f'the provider "{spec.teacher.provider}" rates nothing; name a chat model with "base_url" and "model", or '
            "leave the reward out"
        )
        yield Problem(pointer=f"{pointer}/base_url", message=message, code="missing")
    else:
        yield from _unused_at_the_teacher(spec, reward, pointer)
    for name in () if reward.is_chat else _OF_A_CHAT:
        if getattr(reward, name) is not None:
            message = f'"{name}" is of a chat model and "{reward.api}" asks none; remove it'
            yield Problem(pointer=f"{pointer}/{name}", message=message, code="not_used")


def _unused_at_the_teacher(spec: Spec, reward: RewardVerifier, pointer: str) -> Iterator[Problem]:
    """Name what a reward at the teacher's own address has from the teacher."""
    is_same_model = reward.model in (None, spec.teacher.model)
    for name in _OF_AN_ADDRESS:
        if getattr(reward, name) is None or (name == "price" and not is_same_model):
            continue
        what = "the teacher's" if name != "price" else "the teacher's, for it is the same model"
        message = f'without "base_url" the {name} is {what}; remove it, or add "base_url" and "model"'
        yield Problem(pointer=f"{pointer}/{name}", message=message, code="not_used")
