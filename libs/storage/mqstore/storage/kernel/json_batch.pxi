# JSON messages in RocketMQ's batch encoding -----------------------------------------------------


cdef enum:
    JSON_MAX = 256 << 10  # bytes of a request; longer ones would keep the GIL for too long
    MADE_KEY_SIZE = 32  # characters of a unique key that this store generates
    ITEM_ROOM = 22 + 10 + 32  # bytes of a message beyond its JSON text, at most: BATCH_ITEM, UNIQ_KEY
    SPARE_ITEMS = 8


cdef struct Growing:
    uint8_t *base
    int64_t used, room


cdef inline uint8_t *put_text(uint8_t *to, Text text) noexcept nogil:
    memcpy(to, text.at, text.length)
    return to + text.length


cdef inline uint8_t *put_property(uint8_t *to, Text name, Text value) noexcept nogil:
    """A property and the separator behind it."""
    to = put_text(to, name)
    to[0] = 1
    to = put_text(to + 1, value)
    to[0] = 2
    return to + 1


cdef uint8_t *put_properties(
    uint8_t *to, const JsonMessage *m, Text uniq_key, bint trailing
) noexcept nogil:
    """In the order of the general way: the user's, KEYS, UNIQ_KEY, TAGS, the ordering key."""
    cdef int i
    for i in range(m.property_count):
        to = put_property(to, m.names[i].raw, m.values[i].raw)
    if m.key_count:
        to = put_text(to, KEYS_NAME)
        to[0] = 1
        to += 1
        for i in range(m.key_count):
            to = put_text(to, m.keys[i].raw)
            to[0] = c" "
            to += 1
        (to - 1)[0] = 2
    to = put_property(to, UNIQ_NAME, uniq_key)
    if m.tags.given:
        to = put_property(to, TAGS_NAME, m.tags.raw)
    if m.ordering_key.given:
        to = put_property(to, ORDERING_NAME, m.ordering_key.raw)
    return to if trailing else to - 1


cdef int64_t put_json_item(
    uint8_t *p, const JsonMessage *m, Text uniq_key, bint trailing
) noexcept nogil:
    """Write one message of the batch; its size, or 0 for what is not plain."""
    cdef int64_t body = put_json_body(p + 20, m), properties, size
    cdef uint8_t *at
    cdef uint8_t *put_length
    if body < 0:
        return 0
    at = p + 22 + body
    properties = put_properties(at, m, uniq_key, trailing) - at
    if properties > PROPERTIES_MAX:
        return 0
    size = BATCH_ITEM + body + properties
    put32(p, <uint32_t> size)
    put32(p + 4, 0)
    put32(p + 8, 0)
    put32(p + 12, <uint32_t> m.flag)
    put32(p + 16, <uint32_t> body)
    put_length = at - 2
    put_length[0], put_length[1] = <uint8_t> (properties >> 8), <uint8_t> properties
    return size


cdef int make_room(Growing *out, int64_t more) except -1:
    cdef void *grown
    if out.used + more > out.room:
        grown = realloc(out.base, 2 * out.room + more)
        if grown == NULL:
            raise MemoryError("no memory for a batch")
        out.base, out.room = <uint8_t *> grown, 2 * out.room + more
    return 0


@cython.final
cdef class GeneratedKeys:
    cdef bytes prefix
    cdef int64_t begin_ms, end_ms
    cdef uint32_t count

    def __cinit__(self, bytes prefix not None):
        if PyBytes_GET_SIZE(prefix) != MADE_KEY_SIZE - 12:
            raise ValueError(f"a prefix has {MADE_KEY_SIZE - 12} characters")
        self.prefix = prefix

    def begin_month(self, int64_t begin_ms, int64_t end_ms):
        self.begin_ms, self.end_ms = begin_ms, end_ms

    def next(self, int64_t now_ms):
        cdef uint8_t key[MADE_KEY_SIZE]
        if not self.begin_ms <= now_ms < self.end_ms:
            return None
        self.write(key, now_ms)
        return PyUnicode_DecodeUTF8(<char *> key, MADE_KEY_SIZE, NULL)

    cdef bint write(self, uint8_t *to, int64_t now_ms) noexcept:
        """False where the month is another one."""
        cdef uint8_t numbers[6]
        if not self.begin_ms <= now_ms < self.end_ms:
            return False
        put32(numbers, <uint32_t> (now_ms - self.begin_ms))
        numbers[4], numbers[5] = <uint8_t> (self.count >> 8), <uint8_t> self.count
        self.count += 1
        memcpy(to, PyBytes_AS_STRING(self.prefix), MADE_KEY_SIZE - 12)
        add_hex(<char *> to + MADE_KEY_SIZE - 12, numbers, 6)
        return True


@cython.final
cdef class JsonBatch:
    """A request whose messages are in RocketMQ's batch encoding."""
    cdef readonly bytes data
    cdef readonly int64_t queue_id  # -1: not given
    cdef readonly object durability
    cdef readonly bint has_keys
    cdef Py_ssize_t count


@cython.final
cdef class JsonReader:
    cdef NameRules rules
    cdef GeneratedKeys keys
    cdef bint trailing
    cdef int64_t count_max

    def __cinit__(
        self, NameRules rules not None, GeneratedKeys keys not None, bint trailing_separator,
        int64_t count_max,
    ):
        self.rules, self.keys, self.trailing = rules, keys, trailing_separator
        self.count_max = count_max

    def read(self, bytes text not None, int64_t now_ms):
        cdef Growing out
        cdef JsonBatch batch = JsonBatch.__new__(JsonBatch)
        cdef int64_t size = PyBytes_GET_SIZE(text)
        cdef Scan s
        s.p = <const uint8_t *> PyBytes_AS_STRING(text)
        s.end = s.p + size
        if size > JSON_MAX:
            return None
        batch.queue_id, batch.count = -1, 0
        out.used, out.room = 0, size + SPARE_ITEMS * ITEM_ROOM
        out.base = <uint8_t *> malloc(out.room)
        if out.base == NULL:
            raise MemoryError("no memory for a batch")
        try:
            if not self.read_request(&s, &out, batch, now_ms) or skip_space(&s) or s.p != s.end:
                return None
            batch.data = PyBytes_FromStringAndSize(<char *> out.base, out.used)
            return batch
        finally:
            free(out.base)

    cdef bint read_request(
        self, Scan *s, Growing *out, JsonBatch batch, int64_t now_ms
    ) except -1:
        cdef JsonText name, value
        cdef int more = 1
        if not take(s, c"{"):
            return False
        while more == 1:
            if not scan_text(s, &name) or not take(s, c":"):
                return False
            if is_name(name.raw, "messages", 8) and batch.count == 0:
                if not self.read_messages(s, out, batch, now_ms):
                    return False
            elif is_name(name.raw, "durability", 10) and batch.durability is None:
                if not scan_text(s, &value):
                    return False
                if is_name(value.raw, "sync", 4):
                    batch.durability = "sync"
                elif is_name(value.raw, "async", 5):
                    batch.durability = "async"
                elif is_name(value.raw, "replicated", 10):
                    batch.durability = "replicated"
                else:
                    return False
            else:
                return False
            more = next_item(s, c"}")
        return more == 0 and batch.count > 0

    cdef bint read_messages(
        self, Scan *s, Growing *out, JsonBatch batch, int64_t now_ms
    ) except -1:
        cdef JsonMessage message
        cdef const uint8_t *start
        cdef int more = 1
        if not take(s, c"["):
            return False
        while more == 1:
            start = s.p
            if batch.count == self.count_max or not scan_message(s, &message, self.rules):
                return False
            if not self.add(out, batch, &message, s.p - start, now_ms):
                return False
            more = next_item(s, c"]")
        return more == 0

    cdef bint add(
        self, Growing *out, JsonBatch batch, const JsonMessage *m, int64_t text_size, int64_t now_ms
    ) except -1:
        """Write a message that was scanned, and whose JSON text has so many bytes."""
        cdef uint8_t made[MADE_KEY_SIZE]
        cdef Text key = m.uniq_key.raw
        cdef int64_t size
        cdef bint has_key = m.uniq_key.given
        if batch.count == 0:
            batch.has_keys = has_key
        elif has_key != batch.has_keys:
            return False
        if m.queue_id >= 0:
            if m.ordering_key.given:
                return False
            if batch.queue_id >= 0 and batch.queue_id != m.queue_id:
                return False
            batch.queue_id = m.queue_id
        if not has_key:
            if not self.keys.write(made, now_ms):
                return False
            key.at, key.length = made, MADE_KEY_SIZE
        make_room(out, text_size + ITEM_ROOM)
        size = put_json_item(out.base + out.used, m, key, self.trailing)
        if size == 0:
            return False
        out.used += size
        batch.count += 1
        return True
