"""Messages and transactions that are produced while a release changes, and counted at the end."""

from __future__ import annotations

from dataclasses import dataclass

from tests.e2e.cluster import ClientPod, Release
from tests.e2e.replica_state import assert_nothing_is_lost, goes_on

UNAVAILABLE_MOST_S = 60


@dataclass(frozen=True)
class MixedLoad:
    """Two pods: one produces, the other begins and decides transactions."""

    produce: ClientPod
    transact: ClientPod

    def goes_on(self) -> None:
        """Further messages are acknowledged, and further transactions begun."""
        goes_on(self.produce)
        begun = max(int(line.get("begun", 0)) for line in self.transact.lines())
        self.transact.says("begun", begun + 5)

    def assert_nothing_is_lost(self) -> None:
        """Every message is there once, and every transaction is as decided."""
        found = assert_nothing_is_lost(self.produce)
        self.transact.stop()
        assert found["slowest"] < UNAVAILABLE_MOST_S
        assert self.transact.ends()[-1]["wrong"] == []


def start_mixed_load(release: Release) -> MixedLoad:
    """Both pods, once they are at work."""
    produce = release.client_pod("produce", "produce", TOPIC="upgrade")
    transact = release.client_pod("transact", "transact")
    produce.says("acked", 50)
    transact.says("begun", 5)
    return MixedLoad(produce, transact)
