"""From targets and the host's files as they are to a plan. Changes nothing."""

import os
from collections.abc import Iterable

from install import files
from install.change import Change, Plan, Target
from install.edit import NotHere
from oci_specs.refusal import Refusal


def to_install(targets: Iterable[Target]) -> Plan:
    """What makes every target as it is to be; empty where nothing has to be done."""
    return sum(map(_install_one, targets), Plan())


def to_uninstall(targets: Iterable[Target]) -> Plan:
    """What takes everything of ours away again."""
    return sum(map(_uninstall_one, targets), Plan())


def _install_one(target: Target) -> Plan:
    before = _read(target)
    edited = target.add(None if before is None else _text(before, target))
    after = None if edited.text is None else _bytes(edited.text)
    if after == before:
        return Plan(notes=edited.notes, unchanged=() if after is None else (target.path,))
    change = _change(target, before, after)
    return Plan((*_backup(target, before), change), edited.notes)


def _change(target: Target, before: bytes | None, after: bytes | None) -> Change:
    return Change(
        path=target.path,
        before=before,
        after=after,
        mode=target.mode,
        link=target.link,
        aside=target.backups,
    )


def _backup(target: Target, before: bytes | None) -> tuple[Change, ...]:
    """A copy of the file as it was before we first touched it: one, which later installations leave."""
    if before is None or target.link:
        return ()
    path = target.backup
    earlier = files.read(path)
    removed = target.remove(_text(before, target))
    if not isinstance(removed, NotHere) and (target.marked or earlier is not None or removed.text is None):
        return ()
    return (Change(path=path, before=earlier, after=before, like=target.path),)


def _uninstall_one(target: Target) -> Plan:
    before = _read(target)
    if before is None:
        return Plan()
    text = _text(before, target)
    removed = target.remove(text)
    if isinstance(removed, NotHere):
        return Plan(notes=(f"there is nothing of mgpu's in {target.path}",))
    target.may_go(text)
    backup_path = target.backup
    backup = None if target.link else files.read(backup_path)
    cleaned = None if removed.text is None else _bytes(removed.text)

    def becomes(after: bytes | None) -> Change:
        return _change(target, before, after)

    if removed.keep:
        kept = Change(path=backup_path, before=backup, after=before, like=target.path)
        return Plan((kept, becomes(cleaned)), removed.notes)
    if backup is None:
        return Plan((becomes(cleaned),), removed.notes)
    if backup == cleaned or _was_made_from(backup, text, target):
        gone = Change(path=backup_path, before=backup, after=None)
        return Plan((becomes(backup), gone), removed.notes)
    note = (
        f"{target.path} was changed since mgpu install: only mgpu's part is taken away, "
        f"and what it was before lies in {backup_path}"
    )
    return Plan((becomes(b"" if cleaned is None else cleaned),), (*removed.notes, note))


def _was_made_from(backup: bytes, text: str, target: Target) -> bool:
    try:
        return target.add(files.text_of(backup, target.backup)).text == text
    except Refusal:
        return False


def _read(target: Target) -> bytes | None:
    return files.read_link(target.path) if target.link else files.read(target.path)


def _text(content: bytes, target: Target) -> str:
    return os.fsdecode(content) if target.link else files.text_of(content, target.path)


def _bytes(text: str) -> bytes:
    return os.fsencode(text)
