"""A bundle's spec: read with its own bytes kept, replaced in one step, restored on failure."""

from __future__ import annotations

import os

from oci_specs.edits import ORIGINAL_SHA256, OWN_MEMBERS, OWN_SHA256, WRITTEN_SHA256
from oci_specs.members import member_object
from oci_specs.refusal import Refusal
from runtime_hook import one_reading, quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

KEPT_NAME = ".mgpu-config.json"
ZEROS = "0" * 64
# The function, once it was needed: to look for a module that is not there takes longer than a spec's digest.
_sha256: list[Any] = []


class Spec:
    """The spec in file `path`: original is what the engine wrote, content the same parsed.

    A file that mgpu already rewrote, as when an engine creates twice from one bundle, stands for the original
    that was kept beside it, with what was edited since of the parts that are not mgpu's.
    """

    __slots__ = ("_kept", "_path", "content", "original", "rewritten")

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept = kept_beside(path)
        self.original = _read(path)
        self.content = parse(path, self.original)
        sha256 = member_object(self.content, "annotations").get(ORIGINAL_SHA256)
        self.rewritten = sha256 is not None
        if self.rewritten:
            self._take_kept(sha256)

    def _take_kept(self, sha256: object) -> None:
        text = self.original
        try:
            self.original = _read(self._kept)
        except Refusal:
            self.original = b""
        if digest(self.original) != sha256:
            raise Refusal(
                "bundle-changed",
                f"{self._path} was rewritten by mgpu and its original is not in {self._kept}",
                "create the container from a fresh bundle",
            )
        original = parse(self._kept, self.original)
        if is_as_written(text, self.content):
            self.content = original
            return
        if self.content["annotations"].get(OWN_SHA256) != _own_digest(self.content):
            raise Refusal(
                "bundle-changed",
                f"{self._path} was edited after mgpu had rewritten it, in what mgpu wrote",
                f"edit {self._kept} instead and put it in its place, or use a fresh bundle",
            )
        self.content = _without_ours(self.content, original)
        self.original = quick_json.dumps(self.content).encode("ascii")
        self._put(self.original)
        self.rewritten = False

    def replace(self, content: Mapping[str, Any]) -> None:
        """Puts content in the spec's place; on a failure the file is as it was."""
        self._put(written(content), keep=None if self.rewritten else self.original)
        self.rewritten = True

    def _put(self, text: bytes, keep: bytes | None = None) -> None:
        new = self._kept + ".new"
        try:
            if keep is not None:
                _write(self._kept, keep, like=self._path)
            _write(new, text, like=self._path)
            os.rename(new, self._path)
        except OSError as error:
            _remove(new)
            if keep is not None:
                _remove(self._kept)
            raise Refusal(
                "bundle-not-written",
                f"the spec {self._path} cannot be rewritten: {error.strerror}",
                "make room for it, or make the bundle writable",
            ) from error

    def restore(self) -> None:
        """Puts the original back in the spec's place, if the file is not that already."""
        if self.rewritten:
            os.rename(self._kept, self._path)
            self.rewritten = False


def kept_beside(path: str) -> str:
    """Where the original of the spec at path is kept."""
    return os.path.join(os.path.dirname(path), KEPT_NAME)


def written(content: Mapping[str, Any]) -> bytes:
    """The text of a rewritten spec, which says whether it was edited since.

    ASCII, so that bytes which are no UTF-8 and came in as lone surrogates can be written: Go reads them as
    U+FFFD either way.
    """
    annotations = {**content["annotations"], OWN_SHA256: _own_digest(content), WRITTEN_SHA256: ZEROS}
    text = quick_json.dumps({**content, "annotations": annotations}).encode("ascii")
    return text.replace(_member(ZEROS), _member(digest(text)))


def is_as_written(text: bytes, content: Mapping[str, Any]) -> bool:
    """Whether text, which content was parsed from, is what written() made."""
    sha256 = content["annotations"].get(WRITTEN_SHA256)
    return isinstance(sha256, str) and digest(text.replace(_member(sha256), _member(ZEROS))) == sha256


def _own_digest(content: Mapping[str, Any]) -> str:
    return digest(quick_json.dumps([_at(content, path) for path in OWN_MEMBERS]).encode("ascii"))


def _at(content: object, path: tuple[str, ...]) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def _without_ours(edited: dict[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """edited, which is changed, with the original's parts in place of ours."""
    for *folders, name in OWN_MEMBERS:
        holder = _at(edited, tuple(folders))
        if isinstance(holder, dict):
            holder.pop(name, None)
            if (part := _at(original, (*folders, name))) is not None:
                holder[name] = part
    for name in (ORIGINAL_SHA256, OWN_SHA256, WRITTEN_SHA256):
        edited["annotations"].pop(name, None)
    return edited


def _member(sha256: str) -> bytes:
    return f'"{WRITTEN_SHA256}":"{sha256}"'.encode()


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    if not _sha256:
        # hashlib loads OpenSSL, for longer than all else here takes. The same in CPython itself: 3.12, 3.11,
        # others.
        for module in ("_sha2", "_sha256", "hashlib"):
            try:
                _sha256.append(__import__(module).sha256)
            except ImportError:
                continue
            break
    return str(_sha256[0](data).hexdigest())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError as error:
        raise Refusal(
            "no-spec",
            f"the spec {path} cannot be read: {error.strerror}",
            "give --bundle a folder with a config.json",
        ) from error


def parse(path: str, data: bytes) -> dict[str, Any]:
    """The spec in data, which came from `path`; Refusal if it is none."""
    try:
        content = one_reading.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise Refusal(
            "bad-spec", f"the spec {path} is not JSON: {error}", "give a valid config.json"
        ) from error
    if not isinstance(content, dict):
        raise Refusal("bad-spec", f"the spec {path} is not a JSON object", "give a valid config.json")
    return content


def _write(path: str, data: bytes, *, like: str) -> None:
    """A whole new file with the owner and mode of the file `like`."""
    status = os.stat(like)
    _remove(path)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(file, status.st_uid, status.st_gid)
        os.fchmod(file, status.st_mode & 0o7777)
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
