"""``brokerStarts`` of ``store verify``, beside whole brokers of 4.9.7 and 5.4.0: damaged stores of
ours, and on stores that brokers with other settings left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.storage.layout import StoreFormat
from tests.compat import ours
from tests.compat.broker_states import LIVES, REFUSED, Recipe, settings_of, write
from tests.compat.examples import copy_of
from tests.compat.lives import NOT_OURS
from tests.compat.referee import Referee
from tests.compat.test_repaired_damages import APPENDED
from tests.long_runs import few_first
from tests.unit.storage.store_repair import damages
from tests.unit.storage.store_repair.damages import DAMAGES, Patient, make_store

pytestmark = [pytest.mark.referee, pytest.mark.xdist_group("starts"), pytest.mark.slow]

PATIENCE_S: Final = 60
"""A broker with a segment missing may wait for ever in its start."""
TABLES: Final = (
    *("topics.json", "subscriptionGroup.json", "consumerOffset.json", "consumerFilter.json"),
    *("delayOffset.json", "topicQueueMapping.json", "consumerOrderInfo.json"),
    *("messageRequestMode.json", "lmqConsumerOffset.json", "timermetrics", "transactionMetrics"),
    *("tieredStoreMetadata.json", "timercheck", "other.json"),
)
TORN: Final = b'{"dataVersion":{"cou'
STRAYS: Final[dict[str, bytes]] = {
    "timerwheel": b"x",
    "timerlog/00000000000000000000": b"x",
    "index/strange": b"x",
    "index/20260101000000000": b"x",
    "consumequeue/T/0/strange": b"x",
    "consumequeue/T/strange": b"x",
    "consumequeue/strange": b"x",
    "commitlog/strange": b"x",
    "config/strange": b"x",
}
DIRECTORIES: Final = (
    *("index/d", "commitlog/d", "consumequeue/T/0/d", "consumequeue/T/d", "timerlog/d", "config/d"),
)


def table(name: str, content: bytes | None, backup: bytes | None) -> Callable[[Patient], None]:
    """Replace a table and its ``.bak``; None takes one away."""

    def damage(patient: Patient) -> None:
        for file, each in ((name, content), (name + ".bak", backup)):
            path = patient.paths.config / file
            path.unlink(missing_ok=True)
            if each is not None:
                path.write_bytes(each)

    damage.__name__ = f"{name}-{_word(content)}-{_word(backup)}"
    return damage


def _word(content: bytes | None) -> str:
    return {None: "missing", b"": "empty", TORN: "torn"}[content]


def stray(name: str, content: bytes | None) -> Callable[[Patient], None]:
    """Put a file there, or a directory."""

    def damage(patient: Patient) -> None:
        path = patient.root / name
        if content is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    damage.__name__ = name + {None: "/", b"": "-empty"}.get(content, "")
    return damage


def all_damages() -> Iterator[Callable[[Patient], None]]:
    yield from dict.fromkeys(chain.from_iterable(DAMAGES.values()))
    for name in TABLES:
        yield from (table(name, content, TORN) for content in (TORN, b"", None))
        yield from (table(name, TORN, backup) for backup in (b"", None))
    yield from (stray(name, content) for name, each in STRAYS.items() for content in (each, b""))
    yield from (stray(name, None) for name in DIRECTORIES)


QUICK: Final = {
    each.__name__: each
    for each in (
        table("topics.json", TORN, TORN),
        table("consumerOrderInfo.json", None, TORN),
        damages.misplaced_queue_file,
        damages.shorten_a_segment,
        stray("timerwheel", b"x"),
    )
}


OTHERS: Final = {each.__name__: each for each in all_damages()}


def check(referee: Referee, root: Path, config: dict[str, Any]) -> tuple[int | None, int]:
    """A broker starts where ``verify`` says so; the end of its log, and the one foretold."""
    findings, summary = ours.verify(root, config)
    end = referee.starts(copy_of(root), config, timeout_s=PATIENCE_S)
    assert summary["brokerStarts"] == (end is not None), findings
    return end, int(summary["brokerMaxOffset"])


@pytest.fixture(scope="module")
def written(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("starts") / "store"
    make_store(root, StoreFormat(referee.format))
    return root


@pytest.mark.parametrize(
    "damage",
    few_first({**QUICK, **OTHERS}.values(), len(QUICK), others=pytest.mark.nightly),
    ids=lambda damage: damage.__name__,
)
def test_a_broker_starts_on_a_damaged_store_where_verify_says_so(
    referee: Referee, written: Path, tmp_path: Path, damage: Callable[[Patient], None]
) -> None:
    patient = Patient(Path(shutil.copytree(written, tmp_path / "store")))
    damage(patient)
    is_lmq = any(patient.paths.config.glob("lmqConsumerOffset.json*"))
    end, foretold = check(referee, patient.root, {**APPENDED.config, "enableLmq": is_lmq})
    assert end in (None, foretold)
    shutil.rmtree(tmp_path)


RECIPES: Final = [pytest.param(each.version, each, id=str(each)) for each in (*LIVES, *REFUSED)]


@pytest.mark.nightly
@pytest.mark.parametrize("referee, recipe", RECIPES, indirect=["referee"])
def test_a_broker_starts_on_what_a_broker_left_where_verify_says_so(
    referee: Referee, recipe: Recipe, tmp_path: Path
) -> None:
    """The broker has the settings of its predecessor; ``verify`` need not know them."""
    store = tmp_path / "store"
    write(referee, recipe, store)
    settings = settings_of(recipe, store)
    check(referee, store, {name: settings[name] for name in settings.keys() - NOT_OURS})
