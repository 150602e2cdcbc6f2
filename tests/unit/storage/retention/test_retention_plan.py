from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.config import StoreConfig
from mqstore.storage.retention import plan
from mqstore.storage.retention.disk import Disks, Volume
from mqstore.storage.retention.holds import Hold
from mqstore.storage.retention.plan import RetentionPlan, SegmentFacts, Situation, Trigger, Why
from mqstore.storage.retention.rule import NO_DELETION

SIZE = 1000
HOUR_MS = 3_600_000
NOON_MS = 1_800_100_800_000
"""2027-01-16 12:00 UTC."""
FOUR_MS = NOON_MS - 8 * HOUR_MS
OLD, YOUNG = 73 * HOUR_MS, HOUR_MS


def segment(number: int, age_ms: int = OLD, *, now_ms: int = NOON_MS) -> SegmentFacts:
    start = number * SIZE
    return SegmentFacts(f"{start:020d}", start, start + SIZE, now_ms - age_ms)


def disks(percent: int, other: int = 1) -> Disks:
    return Disks([volume("commitlog", percent), volume("consumequeue", other)])


def volume(name: str, percent: int) -> Volume:
    return Volume(
        name=name,
        path=f"/{name}",
        total_bytes=100,
        used_bytes=percent,
        free_bytes=100 - percent,
        used_percent=percent,
    )


def situation(
    ages_ms: Sequence[int] = (OLD, OLD, OLD), now_ms: int = NOON_MS, **changes: object
) -> Situation:
    segments = [segment(number, age, now_ms=now_ms) for number, age in enumerate(ages_ms)]
    made = Situation(now_ms, StoreConfig(), segments, len(segments) * SIZE, disks(50))
    return replace(made, **changes)  # type: ignore[arg-type]  # field names are the tests' own


def whys(made: RetentionPlan) -> list[str]:
    return [each.why.value for each in made.segments]


def goes(made: RetentionPlan) -> list[bool]:
    return [each.goes for each in made.segments]


def pin(start: int, end: int | None = None, until_ms: int | None = NOON_MS + 5) -> Hold:
    return Hold(kind="pin", name="job", from_offset=start, to_offset=end, until_ms=until_ms)


def test_expired_files_wait_for_the_hour_that_the_plan_names() -> None:
    made = plan.make(situation())
    assert made.triggers == ()
    assert whys(made) == ["hour", "hour", "newest"]
    assert made.next is None
    assert made.segments[0].not_before_ms == made.next_hour_ms == FOUR_MS + 24 * HOUR_MS


def test_in_the_hour_expired_files_go_and_the_newest_never() -> None:
    made = plan.make(situation(now_ms=FOUR_MS))
    assert made.triggers == (Trigger.HOUR,)
    assert whys(made) == ["expired", "expired", "newest"]
    assert made.bytes_to_go == 2 * SIZE
    assert made.segments[0].not_before_ms == FOUR_MS
    assert made.segments[2].not_before_ms is None


def test_a_file_expires_to_the_millisecond() -> None:
    reserved = 72 * HOUR_MS
    assert whys(plan.make(situation((reserved, 0), FOUR_MS))) == ["expired", "newest"]
    made = plan.make(situation((reserved - 1, 0), FOUR_MS))
    assert whys(made) == ["in-time", "newest"]
    assert made.segments[0].not_before_ms == made.segments[0].expires_ms == FOUR_MS + 1


def test_a_file_in_time_keeps_all_that_come_after_it() -> None:
    made = plan.make(situation((OLD, YOUNG, OLD, OLD), FOUR_MS))
    assert whys(made) == ["expired", "in-time", "behind", "newest"]
    assert goes(made) == [True, False, False, False]


@pytest.mark.parametrize(("percent", "found"), [(75, ()), (76, (Trigger.DISK,))])
def test_above_the_first_ratio_expired_files_go_at_any_hour(
    percent: int, found: tuple[Trigger, ...]
) -> None:
    made = plan.make(situation((OLD, YOUNG, 0), disks=disks(percent)))
    assert made.triggers == found
    assert whys(made)[0] == ("expired" if found else "hour")
    assert whys(made)[1] == "in-time"


@pytest.mark.parametrize(("percent", "forced"), [(85, False), (86, True)])
def test_above_the_second_ratio_files_go_whatever_their_age(percent: int, forced: bool) -> None:
    made = plan.make(situation((YOUNG, YOUNG, 0), disks=disks(percent)))
    assert (Trigger.FORCED in made.triggers) is forced
    assert goes(made) == [forced, forced, False]
    assert whys(made)[0] == ("forced" if forced else "in-time")


def test_no_file_is_forced_that_was_just_written_to() -> None:
    made = plan.make(situation((HOUR_MS, HOUR_MS - 1, 0), disks=disks(95)))
    assert whys(made) == ["forced", "young", "newest"]
    assert goes(made) == [True, False, False]
    assert made.segments[1].not_before_ms == NOON_MS + 1


def test_the_age_below_which_no_file_is_forced_is_a_setting() -> None:
    for age, why in ((0, "forced"), (2 * HOUR_MS, "young")):
        config = StoreConfig(clean_file_forcibly_min_age=age)
        made = plan.make(situation((HOUR_MS, 0), config=config, disks=disks(95)))
        assert whys(made)[0] == why


def test_a_file_that_has_expired_goes_however_young_it_is() -> None:
    config = StoreConfig(file_reserved_time=0)
    assert whys(plan.make(situation((1, 0), config=config, disks=disks(95))))[0] == "expired"


def test_bytes_of_unlinked_files_count_as_free_for_what_goes() -> None:
    full = volume("commitlog", 95)
    leaving = full.model_copy(update={"unlinked_bytes": 10})
    assert plan.make(situation((YOUNG, 0), disks=Disks([full]))).next is not None
    made = plan.make(situation((YOUNG, 0), disks=Disks([leaving]), puts_refused="95 % full"))
    assert made.next is None
    assert (made.puts_refused, made.puts_refused_why) == (True, "95 % full")


def test_where_the_next_segment_does_not_fit_files_go_as_above_both_ratios() -> None:
    made = plan.make(situation((YOUNG, 0, 0), lacks_segment=True))
    assert made.triggers == (Trigger.DISK, Trigger.FORCED, Trigger.NO_SEGMENT)
    assert whys(made) == ["forced", "young", "newest"]


def test_nothing_is_forced_while_the_last_deletion_made_no_room() -> None:
    made = plan.make(situation((YOUNG, 0), disks=replace(disks(95), doubts=True)))
    assert made.triggers == (Trigger.DISK,)
    assert made.next is None


def test_the_volume_of_the_queues_counts_as_that_of_the_log() -> None:
    assert plan.make(situation((YOUNG, 0), disks=disks(1, other=86))).next is not None


def test_without_clean_file_forcibly_only_expired_files_go() -> None:
    config = StoreConfig(clean_file_forcibly_enable=False)
    made = plan.make(situation((OLD, YOUNG, 0), config=config, disks=disks(95)))
    assert made.triggers == (Trigger.DISK,)
    assert whys(made) == ["expired", "in-time", "newest"]


def test_by_hand_expired_files_go_at_any_hour_and_no_others() -> None:
    made = plan.make(situation((OLD, YOUNG, 0), manual=True))
    assert made.triggers == (Trigger.MANUAL,)
    assert whys(made) == ["expired", "in-time", "newest"]


def test_what_is_not_dispatched_never_goes() -> None:
    made = plan.make(situation(dispatched=SIZE + 1, disks=disks(95)))
    assert whys(made) == ["expired", "not-dispatched", "newest"]


def test_a_pin_keeps_the_segments_of_its_range_and_all_behind() -> None:
    made = plan.make(situation((OLD,) * 5, FOUR_MS, holds=[pin(SIZE, 2 * SIZE + 1)]))
    assert whys(made) == ["expired", "held", "held", "behind", "newest"]
    assert made.segments[1].held_by == ("pin job",)


def test_a_held_segment_may_be_deleted_at_the_end_of_the_lease_or_at_no_known_time() -> None:
    lease, group = pin(0, until_ms=FOUR_MS + 9), pin(0, until_ms=None)
    assert plan.make(situation(now_ms=FOUR_MS, holds=[lease])).segments[0].not_before_ms == (
        FOUR_MS + 9
    )
    both = plan.make(situation(now_ms=FOUR_MS, holds=[lease, group]))
    assert [each.not_before_ms for each in both.segments] == [None, None, None]


@pytest.mark.parametrize(("percent", "kept"), [(88, True), (89, False)])
def test_holds_are_honoured_up_to_the_ceiling(percent: int, kept: bool) -> None:
    made = plan.make(situation((YOUNG, 0), holds=[pin(0)], disks=disks(percent)))
    assert made.holds_honoured is kept
    assert whys(made)[0] == ("held" if kept else "forced")
    assert made.segments[0].held_by == ("pin job",)


def test_a_file_that_is_leaving_is_tried_again_whatever_the_hour() -> None:
    leaving = replace(segment(0, YOUNG), is_leaving=True)
    made = plan.make(situation(segments=[leaving, segment(1)], dispatched=2 * SIZE))
    assert made.next is not None
    assert made.next.why is Why.READER


def test_the_newest_is_known_where_only_the_oldest_are_looked_at() -> None:
    made = plan.make(situation((OLD,), FOUR_MS, newest="another"))
    assert whys(made) == ["expired"]


def test_an_empty_log_has_an_empty_plan() -> None:
    made = plan.make(situation((), disks=disks(95)))
    assert made.segments == ()
    assert made.next is None


situations = st.builds(
    lambda ages, percent, dispatched, held, now: situation(
        ages,
        NOON_MS + now,
        disks=disks(percent),
        dispatched=dispatched,
        holds=[pin(start, start + length) for start, length in held],
    ),
    st.lists(st.integers(-HOUR_MS, 100 * HOUR_MS), max_size=8),
    st.integers(0, 100),
    st.integers(0, 8 * SIZE),
    st.lists(st.tuples(st.integers(0, 8 * SIZE), st.integers(1, 3 * SIZE)), max_size=3),
    st.integers(0, 24 * HOUR_MS),
)


@given(situations)
def test_what_goes_is_a_run_from_the_front_that_nothing_keeps(given_situation: Situation) -> None:
    made = plan.make(given_situation)
    going = [each for each in made.segments if each.goes]
    assert list(made.segments[: len(going)]) == going
    assert len(going) < max(1, len(made.segments))
    for each in going:
        assert each.offset + each.size <= given_situation.dispatched
        assert made.triggers
        assert not each.held_by or not made.holds_honoured
        assert each.expires_ms <= made.made_ms or Trigger.FORCED in made.triggers


@given(situations)
def test_no_segment_goes_before_the_one_in_front_of_it(given_situation: Situation) -> None:
    moments = [each.not_before_ms for each in plan.make(given_situation).segments]
    known = [moment for moment in moments if moment is not None]
    assert known == sorted(known)
    assert moments == known + [None] * (len(moments) - len(known))
    assert all(moment >= given_situation.now_ms for moment in known)


@given(situations)
def test_a_plan_is_read_back_from_its_json(given_situation: Situation) -> None:
    made = plan.make(given_situation)
    assert RetentionPlan.model_validate_json(made.model_dump_json(by_alias=True)) == made


def test_a_plan_says_by_which_settings_it_was_made() -> None:
    config = StoreConfig(file_reserved_time=5, keep_for_groups="g", delete_when="03;15")
    made = plan.make(Situation(NOON_MS, config, [], 0, Disks()))
    assert made.rule.apply_to(StoreConfig()) == config


def test_a_process_that_deletes_nothing_names_no_time_of_a_deletion() -> None:
    config = StoreConfig().model_copy(update=NO_DELETION)
    made = plan.make(situation(config=config, disks=disks(99)))
    assert not made.deletes
    assert [each.not_before_ms for each in made.segments] == [None, None, None]
    assert goes(made) == [False, False, False]
    assert plan.make(situation()).deletes
