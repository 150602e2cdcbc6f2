"""The note that a store's log was copied from a leader (``store/mqstore/follower.json``).

A store that followed a leader and was then opened for writing has messages of its own. It follows
again only if its log has epochs, by which it is compared with the leader's: RocketMQ's HA protocol
compares offsets only, so that the difference of the two logs might not be noticed. The file is
sealed by a checksum.
"""

from __future__ import annotations

from mqstore.storage.errors import DirectoryNotUsable, StoreDamaged
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.options import StoreOptions
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem


class FollowerNote(StrictValue):
    """The leader that a store follows, or followed before it was promoted."""

    leader: str
    promoted: bool = False


def settle(files: FileSystem, paths: StorePaths, options: StoreOptions) -> None:
    """Make durable, at an opening for writing, that the store follows or no longer does.

    Raises DirectoryNotUsable where a store that was promoted is to follow and has no epochs,
    StoreDamaged, OSError.
    """
    if not is_settled(options):
        return
    found = load(files, paths)
    if options.leader is None:
        if found is not None and not found.promoted:
            _save(files, paths, FollowerNote(leader=found.leader, promoted=True))
        return
    if found is not None and found.promoted and files.stat(paths.epochs) is None:
        raise DirectoryNotUsable(
            f"{paths.root} followed {found.leader} and was promoted since: its log has messages of "
            "its own. Open it without a leader, or follow into an empty directory"
        )
    note = FollowerNote(leader=options.leader)
    if note != found:
        _save(files, paths, note)


def is_settled(options: StoreOptions) -> bool:
    """Whether an opening decides if the store follows: one for writing does."""
    return options.in_place and options.services


def begins_to_follow(files: FileSystem, paths: StorePaths, options: StoreOptions) -> bool:
    """Whether the store led until this opening. Raises StoreDamaged, OSError."""
    if options.leader is None or not is_settled(options):
        return False
    found = load(files, paths)
    return found is None or found.promoted


def load(files: FileSystem, paths: StorePaths) -> FollowerNote | None:
    """Read the note; None without one. Raises StoreDamaged, OSError."""
    try:
        return sealed_json.read(files, paths.follower_note, FollowerNote)
    except ValueError as error:
        raise StoreDamaged(
            f"{paths.follower_note} cannot be read ({sealed_json.why_unreadable(error)}): "
            "remove it if the store has all its messages from a leader, or was never a follower"
        ) from error


def _save(files: FileSystem, paths: StorePaths, note: FollowerNote) -> None:
    files.make_directories(paths.ours)
    sealed_json.write(files, paths.follower_note, note)
