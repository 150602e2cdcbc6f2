# A put, whole ----------------------------------------------------------------------------------


cdef enum:
    PLACED = 0  # why nothing was put, or that all was
    NEEDS_LOCK = 1
    NEEDS_ROOM = 2
    NEEDS_CLOCK = 3
    NEEDS_QUEUE = 4
    NEEDS_DISPATCH = 5
    NEEDS_CHECK = 6
    NEEDS_DELAY = 7
    KEY_KNOWN = 8

    SLOTS_AHEAD = 16  # slots of the index that are fetched before they are needed


class Reason(IntEnum):
    NEEDS_LOCK = 1
    NEEDS_ROOM = 2
    NEEDS_CLOCK = 3
    NEEDS_QUEUE = 4
    NEEDS_DISPATCH = 5
    NEEDS_CHECK = 6
    NEEDS_DELAY = 7
    KEY_KNOWN = 8


cdef tuple REASONS = (None, *Reason)


@cython.final
cdef class SystemClock:
    def now_ms(self):
        return mq_now_ms()

    def monotonic(self):
        return mq_monotonic()


cdef class FilePositions:
    cdef public int64_t wrote_position, flushed_position, populate_at


@cython.final
cdef class StateWords:
    cdef Held page
    cdef void *max_offset
    cdef void *dispatched
    cdef void *arrivals
    cdef int notified  # event file descriptor of the next arrival, or -1

    def __cinit__(self, view not None, int64_t max_at, int64_t dispatched_at, int64_t arrivals_at):
        self.page = Held(view, True)
        self.max_offset = <void *> word_at(&self.page.bytes, max_at, 8)
        self.dispatched = <void *> word_at(&self.page.bytes, dispatched_at, 8)
        self.arrivals = <void *> word_at(&self.page.bytes, arrivals_at, 4)
        self.notified = -1

    def set_max(self, uint64_t offset):
        atomic_store64(self.max_offset, offset)

    def set_dispatched(self, uint64_t offset):
        atomic_store64(self.dispatched, offset)
        self.arrive()

    def notify(self, int event_fd):
        self.notified = event_fd

    cdef int arrive(self) except -1:
        cdef int event_fd = self.notified
        atomic_add32(self.arrivals, 1)
        if event_fd >= 0:
            self.notified = -1
            count_event(event_fd)
        wake(self.arrivals)
        return 0


@cython.final
cdef class DispatchEnd:
    cdef public int64_t position, records, last_store_timestamp_ms
    cdef public bint is_idle
    cdef dict queues
    cdef IndexWindow index
    cdef bint index_tags
    cdef int64_t skip_index_below

    def follow(
        self, dict queues not None, IndexWindow index, bint index_tags, int64_t skip_index_below
    ):
        self.queues, self.index, self.index_tags = queues, index, index_tags
        self.skip_index_below = skip_index_below

    cdef QueueState *queue_for(self, tuple queue, int64_t queue_offset):
        """Where the entry can be written now, or NULL."""
        cdef QueueWindow window
        found = self.queues.get(queue)
        if found is None:
            return NULL
        window = found
        if window.state.busy or not has_room(&window.state, queue_offset):
            return NULL
        return &window.state

    cdef bint index_for(self, int64_t physical, int64_t items, IndexState **index):
        """The index that gets the items of a record, NULL where none does; False where it has no
        room for them now."""
        cdef IndexState *state
        if self.index is None or physical < self.skip_index_below:
            return True
        state = &self.index.state
        if state.busy or state.base == NULL or index_count(state.base) >= state.index_num:
            return False
        index[0] = state
        return index_count(state.base) + items <= state.index_num

    cdef bint is_ready(self, Records *r, int64_t offset, IndexState **index):
        """Whether all of these records, at a physical offset, can be dispatched now, and whether
        their keys go into the index; the places get their entries."""
        cdef IndexState *index_of_last = NULL
        cdef QueueState *entries
        cdef PutQueue *place
        cdef Py_ssize_t i
        index[0] = NULL
        if not self.is_idle or not r.is_plain or self.position != offset:
            return False
        for i in range(r.place_count):
            place = &r.places[i]
            entries = place.entries = self.queue_for(<tuple> place.queue, place.first)
            if entries == NULL or place.first + place.count > entries.first_index + entries.entries:
                return False
        if not self.index_for(offset, r.hash_count, index):
            return False
        if r.count == 1:
            return True
        offset += r.size - r.items[r.count - 1].size
        return self.index_for(offset, r.hash_count, &index_of_last) and index[0] == index_of_last

    cdef void write(self, Records *r, IndexState *index) noexcept:
        """Write the entries and items of records that ``is_ready`` found room for."""
        cdef const uint32_t *hash = r.hashes
        cdef int64_t offset = r.offset
        cdef Item *item
        cdef Py_ssize_t i, ahead = SLOTS_AHEAD - 1
        cdef int k
        for i in range(r.count):
            item = &r.items[i]
            put_entry(r.places[item.place].entries, offset, <uint32_t> item.size, item.tags_hash)
            for k in range(item.hashes if index != NULL else 0):
                ahead += 1
                if ahead < r.hash_count:
                    prefetch_slot(index, r.hashes[ahead])
                insert(index.base, index.slots, index.index_num, hash[k], offset, r.time)
            offset, hash = offset + item.size, hash + item.hashes
        self.position = offset
        self.records += r.count
        self.last_store_timestamp_ms = r.time


@cython.final
cdef class LogEnd:
    cdef public int64_t position, room_end, max_offset, last_store_timestamp_ms
    cdef public int64_t clock_low_ms, clock_high_ms
    cdef public bint refused
    cdef public int holders
    cdef public object on_populate
    cdef Held log  # None while detached
    cdef FilePositions segment
    cdef dict next_offsets
    cdef int64_t body_max
    cdef object clock
    cdef bint system_clock, is_pooled
    cdef StateWords words
    cdef DispatchEnd dispatch

    def __init__(self, dict next_offsets not None, int64_t body_max, clock not None):
        self.next_offsets, self.body_max, self.clock = next_offsets, body_max, clock
        self.clock_low_ms, self.clock_high_ms = -INT64_MAX - 1, INT64_MAX
        self.system_clock = type(clock) is SystemClock

    def attach(self, FilePositions segment, view, bint is_pooled=False):
        self.log = None if segment is None else Held(view, True)
        self.segment, self.is_pooled = segment, is_pooled

    def publish_to(self, StateWords words not None, DispatchEnd dispatch not None):
        self.words, self.dispatch = words, dispatch

    cdef inline int64_t now_ms(self) except? -1:
        return mq_now_ms() if self.system_clock else self.clock.now_ms()

    cdef const uint8_t *in_memory(self, int64_t offset, int64_t size) noexcept:
        """The bytes of the attached segment at a physical offset, or NULL where they are not there
        or not in the page cache, and while another thread puts."""
        cdef int64_t at = offset - (self.max_offset - self.position)
        cdef const uint8_t *p
        if self.log is None or self.is_pooled or self.holders or size <= 0:
            return NULL
        if not 0 <= at <= self.position - size or self.position > self.log.bytes.len:
            return NULL
        p = <const uint8_t *> self.log.bytes.buf + at
        return p if mq_in_memory(p, size) else NULL

    def has_in_memory(self, int64_t offset, int64_t size):
        return self.in_memory(offset, size) != NULL

    def put_message(self, Message message not None):
        cdef object topic = message.topic, properties = message.properties, body = message.body
        cdef object born = message.born_host, host = message.store_host
        cdef Item item
        cdef PutQueue place
        cdef Hashes hashes
        cdef Facts facts
        cdef Records records
        cdef tuple queue
        cdef int reason
        cdef bint is_plain
        try:
            take_apart(message, topic, properties, body, born, host, &item.parts)
        except (OverflowError, TypeError, ValueError):
            return REASONS[NEEDS_CHECK]
        if not is_ordinary(&item.parts, self.body_max):
            return REASONS[NEEDS_CHECK]
        queue = (topic, item.parts.queue_id)
        begin_records(&records, &item, &place, hashes.at)
        begin_place(&place, queue)
        records.place_count = 1
        is_plain = read_record_facts(&item.parts, self.index_tags(), &facts, &hashes)
        if facts.delay:
            return REASONS[NEEDS_DELAY]
        add_record(&records, 0, 1, &facts, is_plain, &hashes)
        reason = self.put_records(&records, False)
        if reason != PLACED:
            return REASONS[reason]
        return placement_of(
            records.offset, item.size, item.parts.queue_id, item.queue_offset, records.time, host
        )

    def encode(self, messages not None, bint as_batch=False, list versions=None):
        cdef EncodedBatch batch = EncodedBatch.__new__(EncodedBatch)
        try:
            if batch.take(list(messages), versions, as_batch, self.body_max, self.index_tags()):
                return batch
        except (OverflowError, TypeError, ValueError):
            if versions is not None:
                raise
        return REASONS[NEEDS_CHECK]

    def put(self, EncodedBatch batch not None, bint locked=False):
        cdef int reason = self.put_records(&batch.records, locked)
        if reason != PLACED:
            return REASONS[reason]
        return batch.placements

    cdef inline bint index_tags(self):
        return self.dispatch is not None and self.dispatch.index_tags

    cdef int put_records(self, Records *r, bint locked) except -1:
        """Number, write, publish and, where that is possible now, dispatch records; PLACED, or the
        reason why nothing was put.

        Without the put lock (``locked``), the GIL is held and no Python code runs from the first
        check to the last store, so no other thread can put or dispatch meanwhile.
        """
        cdef int64_t now = self.now_ms(), offset = self.max_offset
        cdef Held log = self.log
        cdef IndexState *index = NULL
        cdef PutQueue *place
        cdef Py_ssize_t i
        cdef bint is_ready
        if not locked and (self.refused or self.holders or r.is_large or self.is_pooled):
            return NEEDS_LOCK
        if log is None or not 0 <= self.position <= self.room_end <= log.bytes.len:
            return NEEDS_ROOM
        if r.size > self.room_end - self.position:
            return NEEDS_ROOM
        if not self.clock_low_ms <= now <= self.clock_high_ms:
            return NEEDS_CLOCK
        for i in range(r.place_count):
            place = &r.places[i]
            known = self.next_offsets.get(<object> place.queue)
            if known is None:
                return NEEDS_QUEUE
            place.first = place.next = known
        is_ready = self.is_ready(r, offset, &index)
        if not is_ready and not locked:
            return NEEDS_DISPATCH
        for i in range(r.place_count):
            place = &r.places[i]
            self.next_offsets[<object> place.queue] = place.first + place.count
        if is_ready and index != NULL:
            for i in range(min(r.hash_count, <Py_ssize_t> SLOTS_AHEAD)):
                prefetch_slot(index, r.hashes[i])
        r.offset, r.time = offset, max(now, self.last_store_timestamp_ms)
        self.write(r, <uint8_t *> log.bytes.buf + self.position)
        self.advance(r.size, r.time)
        if r.is_large:  # other threads ran meanwhile
            is_ready = self.is_ready(r, offset, &index)
        if is_ready:
            self.dispatch.write(r, index)
            atomic_store64(self.words.dispatched, <uint64_t> self.max_offset)
            self.words.arrive()
        if self.position > self.segment.populate_at and self.on_populate is not None:
            self.on_populate()
        return PLACED

    cdef inline bint is_ready(self, Records *r, int64_t offset, IndexState **index):
        if self.is_pooled or self.dispatch is None:
            return False
        return self.dispatch.is_ready(r, offset, index)

    cdef void write(self, Records *r, uint8_t *to) noexcept:
        """Write records that there is room for."""
        cdef int64_t offset = r.offset
        cdef Item *item
        cdef Py_ssize_t i
        for i in range(r.count):
            item = &r.items[i]
            item.queue_offset = 0
            if item.place >= 0:
                item.queue_offset = r.places[item.place].next
                r.places[item.place].next += 1
            put_parts(
                to, &item.parts, item.version, item.size, item.queue_offset, offset, r.time
            )
            to, offset = to + item.size, offset + item.size

    cdef inline void advance(self, int64_t size, int64_t time):
        """Publish the log's end, but for records that a pool has to commit first."""
        self.position += size
        self.max_offset += size
        self.last_store_timestamp_ms = time
        if self.is_pooled:
            return
        release_fence()
        self.segment.wrote_position = self.position
        if self.words is not None:
            atomic_store64(self.words.max_offset, <uint64_t> self.max_offset)
