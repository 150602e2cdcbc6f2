# Records of many offset message ids ----------------------------------------------------------------

# They are read in the order of the log. Their pages are brought into memory without the GIL first,
# so that other threads run while the disk is read.


cdef extern from "<stdlib.h>" nogil:
    void qsort(
        void *base, size_t count, size_t size, int (*compare)(const void *, const void *) noexcept nogil
    ) noexcept


cdef struct Sought:
    # One id of a request.
    MessageId id
    const uint8_t *at  # the first byte of its record; NULL where there is none to read
    int64_t available  # bytes from there to the end of its segment or of the log
    int64_t size  # of the record, by its first field; 0 where that is impossible


cdef struct Turn:
    # The place of an id in the order of the log.
    int64_t offset
    int64_t number


cdef int compare_turns(const void *a, const void *b) noexcept nogil:
    cdef int64_t first = (<const Turn *> a).offset, second = (<const Turn *> b).offset
    return (first > second) - (first < second)


@cython.final
@cython.no_gc
cdef class Bulk:
    """The ids of one look-up, and the order in which they are read."""
    cdef int64_t count  # of the ids that are looked up
    cdef Sought *sought  # as they were requested
    cdef Turn *turns  # in the order of the log
    cdef list kept  # the segments, so that they stay mapped

    def __cinit__(self, list texts not None):
        cdef int64_t number
        self.count = len(texts)
        self.sought = <Sought *> malloc(max(1, self.count) * sizeof(Sought))
        self.turns = <Turn *> malloc(max(1, self.count) * sizeof(Turn))
        if self.sought == NULL or self.turns == NULL:
            raise MemoryError(f"no memory for {self.count} ids")
        for number in range(self.count):
            if not read_message_id(<str?> texts[number], &self.sought[number].id):
                self.sought[number].id.offset = -1
            self.turns[number].offset, self.turns[number].number = (
                self.sought[number].id.offset, number
            )
        qsort(self.turns, self.count, sizeof(Turn), compare_turns)

    def __dealloc__(self):
        free(self.sought)
        free(self.turns)

    cdef int locate(self, LogWindow window, int64_t limit) except -1:
        """Find where the records begin, and keep the segments that hold them."""
        cdef int64_t i
        cdef Place place
        cdef Sought *each
        cdef Segment segment, held = None
        self.kept = []
        for i in range(self.count):
            each = &self.sought[self.turns[i].number]
            segment = window.place(each.id.offset, limit, &place)
            each.at, each.available, each.size = NULL, 0, 0
            if segment is not None and place.available >= 4:
                each.at, each.available = place.at, place.available
                if segment is not held:
                    self.kept.append(segment)
                    held = segment
        return 0

    cdef void read_sizes(self) noexcept nogil:
        cdef int64_t i
        cdef Sought *each
        for i in range(self.count):
            if i + FETCH_AHEAD < self.count:
                each = &self.sought[self.turns[i + FETCH_AHEAD].number]
                if each.at != NULL:
                    prefetch(each.at, 0)
            each = &self.sought[self.turns[i].number]
            if each.at != NULL:
                each.size = <int32_t> get32(each.at)
                if not 0 < each.size <= each.available:
                    each.size = 0

    cdef void cut(self, int64_t max_bytes) noexcept nogil:
        """Leave out the ids from the first whose record would exceed ``max_bytes``."""
        cdef int64_t number, taken = 0
        for number in range(self.count):
            if taken and taken + self.sought[number].size > max_bytes:
                self.count = number
                return
            taken += self.sought[number].size

    cdef void load_pages(self, int64_t turns) noexcept nogil:
        cdef int64_t i
        cdef Sought *each
        for i in range(turns):
            if self.turns[i].number < self.count:
                each = &self.sought[self.turns[i].number]
                if each.size:
                    mq_touch(each.at, each.size)


def records_by_id(
    LogWindow window not None, type kind not None, list texts not None, int64_t max_bytes
):
    cdef Moment moment
    cdef Bulk bulk = Bulk(texts)
    cdef int64_t turns = bulk.count
    check_kind(kind)
    if not window.enter(&moment):
        return [None] * bulk.count
    bulk.locate(window, <int64_t> atomic_load64(window.max_word.at))
    with nogil:
        bulk.read_sizes()
        bulk.cut(max_bytes)
        bulk.load_pages(turns)
    found = copy_bulk(window, kind, bulk, turns)
    return found if window.is_at(&moment) else [None] * bulk.count


cdef list copy_bulk(LogWindow window, type kind, Bulk bulk, int64_t turns):
    cdef Layout r
    cdef int state
    cdef int64_t i, ahead, number, limit = <int64_t> atomic_load64(window.max_word.at)
    cdef list found = [None] * bulk.count
    cdef Sought *each
    cdef StoredRecord record
    cdef bytes raw
    for i in range(turns):
        ahead = bulk.turns[min(i + FETCH_AHEAD, turns - 1)].number
        if ahead < bulk.count and bulk.sought[ahead].size:
            prefetch(bulk.sought[ahead].at, bulk.sought[ahead].size)
        number = bulk.turns[i].number
        if number >= bulk.count or not bulk.sought[number].size:
            continue
        each = &bulk.sought[number]
        raw = window.copied(each.id.offset, limit, &r, &state)
        if raw is not None:
            record = record_in(kind, raw, 0, &r, True)
            if is_of_host(record, &each.id):
                found[number] = record
    return found
