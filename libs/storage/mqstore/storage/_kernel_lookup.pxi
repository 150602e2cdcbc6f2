# Look-ups over the mapped log ---------------------------------------------------------------------

# Whatever is not plain here (an offset where no record begins, damage, a segment that is not known
# yet, a new epoch) is answered by None, or ends a run: ``lookups`` then finds out what it is.


cdef enum:
    CHANGED = -1  # a block is not as its checksum says
    OPEN = 0  # not all of it is covered by checksums
    WHOLE = 1

    KNOWN_CHANGED = 0xFFFFFFFF  # in place of how much of a block is known to be whole
    LOOK_AGAIN = 256  # uses of a segment without checksums, after which it may have some
    FETCH_AHEAD = 4  # entries
    INDEX_STEP_MS = 1000  # an item's time is its record's, in whole seconds
    REPLACEMENT_BEGIN = 0xEF  # the first byte of U+FFFD in UTF-8, and of little else


@cython.no_gc  # nothing that it refers to refers back
cdef class Segment:
    """A mapped segment, and up to where each of its blocks is known to be as it was written."""
    cdef Py_buffer log
    cdef Py_buffer covers  # of ``entries``
    cdef bint has_log, has_covers
    cdef readonly object view
    cdef readonly object entries
    cdef readonly int64_t base
    cdef readonly int64_t size
    cdef readonly int64_t misses
    cdef uint32_t *known

    def __cinit__(self, view not None, int64_t base, entries=None):
        cdef int64_t blocks
        PyObject_GetBuffer(view, &self.log, PyBUF_SIMPLE)
        self.has_log = True
        self.view, self.base, self.size = view.toreadonly(), base, self.log.len
        self.entries = entries
        if entries is None:
            return
        PyObject_GetBuffer(entries, &self.covers, PyBUF_SIMPLE)
        self.has_covers = True
        check_entries(self.covers.len, self.size)
        blocks = (self.size + BLOCK_SIZE - 1) // BLOCK_SIZE
        self.known = <uint32_t *> calloc(blocks + 1, sizeof(uint32_t))
        if self.known == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.known)
        if self.has_covers:
            PyBuffer_Release(&self.covers)
        if self.has_log:
            PyBuffer_Release(&self.log)

    cdef inline int64_t end(self):
        return self.base + self.size

    @property
    def lacks_checksums(self):
        return not self.has_covers and self.misses >= LOOK_AGAIN

    def changed_block(self, int64_t position, int64_t size):
        cdef int64_t number
        check_range(position, position + size, self.size)
        if not self.has_covers:
            self.misses += 1
        elif size and self.judge(position, size, &number) == CHANGED:
            return number
        return -1

    def covered(self, int64_t position, int64_t size):
        cdef int64_t number, whole, found = 0
        check_range(position, position + size, self.size)
        if not self.has_covers:
            return 0
        for number in range(position // BLOCK_SIZE, (position + size + BLOCK_SIZE - 1) // BLOCK_SIZE):
            if self.known[number] != KNOWN_CHANGED:
                whole = min(number * BLOCK_SIZE + self.known[number], position + size)
                found += max(<int64_t> 0, whole - max(number * BLOCK_SIZE, position))
        return found

    cdef int judge(self, int64_t at, int64_t size, int64_t *number):
        """CHANGED stops at that block, ``number``; blocks are compared once and remembered."""
        cdef int64_t last = (at + size - 1) // BLOCK_SIZE, due
        cdef int state = WHOLE
        number[0] = at // BLOCK_SIZE
        if not self.has_covers:
            self.misses += 1
            return OPEN if self.misses < LOOK_AGAIN else CHANGED
        while number[0] <= last:
            due = min(at + size - number[0] * BLOCK_SIZE, BLOCK_SIZE)
            if self.known[number[0]] < due:
                self.compare(number[0])
                if self.known[number[0]] < due:
                    state = OPEN
            if self.known[number[0]] == KNOWN_CHANGED:
                return CHANGED
            number[0] += 1
        return state

    cdef void compare(self, int64_t number):
        """Look at as much of a block as is covered by now."""
        cdef const uint8_t *block = <const uint8_t *> self.log.buf + number * BLOCK_SIZE
        cdef const uint8_t *entry = <const uint8_t *> self.covers.buf + BLOCK_HEADER
        cdef Cover cover
        cdef bint whole
        read_cover(entry + number * BLOCK_ENTRY, self.base + number * BLOCK_SIZE, &cover)
        cover.length = <uint32_t> min(<int64_t> cover.length, self.size - number * BLOCK_SIZE)
        if cover.length <= self.known[number]:
            return
        with nogil:
            whole = is_as_covered(&cover, block)
        self.known[number] = max(self.known[number], cover.length) if whole else KNOWN_CHANGED


cdef struct Entries:
    # What is left to read of a queue file, and what the next record must say of itself.
    const uint8_t *at
    int64_t left  # in the file
    int64_t wanted
    int64_t limit
    Text topic
    int32_t queue_id
    uint64_t index  # the last one may be the greatest there is
    int64_t taken
    int64_t max_bytes
    bint is_full  # nothing more may be taken


cdef struct Search:
    Text topic
    Text key
    uint32_t hash
    int64_t from_ms
    int64_t to_ms
    int64_t below
    int64_t limit
    int64_t most
    int64_t looked_at
    int64_t next
    bint uniq_key_only


cdef struct Place:
    const uint8_t *at
    int64_t position
    int64_t available  # bytes that may be read


def base_of(Segment segment not None):
    return segment.base


cdef bint begin_search(Search *s, str topic, str key) except -1:
    """False for what bytes alone do not tell: invalid Unicode, and what Java puts in its place."""
    cdef Py_ssize_t size
    cdef uint32_t hash = 0
    try:
        s.topic.at = <const uint8_t *> PyUnicode_AsUTF8AndSize(topic, &size)
        s.topic.length = <uint32_t> size
        s.key.at = <const uint8_t *> PyUnicode_AsUTF8AndSize(key, &size)
        s.key.length = <uint32_t> size
    except UnicodeEncodeError:
        return False
    if memchr(s.topic.at, REPLACEMENT_BEGIN, s.topic.length) != NULL:
        return False
    if memchr(s.key.at, REPLACEMENT_BEGIN, s.key.length) != NULL:
        return False
    mq_hash(s.topic.at, s.topic.length, &hash)
    hash = hash * 31 + c'#'
    mq_hash(s.key.at, s.key.length, &hash)
    s.hash = index_hash(hash)
    return True


cdef bint has_key(Text properties, Text key, bint uniq_key_only) noexcept nogil:
    """Whether this is the UNIQ_KEY, or one of KEYS."""
    cdef Facts f
    cdef Text each
    cdef const uint8_t *stop
    read_facts(properties, &f)
    if key.length == 0:
        return False
    if same(f.uniq_key, key):
        return True
    each.at = f.keys.at
    while not uniq_key_only and f.keys.length:
        stop = <const uint8_t *> memchr(each.at, c' ', f.keys.length)
        each.length = f.keys.length if stop == NULL else <uint32_t> (stop - each.at)
        if same(each, key):
            return True
        if stop == NULL:
            break
        f.keys.length -= each.length + 1
        each.at = stop + 1
    return False


cdef class LogWindow:
    """The log as one process has it mapped, in one epoch."""
    cdef Word epoch_word
    cdef Word min_word
    cdef Word max_word
    cdef Word dispatched_word
    cdef int64_t epoch
    cdef int64_t minimum
    cdef list segments  # ascending
    cdef Segment last  # the one that was used last

    def __init__(
        self, Word epoch not None, Word minimum not None, Word maximum not None,
        Word dispatched not None,
    ):
        self.epoch_word, self.min_word, self.max_word = epoch, minimum, maximum
        self.dispatched_word = dispatched
        self.segments = []
        self.epoch = -1
        self.renew()

    def renew(self):
        cdef int64_t epoch = <int64_t> atomic_load64(self.epoch_word.at)
        cdef int64_t minimum = <int64_t> atomic_load64(self.min_word.at)
        cdef Segment each
        if epoch != self.epoch:
            self.forget()
        elif self.segments and (<Segment> self.segments[0]).end() <= minimum:
            self.segments = [each for each in self.segments if each.end() > minimum]
            self.last = None
        self.epoch, self.minimum = epoch, minimum
        return <uint64_t> epoch

    def forget(self):
        self.segments, self.last = [], None

    def find(self, int64_t offset):
        cdef int64_t low = 0, high = len(self.segments), middle
        cdef Segment segment
        while low < high:
            middle = (low + high) // 2
            segment = <Segment> self.segments[middle]
            if segment.end() <= offset:
                low = middle + 1
            else:
                high = middle
        if low == len(self.segments):
            return None
        segment = <Segment> self.segments[low]
        return segment if segment.base <= offset else None

    def add(self, Segment segment not None, int64_t most):
        """Forgets all others when there are ``most``."""
        cdef Segment each
        kept = [each for each in self.segments if each.base != segment.base]
        if len(kept) >= most:
            kept = []
        kept.append(segment)
        kept.sort(key=base_of)
        self.segments, self.last = kept, None

    cdef bint is_current(self):
        return (
            <int64_t> atomic_load64(self.epoch_word.at) == self.epoch
            and <int64_t> atomic_load64(self.min_word.at) == self.minimum
        )

    cdef Segment place(self, int64_t offset, int64_t limit, Place *found):
        """Where an offset below ``limit`` stands; None where that is not known here."""
        cdef Segment segment = self.last
        if offset < self.minimum or offset >= limit:
            return None
        if segment is None or not segment.base <= offset < segment.end():
            segment = self.find(offset)
            if segment is None:
                return None
            self.last = segment
        found.position = offset - segment.base
        found.at = <const uint8_t *> segment.log.buf + found.position
        found.available = min(segment.size, limit - segment.base) - found.position
        return segment

    cdef int whole(self, Segment segment, const Place *place, const Layout *r):
        """Whether a record may be answered, and whether by checksums of its blocks."""
        cdef int64_t number
        cdef int state
        if get64(place.at + r.body_at - 12) == TOMBSTONE:
            return CHANGED
        state = segment.judge(place.position, r.size, &number)
        if state == OPEN and verify(place.at, r) != DEFECT_NONE:
            return CHANGED
        return state

    cdef object read(self, type kind, int64_t offset, int64_t limit):
        cdef Place place
        cdef Layout r
        cdef Segment segment = self.place(offset, limit, &place)
        if segment is None or parse(place.at, place.available, offset, &r) != DEFECT_NONE:
            return None
        if self.whole(segment, &place, &r) == CHANGED:
            return None
        return record_of(kind, place.at, &r, True)

    def record_at(self, type kind not None, int64_t offset):
        check_kind(kind)
        if not self.is_current():
            return None
        record = self.read(kind, offset, <int64_t> atomic_load64(self.max_word.at))
        return record if self.is_current() else None

    def slice_at(self, int64_t offset):
        cdef Place place
        cdef Layout r
        cdef int64_t left, number
        cdef Segment segment
        if not self.is_current():
            return None
        segment = self.place(offset, <int64_t> atomic_load64(self.max_word.at), &place)
        if segment is None or parse_head(place.at, place.available, &r, &left) != DEFECT_NONE:
            return None
        if <int64_t> get64(place.at + 28) != offset:
            return None
        if get64(place.at + r.body_at - 12) == TOMBSTONE:
            return None
        if segment.judge(place.position, r.total, &number) != WHOLE or not self.is_current():
            return None
        return segment.view[place.position:place.position + r.total]

    cdef void fetch(self, const Entries *e, int64_t ahead):
        """Have the memory brought near that a later entry's record is judged by."""
        cdef const uint8_t *entry = e.at + ahead * QUEUE_ENTRY
        cdef int64_t at, size
        if ahead >= e.left or self.last is None:
            return
        at, size = <int64_t> get64(entry) - self.last.base, <int32_t> get32(entry + 8)
        if 0 <= at < self.last.size and 0 < size <= self.last.size - at:
            prefetch(<const uint8_t *> self.last.log.buf + at, size)

    cdef bint next_named(self, Entries *e, Place *place, Layout *r, int *state):
        """The record of the next entry; False where anything is odd about it."""
        cdef const uint8_t *entry = e.at
        cdef int64_t physical, size
        cdef Segment segment
        if e.left <= 0 or e.wanted <= 0:
            return False
        self.fetch(e, FETCH_AHEAD)
        physical, size = <int64_t> get64(entry), <int32_t> get32(entry + 8)
        if size <= 0:
            return False
        if e.taken and e.taken + size > e.max_bytes:
            e.is_full = True
            return False
        segment = self.place(physical, e.limit, place)
        if segment is None or size > place.available:
            return False
        if parse(place.at, place.available, physical, r) != DEFECT_NONE or r.size != size:
            return False
        if not same(r.topic, e.topic) or <int32_t> get32(place.at + 12) != e.queue_id:
            return False
        if get64(place.at + 20) != e.index:
            return False
        state[0] = self.whole(segment, place, r)
        if state[0] == CHANGED:
            return False
        e.taken += size
        e.index += 1
        e.left -= 1
        e.wanted -= 1
        e.is_full = e.wanted == 0
        e.at += QUEUE_ENTRY
        return True

    cdef int begin(
        self, Entries *e, const Py_buffer *queue, int64_t position, int64_t count, bytes topic,
        int64_t queue_id, int64_t index, int64_t taken, int64_t max_bytes,
    ) except -1:
        check_range(position, position, queue.len)
        e.at = <const uint8_t *> queue.buf + position
        e.left, e.wanted, e.is_full = (queue.len - position) // QUEUE_ENTRY, count, False
        e.limit = 0 if not self.is_current() else min(
            <int64_t> atomic_load64(self.dispatched_word.at),
            <int64_t> atomic_load64(self.max_word.at),
        )
        e.topic, e.queue_id, e.index = text_of(topic), <int32_t> queue_id, <uint64_t> index
        e.taken, e.max_bytes = taken, max_bytes
        return 0

    def records(
        self, type kind not None, entries not None, int64_t position, bytes topic not None,
        int64_t queue_id, int64_t index, int64_t count, int64_t taken, int64_t max_bytes,
    ):
        cdef Py_buffer queue
        cdef Entries e
        cdef Place place
        cdef Layout r
        cdef int state
        cdef list found = []
        check_kind(kind)
        PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
        try:
            self.begin(
                &e, &queue, position, count, topic, queue_id, index, taken, max_bytes
            )
            while self.next_named(&e, &place, &r, &state):
                found.append(record_of(kind, place.at, &r, True))
        finally:
            PyBuffer_Release(&queue)
        if not self.is_current():
            return [], taken, False
        return found, e.taken, e.is_full

    def slices(
        self, entries not None, int64_t position, bytes topic not None, int64_t queue_id,
        int64_t index, int64_t count, int64_t taken, int64_t max_bytes,
    ):
        cdef Py_buffer queue
        cdef Entries e
        cdef Place place
        cdef Layout r
        cdef int state
        cdef int64_t start = 0, stop = 0
        cdef Segment segment = None
        cdef list found = []
        PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
        try:
            self.begin(
                &e, &queue, position, count, topic, queue_id, index, taken, max_bytes
            )
            while self.next_named(&e, &place, &r, &state):
                if state == WHOLE and segment is self.last and place.position == stop:
                    stop += r.size
                    continue
                if segment is not None:
                    found.append(segment.view[start:stop])
                segment = self.last if state == WHOLE else None
                start, stop = place.position, place.position + r.size
                if segment is None:
                    found.append(memoryview(copy(place.at, r.size)))
            if segment is not None:
                found.append(segment.view[start:stop])
        finally:
            PyBuffer_Release(&queue)
        if not self.is_current():
            return [], 0, taken, False
        return found, <int64_t> (e.index - <uint64_t> index), e.taken, e.is_full

    def keyed(
        self, type kind not None, files, str topic not None, str key not None, int64_t from_ms,
        int64_t to_ms, bint uniq_key_only, int64_t below, int64_t limit,
    ):
        cdef Search s
        cdef Py_buffer index
        cdef bint goes_on
        cdef list found = []
        check_kind(kind)
        if not begin_search(&s, topic, key) or not self.is_current():
            return None
        s.limit = <int64_t> atomic_load64(self.max_word.at)
        if <int64_t> atomic_load64(self.dispatched_word.at) < s.limit:
            return None
        s.from_ms, s.to_ms, s.uniq_key_only = from_ms, to_ms, uniq_key_only
        s.below = min(below, s.limit)
        s.most, s.looked_at, s.next = limit, 0, -1
        for file in files:
            PyObject_GetBuffer(file.view, &index, PyBUF_SIMPLE)
            try:
                goes_on = self.search_file(kind, &index, file.slots, file.index_num, &s, found)
            finally:
                PyBuffer_Release(&index)
            if not goes_on:
                return None
            if s.next >= 0:
                break
        if not self.is_current():
            return None
        return found, s.looked_at, s.next, self.minimum, s.limit

    cdef bint search_file(
        self, type kind, const Py_buffer *index, int64_t slots, int64_t index_num, Search *s,
        list found,
    ) except -1:
        """False where a candidate is not plain."""
        cdef Chain c
        cdef int i
        cdef const uint8_t *file = <const uint8_t *> index.buf
        check_index(index.len, slots, index_num)
        if s.to_ms < <int64_t> get64(file) or <int64_t> get64(file + 8) < s.from_ms - INDEX_STEP_MS:
            return True
        if not begin_chain(
            &c, file, slots, index_num, s.hash, s.from_ms - INDEX_STEP_MS, s.to_ms
        ):
            return True
        follow(&c, FIND_CHUNK - 1)
        if c.entry > 0:
            return False
        # The first item's seconds count from the file before: its time says nothing.
        if get32(c.items + INDEX_ITEM) == s.hash:
            c.offsets[c.found] = <int64_t> get64(c.items + INDEX_ITEM + 4)
            c.found += 1
        for i in range(c.found):
            if not self.minimum <= c.offsets[i] < s.below:
                continue
            if len(found) == s.most:
                s.next = c.offsets[i]
                return True
            s.below = c.offsets[i]
            if not self.candidate(kind, c.offsets[i], s, found):
                return False
        return True

    cdef bint candidate(self, type kind, int64_t offset, Search *s, list found) except -1:
        cdef Place place
        cdef Layout r
        cdef Segment segment = self.place(offset, s.limit, &place)
        if segment is None or parse(place.at, place.available, offset, &r) != DEFECT_NONE:
            return False
        if self.whole(segment, &place, &r) == CHANGED:
            return False
        s.looked_at += 1
        if not same(r.topic, s.topic):
            return True
        if not s.from_ms <= <int64_t> get64(place.at + r.store_time_at) <= s.to_ms:
            return True
        if has_key(r.properties, s.key, s.uniq_key_only):
            found.append(record_of(kind, place.at, &r, True))
        return True
