# Dispatch ----------------------------------------------------------------------------------------


cdef struct QueueState:
    uint8_t *base  # NULL while detached
    int64_t first_index
    int64_t entries
    int64_t next_index
    bint busy


cdef struct IndexState:
    uint8_t *base
    int64_t slots
    int64_t index_num
    bint busy


cdef class QueueWindow:
    cdef QueueState state
    cdef Held view

    @property
    def next_index(self):
        return self.state.next_index

    @next_index.setter
    def next_index(self, int64_t value):
        self.state.next_index = value

    @property
    def first_index(self):
        return self.state.first_index

    @property
    def entries(self):
        return self.state.entries

    def attach(self, view, int64_t first_index, int64_t entries):
        cdef Held held = None
        if self.state.busy:
            raise RuntimeError("a dispatch run is using this window")
        if view is not None:
            held = Held(view, True)
            if first_index < 0 or not 0 < entries <= held.bytes.len // QUEUE_ENTRY:
                raise ValueError(f"{entries} entries do not fit a view of {held.bytes.len} bytes")
        self.state.base = NULL if held is None else <uint8_t *> held.bytes.buf
        self.view = held
        self.state.first_index = first_index
        self.state.entries = entries


cdef class IndexWindow:
    cdef IndexState state
    cdef Held view

    def attach(self, view, int64_t slots, int64_t index_num):
        cdef Held held = None
        if self.state.busy:
            raise RuntimeError("a dispatch run is using this window")
        if view is not None:
            held = Held(view, True)
            check_index(held.bytes.len, slots, index_num)
        self.state.base = NULL if held is None else <uint8_t *> held.bytes.buf
        self.view = held
        self.state.slots = slots
        self.state.index_num = index_num


cdef struct Seat:
    # A queue met in this run; the topic's bytes are those of its first record in the log.
    Text topic
    uint32_t queue_id
    QueueState *queue
    bint touched


cdef struct Run:
    const uint8_t *log
    int64_t position
    int64_t end
    int64_t base
    int64_t left
    int64_t records
    int64_t store_time
    int64_t skip_index_below
    bint with_queues
    bint index_tags
    IndexState *index
    Seat *seats  # open addressing; ``mask`` + 1 of them, at most half in use
    uint64_t mask
    Text need_topic
    uint32_t need_queue_id


cdef struct Facts:
    # What dispatch takes from a record's properties.
    Text tags
    Text keys
    Text uniq_key
    bint multi_dispatch
    bint delay  # its properties name a level or a time, whatever the value
    uint32_t topic_hash
    uint32_t tags_hash


cdef void read_facts(Text properties, Facts *f) noexcept nogil:
    """As MessageDecoder.string2messageProperties: the last of equal names counts."""
    cdef const uint8_t *p = properties.at
    cdef const uint8_t *end = p + properties.length
    cdef const uint8_t *stop
    cdef const uint8_t *equals
    cdef Text name, value
    f.tags.at = f.keys.at = f.uniq_key.at = p
    f.tags.length = f.keys.length = f.uniq_key.length = 0
    f.multi_dispatch = f.delay = False
    while p < end:
        stop = <const uint8_t *> memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        equals = <const uint8_t *> memchr(p, 1, stop - p)
        if equals != NULL and equals > p:
            name.at, name.length = p, <uint32_t> (equals - p)
            value.at, value.length = equals + 1, <uint32_t> (stop - equals - 1)
            if same(name, DELAY_NAME) or same(name, DELIVER_NAME):
                f.delay = True
            if value.length == 0:
                pass  # ignored
            elif same(name, TAGS_NAME):
                f.tags = value
            elif same(name, KEYS_NAME):
                f.keys = value
            elif same(name, UNIQ_NAME):
                f.uniq_key = value
            elif same(name, MULTI_NAME):
                f.multi_dispatch = True
        p = stop + 1


cdef bint read_plain_facts(
    Text topic, Text properties, uint32_t sys_flag, Facts *f
) noexcept nogil:
    """False for a record that Python dispatches."""
    f.topic_hash = f.tags_hash = 0
    read_facts(properties, f)
    if f.multi_dispatch or sys_flag & INNER_BATCH or same(topic, SCHEDULE_TOPIC):
        return False
    if not mq_hash(topic.at, topic.length, &f.topic_hash):
        return False
    return mq_hash(f.tags.at, f.tags.length, &f.tags_hash)


cdef struct Hashes:
    uint32_t at[KEYS_MAX]
    int count


cdef bint add_hash(Hashes *hashes, uint32_t prefix, Text key) noexcept nogil:
    """IndexFile's hash of prefix + key; False when Python must do it."""
    cdef uint32_t hash = prefix
    if hashes.count == KEYS_MAX or not mq_hash(key.at, key.length, &hash):
        return False
    hashes.at[hashes.count] = index_hash(hash)
    hashes.count += 1
    return True


cdef bint hash_keys(Facts *f, bint index_tags, Hashes *hashes) noexcept nogil:
    """UNIQ_KEY, KEYS at single spaces, in 5.x stores TAGS; False when Python must do it."""
    cdef uint32_t prefix = f.topic_hash * 31 + c'#'
    cdef Text key
    cdef const uint8_t *p = f.keys.at
    cdef const uint8_t *end = p + f.keys.length
    cdef const uint8_t *stop
    hashes.count = 0
    if f.uniq_key.length and not add_hash(hashes, prefix, f.uniq_key):
        return False
    while f.keys.length and p < end:
        stop = <const uint8_t *> memchr(p, c' ', end - p)
        if stop == NULL:
            stop = end
        key.at, key.length = p, <uint32_t> (stop - p)
        if key.length and not add_hash(hashes, prefix, key):
            return False
        p = stop + 1
    if index_tags and f.tags.length:
        return add_hash(hashes, (prefix * 31 + c'T') * 31 + c'#', f.tags)
    return True


cdef inline Seat *seat_of(
    Run *run, uint32_t topic_hash, Text topic, uint32_t queue_id
) noexcept nogil:
    """The seat of a queue, or the free one that it would take."""
    cdef uint64_t at = (topic_hash + queue_id * <uint64_t> 0x9E3779B97F4A7C15) >> 7
    cdef Seat *seat = &run.seats[at & run.mask]
    while seat.queue != NULL and not (seat.queue_id == queue_id and same(seat.topic, topic)):
        at += 1
        seat = &run.seats[at & run.mask]
    return seat


cdef bint entry_stands(
    QueueState *queue, int64_t index, int64_t physical, uint32_t size, uint32_t tags_hash
) noexcept nogil:
    cdef const uint8_t *entry
    cdef int64_t code
    if queue.base == NULL or index < queue.first_index or index >= queue.next_index:
        return False
    if index - queue.first_index >= queue.entries:
        return False
    entry = queue.base + (index - queue.first_index) * QUEUE_ENTRY
    if <int64_t> get64(entry) != physical or get32(entry + 8) != size:
        return False
    code = <int64_t> get64(entry + 12)
    return code == <int64_t> <int32_t> tags_hash or code < INT32_MIN  # an address in a queue ext


cdef inline bint has_room(QueueState *queue, int64_t index) noexcept nogil:
    return (
        queue.base != NULL
        and index == queue.next_index
        and index >= queue.first_index
        and index - queue.first_index < queue.entries
    )


cdef void put_entry(
    QueueState *queue, int64_t physical, uint32_t size, uint32_t tags_hash
) noexcept nogil:
    cdef uint8_t *entry = queue.base + (queue.next_index - queue.first_index) * QUEUE_ENTRY
    put64(entry, <uint64_t> physical)
    put32(entry + 8, size)
    put64(entry + 12, <uint64_t> <int64_t> <int32_t> tags_hash)
    release_fence()  # a flush in another thread reads next_index
    queue.next_index += 1


cdef inline void put_items(
    IndexState *index, const Hashes *hashes, int64_t physical, int64_t store_time
) noexcept nogil:
    cdef int i
    for i in range(hashes.count):
        insert(index.base, index.slots, index.index_num, hashes.at[i], physical, store_time)


cdef struct Found:
    # A record as dispatch needs it, before anything is decided.
    int64_t physical
    int64_t store_time
    int64_t queue_offset
    Text topic
    uint32_t size
    uint32_t queue_id
    uint32_t transaction
    uint32_t topic_hash
    uint32_t tags_hash
    bint hashed  # False where Python must hash its keys
    Hashes hashes


cdef int read_one(const Run *run, int64_t position, Found *found) noexcept nogil:
    """Read the record at ``position``; prefetch the memory of the next ones."""
    cdef const uint8_t *p = run.log + position
    cdef Layout r
    cdef Facts f
    cdef int i, defect = parse(p, run.end - position, run.base + position, &r)
    if defect != DEFECT_NONE:
        return STOP_BLANK if defect == DEFECT_BLANK else STOP_DEFECT
    if position + READ_AHEAD * <int64_t> r.size < run.end:  # mostly, records are of one size
        prefetch(p + READ_AHEAD * <int64_t> r.size, r.size)
    if not read_plain_facts(r.topic, r.properties, r.sys_flag, &f):
        return STOP_SPECIAL
    found.physical, found.size = run.base + position, r.size
    found.store_time = <int64_t> get64(p + r.store_time_at)
    found.queue_offset, found.queue_id = <int64_t> get64(p + 20), get32(p + 12)
    found.topic, found.topic_hash, found.tags_hash = r.topic, f.topic_hash, f.tags_hash
    found.transaction = r.sys_flag & TRANSACTION
    found.hashes.count, found.hashed = 0, True
    if is_indexed(run, found) and found.transaction != ROLLED_BACK:
        found.hashed = hash_keys(&f, run.index_tags, &found.hashes)
        for i in range(found.hashes.count if run.index.base != NULL else 0):
            prefetch_slot(run.index, found.hashes.at[i])
    return STOP_END


cdef inline bint is_indexed(const Run *run, const Found *found) noexcept nogil:
    return run.index != NULL and found.physical >= run.skip_index_below


cdef inline void prefetch_slot(const IndexState *index, uint32_t hash) noexcept nogil:
    prefetch_line(index.base + INDEX_HEADER + INDEX_SLOT * (hash % <uint64_t> index.slots))


cdef int dispatch_one(Run *run, Found *found) noexcept nogil:
    """Dispatch the record at ``run.position``: all decisions come before the first write."""
    cdef Seat *seat = NULL
    if is_indexed(run, found):
        if run.index.base == NULL or index_count(run.index.base) >= run.index.index_num:
            return STOP_INDEX
        if not found.hashed:
            return STOP_SPECIAL
        if index_count(run.index.base) + found.hashes.count > run.index.index_num:
            return STOP_INDEX
    if run.with_queues and (found.transaction == 0 or found.transaction == COMMITTED):
        seat = seat_of(run, found.topic_hash, found.topic, found.queue_id)
        if seat.queue == NULL:
            run.need_topic, run.need_queue_id = found.topic, found.queue_id
            return STOP_NEED_QUEUE
        if entry_stands(
            seat.queue, found.queue_offset, found.physical, found.size, found.tags_hash
        ):
            seat = NULL
        elif not has_room(seat.queue, found.queue_offset):
            return STOP_QUEUE
    if seat != NULL:
        put_entry(seat.queue, found.physical, found.size, found.tags_hash)
        seat.touched = True
    put_items(run.index, &found.hashes, found.physical, found.store_time)
    run.position += found.size
    run.records += 1
    run.left -= 1
    run.store_time = found.store_time
    return STOP_END


cdef int dispatch_all(Run *run) noexcept nogil:
    """A few records are read before they are dispatched: a slot of the index is far away."""
    cdef Found found[READ_AHEAD]
    cdef int64_t position
    cdef int i, count, taken, stop = STOP_END
    while stop == STOP_END and run.position < run.end:
        if run.left <= 0:
            return STOP_LIMIT
        position, count = run.position, 0
        while stop == STOP_END and count < min(run.left, READ_AHEAD) and position < run.end:
            stop = read_one(run, position, &found[count])
            if stop == STOP_END:
                position += found[count].size
                count += 1
        for i in range(count):
            taken = dispatch_one(run, &found[i])
            if taken != STOP_END:
                return taken
    return stop


cdef Seats _spare_seats = None


cdef Seats seats_for(int64_t queues):
    """The free seats of the last small run, as new ones cost more than one record; else new ones."""
    global _spare_seats
    cdef Seats spare = _spare_seats
    if spare is None or queues > SPARE_QUEUES:
        return Seats(max(queues, <int64_t> SPARE_QUEUES))
    _spare_seats = None
    return spare


cdef class Seats:
    """The queues of one run: a C table for the loop, and the objects that own its pointers."""
    cdef Seat *table
    cdef uint64_t mask
    cdef list taken  # (key, window, seat number)

    def __cinit__(self, int64_t queues):
        cdef uint64_t size = 4
        while size < 2 * <uint64_t> queues:
            size *= 2
        self.taken = []
        self.mask = size - 1
        self.table = <Seat *> calloc(size, sizeof(Seat))
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.table)

    cdef int take(self, Run *run, bytes key, QueueWindow window) except -1:
        cdef uint32_t hash = 0
        cdef Seat *seat
        if window.state.busy:
            raise RuntimeError("another dispatch run is using a queue's window")
        mq_hash(run.need_topic.at, run.need_topic.length, &hash)
        seat = seat_of(run, hash, run.need_topic, run.need_queue_id)
        seat.topic = run.need_topic
        seat.queue_id = run.need_queue_id
        seat.queue = &window.state
        window.state.busy = True
        self.taken.append((key, window, seat - self.table))
        return 0

    cdef void leave(self, set touched):
        global _spare_seats
        cdef QueueWindow window
        cdef int64_t at
        for key, window, at in self.taken:
            window.state.busy = False
            if touched is not None and self.table[at].touched:
                touched.add(key)
            memset(&self.table[at], 0, sizeof(Seat))
        self.taken.clear()
        if self.mask < 2 * SPARE_QUEUES:
            _spare_seats = self


cdef int run_to_stop(Run *run, Seats seats, dict queues) except -2:
    """The loop, back under the GIL only to look up queues that it has not met before."""
    cdef int stop = STOP_NEED_QUEUE
    cdef bytes key
    cdef object window
    cdef char tail[4]
    cdef int64_t room = (seats.mask + 1) // 2
    while True:
        if run.end - run.position >= RELEASE_GIL_FROM:
            with nogil:
                stop = dispatch_all(run)
        else:
            stop = dispatch_all(run)
        if stop != STOP_NEED_QUEUE:
            return stop
        put32(<uint8_t *> tail, run.need_queue_id)
        key = copy(run.need_topic.at, run.need_topic.length) + tail[:4]
        window = queues.get(key)
        if window is None:
            return STOP_QUEUE
        if len(seats.taken) >= room:
            return STOP_LIMIT  # the dict grew meanwhile
        seats.take(run, key, window)


def dispatch_run(
    view not None,
    int64_t position,
    int64_t end,
    int64_t base,
    dict queues,
    IndexWindow index,
    bint index_tags,
    int64_t skip_index_below,
    int64_t max_records,
    set touched,
):
    cdef Py_buffer log
    cdef Run run
    cdef Seats seats
    cdef int stop
    PyObject_GetBuffer(view, &log, PyBUF_SIMPLE)
    try:
        check_range(position, end, log.len)
        if position == end:
            return (STOPS[STOP_END], position, 0, 0)
        run.log, run.base = <const uint8_t *> log.buf, base
        run.position, run.end = position, end
        run.left, run.records, run.store_time = max_records, 0, 0
        run.skip_index_below = skip_index_below
        run.with_queues = queues is not None
        run.index_tags = index_tags
        seats = seats_for(min(len(queues), (end - position) // FIXED_SIZE + 1) if queues else 0)
        run.seats = seats.table
        run.mask = seats.mask
        run.index = NULL
        if index is not None:
            if index.state.busy:
                raise RuntimeError("another dispatch run is using the index window")
            run.index = &index.state
            index.state.busy = True
        try:
            stop = run_to_stop(&run, seats, queues)
        finally:
            seats.leave(touched)
            if index is not None:
                index.state.busy = False
    finally:
        PyBuffer_Release(&log)
    return (STOPS[stop], run.position, run.records, run.store_time)
