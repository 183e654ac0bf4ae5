"""How the API server comes to trust the webhook: the authority in a Secret, its certificate in the
configurations.

All replicas sign with one authority, each a certificate of its own. The first replica makes it: the others'
writes meet 409, and they read again.
"""

import base64
import binascii
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cluster.admission import certificates
from cluster.admission.certificates import Pair
from cluster.admission.webhooks import CONFIGURATION, NAME, NAMESPACE
from cluster.api.client import Api, Object
from cluster.api.errors import ApiProblem
from cluster.api.kinds import MUTATING_WEBHOOK, SECRET, VALIDATING_WEBHOOK
from oci_specs.refusal import Refusal

# As the API server calls a Service.
HOSTS = [f"{NAME}.{NAMESPACE}.svc", f"{NAME}.{NAMESPACE}.svc.cluster.local"]
_CERTIFICATE, _KEY, _EARLIER = "ca.crt", "ca.key", "earlier.crt"
# So many writers at once there are not.
_TRIES = 5


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Trust:
    """use: takes a server's certificate into use. now: the wall clock, by which certificates are judged.

    is_ready: whether the API server knows the authority of the certificate in use.
    """

    api: Api
    use: Callable[[Pair], None]
    now: Callable[[], datetime] = _now
    is_ready: bool = False
    _authority: Pair | None = None
    _server: Pair | None = None

    async def keep(self) -> None:
        """One round: every minute is often enough. ApiProblem: tried again in the next; what is in use stays.

        A server's certificate is renewed first, since that takes no API server.
        """
        if self._authority is not None:
            self._renew(self._authority)
        authority, bundle = await self._read()
        await self._tell(bundle)
        if authority != self._authority:
            self._authority, self._server = authority, None
        self._renew(authority)
        self.is_ready = True

    def _renew(self, authority: Pair) -> None:
        if self._server is None or self._server.is_due(self.now()):
            self._server = certificates.server(authority, HOSTS, self.now())
            self.use(self._server)

    async def _read(self) -> tuple[Pair, bytes]:
        """The authority of the Secret, made where there is none or its time comes, and all that are
        trusted.
        """
        for _ in range(_TRIES):
            try:
                secret = await self.api.get(SECRET, NAME, NAMESPACE)
            except ApiProblem as problem:
                if not problem.is_gone:
                    raise
                secret = {}
            authority, earlier = _authority(secret)
            if authority is None or authority.is_due(self.now()):
                # Where the Secret was deleted, other replicas still serve with what this one has too.
                known = authority or self._authority
                earlier = known if known is not None and not known.is_over(self.now()) else None
                authority = certificates.authority(self.now())
                if not await self._write(secret, authority, earlier):
                    continue
            return authority, authority.certificate + (earlier.certificate if earlier is not None else b"")
        raise ApiProblem(409, "Conflict", f"Secret {NAMESPACE}/{NAME} changes faster than it can be read")

    async def _write(self, secret: Object, authority: Pair, earlier: Pair | None) -> bool:
        data = {
            _CERTIFICATE: authority.certificate,
            _KEY: authority.key,
            **({_EARLIER: earlier.certificate} if earlier is not None else {}),
        }
        new: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": secret.get("metadata") or {"name": NAME, "namespace": NAMESPACE},
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
        try:
            await (self.api.replace(SECRET, new) if secret else self.api.create(SECRET, new))
        except ApiProblem as problem:
            if not problem.is_conflict:
                raise
            return False
        return True

    async def _tell(self, bundle: bytes) -> None:
        text = base64.b64encode(bundle).decode()
        for kind in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK):
            for _ in range(_TRIES):
                before = await self.api.get(kind, CONFIGURATION)
                after = copy.deepcopy(before)
                for webhook in after.get("webhooks") or []:
                    webhook.setdefault("clientConfig", {})["caBundle"] = text
                if after == before:
                    break
                try:
                    await self.api.replace(kind, after)
                    break
                except ApiProblem as problem:
                    if not problem.is_conflict:
                        raise


def _authority(secret: Mapping[str, Any]) -> tuple[Pair | None, Pair | None]:
    """The contents of a Secret; (None, None) without an authority in it. Refusal for unreadable ones."""
    data = secret.get("data") or {}
    if _CERTIFICATE not in data or _KEY not in data:
        return None, None
    try:
        certificate, key, earlier = (
            base64.b64decode(data.get(name, ""), validate=True) for name in (_CERTIFICATE, _KEY, _EARLIER)
        )
    except (binascii.Error, TypeError) as error:
        raise Refusal(
            "bad-authority",
            f"Secret {NAMESPACE}/{NAME} cannot be read: {error}",
            "delete it: the webhook makes a new one",
        ) from error
    return Pair(certificate, key), Pair(earlier, b"") if earlier else None
