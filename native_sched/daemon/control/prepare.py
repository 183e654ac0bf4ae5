"""The verb `prepare`: mgpud does for a launcher what its own Python would do, without the start of an
interpreter.

The launcher sends the spec's text after the request and finds out about mount sources when it is asked to. It
writes the new text itself, so mgpud neither reads nor writes what is the container's. Whatever is unusual is
left to the launcher's own way: then nothing came of it here, or the same process gets the same grant when it
asks again.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from native_sched.daemon.control.resolved_paths import NotHereError, ResolvedPaths
from native_sched.daemon.control.server import MESSAGE_MAX_BYTES, VERSION, Dialogue, Peer, Verb
from native_sched.daemon.log import LOG
from oci_specs.edits import ORIGINAL_SHA256
from oci_specs.members import member_object
from oci_specs.reach import has_user_namespace
from oci_specs.refusal import Refusal
from runtime_hook import handing_on, precreate, quick_json
from runtime_hook.arguments import Create
from runtime_hook.bundle import digest, is_as_written, kept_beside, parse, written
from runtime_hook.decision import Intent, admission, rewritten

# What the launcher has room for.
TEXT_MAX_BYTES = 512 << 10
# Bounds of the work for one container, far above any engine's own spec.
ENTRIES_MAX = 256
IOCTL_RULES_MAX = 4
# Orders are split into many rules, and what is split is split again by the next.
COSTLY = frozenset(f"SCMP_CMP_{op}" for op in ("LT", "LE", "GE", "GT"))


def _packet(**members: Any) -> bytes:
    return quick_json.dumps({"version": VERSION, "ok": True, **members}).encode("ascii")


YOURSELF = [_packet(action="yourself")]
PASS = [_packet(action="pass")]


class Container(NamedTuple):
    """A container to be made; text: what spec was parsed from; container_id: "" if the spec alone has it."""

    spec: dict[str, Any]
    text: bytes
    bundle: str
    container_id: str
    restores: bool


class Prepare:
    """admit, release: the verbs; validate raises Refusal for what the schema forbids; socket: mgpud's.

    ending: whether a container that has ended still has what it had, so that a refusal may not last.
    """

    def __init__(
        self,
        admit: Verb,
        release: Verb,
        validate: Callable[[dict[str, Any]], None],
        socket: str,
        exiting: Callable[[], bool] = bool,
    ) -> None:
        self._admit = admit
        self._release = release
        self._validate = validate
        self._socket = socket
        self._exiting = exiting

    def converse(self, message: Mapping[str, Any], peer: Peer) -> Dialogue:
        """message: a request that the schema allows."""
        text = yield []
        try:
            return (yield from self._prepare(message, peer, text))
        except Refusal as refusal:
            again = {"again": True} if self._exiting() else {}
            return [_packet(action="refuse", error=refusal.to_error(), **again)]
        except NotHereError:
            return YOURSELF
        except Exception as error:
            LOG.unexpected({"exception": error})
            return YOURSELF

    def _prepare(self, message: Mapping[str, Any], peer: Peer, text: bytes) -> Dialogue:
        made = yield from _read(message, text)
        spec, bundle = made.spec, made.bundle
        _check_work(spec)
        host = ResolvedPaths()
        intent = Intent(spec, bundle, host)
        if host.missing:
            answer = yield [_packet(action="look", paths=host.missing)]
            host.learn(_found(answer))
            intent = Intent(spec, bundle, host)
        if host.missing:
            raise NotHereError
        if not intent.is_ours:
            return PASS
        if made.restores:
            raise NotHereError
        container_id = made.container_id or precreate.identify(spec)
        pid = {"runtime_pid": message["runtime_pid"]} if "runtime_pid" in message else {}
        grant = self._ask({**admission(container_id, bundle, spec, intent), **pid}, peer)
        if grant is None:
            return PASS
        try:
            new = rewritten(
                spec, made.text, grant, bundle=bundle, hook=message["hook"], socket=self._socket, host=host
            )
            # podman writes the text anew, and its own digest would not hold.
            changed = written(new) if made.container_id else quick_json.dumps(new).encode("ascii")
            # podman's hook cannot know the runtime; the launcher asks its own.
            unsure = bool(made.container_id) and (handing_on.may_fail(new) or _is_mapped(new))
            if unsure or host.missing or len(changed) > TEXT_MAX_BYTES:
                raise NotHereError
        except BaseException:
            self._release({"nonce": grant["nonce"], "state": {"id": container_id}}, peer)
            raise
        return [_packet(action="write", bytes=len(changed)), changed]

    def _ask(self, members: Mapping[str, Any], peer: Peer) -> Mapping[str, Any] | None:
        """The grant as the launcher's own Python would receive it, and the same if it asks later."""
        asked: dict[str, Any] = {"version": VERSION, "verb": "admit", **members}
        if len(quick_json.dumps(asked)) > MESSAGE_MAX_BYTES:
            raise NotHereError
        self._validate(asked)
        reply = self._admit(asked, peer)
        if reply["action"] == "pass":
            return None
        grant: Mapping[str, Any] = reply["grant"]
        return grant


def _is_mapped(spec: Mapping[str, Any]) -> bool:
    """The launcher's own Python looks into its root, which is not for mgpud to wait for."""
    return has_user_namespace(member_object(spec, "linux"))


def _read(message: Mapping[str, Any], text: bytes) -> Generator[list[bytes], bytes, Container]:
    if len(text) > MESSAGE_MAX_BYTES:
        raise NotHereError
    words = message["words"]
    if words[0] == "precreate":
        return Container(parse(precreate.SOURCE, text), text, precreate.BUNDLE, "", False)
    create = Create(words, message["folder"])
    if create.wants_help or not create.container_id or create.config != message["config"]:
        raise NotHereError
    spec = parse(create.config, text)
    sha256 = member_object(spec, "annotations").get(ORIGINAL_SHA256)
    if sha256 is not None:
        if not is_as_written(text, spec):
            raise NotHereError
        text = yield [_packet(action="original")]
        if len(text) > MESSAGE_MAX_BYTES or digest(text) != sha256:
            raise NotHereError
        spec = parse(kept_beside(create.config), text)
    return Container(spec, text, create.bundle, create.container_id, create.restores)


def _check_work(spec: Mapping[str, Any]) -> None:
    """Leaves malformed members to their readers, which refuse them in their own order."""
    linux = _dict(spec.get("linux"))
    lists = (spec.get("mounts"), linux.get("devices"), _dict(linux.get("resources")).get("devices"))
    if any(isinstance(entries, list) and len(entries) > ENTRIES_MAX for entries in lists):
        raise NotHereError
    rules = _dict(linux.get("seccomp")).get("syscalls")
    if isinstance(rules, list):
        of_ioctl = [rule for rule in rules if _is_of_ioctl(rule)]
        if len(of_ioctl) > IOCTL_RULES_MAX or any(map(_is_costly, of_ioctl)):
            raise NotHereError


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_of_ioctl(rule: object) -> bool:
    names = rule.get("names") if isinstance(rule, dict) else None
    return isinstance(names, list) and "ioctl" in names


def _is_costly(rule: dict[str, Any]) -> bool:
    conditions = rule.get("args")
    if not isinstance(conditions, list):
        return False
    return len(conditions) > 2 or any(_dict(condition).get("op") in COSTLY for condition in conditions)


def _found(answer: bytes) -> object:
    try:
        told = quick_json.loads(answer.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise NotHereError from error
    return told.get("found") if isinstance(told, dict) else None
