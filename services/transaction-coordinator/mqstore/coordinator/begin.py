"""Begins transactions: stores their half messages, which no consumer receives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from mqstore.coordinator import halves, loading
from mqstore.coordinator.errors import KeysKnown, LogRefused, UniqueKeysTaken
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.ledger import Group, Ledger, Plan, attempt
from mqstore.coordinator.records import Key, NewRecord, Placement
from mqstore.coordinator.transactions import Transaction
from mqstore.storage.layout import HALF_TOPIC, PROPERTY_UNIQ_KEY, StoreFormat


class Begin(msgspec.Struct, frozen=True):
    """A transaction to begin. Each message has a UNIQ_KEY, its topic and its queue."""

    group: str
    messages: Sequence[NewRecord]
    may_repeat: bool = True
    """Whether the producer chose the unique keys, so that this may repeat an earlier request."""

    @property
    def key(self) -> str:
        """The transaction's key: the unique key of its first message."""
        return self.messages[0].properties[PROPERTY_UNIQ_KEY]

    def keys(self) -> list[Key]:
        """Keys under which the log has records if the transaction was begun before."""
        committed = [Key(each.topic, each.properties[PROPERTY_UNIQ_KEY]) for each in self.messages]
        return [Key(HALF_TOPIC, self.key), *committed]

    def identities(self) -> set[tuple[str, str, bytes]]:
        """Each message's unique key, topic and digest of its body; a repeat must have the same."""
        return {
            (each.properties[PROPERTY_UNIQ_KEY], each.topic, halves.digest_body(each.body))
            for each in self.messages
        }

    def halves(self, store_format: StoreFormat) -> list[NewRecord]:
        """The half messages to store."""
        extra = halves.parts_of(self.key, len(self.messages))
        messages = self.messages
        if extra:
            messages = [replace(each, properties={**each.properties, **extra}) for each in messages]
        return [halves.half_of(each, self.group, store_format) for each in messages]


class Begins:
    """Stores half messages."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def plan(self, begins: Sequence[Begin], *, reads: bool) -> Plan[Transaction]:
        """See ``Coordinator.taking``. Raises LogUnavailable."""

        def stored(index: int) -> Transaction:
            return self._require_begun(begins[index], reads=reads)

        plan: Plan[Transaction] = Plan([None] * len(begins), {}, stored, stored)
        under_way: set[str] = set()
        for index, each in enumerate(begins):
            if each.key in under_way:
                continue  # a duplicate within this plan
            found = attempt(partial(self._begun_or_group, each, reads=reads))
            if isinstance(found, Group):
                plan.groups[index] = found
                under_way.add(each.key)
            else:
                plan.results[index] = found
        return plan

    def _begun_or_group(self, begin: Begin, *, reads: bool) -> Transaction | Group:
        return self._begun(begin, reads=reads) or self._half_group(begin, reads=reads)

    def _require_begun(self, begin: Begin, *, reads: bool) -> Transaction:
        """The stored transaction. Raises UniqueKeysTaken, Contradicted, LogRefused."""
        found = self._begun(begin, reads=reads)
        if found is None:
            refused = LogRefused if reads else KeysKnown
            raise refused("the transaction that it repeats was refused; begin again")
        return found

    def _begun(self, begin: Begin, *, reads: bool) -> Transaction | None:
        """The same transaction, when it was begun before: a producer begins it again when it got
        no reply. Raises UniqueKeysTaken for another one, Contradicted when it is over."""
        found = self._ledger.state.find(begin.key)
        if found is None and begin.may_repeat and reads:
            found = loading.find(self._ledger.log, begin.key)
        if found is None:
            return None
        stored = {(half.uniq_key, half.topic, half.body_digest) for half in found.halves}
        if found.group != begin.group or stored != begin.identities():
            raise UniqueKeysTaken(
                f"a transaction was begun under the unique key {begin.key} by another group, or "
                "with other messages or bodies; send new unique keys"
            )
        decision = found.decision
        if decision is not None and decision.verdict is not Verdict.COMMIT:
            raise found.contradicted(decision, "send new unique keys")
        return found

    def _half_group(self, begin: Begin, *, reads: bool) -> Group:
        ledger = self._ledger
        records = begin.halves(ledger.standing.store_format)

        def note(placed: list[Placement]) -> None:
            ledger.note_halves(records, placed)
            ledger.counts.begun += 1

        if not begin.may_repeat:
            return Group(records, note)
        if not reads:
            return Group(records, note, absent=begin.keys())
        return Group(records, note, is_unclear=self._was_committed(begin))

    def _was_committed(self, begin: Begin) -> bool:
        """Whether the log has committed messages of an unknown transaction: a power cut may take
        half messages and op records, and leave the committed messages."""
        log, own = self._ledger.log, PROPERTY_UNIQ_KEY
        return any(loading.committed(log, m.topic, m.properties[own]) for m in begin.messages)
