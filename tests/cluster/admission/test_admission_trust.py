"""The webhook's certificates over the years, by the rules of OpenSSL's verification."""

import asyncio
import base64
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster.admission import certificates
from cluster.admission.certificates import Pair
from cluster.admission.trust import HOSTS, Trust
from cluster.api.client import Client
from cluster.api.errors import ApiProblem
from tests.cluster import api_server, webhook
from tests.cluster.api_server import ApiServer, Trouble
from tests.support.commands import attempt

START = datetime(2026, 11, 23, 12, tzinfo=UTC)


class World:
    """A webhook's trust and what of it is in use, with a clock that the test sets."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self.api = api
        self.folder = folder
        self.now = START
        self.used: list[Pair] = []
        self.trust: Trust

    def do(self, *steps: Callable[[], Coroutine[Any, Any, None]] | timedelta) -> None:
        """In one run of the program: rounds, and the time between them."""

        async def run() -> None:
            async with Client(str(self.api.kubeconfig(self.folder))) as client:
                self.trust = Trust(client, self.used.append, lambda: self.now)
                for step in steps:
                    if isinstance(step, timedelta):
                        self.now += step
                    else:
                        await step()

        asyncio.run(run())

    async def round(self) -> None:
        await self.trust.keep()
        assert self.is_trusted(self.used[-1])

    async def failing_round(self) -> None:
        with pytest.raises(ApiProblem):
            await self.trust.keep()

    def is_trusted(self, pair: Pair) -> bool:
        """Whether openssl takes it for the Service's, by what the configurations say."""
        [bundle] = set(webhook.bundles(self.api))
        trusted, shown = self.folder / "bundle.pem", self.folder / "server.pem"
        trusted.write_bytes(bundle)
        shown.write_bytes(pair.certificate)
        at = str(int(self.now.timestamp()))
        words = ["-attime", at, "-purpose", "sslserver", "-verify_hostname", HOSTS[0], "-x509_strict"]
        return attempt("openssl", "verify", *words, "-CAfile", trusted, shown).status == 0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with api_server.running() as api:
        webhook.configure(api)
        yield World(api, tmp_path)


def test_servers_certificate_is_renewed_before_it_ends(world: World) -> None:
    world.do(world.round, timedelta(days=59), world.round, timedelta(days=2), world.round)
    assert len(world.used) == 2
    assert len(webhook.bundles(world.api)[0].split(b"BEGIN")) == 2


def test_also_when_the_api_server_is_away(world: World) -> None:
    async def away() -> None:
        world.api.troubles.append(Trouble(lambda *_: True, status=500))
        await world.failing_round()
        world.api.troubles.clear()

    world.do(world.round, timedelta(days=80), away)
    assert len(world.used) == 2
    assert world.is_trusted(world.used[-1])


def test_another_authority_comes_before_the_first_ends_and_both_are_trusted(world: World) -> None:
    seven_years = timedelta(days=7 * 365)
    first: list[Pair] = []

    async def remember() -> None:
        first.append(_authority(world))

    world.do(world.round, remember, seven_years, world.round)
    # A replica that has not had its round yet signs with the first authority.
    late = certificates.server(first[0], HOSTS, world.now)
    assert _authority(world) != first[0]
    assert world.is_trusted(world.used[-1])
    assert world.is_trusted(late)
    assert not world.is_trusted(world.used[0])
    assert len(webhook.bundles(world.api)[0].split(b"BEGIN")) == 3


def test_servers_of_before_stay_trusted_where_the_secret_was_deleted(world: World) -> None:
    async def delete() -> None:
        world.api.remove(webhook.SECRET)

    world.do(world.round, delete, world.round)
    assert len(world.used) == 2
    # As another replica's is, which has not had its round yet.
    assert world.is_trusted(world.used[0])


def _authority(world: World) -> Pair:
    secret = world.api.there(webhook.SECRET)
    return Pair(*(base64.b64decode(secret["data"][name]) for name in ("ca.crt", "ca.key")))


def test_clock_that_is_set_back_gets_certificates_of_its_time(world: World) -> None:
    world.do(world.round, timedelta(days=-400), world.round)
    assert world.used[-1] != world.used[0]


def test_clock_that_is_set_far_ahead_does_too(world: World) -> None:
    world.do(world.round, timedelta(days=20 * 365), world.round)
    assert world.used[-1] != world.used[0]


def test_bundle_that_someone_took_out_comes_back(world: World) -> None:
    async def taken() -> None:
        webhook.configure(world.api)
        assert set(webhook.bundles(world.api)) == {b""}

    world.do(world.round, taken, world.round)


def test_write_that_meets_anothers_reads_again(world: World) -> None:
    world.api.troubles.append(Trouble(lambda method, _: method in ("POST", "PUT"), status=409, times=2))
    world.do(world.round)
    assert world.trust.is_ready


def test_without_its_configuration_it_is_not_ready(world: World) -> None:
    world.api.remove(webhook.VALIDATING)
    world.do(world.failing_round)
    assert not world.trust.is_ready
