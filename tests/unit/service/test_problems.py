from __future__ import annotations

import errno
import inspect
import json
import os

import pytest

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage import errors


def test_every_type_has_a_stable_name_and_an_error_status() -> None:
    for name, kind in problems.REGISTRY.items():
        assert kind.name == name
        assert 400 <= kind.status < 600
        assert kind.title and not kind.title.endswith(".")
        assert kind.when.endswith(".") and kind.remedy.endswith(".")


def test_problem_body_is_rfc_9457() -> None:
    problem = Problem(problems.TOPIC_UNKNOWN, "no topic x", extra={"topic": "x"})
    assert json.loads(problem.body("id-1")) == {
        "type": "urn:mqstore:problem:topic-unknown",
        "title": "No such topic",
        "status": 404,
        "detail": "no topic x",
        "requestId": "id-1",
        "topic": "x",
    }


def test_what_may_succeed_later_says_when_to_retry() -> None:
    assert Problem(problems.STORE_NOT_READY, "starting").headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.MessageTooLarge("x"), 413),
        (errors.PropertiesTooLong("x"), 422),
        (errors.TopicNameError("x"), 422),
        (errors.PropertyError("x"), 422),
        (errors.PageCacheBusy("x"), 503),
        (errors.DiskFull("x"), 507),
        (errors.PinUnknown("x"), 404),
        (errors.PinRefused("x"), 409),
        (errors.StoreNotWritable("read-only", "x"), 503),
        (errors.SegmentCreationFailed("x"), 503),
        (errors.SegmentCreationFailed("x", errors.Lack.NO_ROOM), 507),
        (errors.SegmentCreationFailed("x", errors.Lack.TOO_MANY_FILES), 503),
        (errors.SegmentCreationFailed("x", errors.Lack.DISK_ERROR), 503),
        (errors.FlushTimeout("x"), 504),
        (errors.StoreFailed("x"), 503),
        (errors.RepairRefused("x"), 503),
        (errors.TopicUnknown("x"), 404),
        (errors.RecordExpired("x"), 410),
        (errors.RecordBodyCorrupt(7, "x"), 500),
        (errors.RecordBlockCorrupt(7, 0, 65536), 500),
        (errors.RecordTombstone(7, 100, "t", 0, 3), 410),
        (errors.MessageIdError("x"), 400),
    ],
)
def test_storage_error_has_its_status(error: errors.StorageError, status: int) -> None:
    problem = problems.from_storage(error)
    assert problem is not None
    assert problem.kind.status == status


def test_every_refused_put_has_rocketmqs_status() -> None:
    refusals = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.PutRefused) and kind is not errors.StoreNotWritable
    ]
    for kind in refusals:
        problem = problems.from_storage(kind("why"))
        assert problem is not None
        assert problem.extra["putStatus"] == kind.status


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (errors.DiskFull("x"), "disk-full"),
        (errors.StoreNotWritable("closing", "x"), "shutting-down"),
        (errors.StoreNotWritable("read-only", "x"), "store-read-only"),
        (errors.StoreNotWritable("failed", "x"), "store-failed"),
        (errors.StoreNotOpen("recovering", "x"), "store-not-ready"),
        (errors.PageCacheBusy("x"), "page-cache-busy"),
    ],
)
def test_every_reason_to_refuse_a_write_is_a_type_of_its_own(
    error: errors.StorageError, name: str
) -> None:
    problem = problems.from_storage(error)
    assert problem is not None
    assert problem.kind.name == name


def test_a_full_disk_is_a_problem_with_its_numbers() -> None:
    problem = problems.from_storage(errors.DiskFull("91 % full", {"usedPercent": 91}))
    assert problem is not None
    body = json.loads(problem.body("id"))
    assert (body["disk"], body["detail"]) == ({"usedPercent": 91}, "91 % full")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_change_that_finds_no_room_is_refused_as_a_full_disk(number: int) -> None:
    problem = problems.from_system(OSError(number, os.strerror(number), "/data/topics.json"))
    assert problem is not None
    assert (problem.kind.name, problem.kind.status) == ("disk-full", 507)
    assert os.strerror(number) in problem.detail
    assert "/data" not in problem.detail


def test_other_errors_of_the_system_are_no_full_disk() -> None:
    assert problems.from_system(OSError(errno.EIO, "I/O error")) is None
