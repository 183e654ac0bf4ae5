"""All objects of a kind, and what becomes of them: listed, watched, and listed anew after every gap."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from cluster.api.client import Api, Object
from cluster.api.errors import ApiProblem
from cluster.api.kinds import Kind

_PAUSE_FIRST_SECONDS = 0.25
_PAUSE_LONGEST_SECONDS = 15.0


@dataclass(frozen=True)
class Listed:
    """These are all there are: whatever else was known is gone."""

    objects: list[Object]


@dataclass(frozen=True)
class Changed:
    """Made or changed."""

    value: Object


@dataclass(frozen=True)
class Deleted:
    value: Object


Change = Listed | Changed | Deleted


async def follow(
    api: Api,
    kind: Kind,
    *,
    labels: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> AsyncGenerator[Change]:
    """Without an end; never raises ApiProblem. `tell` is told once, in a line, when the API server is away
    and when it is back.

    A gap of any sort is closed by a list: no event that was missed can be missed for good.
    """
    pause = _PAUSE_FIRST_SECONDS
    away = False
    while True:
        try:
            objects, version = await api.list(kind, labels=labels, fields=fields)
            if away:
                tell(f"{kind.plural} are followed again")
            pause, away = _PAUSE_FIRST_SECONDS, False
            yield Listed(objects)
            async with aclosing(_watch(api, kind, version, labels, fields)) as changes:
                async for change in changes:
                    yield change
        except ApiProblem as problem:
            if problem.is_expired:
                continue
            if not away:
                tell(f"{kind.plural} are not followed for now: {problem}; trying again")
            away = True
            # Many nodes lose one API server at the same instant: they do not all come back at one.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _PAUSE_LONGEST_SECONDS)


async def _watch(
    api: Api,
    kind: Kind,
    version: str,
    labels: Mapping[str, str] | None,
    fields: Mapping[str, str] | None,
) -> AsyncGenerator[Change]:
    events = api.watch(kind, version, labels=labels, fields=fields)
    async for event, value in events:
        yield Deleted(value) if event == "DELETED" else Changed(value)
