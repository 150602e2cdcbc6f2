# Unique keys that were put lately ------------------------------------------------------------


cdef enum:
    FIRST_SLOTS = 1024


cdef struct KeySlot:
    uint64_t digest  # 0: free
    int64_t offset


# Python's hashes of texts depend on a secret of this process, so clients cannot choose keys that
# share a slot.
cdef uint64_t _secret = <uint64_t> <Py_ssize_t> hash("unique keys")


cdef inline uint64_t digest_of(uint64_t topic, Text key) noexcept nogil:
    """Never 0, which is no key; ``topic`` is the topic's own digest."""
    cdef uint64_t digest = mq_digest(key.at, key.length, topic, _secret)
    return digest if digest else 1


cdef inline uint64_t topic_digest(Text topic) noexcept nogil:
    return mq_digest(topic.at, topic.length, 0, _secret)


cdef inline Text utf8_of(str text):
    """UnicodeEncodeError for half a surrogate pair."""
    cdef Py_ssize_t length
    cdef Text found
    found.at = <const uint8_t *> PyUnicode_AsUTF8AndSize(text, &length)
    found.length = <uint32_t> length
    return found


def key_digests(str topic not None, keys not None):
    cdef Py_ssize_t count = len(keys), i = 0
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, 8 * count)
    cdef char *at = PyBytes_AS_STRING(packed)
    cdef uint64_t of_topic = topic_digest(utf8_of(topic)), digest
    for key in keys:
        if i == count:
            raise ValueError("the keys changed while they were read")
        digest = digest_of(of_topic, utf8_of(key)) if key else 0
        memcpy(at + 8 * i, &digest, 8)
        i += 1
    if i != count:
        raise ValueError("the keys changed while they were read")
    return packed


cdef class KeyTable:
    """Open addressing with linear probing; at most three quarters of the slots are taken."""
    cdef KeySlot *slots
    cdef uint64_t mask
    cdef readonly int64_t count

    def __cinit__(self):
        self.slots = <KeySlot *> calloc(FIRST_SLOTS, sizeof(KeySlot))
        if self.slots == NULL:
            raise MemoryError("no memory for unique keys")
        self.mask = FIRST_SLOTS - 1

    def __dealloc__(self):
        free(self.slots)

    @property
    def memory_size(self):
        return (self.mask + 1) * sizeof(KeySlot)

    cdef KeySlot *slot_of(self, uint64_t digest) noexcept nogil:
        """Its slot, or the free one that it would take."""
        cdef uint64_t at = digest & self.mask
        while self.slots[at].digest != 0 and self.slots[at].digest != digest:
            at = (at + 1) & self.mask
        return &self.slots[at]

    cdef int grow(self) except -1:
        cdef KeySlot *old = self.slots
        cdef uint64_t i, slots = self.mask + 1
        cdef KeySlot *grown = <KeySlot *> calloc(2 * slots, sizeof(KeySlot))
        if grown == NULL:
            raise MemoryError("no memory for unique keys")
        self.slots, self.mask = grown, 2 * slots - 1
        for i in range(slots):
            if old[i].digest != 0:
                self.slot_of(old[i].digest)[0] = old[i]
        free(old)
        return 0

    cdef int reserve(self, int64_t count) except -1:
        while 4 * (self.count + count) > 3 * <int64_t> (self.mask + 1):
            self.grow()
        return 0

    cdef void put(self, uint64_t digest, int64_t offset) noexcept nogil:
        """The caller reserved room for it."""
        cdef KeySlot *slot = self.slot_of(digest)
        if slot.digest == 0:
            slot.digest = digest
            self.count += 1
        slot.offset = offset

    def find(self, bytes digests not None):
        cdef Py_ssize_t count = PyBytes_GET_SIZE(digests) // 8, i
        cdef const char *at = PyBytes_AS_STRING(digests)
        cdef uint64_t digest
        cdef KeySlot *slot
        cdef list found = None
        for i in range(count):
            memcpy(&digest, at + 8 * i, 8)
            slot = self.slot_of(digest) if digest else NULL
            if slot != NULL and slot.digest:
                if found is None:
                    found = [-1] * count
                found[i] = slot.offset
        return found

    def add(self, bytes digests not None, placements not None):
        cdef Py_ssize_t count = PyBytes_GET_SIZE(digests) // 8, i = 0
        cdef const char *at = PyBytes_AS_STRING(digests)
        cdef uint64_t digest
        if len(placements) != count:
            raise ValueError(f"{len(placements)} placements for {count} keys")
        self.reserve(count)
        for placement in placements:
            memcpy(&digest, at + 8 * i, 8)
            if digest:
                self.put(digest, (<Placement?> placement).physical_offset)
            i += 1

    def add_run(
        self,
        const uint8_t[::1] view not None,
        int64_t position,
        int64_t end,
        int64_t base,
        *,
        str made_here not None,
        int64_t max_records,
    ):
        cdef KeyWalk at
        cdef Text prefix = utf8_of(made_here)
        cdef int defect = DEFECT_NONE
        check_range(position, end, view.shape[0])
        at.position, at.records, at.store_time = position, 0, 0
        while at.position < end and at.records < max_records and defect == DEFECT_NONE:
            self.reserve(READ_AHEAD)
            with nogil:
                defect = self.walk(&at, &view[0], end, base, prefix, max_records)
        return (DEFECTS[defect], at.position, at.records, at.store_time)

    cdef bint has_room(self) noexcept nogil:
        return 4 * (self.count + READ_AHEAD) <= 3 * <int64_t> (self.mask + 1)

    cdef int walk(
        self, KeyWalk *w, const uint8_t *log, int64_t end, int64_t base, Text made_here,
        int64_t max_records,
    ) noexcept nogil:
        """Until a defect, or the table is to be made larger."""
        cdef KeySlot found[READ_AHEAD]
        cdef int i, count, defect = DEFECT_NONE
        while defect == DEFECT_NONE and w.records < max_records and w.position < end:
            if not self.has_room():
                break
            count = 0
            while defect == DEFECT_NONE and w.records < max_records and w.position < end:
                if count == READ_AHEAD:
                    break
                defect = read_key(w, log, end, base, made_here, &found[count])
                if defect == DEFECT_NONE and found[count].digest != 0:
                    prefetch_line(<const uint8_t *> &self.slots[found[count].digest & self.mask])
                    count += 1
            for i in range(count):
                self.note(found[i].digest, found[i].offset)
        return defect

    cdef void note(self, uint64_t digest, int64_t offset) noexcept nogil:
        """Add a digest unless it is known: of several records the first one is the client's."""
        cdef KeySlot *slot = self.slot_of(digest)
        if slot.digest == 0:
            slot.digest, slot.offset = digest, offset
            self.count += 1


cdef struct KeyWalk:
    int64_t position
    int64_t records
    int64_t store_time


cdef int read_key(
    KeyWalk *w, const uint8_t *log, int64_t end, int64_t base, Text made_here, KeySlot *found
) noexcept nogil:
    """The digest of a client's key, 0 without one; moves to the next record."""
    cdef const uint8_t *p = log + w.position
    cdef Layout r
    cdef KeyFacts facts
    cdef int defect = inspect(p, end - w.position, base + w.position, False, &r)
    if defect != DEFECT_NONE:
        return defect
    if w.position + READ_AHEAD * <int64_t> r.size < end:
        prefetch(p + READ_AHEAD * <int64_t> r.size, r.size)
    found.digest, found.offset = 0, base + w.position
    if get64(p + r.body_at - 12) != TOMBSTONE and puts_key(&r, &facts):
        if not begins_with(facts.key, made_here):
            found.digest = digest_of(topic_digest(facts.topic), facts.key)
    w.store_time = <int64_t> get64(p + r.store_time_at)
    w.records += 1
    w.position += r.size
    return DEFECT_NONE


cdef inline bint begins_with(Text text, Text prefix) noexcept nogil:
    return text.length >= prefix.length and memcmp(text.at, prefix.at, prefix.length) == 0


cdef struct KeyFacts:
    Text key
    Text topic
    Text real_topic
    bint timed


cdef bint puts_key(const Layout *r, KeyFacts *f) noexcept nogil:
    """Whether a record is what a client's put left, with a unique key: a message, a half message or
    the message that a commit made visible; not the copy of a delayed message. ``f.topic`` is what
    the put named."""
    cdef const uint8_t *p = r.properties.at
    cdef const uint8_t *end = p + r.properties.length
    cdef const uint8_t *stop
    cdef const uint8_t *equals
    cdef Text name, value
    cdef bint is_committed = (r.sys_flag & TRANSACTION) == COMMITTED
    if r.sys_flag & COMMITTED and not is_committed:  # a bit that rollbacks have, too
        return False
    f.key.at = f.real_topic.at = p
    f.key.length = f.real_topic.length = 0
    f.timed = False
    while p < end:
        stop = <const uint8_t *> memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        equals = <const uint8_t *> memchr(p, 1, stop - p)
        if equals != NULL and equals > p and equals + 1 < stop:
            name.at, name.length = p, <uint32_t> (equals - p)
            value.at, value.length = equals + 1, <uint32_t> (stop - equals - 1)
            if same(name, UNIQ_NAME):
                f.key = value
            elif same(name, REAL_TOPIC_NAME):
                f.real_topic = value
            elif same(name, TIMER_OUT_NAME):
                f.timed = True
        p = stop + 1
    f.topic = r.topic
    if same(r.topic, SCHEDULE_TOPIC) or same(r.topic, HALF_TOPIC) or same(r.topic, TIMER_TOPIC):
        f.topic = f.real_topic
    elif f.timed:  # the copy that a timer delivered
        return False
    elif f.real_topic.length and not is_committed:  # 4.9 keeps the property in committed messages
        return False
    return f.key.length > 0 and f.topic.length > 0
