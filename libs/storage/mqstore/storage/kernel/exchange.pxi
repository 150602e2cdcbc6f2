# Requests under a head that a client repeats ----------------------------------------------------


cdef enum:
    BOUNDS_MAX = 32
    LENGTH_DIGITS = 9  # of a content-length


cdef class ValueCounts:
    cdef readonly tuple bounds
    cdef readonly double total
    cdef int bound_count
    cdef double limits[BOUNDS_MAX]
    cdef int64_t found[BOUNDS_MAX + 1]

    def __init__(self, tuple bounds not None):
        cdef int i
        if len(bounds) > BOUNDS_MAX:
            raise ValueError(f"{len(bounds)} bounds are more than {BOUNDS_MAX}")
        self.bounds, self.bound_count, self.total = bounds, <int> len(bounds), 0
        for i in range(self.bound_count):
            self.limits[i] = bounds[i]
        memset(self.found, 0, sizeof(self.found))

    @property
    def counts(self):
        return [self.found[i] for i in range(self.bound_count + 1)]

    def observe(self, double value):
        self.note(value)

    def add(self, ValueCounts other not None):
        cdef int i
        if other.bounds != self.bounds:
            raise ValueError("values are counted by other bounds")
        for i in range(self.bound_count + 1):
            self.found[i] += other.found[i]
        self.total += other.total

    cdef inline void note(self, double value) noexcept:
        cdef int i = 0
        while i < self.bound_count and self.limits[i] < value:
            i += 1
        self.found[i] += 1
        self.total += value


@cython.final
cdef class RepeatedHead:
    cdef readonly bytes before, after

    def __init__(self, bytes before not None, bytes after not None):
        self.before, self.after = before, after

    def body_of(self, bytes data not None):
        cdef const char *p = PyBytes_AS_STRING(data)
        cdef const char *start
        cdef Py_ssize_t left = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t before = PyBytes_GET_SIZE(self.before), after = PyBytes_GET_SIZE(self.after)
        cdef Py_ssize_t length = 0
        if left <= before + after or memcmp(p, PyBytes_AS_STRING(self.before), before):
            return None
        p, left = p + before, left - before
        start = p
        while left > after and p - start < LENGTH_DIGITS and c"0" <= p[0] <= c"9":
            length = 10 * length + p[0] - c"0"
            p, left = p + 1, left - 1
        if p == start or left < after or memcmp(p, PyBytes_AS_STRING(self.after), after):
            return None
        if left - after != length:
            return None
        return PyBytes_FromStringAndSize(p + after, length)


@cython.final
cdef class RequestIds:
    cdef str prefix
    cdef uint64_t count

    def __init__(self, str prefix not None):
        self.prefix = prefix

    def next(self):
        self.count += 1
        return f"{self.prefix}-{self.count:x}"


cdef bytes _length_line = b"content-length: "
cdef bytes _id_line = b"\r\nx-request-id: "
cdef bytes _head_end = b"\r\n\r\n"
cdef Text LENGTH_LINE = text_of(_length_line)
cdef Text ID_LINE = text_of(_id_line)
cdef Text HEAD_END = text_of(_head_end)


@cython.final
cdef class Exchange:
    cdef object begin, later, encode_start, note_id, count, fields
    cdef RequestIds ids
    cdef ValueCounts seconds
    cdef str given_id
    cdef bytes start  # of replies with ``fields``

    def __init__(
        self, begin not None, *, later not None, encode_start not None, note_id not None,
        RequestIds ids not None, str given_id, count not None,
    ):
        self.begin, self.later, self.encode_start = begin, later, encode_start
        self.note_id, self.ids, self.given_id, self.count = note_id, ids, given_id, count
        self.seconds = count if isinstance(count, ValueCounts) else None

    def reply(self, bytes body not None, params, fields):
        cdef double started = mq_monotonic()
        cdef str request_id = self.ids.next() if self.given_id is None else self.given_id
        self.note_id(request_id)
        found = self.begin(body, params)
        if found is None:
            return None
        if type(found) is bytes:
            return self.encode(found, fields, request_id, started)
        return self.later(found, len(body), fields, request_id, started)

    def encode(self, bytes body not None, fields, str request_id not None, double started):
        cdef double seconds = mq_monotonic() - started
        cdef char digits[NUMBER_MAX]
        cdef Text length, id = utf8_of(request_id)
        cdef bytes reply
        cdef char *p
        if fields is not self.fields:
            self.start, self.fields = self.encode_start(fields), fields
        if self.seconds is None:
            self.count(seconds)
        else:
            self.seconds.note(seconds)
        length.at = <const uint8_t *> digits
        length.length = <uint32_t> (add_number(digits, PyBytes_GET_SIZE(body)) - digits)
        reply = PyBytes_FromStringAndSize(
            NULL,
            PyBytes_GET_SIZE(self.start) + LENGTH_LINE.length + length.length + ID_LINE.length
            + id.length + HEAD_END.length + PyBytes_GET_SIZE(body),
        )
        p = add_text(PyBytes_AS_STRING(reply), text_of(self.start))
        p = add_text(add_text(p, LENGTH_LINE), length)
        p = add_text(add_text(add_text(p, ID_LINE), id), HEAD_END)
        memcpy(p, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        return reply
