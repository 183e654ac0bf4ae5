"""Which grant a listener is served under: the one whose nonce it carries, or none."""

import os
from typing import NamedTuple

from native_sched.daemon.engine import Engine
from native_sched.daemon.grants.grants import Grants
from native_sched.daemon.links import share
from native_sched.daemon.links.holder import HolderLink, Listener
from native_sched.daemon.log import LOG


class Lost(NamedTuple):
    """A container that runs under a grant that cannot be read. pid: of its init process."""

    nonce: str
    container_id: str
    pid: int


class Listeners:
    """unreadable: nonces of grants that cannot be read (grant_store.py)."""

    def __init__(
        self, engine: Engine, grants: Grants, link: HolderLink, unreadable: frozenset[str] = frozenset()
    ) -> None:
        self._engine = engine
        self._grants = grants
        self._link = link
        self.unreadable = unreadable
        # While the holder hands over what it had, listeners of draining grants are served: they were before.
        self.recovering = False
        self.lost: list[Lost] = []
        # Listeners that are served, and in-flight calls of the previous mgpud that this one answered.
        self.taken = self.answered = 0

    def take(self, arrived: Listener) -> None:
        """Serves a listener that a container runtime sent, or drops it."""
        grant = self._grants.get(arrived.metadata)
        if (
            grant is None
            or grant.container_id != arrived.container_id
            or (grant.state == "draining" and not self.recovering)
        ):
            if self.recovering and arrived.metadata in self.unreadable:
                self.lost.append(Lost(arrived.metadata, arrived.container_id, arrived.pid))
            if grant is not None and grant.container_id == arrived.container_id:
                # It may be that of an exec into a container at its end.
                LOG.info("ended-meanwhile", container=grant.container_id, grant=grant.id)
            else:
                LOG.warning("listener-without-grant", container=arrived.container_id, status=arrived.status)
            os.close(arrived.fd)
            self._link.drop(arrived.holder_id)
            return
        if not self.recovering and not arrived.of_main_process and self._is_one_too_many(arrived.metadata):
            LOG.warning("listener-too-many", container=arrived.container_id, most=share.MOST)
            os.close(arrived.fd)
            self._link.drop(arrived.holder_id)
            return
        try:
            self.answered += self._engine.add_listener(grant.tenant, arrived.fd, arrived.holder_id)
            self.taken += 1
            if arrived.of_main_process:
                grant.listens, grant.lost_listener = True, False
        except OSError as error:
            LOG.error("listener-not-served", container=arrived.container_id, why=error.strerror)
            self._link.drop(arrived.holder_id)

    def _is_one_too_many(self, nonce: str) -> bool:
        """The one that has come is among those that are held."""
        mine = self._link.held_of(nonce)
        return not share.may_have_another(mine - 1, self._link.held - 1)
