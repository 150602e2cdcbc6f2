# Many records as columns, in Arrow's layout ----------------------------------------------------


cdef enum:
    HOSTS_REMEMBERED = 4096
    # What a column is made of, ...
    KIND_INT64 = 0
    KIND_INT32 = 1
    KIND_TIME = 2
    KIND_TEXT = 3
    KIND_BYTES = 4
    KIND_MAP = 5
    # ... and which part of the record it is.
    PART_PHYSICAL_OFFSET = 0
    PART_SIZE = 1
    PART_QUEUE_ID = 2
    PART_QUEUE_OFFSET = 3
    PART_FLAG = 4
    PART_SYS_FLAG = 5
    PART_BODY_CRC = 6
    PART_RECONSUME_TIMES = 7
    PART_PREPARED_OFFSET = 8
    PART_VERSION = 9
    PART_BORN_TIME = 10
    PART_STORE_TIME = 11
    PART_TOPIC = 12
    PART_BORN_HOST = 13
    PART_STORE_HOST = 14
    PART_TAGS = 15
    PART_KEYS = 16
    PART_UNIQ_KEY = 17
    PART_REAL_TOPIC = 18
    PART_BODY = 19
    PART_PROPERTIES = 20

# The years 1 to 9999, in milliseconds: the range of Python's and Spark's dates.
cdef int64_t TIME_MIN_MS = -62135596800000
cdef int64_t TIME_MAX_MS = 253402300799999

cdef dict COLUMN_PARTS = {
    "physical_offset": (KIND_INT64, PART_PHYSICAL_OFFSET),
    "size": (KIND_INT32, PART_SIZE),
    "queue_id": (KIND_INT32, PART_QUEUE_ID),
    "queue_offset": (KIND_INT64, PART_QUEUE_OFFSET),
    "flag": (KIND_INT32, PART_FLAG),
    "sys_flag": (KIND_INT32, PART_SYS_FLAG),
    "body_crc": (KIND_INT32, PART_BODY_CRC),
    "reconsume_times": (KIND_INT32, PART_RECONSUME_TIMES),
    "prepared_transaction_offset": (KIND_INT64, PART_PREPARED_OFFSET),
    "version": (KIND_INT32, PART_VERSION),
    "born_time": (KIND_TIME, PART_BORN_TIME),
    "store_time": (KIND_TIME, PART_STORE_TIME),
    "topic": (KIND_TEXT, PART_TOPIC),
    "born_host": (KIND_TEXT, PART_BORN_HOST),
    "store_host": (KIND_TEXT, PART_STORE_HOST),
    "tags": (KIND_TEXT, PART_TAGS),
    "keys": (KIND_TEXT, PART_KEYS),
    "uniq_key": (KIND_TEXT, PART_UNIQ_KEY),
    "real_topic": (KIND_TEXT, PART_REAL_TOPIC),
    "body": (KIND_BYTES, PART_BODY),
    "properties": (KIND_MAP, PART_PROPERTIES),
}


@cython.final
cdef class Grown:
    """Bytes that are added to at their end."""
    cdef uint8_t *at
    cdef int64_t size
    cdef int64_t room

    def __dealloc__(self):
        free(self.at)

    cdef uint8_t *more(self, int64_t size) except NULL:
        """Room for so many bytes at the end, which they then are."""
        cdef int64_t room = max(2 * self.room, self.size + size, 4096)
        cdef void *grown
        if self.size + size > self.room:
            grown = realloc(self.at, room)
            if grown == NULL:
                raise MemoryError()
            self.at, self.room = <uint8_t *> grown, room
        self.size += size
        return self.at + self.size - size

    cdef int put(self, const void *p, int64_t size) except -1:
        if size:
            memcpy(self.more(size), p, size)
        return 0

    cdef int put_int32(self, int32_t value) except -1:
        (<int32_t *> self.more(4))[0] = value
        return 0

    cdef int put_int64(self, int64_t value) except -1:
        (<int64_t *> self.more(8))[0] = value
        return 0

    cdef bytes take(self):
        cdef bytes taken = PyBytes_FromStringAndSize(<const char *> self.at, self.size)
        self.size = 0
        return taken


@cython.final
cdef class Texts:
    """Texts one after another, and where each ends."""
    cdef Grown ends
    cdef Grown data

    def __cinit__(self):
        self.ends, self.data = Grown(), Grown()

    cdef int end(self) except -1:
        if self.ends.size == 0:
            self.ends.put_int32(0)
        if self.data.size > INT32_MAX:
            raise OverflowError("more than 2 GiB of one column: read fewer bytes at a time")
        return self.ends.put_int32(<int32_t> self.data.size)

    cdef int put_bytes(self, Text text) except -1:
        self.data.put(text.at, text.length)
        return self.end()

    cdef int put_text(self, Text text) except -1:
        """As Java reads it, where it is malformed UTF-8."""
        if decoded(text) is None:
            text_bytes = odd_text(copy(text.at, text.length))
            return self.put_bytes(text_of(text_bytes))
        return self.put_bytes(text)

    cdef int put_str(self, str text) except -1:
        cdef Py_ssize_t length
        cdef const char *at = PyUnicode_AsUTF8AndSize(text, &length)
        self.data.put(at, length)
        return self.end()

    cdef tuple take(self):
        if self.ends.size == 0:
            self.ends.put_int32(0)
        return self.ends.take(), self.data.take()


cdef bytes odd_text(bytes text):
    from mqstore.storage.codec.java_text import decode_utf8  # it imports this module

    return decode_utf8(text).encode()


cdef dict odd_properties(bytes data):
    from mqstore.storage.codec import properties  # it imports this module

    return properties.decode(data)


cdef dict _known_hosts = {}


cdef bytes host_text(bytes packed):
    """``address:port``, the address of IPv6 in brackets and as Java prints it."""
    found = _known_hosts.get(packed)
    if found is None:
        host = unpack_host(packed)
        address = f"[{host.address_text}]" if host.is_v6 else host.address_text
        if len(_known_hosts) >= HOSTS_REMEMBERED:
            _known_hosts.clear()
        found = _known_hosts[packed] = f"{address}:{host.port}".encode()
    return found


cdef Text property_named(Text properties, Text name) noexcept nogil:
    """The value of the last one with this name and any value; of length 0 where there is none."""
    cdef const uint8_t *p = properties.at
    cdef const uint8_t *end = p + properties.length
    cdef const uint8_t *stop
    cdef Text found
    found.at, found.length = p, 0
    while p < end:
        stop = <const uint8_t *> memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        if (
            stop - p > name.length + 1
            and p[name.length] == 1
            and memcmp(p, name.at, name.length) == 0
        ):
            found.at = p + name.length + 1
            found.length = <uint32_t> (stop - found.at)
        p = stop + 1
    return found


@cython.final
cdef class Column:
    """One column of the rows that were added."""
    cdef int kind
    cdef int part
    cdef int64_t rows
    cdef int64_t nulls
    cdef Grown valid  # a bit for each row, the lowest one first
    cdef Grown numbers
    cdef Texts texts  # of a map its names
    cdef Texts values

    def __cinit__(self, int kind, int part):
        self.kind, self.part = kind, part
        self.valid, self.numbers = Grown(), Grown()
        self.texts, self.values = Texts(), Texts()

    cdef int add(self, const uint8_t *p, const Layout *r) except -1:
        cdef bint is_there = True
        if self.kind == KIND_INT64:
            self.numbers.put_int64(int64_part(self.part, p, r))
        elif self.kind == KIND_INT32:
            self.numbers.put_int32(int32_part(self.part, p, r))
        elif self.kind == KIND_TIME:
            is_there = self.add_time(p, r)
        elif self.kind == KIND_TEXT:
            is_there = self.add_text(p, r)
        elif self.kind == KIND_BYTES:
            self.texts.put_bytes(body_part(p, r))
        else:
            self.add_properties(r.properties)
        self.add_validity(is_there)
        return 0

    cdef int add_validity(self, bint is_there) except -1:
        if self.rows % 8 == 0:
            self.valid.more(1)[0] = 0
        self.valid.at[self.rows >> 3] |= is_there << (self.rows & 7)
        self.nulls += not is_there
        self.rows += 1
        return 0

    cdef bint add_time(self, const uint8_t *p, const Layout *r) except -1:
        """In microseconds; not there where no calendar has it."""
        cdef uint32_t at = 40 if self.part == PART_BORN_TIME else r.store_time_at
        cdef int64_t time_ms = <int64_t> get64(p + at)
        cdef bint is_there = TIME_MIN_MS <= time_ms <= TIME_MAX_MS
        self.numbers.put_int64(time_ms * 1000 if is_there else 0)
        return is_there

    cdef bint add_text(self, const uint8_t *p, const Layout *r) except -1:
        cdef Text text
        if self.part == PART_TOPIC:
            text = r.topic
        elif self.part == PART_BORN_HOST:
            self.texts.put_bytes(text_of(host_text(copy(p + 48, r.born_host_size))))
            return True
        elif self.part == PART_STORE_HOST:
            self.texts.put_bytes(
                text_of(host_text(copy(p + r.store_time_at + 8, r.store_host_size)))
            )
            return True
        elif self.part == PART_TAGS:
            text = property_named(r.properties, TAGS_NAME)
        elif self.part == PART_KEYS:
            text = property_named(r.properties, KEYS_NAME)
        elif self.part == PART_UNIQ_KEY:
            text = property_named(r.properties, UNIQ_NAME)
        else:
            text = property_named(r.properties, REAL_TOPIC_NAME)
        self.texts.put_text(text)
        return text.length > 0

    cdef int add_properties(self, Text properties) except -1:
        cdef dict found = split_text(properties)
        if found is None:
            found = odd_properties(copy(properties.at, properties.length))
        for name, value in found.items():
            self.texts.put_str(name)
            self.values.put_str(value)
        if self.numbers.size == 0:
            self.numbers.put_int32(0)
        # The texts have an end more than there are texts, once there is one.
        return self.numbers.put_int32(<int32_t> max(0, self.texts.ends.size // 4 - 1))

    cdef tuple take(self):
        cdef bytes valid = self.valid.take()
        cdef tuple parts
        if self.kind <= KIND_TIME:
            parts = (self.numbers.take(),)
        elif self.kind != KIND_MAP:
            parts = self.texts.take()
        else:
            if self.numbers.size == 0:
                self.numbers.put_int32(0)
            parts = (self.numbers.take(), *self.texts.take(), *self.values.take())
        parts = (valid if self.nulls else None, *parts)
        self.rows = self.nulls = 0
        return parts


cdef inline int64_t int64_part(int part, const uint8_t *p, const Layout *r) noexcept nogil:
    if part == PART_PHYSICAL_OFFSET:
        return <int64_t> get64(p + 28)
    if part == PART_QUEUE_OFFSET:
        return <int64_t> get64(p + 20)
    return <int64_t> get64(p + r.body_at - 12)


cdef inline int32_t int32_part(int part, const uint8_t *p, const Layout *r) noexcept nogil:
    if part == PART_SIZE:
        return <int32_t> r.size
    if part == PART_QUEUE_ID:
        return <int32_t> get32(p + 12)
    if part == PART_FLAG:
        return <int32_t> get32(p + 16)
    if part == PART_SYS_FLAG:
        return <int32_t> get32(p + 36)
    if part == PART_BODY_CRC:
        return <int32_t> get32(p + 8)
    if part == PART_RECONSUME_TIMES:
        return <int32_t> get32(p + r.body_at - 16)
    return r.version


cdef inline Text body_part(const uint8_t *p, const Layout *r) noexcept nogil:
    cdef Text body
    body.at, body.length = p + r.body_at, r.body_size
    return body


cdef inline bint is_tombstone(const uint8_t *p, const Layout *r) noexcept nogil:
    if get64(p + r.body_at - 12) != TOMBSTONE:
        return False
    return mq_is_zero(p + r.body_at, r.body_size)


cdef class RecordColumns:
    cdef list columns
    cdef tuple topics
    cdef list tombstones
    cdef int64_t lowest
    cdef int64_t since_ms
    cdef int64_t until_ms
    cdef readonly int64_t rows

    def __init__(
        self,
        columns not None,
        *,
        topics=None,
        int64_t lowest=0,
        int64_t since_ms=-INT64_MAX - 1,
        int64_t until_ms=INT64_MAX,
    ):
        self.columns = [Column(*COLUMN_PARTS[name]) for name in columns]
        self.topics = None if topics is None else tuple(topics)
        self.tombstones = []
        self.lowest, self.since_ms, self.until_ms = lowest, since_ms, until_ms

    cdef bint wants(self, const uint8_t *p, int64_t offset, const Layout *r) except -1:
        cdef int64_t time_ms = <int64_t> get64(p + r.store_time_at)
        if offset < self.lowest or not self.since_ms <= time_ms < self.until_ms:
            return False
        if self.topics is None:
            return True
        for topic in self.topics:
            if same(text_of(<bytes?> topic), r.topic):
                return True
        return False

    def add(
        self,
        const uint8_t[::1] view not None,
        int64_t position,
        int64_t stop,
        int64_t base,
        int64_t max_rows,
    ):
        cdef Layout r
        cdef Column column
        cdef int defect
        cdef int64_t end = view.shape[0]
        check_range(position, end, end)
        while position < min(stop, end) and self.rows < max_rows:
            defect = inspect(&view[position], end - position, base + position, True, &r)
            if defect != DEFECT_NONE:
                return (*defect_of(defect, &r), position)
            if is_tombstone(&view[position], &r):
                self.tombstones.append((base + position, <int64_t> r.size))
            elif self.wants(&view[position], base + position, &r):
                for column in self.columns:
                    column.add(&view[position], &r)
                self.rows += 1
            position += r.size
        return (DEFECTS[DEFECT_NONE], 0, position)

    def take_tombstones(self):
        taken, self.tombstones = self.tombstones, []
        return taken

    def take(self):
        self.rows = 0
        return [(<Column> column).take() for column in self.columns]
