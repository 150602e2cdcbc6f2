# Searching for records among other bytes -------------------------------------------------------


@cython.final
@cython.no_gc  # nothing that it refers to refers back
cdef class RecordSearch:
    """Finds whole records in the bytes of a view."""
    cdef Held view
    cdef const uint8_t *log
    cdef int64_t length
    cdef int64_t base
    cdef bint verify_body
    cdef Sums sums

    def __cinit__(self, view not None, int64_t base, bint verify_body):
        self.view = Held(view, False)
        self.log = <const uint8_t *> self.view.bytes.buf
        self.length = self.view.bytes.len
        self.base, self.verify_body = base, verify_body
        self.sums.of.bytes, self.sums.length = self.log, self.length

    def __dealloc__(self):
        mq_sums_close(&self.sums.of)

    @property
    def checksummed(self):
        return self.sums.of.passed

    cdef int at(self, int64_t position, int64_t end, Layout *r) noexcept nogil:
        """First defect of the record there, or NONE."""
        cdef const uint8_t *p = self.log + position
        cdef int defect = parse(p, end - position, self.base + position, r)
        if defect == DEFECT_NONE and self.verify_body:
            defect = verify(p, r, &self.sums)
        return defect

    cdef int64_t search(self, int64_t at, int64_t stop, int64_t end) noexcept nogil:
        cdef Layout r
        cdef const uint8_t *found
        while at < stop:
            found = <const uint8_t *> memchr(self.log + at + 4, MAGIC_V1 >> 24, stop - at)
            if found == NULL:
                return -1
            at = found - self.log - 4
            if self.at(at, end, &r) == DEFECT_NONE:
                return at
            at += 1
        return -1

    def check(self, int64_t position, int64_t end):
        cdef Layout r
        check_range(position, end, self.length)
        if position == end:
            return (DEFECTS[DEFECT_TRUNCATED], 0)
        return defect_of(self.at(position, end, &r), &r)

    def find(self, int64_t position, int64_t end, int64_t stop=INT64_MAX):
        cdef int64_t found = -1, until
        check_range(position, end, self.length)
        stop = min(stop, end - 7)
        while found < 0 and position < stop:
            until = min(stop, position + SEARCH_CHUNK)
            with nogil:
                found = self.search(position, until, end)
            position = until
            PyErr_CheckSignals()
        return found


def find_record(
    view not None,
    int64_t position,
    int64_t end,
    int64_t base,
    bint verify_body,
    int64_t stop=INT64_MAX,
):
    return RecordSearch(view, base, verify_body).find(position, end, stop)
