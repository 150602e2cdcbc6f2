# Look-ups over the mapped log ---------------------------------------------------------------------

# A special case (an offset where no record begins, damage, a segment that is not known yet, a new
# epoch) returns None, or ends a run: ``lookups`` then handles it.
#
# Each look-up notes the epoch, takes the bounds, copies (``take_copy``), checks the copy, and answers
# it where the epoch it noted is the present one still. So bytes that change meanwhile are never
# returned: neither those that a recovery changes, which moves the epoch, nor lost ones.


cdef enum:
    MESSAGE_ID_MAX = 28  # bytes: an IPv6 host and an offset
    HEAD_MOST = 128  # bytes before a body, with both hosts of IPv6: 112
    QUEUE_ENTRY_SIZE = 20


cdef bint read_hex(const char *digits, Py_ssize_t count, uint8_t *to) noexcept:
    """False for anything but hexadecimal digits, of either case, two a byte."""
    cdef Py_ssize_t i
    cdef int digit
    if count % 2:
        return False
    for i in range(count):
        digit = digits[i] | 32
        if c'0' <= digits[i] <= c'9':
            digit = digits[i] - c'0'
        elif c'a' <= digit <= c'f':
            digit -= c'a' - 10
        else:
            return False
        to[i // 2] = <uint8_t> (to[i // 2] << 4 | digit)
    return True


cdef struct MessageId:
    # The store host and the physical offset of an offset message id.
    uint8_t host[MESSAGE_ID_MAX]
    Py_ssize_t host_size
    int64_t offset


cdef bint read_message_id(str text, MessageId *id) except -1:
    """False for a text that is no offset message id."""
    cdef Py_ssize_t size
    cdef const char *digits
    if not text.isascii():
        return False
    digits = PyUnicode_AsUTF8AndSize(text, &size)
    return parse_message_id(digits, size, id)


cdef bint parse_message_id(const char *digits, Py_ssize_t size, MessageId *id) noexcept:
    if size > 2 * MESSAGE_ID_MAX or size < 16 or not read_hex(digits, size, id.host):
        return False
    id.host_size = size // 2 - 8
    id.offset = <int64_t> get64(id.host + id.host_size)
    return True


cdef inline bint is_of_host(StoredRecord record, const MessageId *id) noexcept:
    """Whether a record was stored under the host that an id names."""
    if record.store_host_size != id.host_size:
        return False
    return memcmp(record.at + record.store_time_at + 8, id.host, id.host_size) == 0


def base_of(Segment segment not None):
    return segment.base


assert QUEUE_ENTRY_SIZE == QUEUE_ENTRY


cdef class LogWindow:
    """The log as one process has it mapped, in one epoch."""
    cdef Word epoch_word
    cdef Word min_word
    cdef Word max_word, end_word
    cdef Word dispatched_word
    cdef Word complete_word  # not 0 while the index is
    cdef Word changing_word  # not 0 while the bytes of an epoch change
    cdef readonly int64_t epoch
    cdef int64_t minimum
    cdef list segments  # ascending
    cdef uint64_t *known  # digests of groups of queue entries that agree with their records
    cdef Segment last  # the one that was used last

    def __cinit__(self):
        self.known = <uint64_t *> calloc(KNOWN_GROUPS, sizeof(uint64_t))
        if self.known == NULL:
            raise MemoryError("no memory for what is known of queue entries")

    def __dealloc__(self):
        free(self.known)

    def __init__(
        self, Word epoch not None, Word minimum not None, Word maximum not None,
        Word dispatched not None, Word index_complete not None, Word changing not None,
        Word log_end=None,
    ):
        self.epoch_word, self.min_word, self.max_word = epoch, minimum, maximum
        self.dispatched_word, self.complete_word = dispatched, index_complete
        self.changing_word, self.end_word = changing, maximum if log_end is None else log_end
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

    def add(self, Segment segment not None, int64_t most, int64_t epoch):
        """Forgets all others when there are ``most``."""
        cdef Segment each
        if epoch != self.epoch:
            return  # its map may be of a file that a recovery replaced
        kept = [each for each in self.segments if each.base != segment.base]
        if len(kept) >= most:
            kept = []
        kept.append(segment)
        kept.sort(key=base_of)
        self.segments, self.last = kept, None

    cdef bint enter(self, Moment *moment):
        """Begin a look-up; False where this is of another epoch, or bytes change at present."""
        moment.epoch, moment.minimum = self.epoch, self.minimum
        return self.is_at(moment) and atomic_load64(self.changing_word.at) == 0

    cdef bint is_at(self, const Moment *moment):
        """Whether nothing changed since; another thread may have renewed the window meanwhile."""
        acquire_fence()
        return (
            <int64_t> atomic_load64(self.epoch_word.at) == moment.epoch
            and <int64_t> atomic_load64(self.min_word.at) == moment.minimum
        )

    cdef inline int64_t readable_end(self):
        """The physical offset below which all records are dispatched."""
        return min(
            <int64_t> atomic_load64(self.dispatched_word.at),
            <int64_t> atomic_load64(self.max_word.at),
        )

    cdef inline int64_t log_end(self):
        """The end of the log, which may be beyond what readers may see."""
        return max(
            <int64_t> atomic_load64(self.max_word.at), <int64_t> atomic_load64(self.end_word.at)
        )

    cdef Segment place(self, int64_t offset, int64_t limit, Place *found):
        """The segment of an offset below ``limit``; None for an unknown segment."""
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

    cdef bytes copied(self, int64_t offset, int64_t limit, Layout *r, int *state):
        """A checked copy of the record at an offset; None where any check of it fails.

        ``state`` is set to the result of the comparison with the checksums of its blocks.
        """
        cdef Place place
        cdef int64_t left, number, size
        cdef bytes raw
        cdef Segment segment = self.place(offset, limit, &place)
        if segment is None or parse_head(place.at, place.available, r, &left) != DEFECT_NONE:
            return None
        size = r.total
        if <int64_t> get64(place.at + 28) != offset:
            return None  # another record: its size must not choose the blocks to compare
        state[0] = segment.judge(place.position, size, &number)
        if state[0] == CHANGED:
            return None
        raw = copy_of(place.at, size)
        return raw if is_whole_copy(bytes_of(raw), size, offset, state[0], r) else None

    def record_at(self, type kind not None, int64_t offset):
        cdef Moment moment
        cdef Layout r
        cdef int state
        check_kind(kind)
        if not self.enter(&moment):
            return None
        raw = self.copied(offset, <int64_t> atomic_load64(self.max_word.at), &r, &state)
        if raw is None or not self.is_at(&moment):
            return None
        return record_in(kind, raw, 0, &r, True)

    def record_by_id(self, type kind not None, str text not None):
        cdef MessageId id
        cdef StoredRecord record
        if not read_message_id(text, &id):
            return None
        record = self.record_at(kind, id.offset)
        return record if record is not None and is_of_host(record, &id) else None

    def slice_at(self, int64_t offset):
        cdef Moment moment
        cdef Layout r
        cdef int state
        if not self.enter(&moment):
            return None
        raw = self.copied(offset, <int64_t> atomic_load64(self.max_word.at), &r, &state)
        return raw if raw is not None and self.is_at(&moment) else None

    cdef void fetch(self, const Entries *e, int64_t ahead):
        """Prefetch the memory by which a later entry's record is judged."""
        cdef const uint8_t *entry = e.at + ahead * QUEUE_ENTRY
        cdef int64_t at, size
        if ahead >= e.left or self.last is None:
            return
        at, size = <int64_t> get64(entry) - self.last.base, <int32_t> get32(entry + 8)
        if 0 <= at < self.last.size and 0 < size <= self.last.size - at:
            prefetch(<const uint8_t *> self.last.log.buf + at, size)

    cdef int64_t name_run(
        self, Entries *e, Named *run, int64_t most, int64_t bytes_most, list kept, int64_t *size
    ) except -1:
        """Where the records of the next entries stand, by the entries alone, and how many bytes
        they have together; ``kept`` keeps their segments. 0 where nothing more may be taken, or the
        next one is odd."""
        cdef const uint8_t *entry = e.at
        cdef int64_t count = 0, taken = e.taken
        cdef Segment segment, held = None
        cdef Named *named
        cdef Place place
        size[0] = 0
        most = min(most, min(e.left, e.wanted))
        while count < most and size[0] < bytes_most:
            named = run + count
            named.physical, named.size = <int64_t> get64(entry), <int32_t> get32(entry + 8)
            if named.size <= 0:
                break
            if taken and taken + named.size > e.max_bytes:
                e.is_full = count == 0
                break
            segment = self.place(named.physical, e.limit, &place)
            if segment is None or named.size > place.available:
                break
            if segment is not held:
                kept.append(segment)
                held = segment
            named.at, named.position, named.segment = place.at, place.position, <void *> segment
            taken += named.size
            size[0] += named.size
            entry += QUEUE_ENTRY
            count += 1
        return count

    cdef int judge_named(self, Entries *e, const Named *named):
        """The state of the blocks of an entry's record; CHANGED also where there is no record."""
        cdef Layout r
        cdef int64_t left, number
        if not e.is_known:
            # A damaged entry must not choose the blocks to compare.
            if parse_head(named.at, named.size, &r, &left) != DEFECT_NONE or r.total != named.size:
                return CHANGED
        return (<Segment> named.segment).judge(named.position, named.size, &number)

    cdef bint take_named(self, Entries *e, const Named *named, char *to, bint with_layout, Layout *r):
        """Copy the record of the next entry; False where anything is odd about it.

        Of one that was looked at before no more is looked at, unless ``with_layout``.
        """
        cdef int state
        if e.at >= e.group_end and not e.is_sparse:
            enter_group(e, self.known)
        state = self.judge_named(e, named)
        if state == CHANGED:
            return False
        take_copy(to, named.at, named.size)
        if with_layout or not e.is_known or state != WHOLE:
            if not is_named(e, <const uint8_t *> to, named, state, r):
                return False
        pass_entry(e, named.size, state)
        if e.at == e.group_end and e.is_new and self.is_at(&e.moment):
            remember_group(e, self.known)
        return True

    cdef int begin(
        self, Entries *e, const Py_buffer *queue, int64_t position, int64_t count, bytes topic,
        int64_t queue_id, int64_t index, int64_t taken, int64_t max_bytes,
    ) except -1:
        check_range(position, position, queue.len)
        e.start = <const uint8_t *> queue.buf
        e.at, e.end = e.start + position, e.start + queue.len
        e.group_end, e.is_known, e.is_new, e.is_sparse = e.at, False, False, False
        e.left, e.wanted, e.is_full = (queue.len - position) // QUEUE_ENTRY, count, False
        e.limit = self.readable_end() if self.enter(&e.moment) else 0
        e.topic, e.queue_id, e.index = text_of(topic), <int32_t> queue_id, <uint64_t> index
        e.queue = queue_digest(e.moment.epoch, topic, queue_id)
        e.taken, e.max_bytes = taken, max_bytes
        return 0

    def records(
        self, type kind not None, entries not None, int64_t position, bytes topic not None,
        int64_t queue_id, int64_t index, int64_t count, int64_t taken, int64_t max_bytes,
    ):
        cdef Py_buffer queue
        cdef Entries e
        cdef list found = []
        check_kind(kind)
        PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
        try:
            self.begin(
                &e, &queue, position, count, topic, queue_id, index, taken, max_bytes
            )
            while self.take_run(kind, &e, found):
                pass
        finally:
            PyBuffer_Release(&queue)
        if not self.is_at(&e.moment):
            return [], taken, False
        return found, e.taken, e.is_full

    cdef bint take_run(self, type kind, Entries *e, list found) except -1:
        """Some more records, which share one copy of their bytes, or without a ``kind`` that copy;
        False after the last."""
        cdef Named run[RUN_MOST]
        cdef Layout r
        cdef int64_t size, count, i, at = 0
        cdef bint with_layout = kind is not None
        cdef list kept = []
        cdef bytes raw
        cdef char *to
        if with_layout:
            count = self.name_run(e, run, RUN_RECORDS, RUN_BYTES, kept, &size)
        else:
            count = self.name_run(e, run, RUN_MOST, INT64_MAX, kept, &size)
        if count == 0:
            return False
        raw = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(raw)
        for i in range(count):
            if i + FETCH_AHEAD < count and (with_layout or not e.is_known):
                prefetch(run[i + FETCH_AHEAD].at, run[i + FETCH_AHEAD].size)
            if not self.take_named(e, &run[i], to + at, with_layout, &r):
                break
            if with_layout:
                found.append(record_in(kind, raw, at, &r, True))
            at += run[i].size
        if not with_layout and at:
            found.append(raw if at == size else raw[:at])
        return at == size

    def read_tagged(
        self, type kind not None, Tags tags not None, entries not None, int64_t position,
        bytes topic not None, int64_t queue_id, int64_t index, int64_t most, int64_t count,
        int64_t taken, int64_t max_bytes,
    ):
        cdef Py_buffer queue
        cdef Entries e
        cdef list found = []
        check_kind(kind)
        PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
        try:
            self.begin(
                &e, &queue, position, count, topic, queue_id, index, taken, max_bytes
            )
            e.left, e.is_sparse = max(0, min(e.left, most)), True
            skip_entries(&e, tags.count_without(e.at, e.left))
            while not e.is_full and self.take_tagged(kind, tags, &e, found):
                pass
        finally:
            PyBuffer_Release(&queue)
        if not self.is_at(&e.moment):
            return [], 0, taken, False
        return found, <int64_t> (e.index - <uint64_t> index), e.taken, e.is_full

    cdef bint take_tagged(self, type kind, Tags tags, Entries *e, list found) except -1:
        """The record that the next entry names, which has the code of one of the tags, and on to the
        next such entry; False where there is none, or it is not plain."""
        cdef Named named
        cdef Layout r
        cdef int64_t passed, size
        cdef list kept = []
        cdef bytes raw
        if e.left <= 0 or not tags.has_code(e.at):
            return False
        passed = tags.count_without(e.at + QUEUE_ENTRY, e.left - 1)
        self.fetch(e, 1 + passed)
        if self.name_run(e, &named, 1, INT64_MAX, kept, &size) == 0:
            return False
        raw = PyBytes_FromStringAndSize(NULL, size)
        if not self.take_named(e, &named, PyBytes_AS_STRING(raw), True, &r):
            return False
        if tags.has_tag(r.properties):
            found.append(record_in(kind, raw, 0, &r, True))
        else:
            give_back(e, r.size)
        skip_entries(e, 0 if e.is_full else passed)
        return True

    def slices(
        self, entries not None, int64_t position, bytes topic not None, int64_t queue_id,
        int64_t index, int64_t count, int64_t taken, int64_t max_bytes,
    ):
        cdef Py_buffer queue
        cdef Entries e
        cdef list found = []
        PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
        try:
            self.begin(
                &e, &queue, position, count, topic, queue_id, index, taken, max_bytes
            )
            while self.take_run(None, &e, found):
                pass
        finally:
            PyBuffer_Release(&queue)
        if not self.is_at(&e.moment):
            return [], 0, taken, False
        return found, <int64_t> (e.index - <uint64_t> index), e.taken, e.is_full

    def pull(self, answer, status, kind, queue, offset, count, most, max_bytes):
        cdef Pulled pulled
        cdef Moment moment
        if not self.enter(&moment):
            return None
        high = queue.max_index
        low = queue.min_index
        if not low <= offset <= high - count or not 0 < count <= most:
            return None
        place = queue.block(offset)
        if place is None:
            return None
        pulled = answer(status, [], [], offset, low, high)
        _, is_full = pulled.take(self, kind, place[0], place[1], queue, count, 0, max_bytes)
        return pulled if is_full and self.is_at(&moment) else None

    def find_by_key(
        self, type kind not None, index, str topic not None, str key not None, int64_t from_ms,
        int64_t to_ms, bint uniq_key_only, int64_t below, int64_t limit,
    ):
        cdef Search s
        cdef Moment moment
        cdef bint is_complete
        cdef Py_ssize_t number
        cdef tuple files
        cdef list found = []
        check_kind(kind)
        if not begin_search(&s, topic, key) or not self.enter(&moment):
            return None
        is_complete = atomic_load64(self.complete_word.at) != 0
        s.limit = <int64_t> atomic_load64(self.max_word.at)
        if <int64_t> atomic_load64(self.dispatched_word.at) < s.limit:
            return None
        s.from_ms, s.to_ms, s.uniq_key_only = from_ms, to_ms, uniq_key_only
        s.below, s.minimum = min(below, s.limit), moment.minimum
        s.most, s.looked_at, s.next = limit, 0, -1
        files = index.files  # after the log's end: all that is dispatched below it is in these
        if files is None:
            return None
        number = len(files)
        while number > 0 and s.next < 0:
            number -= 1
            if not self.search_in(kind, files[number], &s, found):
                return None
        is_complete = is_complete and atomic_load64(self.complete_word.at) != 0
        return answer_of(found, &s, moment.minimum, is_complete) if self.is_at(&moment) else None

    cdef bint search_in(self, type kind, file, Search *s, list found) except -1:
        """False where a candidate is not plain."""
        cdef Py_buffer index
        PyObject_GetBuffer(file.view, &index, PyBUF_SIMPLE)
        try:
            return self.search_file(kind, &index, file.slots, file.index_num, s, found)
        finally:
            PyBuffer_Release(&index)

    cdef bint search_file(
        self, type kind, const Py_buffer *index, int64_t slots, int64_t index_num, Search *s,
        list found,
    ) except -1:
        cdef Chain c
        cdef int i
        cdef const uint8_t *file = <const uint8_t *> index.buf
        check_index(index.len, slots, index_num)
        if s.to_ms < <int64_t> get64(file) or <int64_t> get64(file + 8) < s.from_ms - INDEX_STEP_MS:
            return True
        if not begin_chain(
            &c, file, slots, index_num, s.hash, s.from_ms - INDEX_STEP_MS, s.to_ms
        ) or <int64_t> get64(c.items + INDEX_ITEM + 4) >= s.below:  # all are in earlier pages
            return True
        follow(&c, FIND_CHUNK - 1)
        if c.entry > 0:
            return False
        # The first item's seconds count from the previous file: its time is meaningless.
        if get32(c.items + INDEX_ITEM) == s.hash:
            c.offsets[c.found] = <int64_t> get64(c.items + INDEX_ITEM + 4)
            c.found += 1
        for i in range(c.found):
            if not s.minimum <= c.offsets[i] < s.below:
                continue
            if len(found) == s.most:
                s.next = c.offsets[i]
                return True
            s.below = c.offsets[i]
            if not self.candidate(kind, c.offsets[i], s, found):
                return False
        return True

    cdef bint candidate(self, type kind, int64_t offset, Search *s, list found) except -1:
        cdef Layout r
        cdef int state
        cdef bytes raw = self.copied(offset, s.limit, &r, &state)
        if raw is None:
            return False
        s.looked_at += 1
        if not same(r.topic, s.topic):
            return True
        if not s.from_ms <= <int64_t> get64(bytes_of(raw) + r.store_time_at) <= s.to_ms:
            return True
        if has_key(r.properties, s.key, s.uniq_key_only):
            found.append(record_in(kind, raw, 0, &r, True))
        return True
