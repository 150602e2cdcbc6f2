# Batches as their producers encoded them ---------------------------------------------------------
# Per message: total size 4, magic 4, body CRC 4, flag 4, body length 4, body, properties length 2,
# properties. The defect of another batch is named by codec/batch.py.


cdef inline int64_t read_item(const uint8_t *p, int64_t left, Parts *m) noexcept nogil:
    """The size of the first message in so many bytes, or 0 where its parts do not add up."""
    cdef int64_t total, body, properties
    if left < BATCH_ITEM:
        return 0
    total, body = <int32_t> get32(p), <int32_t> get32(p + 16)
    if total > left or body < 0 or body > total - BATCH_ITEM:
        return 0
    properties = <int64_t> p[20 + body] << 8 | p[21 + body]
    if properties > PROPERTIES_MAX or total != BATCH_ITEM + body + properties:
        return 0
    m.flag = <int32_t> get32(p + 12)
    m.body.at, m.body.length = p + 20, <uint32_t> body
    m.properties.at, m.properties.length = p + BATCH_ITEM + body, <uint32_t> properties
    return total


cdef int64_t count_items(const uint8_t *p, int64_t size) noexcept nogil:
    """How many messages there are; 0 where they do not add up to ``size`` bytes."""
    cdef Parts m
    cdef int64_t count = 0, taken
    while size > 0:
        taken = read_item(p, size, &m)
        if taken == 0:
            return 0
        p, size, count = p + taken, size - taken, count + 1
    return count


cdef bint is_printable(Text text) noexcept nogil:
    cdef uint32_t i
    for i in range(text.length):
        if not 0x20 <= text.at[i] < 0x7F:
            return False
    return True


cdef bint is_ascii(Text text) noexcept nogil:
    cdef uint32_t i
    cdef uint8_t bits = 0
    for i in range(text.length):
        bits |= text.at[i]
    return bits < 0x80


@cython.final
cdef class NameRules:
    cdef tuple kept
    cdef Text *names
    cdef int free_count, count

    def __cinit__(self, free_names not None, refused not None):
        cdef bytes name
        cdef int i = 0
        self.kept = (*free_names, *refused)
        self.free_count, self.count = len(free_names), len(self.kept)
        self.names = <Text *> calloc(max(self.count, 1), sizeof(Text))
        if self.names == NULL:
            raise MemoryError("no memory for property names")
        for name in self.kept:
            self.names[i] = text_of(name)
            i += 1

    def __dealloc__(self):
        free(self.names)

    cdef bint allow(self, Text name, Text value) noexcept nogil:
        """False where Python has to decide."""
        cdef int i
        for i in range(self.count):
            if same(self.names[i], name):
                return i < self.free_count
        return is_printable(name) and is_printable(value)

    cdef bint allow_all(self, Text properties) noexcept nogil:
        cdef Text name, value
        cdef const uint8_t *p = properties.at
        cdef const uint8_t *end = p + properties.length
        cdef const uint8_t *stop
        cdef const uint8_t *equals
        while p < end:
            stop = <const uint8_t *> memchr(p, 2, end - p)
            if stop == NULL:
                stop = end
            equals = <const uint8_t *> memchr(p, 1, stop - p)
            if equals != NULL and equals > p and equals + 1 < stop:
                name.at, name.length = p, <uint32_t> (equals - p)
                value.at, value.length = equals + 1, <uint32_t> (stop - equals - 1)
                if not self.allow(name, value):
                    return False
            p = stop + 1
        return True
