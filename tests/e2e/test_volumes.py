"""A volume that fills, grows and fails under a shard that works on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import KUBE, Release, is_kube_tool, namespace, run, small_values, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.skipif(not is_kube_tool(), reason="needs the kube tool's volumes of a size"),
    pytest.mark.timeout(600),
]
SIZE_MIB = 96


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """Nothing goes before its time, so that only a larger volume makes room."""
    values = small_values(persistence={"size": f"{SIZE_MIB}Mi", "storageClass": "sized"})
    values["store"] |= {"cleanFileForciblyEnable": False, "cleanResourceInterval": 1000}
    with namespace() as name:
        installed = Release(name, "disk", values)
        installed.install()
        yield installed


def test_nothing_acknowledged_rests_on_a_sync_that_failed(release: Release) -> None:
    client = release.client_pod("faults", "produce", TOPIC="faults")
    client.says("acked", 100)
    restarts = release.restarts("store-writer")
    _disk(release, "fail")
    try:
        until(lambda: release.restarts("store-writer") > restarts, "the writer gives up its disk")
        assert "failed (Input/output error)" in _last_words(release)
        refused = "the disk refuses"
        until(lambda: refused in _not_ready(release), "it says that the disk refuses")
        until(lambda: "StoreReadOnly" in _described(release), "and so does an Event")
    finally:
        _disk(release, "heal")
    acked = max(line["acked"] for line in client.lines() if "acked" in line)
    client.says("acked", acked + 100)
    client.stop()
    found = client.ends()[-1]
    assert (found["lost"], found["doubled"]) == ([], [])


def test_a_full_volume_is_read_and_takes_messages_again_once_it_has_grown(release: Release) -> None:
    restarts = release.restarts("store-writer")
    client = release.client_pod("fills", "fill")
    taken = client.says("full")["full"]
    assert client.says("read", 0)["read"] == taken
    assert release.is_ready()
    until(lambda: "DiskFull" in _described(release), "an Event says that the disk is full")
    _grow(release, f"{2 * SIZE_MIB}Mi")
    assert client.says("again")
    until(lambda: "DiskHasRoom" in _described(release), "and one that there is room")
    assert release.restarts("store-writer") == restarts
    uid = release.get("pod", release.shard)["metadata"]["uid"]
    release.values["persistence"]["size"] = f"{2 * SIZE_MIB}Mi"
    release.kubectl("delete", "statefulset", f"{release.full_name}-shard", "--cascade=orphan")
    release.install()
    assert release.get("pod", release.shard)["metadata"]["uid"] == uid


def test_forced_retention_deletes_no_more_than_the_volume_needs_beside_a_reading_query() -> None:
    """A ballast takes the room of one and a half segments more than the volume may hold: the spare
    segment and one with messages are enough, though query had every one of them mapped."""
    values = small_values(persistence={"size": f"{2 * SIZE_MIB}Mi", "storageClass": "sized"})
    values["store"] |= {
        "cleanFileForciblyMinAge": 0,
        "cleanResourceInterval": 1000,
        "diskSpaceWarningLevelRatio": 100,
    }
    with namespace() as name:
        release = Release(name, "forced", values)
        release.install()
        release.client_pod("reads", "read_all", COUNT="64").says("read", 64)
        before = _segments(release)
        assert len(before) > 8
        _put_ballast(release, FORCED_PERCENT, 3 * SEGMENT // 2)
        until(lambda: _is_below(release, FORCED_PERCENT), "retention made room")
        gone = before - _segments(release)
        assert len(gone) <= 2, gone
        oldest = sorted(before)
        assert gone <= {oldest[0], oldest[-1]}, "the oldest one, and the one made ahead"
        until(lambda: "SegmentsForced" in _described(release), "an Event of the pod reports it")
        maps = "cat /proc/[0-9]*/maps 2>/dev/null | grep -c 'commitlog.*deleted' || true"
        until(
            lambda: release.in_container("query", "sh", "-c", maps).strip() == "0",
            "query has dropped its maps of deleted segments",
        )


FORCED_PERCENT = 85
SEGMENT = 8 << 20
STORE = "/var/lib/mqstore"


def _segments(release: Release) -> set[str]:
    return set(release.in_container("store-writer", "ls", f"{STORE}/store/commitlog").split())


def _put_ballast(release: Release, percent: int, above: int) -> None:
    """Take room until so many bytes more than that are in use."""
    code = (
        "import os\n"
        f"found = os.statvfs('{STORE}')\n"
        "used = (found.f_blocks - found.f_bfree) * found.f_frsize\n"
        "total = used + found.f_bavail * found.f_frsize\n"
        f"size = total * {percent} // 100 + {above} - used\n"
        f"ballast = os.open('{STORE}/ballast', os.O_CREAT | os.O_WRONLY)\n"
        "os.posix_fallocate(ballast, 0, size)\n"
    )
    release.in_container("store-writer", "python", "-c", code)


def _is_below(release: Release, percent: int) -> bool:
    words = ("df", "--output=used,avail", "--block-size=1", STORE)
    used, free = release.in_container("store-writer", *words).split()[-2:]
    return int(used) * 100 <= percent * (int(used) + int(free))


def _described(release: Release) -> str:
    return release.kubectl("describe", "pod", release.shard)


def _disk(release: Release, what: str) -> None:
    run(str(KUBE / "disk-fault"), f"{release.namespace}/store-{release.shard}", what)


def _grow(release: Release, size: str) -> None:
    wanted = {"spec": {"resources": {"requests": {"storage": size}}}}
    release.kubectl("patch", "pvc", f"store-{release.shard}", "-p", json.dumps(wanted))


def _writer(release: Release) -> dict[str, Any]:
    statuses = release.get("pod", release.shard)["status"]["containerStatuses"]
    found: dict[str, Any] = next(each for each in statuses if each["name"] == "store-writer")
    return found


def _last_words(release: Release) -> str:
    return str(_writer(release)["lastState"]["terminated"]["message"])


def _not_ready(release: Release) -> str:
    """Reply of the writer to its readiness probe."""
    script = (
        "import urllib.request, urllib.error\n"
        "try: print(urllib.request.urlopen('http://127.0.0.1:8081/healthz/ready').read())\n"
        "except urllib.error.HTTPError as error: print(error.read())\n"
        "except OSError as error: print(error)\n"
    )
    return release.in_container("store-writer", "python", "-c", script, check=False)
