# A segment of the log, and the checks of its blocks ------------------------------------------------


cdef enum:
    CHANGED = -1  # a block does not match its checksum
    OPEN = 0  # not all of it is covered by checksums
    WHOLE = 1

    KNOWN_CHANGED = 0xFFFFFFFF  # in place of the number of verified bytes of a block
    LOOK_AGAIN = 256  # uses of a segment without checksums, after which it may have some


@cython.no_gc  # nothing that it refers to refers back
cdef class Segment:
    """A mapped segment, and the number of verified bytes of each block."""
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

    def count_covered(self, int64_t position, int64_t size):
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
        """CHANGED stops at that block, ``number``; blocks are compared once, with a cached result."""
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

    cdef bint is_known(self, int64_t at, int64_t size) noexcept:
        """Whether ``judge`` has a cached result for each block of these bytes."""
        cdef int64_t number
        if not self.has_covers:
            return False
        for number in range(at // BLOCK_SIZE, (at + size - 1) // BLOCK_SIZE + 1):
            if self.known[number] < min(at + size - number * BLOCK_SIZE, BLOCK_SIZE):
                return False
        return True

    cdef int64_t count_uncompared(self, int64_t at, int64_t size) noexcept:
        """Count the bytes that ``judge`` would compare. Reads the checksums of their blocks."""
        cdef const uint8_t *entry = <const uint8_t *> self.covers.buf + BLOCK_HEADER
        cdef int64_t number, found = 0
        cdef Cover cover
        if not self.has_covers:
            return 0
        for number in range(at // BLOCK_SIZE, (at + size - 1) // BLOCK_SIZE + 1):
            read_cover(entry + number * BLOCK_ENTRY, self.base + number * BLOCK_SIZE, &cover)
            if min(<int64_t> cover.length, self.size - number * BLOCK_SIZE) > self.known[number]:
                found += cover.length
        return found

    cdef void compare(self, int64_t number):
        """Compare the part of a block that is covered by now."""
        cdef const uint8_t *block = <const uint8_t *> self.log.buf + number * BLOCK_SIZE
        cdef const uint8_t *entry = <const uint8_t *> self.covers.buf + BLOCK_HEADER
        cdef Cover cover
        cdef bint whole
        read_cover(entry + number * BLOCK_ENTRY, self.base + number * BLOCK_SIZE, &cover)
        cover.length = <uint32_t> min(<int64_t> cover.length, self.size - number * BLOCK_SIZE)
        if cover.length <= self.known[number] and not cover.doubt:
            return
        with nogil:
            whole = is_as_covered(&cover, block)
        if not whole or cover.doubt:  # of either, ``lookups`` looks at each record
            self.known[number] = KNOWN_CHANGED
        else:
            self.known[number] = max(self.known[number], cover.length)
