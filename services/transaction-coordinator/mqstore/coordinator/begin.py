"""Begins transactions: their half messages, which nobody sees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from mqstore.coordinator import halves, loading
from mqstore.coordinator.errors import Contradicted, LogRefused
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.ledger import Group, Ledger, Plan, attempt
from mqstore.coordinator.records import NewRecord, Placement
from mqstore.coordinator.transactions import Transaction
from mqstore.storage.layout import PROPERTY_UNIQ_KEY, StoreFormat


class Begin(msgspec.Struct, frozen=True):
    """A transaction to begin. Each message has a UNIQ_KEY, its topic and its queue."""

    group: str
    messages: Sequence[NewRecord]
    may_repeat: bool = True
    """Whether it may have been begun before: its unique keys are the producer's own."""

    @property
    def key(self) -> str:
        """A transaction goes by its first message's unique key."""
        return self.messages[0].properties[PROPERTY_UNIQ_KEY]

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

    def plan(self, asked: Sequence[Begin]) -> Plan[Transaction]:
        """See ``Coordinator.begin``. Raises LogUnavailable."""

        def stored(index: int) -> Transaction:
            return self._again(asked[index])

        plan: Plan[Transaction] = Plan([None] * len(asked), {}, stored, stored)
        under_way: set[str] = set()
        for index, each in enumerate(asked):
            if each.key in under_way:
                continue  # it repeats one of this plan
            found = attempt(partial(self._begun_or_group, each))
            if isinstance(found, Group):
                plan.groups[index] = found
                under_way.add(each.key)
            else:
                plan.results[index] = found
        return plan

    def _begun_or_group(self, asked: Begin) -> Transaction | Group:
        return self._begun(asked) or self._half_group(asked)

    def is_at_hand(self, asked: Begin) -> bool:
        """Whether nothing need be read from the log to begin it."""
        return not asked.may_repeat or self._ledger.state.find(asked.key) is not None

    def _again(self, asked: Begin) -> Transaction:
        """What is stored by now. Raises Contradicted, LogRefused."""
        found = self._begun(asked)
        if found is None:
            raise LogRefused("the transaction that it repeats was refused; begin again")
        return found

    def _begun(self, asked: Begin) -> Transaction | None:
        """The same transaction, when it was begun before: a producer asks again when it got no
        answer. Raises Contradicted for another one under its key, or when it is over."""
        found = self._ledger.state.find(asked.key)
        if found is None and asked.may_repeat:
            found = loading.find(self._ledger.log, asked.key)
        if found is None:
            return None
        places = {(half.uniq_key, half.topic) for half in found.halves}
        given = {(each.properties[PROPERTY_UNIQ_KEY], each.topic) for each in asked.messages}
        if found.group != asked.group or places != given:
            raise Contradicted(
                f"there is another transaction with the unique key {asked.key}; "
                "send new unique keys",
                *("begun", found.born_ms, ""),
            )
        decision = found.decision
        if decision is not None and decision.verdict is not Verdict.COMMIT:
            raise found.contradicted(decision, "send new unique keys")
        return found

    def _half_group(self, asked: Begin) -> Group:
        ledger = self._ledger
        records = asked.halves(ledger.standing.store_format)

        def note(placed: list[Placement]) -> None:
            ledger.note_halves(records, placed)
            ledger.counts.begun += 1

        return Group(records, note, is_unclear=self._was_committed(asked))

    def _was_committed(self, asked: Begin) -> bool:
        """Whether messages of it are to be seen although nothing is known of it: a power cut may
        take half messages and op records, and leave what was committed."""
        if not asked.may_repeat:
            return False
        log, own = self._ledger.log, PROPERTY_UNIQ_KEY
        return any(loading.committed(log, m.topic, m.properties[own]) for m in asked.messages)
