# A put, whole ----------------------------------------------------------------------------------


cdef enum:
    RUN_MAX = 2  # records of ``LogEnd.put_run``


cdef struct Due:
    # A record that can be put, and what its dispatch writes.
    int64_t size
    int64_t queue_offset
    QueueState *entries
    uint32_t tags_hash
    Hashes hashes


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

    cdef bint hash_for_index(self, Facts *f, int64_t physical, Hashes *hashes):
        """The index's items of a record; False where it has no room for them now."""
        cdef IndexState *index = NULL
        hashes.count = 0
        if not self.index_for(physical, 0, &index):
            return False
        if index == NULL:
            return True
        if not hash_keys(f, self.index_tags, hashes):
            return False
        return index_count(index.base) + hashes.count <= index.index_num


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
    cdef bint system_clock
    cdef StateWords words
    cdef DispatchEnd dispatch

    def __init__(self, dict next_offsets not None, int64_t body_max, clock not None):
        self.next_offsets, self.body_max, self.clock = next_offsets, body_max, clock
        self.clock_low_ms, self.clock_high_ms = -INT64_MAX - 1, INT64_MAX
        self.system_clock = type(clock) is SystemClock

    def attach(self, FilePositions segment, view):
        self.log = None if segment is None else Held(view, True)
        self.segment = segment

    def publish_to(self, StateWords words not None, DispatchEnd dispatch not None):
        self.words, self.dispatch = words, dispatch

    cdef inline int64_t now_ms(self) except? -1:
        return mq_now_ms() if self.system_clock else self.clock.now_ms()

    cdef inline bint is_open(self):
        """Whether a put may run now: no other thread puts or dispatches, and no dispatch is due."""
        return (
            not self.refused
            and self.holders == 0
            and self.log is not None
            and self.dispatch is not None
            and self.dispatch.is_idle
            and self.dispatch.position == self.max_offset
            and 0 <= self.position <= self.room_end <= self.log.bytes.len
        )

    cdef const uint8_t *in_memory(self, int64_t offset, int64_t size) noexcept:
        """The bytes of the attached segment at a physical offset, or NULL where they are not there
        or not in the page cache, and while another thread puts."""
        cdef int64_t at = offset - (self.max_offset - self.position)
        cdef const uint8_t *p
        if self.log is None or self.holders or size <= 0:
            return NULL
        if not 0 <= at <= self.position - size or self.position > self.log.bytes.len:
            return NULL
        p = <const uint8_t *> self.log.bytes.buf + at
        return p if mq_in_memory(p, size) else NULL

    def has_in_memory(self, int64_t offset, int64_t size):
        return self.in_memory(offset, size) != NULL

    def put(self, Message message not None):
        cdef object topic = message.topic, properties = message.properties, body = message.body
        cdef object born = message.born_host, host = message.store_host
        cdef Parts m
        cdef int64_t now
        cdef tuple queue
        try:
            take_apart(message, topic, properties, body, born, host, &m)
            now = self.now_ms()
        except (OverflowError, TypeError, ValueError):
            return None
        if not is_ordinary(&m, self.body_max) or m.body.length >= RELEASE_GIL_FROM:
            return None
        queue = (topic, m.queue_id)
        return self.put_parts(&m, queue, host, Placement.__new__(Placement), now)

    cdef object put_parts(
        self, const Parts *m, tuple queue, object host, Placement placed, int64_t now
    ):
        """Put a message. The GIL is held and no Python code runs up to the last store, so no other
        thread can put or dispatch meanwhile."""
        cdef int64_t size = size_of_parts(m, 1), offset = self.max_offset, queue_offset, time
        cdef Facts f
        cdef Hashes hashes
        cdef QueueState *entries
        if not self.is_open() or size > self.room_end - self.position:
            return None
        if not self.clock_low_ms <= now <= self.clock_high_ms:
            return None
        known = self.next_offsets.get(queue)
        if known is None:
            return None
        queue_offset = known
        entries = self.dispatch.queue_for(queue, queue_offset)
        if entries == NULL or not read_plain_facts(m.topic, m.properties, m.sys_flag, &f):
            return None
        if f.delay or not self.dispatch.hash_for_index(&f, offset, &hashes):
            return None
        time = max(now, self.last_store_timestamp_ms)
        self.next_offsets[queue] = queue_offset + 1
        put_parts(
            <uint8_t *> self.log.bytes.buf + self.position, m, 1, size, queue_offset, offset, time
        )
        self.advance(size, time)
        put_entry(entries, offset, <uint32_t> size, f.tags_hash)
        self.dispatch_to(offset + size, time, offset, &hashes)
        placed.physical_offset, placed.size, placed.queue_id = offset, size, m.queue_id
        placed.queue_offset, placed.store_timestamp_ms, placed.store_host = queue_offset, time, host
        if self.position > self.segment.populate_at and self.on_populate is not None:
            self.on_populate()
        return placed

    def read_batch(self, Message message not None, bytes data not None, NameRules rules=None):
        cdef EncodedBatch batch = EncodedBatch.__new__(EncodedBatch)
        cdef bint index_tags = self.dispatch is not None and self.dispatch.index_tags
        try:
            return batch if batch.read(message, data, self.body_max, index_tags, rules) else None
        except (OverflowError, TypeError, ValueError):
            return None

    def put_batch(self, EncodedBatch batch not None):
        cdef BatchPlace first
        return batch.places(&first) if self.put_encoded(batch, &first) else None

    cdef bint put_encoded(self, EncodedBatch batch, BatchPlace *first) except -1:
        """Put a batch, and note its place; False where nothing was put. As ``put_parts``."""
        cdef int64_t now = self.now_ms(), offset = self.max_offset
        cdef tuple queue = (batch.message.topic, batch.shared.queue_id)
        cdef QueueState *entries
        cdef IndexState *index = NULL
        if not self.is_open() or batch.size > self.room_end - self.position:
            return False
        if not self.clock_low_ms <= now <= self.clock_high_ms:
            return False
        known = self.next_offsets.get(queue)
        if known is None:
            return False
        first.queue_offset, first.offset = known, offset
        first.time = max(now, self.last_store_timestamp_ms)
        entries = self.dispatch.queue_for(queue, first.queue_offset)
        if entries == NULL:
            return False
        if first.queue_offset + batch.count > entries.first_index + entries.entries:
            return False
        if not self.dispatch.index_for(offset, batch.hash_count, &index):
            return False
        self.next_offsets[queue] = first.queue_offset + batch.count
        batch.write(<uint8_t *> self.log.bytes.buf + self.position, entries, index, first)
        self.advance(batch.size, first.time)
        self.dispatched(offset + batch.size, first.time, batch.count)
        if self.position > self.segment.populate_at and self.on_populate is not None:
            self.on_populate()
        return True

    cdef bint prepare(self, const Parts *m, tuple queue, Due *due) except -1:
        """Find what a record needs, but for room in log and index; False where it is not there."""
        cdef Facts f
        known = self.next_offsets.get(queue)
        if known is None:
            return False
        due.size, due.queue_offset = size_of_parts(m, 1), known
        due.entries = self.dispatch.queue_for(queue, due.queue_offset)
        if due.entries == NULL or not read_plain_facts(m.topic, m.properties, m.sys_flag, &f):
            return False
        due.tags_hash = f.tags_hash
        return not f.delay and hash_keys(&f, self.dispatch.index_tags, &due.hashes)

    cdef list put_run(self, const Parts *parts, tuple queues, object host, int64_t now):
        """Put a record into each of these queues, which differ, all or none; as ``put_parts``."""
        cdef Due due[RUN_MAX]
        cdef IndexState *index = NULL
        cdef IndexState *index_of_last = NULL
        cdef int64_t offset = self.max_offset, size = 0, items = 0, last = 0
        cdef int count = <int> len(queues), i
        if not self.is_open() or not self.clock_low_ms <= now <= self.clock_high_ms:
            return None
        for i in range(count):
            if not self.prepare(&parts[i], queues[i], &due[i]):
                return None
            last, size, items = size, size + due[i].size, items + due[i].hashes.count
        if size > self.room_end - self.position:
            return None
        if not self.dispatch.index_for(offset, items, &index):
            return None
        if not self.dispatch.index_for(offset + last, items, &index_of_last):
            return None
        if index != index_of_last:
            return None
        return self.write_run(parts, queues, due, index, host, max(now, self.last_store_timestamp_ms))

    cdef list write_run(
        self, const Parts *parts, tuple queues, const Due *due, IndexState *index, object host,
        int64_t time,
    ):
        cdef uint8_t *to = <uint8_t *> self.log.bytes.buf + self.position
        cdef int64_t begin = self.max_offset, offset = self.max_offset
        cdef list placed = []
        cdef Py_ssize_t i
        for i in range(len(queues)):
            placed.append(
                placement_of(
                    offset, due[i].size, parts[i].queue_id, due[i].queue_offset, time, host
                )
            )
            offset += due[i].size
        for i in range(len(queues)):
            self.next_offsets[queues[i]] = due[i].queue_offset + 1
            offset = (<Placement> placed[i]).physical_offset
            put_parts(
                to + (offset - begin), &parts[i], 1, due[i].size, due[i].queue_offset, offset, time
            )
        self.advance(offset + due[len(queues) - 1].size - begin, time)
        for i in range(len(queues)):
            offset = (<Placement> placed[i]).physical_offset
            put_entry(due[i].entries, offset, <uint32_t> due[i].size, due[i].tags_hash)
            if index != NULL:
                put_items(index, &due[i].hashes, offset, time)
        self.dispatched(self.max_offset, time, len(queues))
        if self.position > self.segment.populate_at and self.on_populate is not None:
            self.on_populate()
        return placed

    cdef inline void advance(self, int64_t size, int64_t time):
        self.position += size
        self.max_offset += size
        self.last_store_timestamp_ms = time
        release_fence()
        self.segment.wrote_position = self.position
        atomic_store64(self.words.max_offset, <uint64_t> self.max_offset)

    cdef inline int dispatch_to(
        self, int64_t end, int64_t time, int64_t offset, const Hashes *hashes
    ) except -1:
        put_items(&self.dispatch.index.state if hashes.count else NULL, hashes, offset, time)
        return self.dispatched(end, time, 1)

    cdef inline int dispatched(self, int64_t end, int64_t time, int64_t records) except -1:
        cdef DispatchEnd dispatch = self.dispatch
        dispatch.position = end
        dispatch.records += records
        dispatch.last_store_timestamp_ms = time
        atomic_store64(self.words.dispatched, <uint64_t> end)
        return self.words.arrive()
