"""Begins transactions: stores their half messages, which no consumer receives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from mqstore.storage.errors import PutRefused, UniqueKeyTaken
from mqstore.storage.layout import PROPERTY_UNIQ_KEY, StoreFormat
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.transactions import halves, loading
from mqstore.storage.transactions.halves import Half, Verdict
from mqstore.storage.transactions.ledger import Group, Ledger, Plan, attempt
from mqstore.storage.transactions.records import LogRecord, NewRecord
from mqstore.storage.transactions.snapshot import State, state_of
from mqstore.storage.transactions.table import Transaction


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

    def keys_by_topic(self) -> dict[str, list[str]]:
        """The unique keys of the messages, by topic."""
        found: dict[str, list[str]] = {}
        for each in self.messages:
            found.setdefault(each.topic, []).append(each.properties[PROPERTY_UNIQ_KEY])
        return found

    def identities(self) -> set[tuple[str, str, bytes]]:
        """Each message's unique key, topic and digest of its body; a repeated begin must have the
        same."""
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


class BeginResult(msgspec.Struct, frozen=True, gc=False):
    """A transaction that was begun, now or before."""

    key: str
    state: State
    end: int
    """Physical offset below which the log holds all of it."""


class Begins:
    """Stores half messages."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def is_at_hand(self, begin: Begin) -> bool:
        """Whether the transaction can begin without a read of the log.

        Its keys are new by one look-up in the table of recent keys, or memory has the transaction.
        """
        found = self._ledger.state.find(begin.key)
        if found is not None:
            return not any(self._is_of_deleted_topic(each) for each in found.halves)
        return not begin.may_repeat or not self._may_be_stored(begin)

    def knows(self, topic: str, keys: Sequence[str]) -> bool:
        """See ``TransactionEngine.knows``."""
        log = self._ledger.log
        if self._ledger.state.find(keys[0]) is not None:
            return True
        if not log.may_have(topic, keys):
            return False
        # A power cut may leave committed messages of an unknown transaction: see _was_committed.
        return loading.find(log, keys[0]) is not None or any(
            self._committed(topic, key) is not None for key in keys
        )

    def plan(self, begins: Sequence[Begin]) -> Plan[BeginResult]:
        """See ``TransactionEngine.take``."""

        def stored(index: int) -> BeginResult:
            return self._require_begun(begins[index])

        plan: Plan[BeginResult] = Plan([None] * len(begins), {}, stored, stored)
        under_way: set[str] = set()
        for index, each in enumerate(begins):
            if each.key in under_way:
                continue  # a duplicate within this plan
            found = attempt(partial(self._find_or_plan, each))
            if isinstance(found, Group):
                plan.groups[index] = found
                under_way.add(each.key)
            else:
                plan.results[index] = found
        return plan

    def _may_be_stored(self, begin: Begin) -> bool:
        may_have = self._ledger.log.may_have
        return any(may_have(topic, keys) for topic, keys in begin.keys_by_topic().items())

    def _find_or_plan(self, begin: Begin) -> BeginResult | Group:
        reads = begin.may_repeat and self._may_be_stored(begin)
        return self._find_begun(begin, reads=reads) or self._half_group(begin, reads=reads)

    def _require_begun(self, begin: Begin) -> BeginResult:
        """Find a transaction that was begun before.

        Raises UniqueKeyTaken, TransactionDecided, PutRefused, TransactionsNotLoaded.
        """
        found = self._find_begun(begin, reads=False)
        if found is None:
            raise PutRefused("the begin that this one repeats was refused")
        return found

    def _find_begun(self, begin: Begin, *, reads: bool) -> BeginResult | None:
        """Find the same transaction, when it was begun before: a producer begins it again when it
        got no reply. Raises UniqueKeyTaken for another one, TransactionDecided when it is over."""
        ledger = self._ledger
        found = ledger.state.find(begin.key)
        if found is None and reads:
            found = loading.find(ledger.log, begin.key)
        if found is None:
            return None
        stored = {(half.uniq_key, half.topic, half.body_digest) for half in found.halves}
        if found.group != begin.group or stored != begin.identities():
            raise UniqueKeyTaken(
                f"a transaction was begun under the unique key {begin.key} by another group, or "
                "with other messages or bodies; send new unique keys"
            )
        decision = found.decision
        if decision is not None and decision.verdict is not Verdict.COMMIT:
            raise found.contradiction_error(decision, "send new unique keys", ledger.log.end_offset)
        if decision is not None:
            self._require_topics(found)
        return BeginResult(found.key, state_of(found), ledger.log.end_offset)

    def _require_topics(self, found: Transaction) -> None:
        """Raise UniqueKeyTaken where a committed message went with its topic: it is not where this
        begin wants it."""
        for each in found.halves:
            if self._is_of_deleted_topic(each) and not self._committed(each.topic, each.uniq_key):
                raise UniqueKeyTaken(
                    f"the transaction under the unique key {found.key} was committed to topic "
                    f"{each.topic}, which was deleted since; send new unique keys"
                )

    def _is_of_deleted_topic(self, half: Half) -> bool:
        return half.physical_offset < self._ledger.log.deleted_below(half.topic)

    def _committed(self, topic: str, uniq_key: str) -> LogRecord | None:
        """The committed message of a topic, as it is now, with a unique key."""
        log = self._ledger.log
        return loading.find_committed(log, topic, uniq_key, log.deleted_below(topic))

    def _half_group(self, begin: Begin, *, reads: bool) -> Group:
        ledger = self._ledger
        records = begin.halves(ledger.log.format)

        def note(placed: list[Placement]) -> None:
            ledger.note_halves(records, placed)
            ledger.counts.begun += 1
            if begin.may_repeat:
                self._remember(begin, placed)

        return Group(records, note, is_unclear=reads and self._was_committed(begin))

    def _remember(self, begin: Begin, placed: Sequence[Placement]) -> None:
        by_topic: dict[str, tuple[list[str], list[Placement]]] = {}
        for message, place in zip(begin.messages, placed, strict=True):
            keys, places = by_topic.setdefault(message.topic, ([], []))
            keys.append(message.properties[PROPERTY_UNIQ_KEY])
            places.append(place)
        for topic, (keys, places) in by_topic.items():
            self._ledger.log.remember(topic, keys, places)

    def _was_committed(self, begin: Begin) -> bool:
        """Whether the log has committed messages of an unknown transaction: a power cut may remove
        half messages and op records, and leave the committed messages; half messages may expire
        before these. Raises UniqueKeyTaken where one has another body."""
        was_committed = False
        for each in begin.messages:
            key = each.properties[PROPERTY_UNIQ_KEY]
            found = self._committed(each.topic, key)
            if found is not None and found.record.body != each.body:
                raise UniqueKeyTaken(
                    f"a message with another body was committed to topic {each.topic} under the "
                    f"unique key {key}; send new unique keys"
                )
            was_committed = was_committed or found is not None
        return was_committed
