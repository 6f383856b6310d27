"""Rules of a spec's own judge of drafts that join fields."""

from collections.abc import Iterator

from backend.domain.dialects.dialect import Option
from backend.domain.errors import Problem
from backend.domain.spec.addresses import address_problem
from backend.domain.spec.defaults import dialect_of, judge_of
from backend.domain.spec.models import Spec
from backend.domain.spec.teacher import DraftJudge

_AT = "/draft_cache/judge"
_OF_AN_ADDRESS = ("api_key", "dialect")
_THOUGHTS = ("effort", "thought_tokens")


def judge_problems(spec: Spec) -> Iterator[Problem]:
    """The broken rules of the model that judges drafts in the teacher's place."""
    judge, cache = spec.draft_cache.judge, spec.draft_cache
    if judge is None:
        return
    if cache.verify in ("logprobs", "engine"):
        message = f'verify "{cache.verify}" asks no judge; remove it, or take verify "auto" or "judge"'
        yield Problem(pointer=_AT, message=message, code="not_used")
    if spec.teacher.provider == "replay":
        message = "a recording cannot audit what another model judges; remove it, or take a teacher that answers"
        yield Problem(pointer=_AT, message=message, code="not_used")
    elif judge.base_url is not None:
        if (wrong := address_problem(judge.base_url)) is not None:
            yield Problem(pointer=f"{_AT}/base_url", message=wrong, code="bad_url")
    elif spec.teacher.provider != "openai_compatible":
        message = f'the provider "{spec.teacher.provider}" has no other model; add the "base_url" of this one'
        yield Problem(pointer=f"{_AT}/base_url", message=message, code="missing")
    else:
        yield from _at_the_teacher(spec, judge)
    asked = judge_of(spec)
    if asked is not None and judge.effort is not None and Option.EFFORT not in (dialect := dialect_of(asked)).takes:
        message = f'"{dialect.name}" has no way to say how long this model thinks; remove it, or name another dialect'
        yield Problem(pointer=f"{_AT}/effort", message=message, code="not_used")


def _at_the_teacher(spec: Spec, judge: DraftJudge) -> Iterator[Problem]:
    """Name what a judge at the teacher's own address has from the teacher."""
    for name in _OF_AN_ADDRESS:
        if getattr(judge, name) is not None:
            message = f'without "base_url" the {name} is the teacher\'s; remove it, or add "base_url"'
            yield Problem(pointer=f"{_AT}/{name}", message=message, code="not_used")
    if judge.model != spec.teacher.model:
        return
    if all(getattr(judge, name) is None for name in _THOUGHTS):
        message = "this is the teacher, which judges anyway; name a cheaper model, or leave the judge out"
        yield Problem(pointer=f"{_AT}/model", message=message, code="not_used")
    if judge.price is not None:
        message = "the price is the teacher's, for it is the same model; remove it"
        yield Problem(pointer=f"{_AT}/price", message=message, code="not_used")
