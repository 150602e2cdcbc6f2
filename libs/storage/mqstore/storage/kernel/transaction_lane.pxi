# Transactions of one message, each request in one call -------------------------------------------


cdef enum:
    RUN_MAX = 2  # records of one call
    BEGIN_PROPERTIES_MAX = 30 << 10  # bytes that a client gives; the copies of checks have more
    BEGIN_KEY_MAX = 255
    WHY_MAX = 1000
    HALF_NAMES_MAX = 64  # properties of a half message, each of which is compared with those before
    LANE_ROOM = 72 << 10  # bytes: properties of any record, and those of an op record

# Module-level bytes, so that these pointers stay valid.
cdef str HALF_TEXT = layout.HALF_TOPIC
cdef str OP_TEXT = layout.OP_TOPIC
cdef bytes _op_topic = layout.OP_TOPIC.encode()
cdef bytes _op_tag = layout.OP_TAG.encode()
cdef bytes _prepared_name = layout.PROPERTY_TRANSACTION_PREPARED.encode()
cdef bytes _true = b"true"
cdef bytes _group_name = layout.PROPERTY_PRODUCER_GROUP.encode()
cdef bytes _real_queue_name = layout.PROPERTY_REAL_QUEUE_ID.encode()
cdef bytes _transaction_name = layout.PROPERTY_TRANSACTION_ID.encode()
cdef bytes _decision_name = layout.PROPERTY_DECISION.encode()
cdef bytes _decided_name = layout.PROPERTY_DECIDED_AT.encode()
cdef bytes _why_name = layout.PROPERTY_WHY.encode()
cdef bytes _record_crc_name = layout.PROPERTY_CRC32.encode()

cdef Text OP_TOPIC = text_of(_op_topic)
cdef Text OP_TAG = text_of(_op_tag)
cdef Text PREPARED_NAME = text_of(_prepared_name)
cdef Text TRUE_TEXT = text_of(_true)
cdef Text GROUP_NAME = text_of(_group_name)
cdef Text REAL_QUEUE_NAME = text_of(_real_queue_name)
cdef Text TRANSACTION_NAME = text_of(_transaction_name)
cdef Text DECISION_NAME = text_of(_decision_name)
cdef Text DECIDED_NAME = text_of(_decided_name)
cdef Text WHY_NAME = text_of(_why_name)
cdef Text RECORD_CRC_NAME = text_of(_record_crc_name)


cdef inline Text number_text(uint8_t *room, int64_t value) noexcept:
    """A number in decimal digits, written into ``room`` of NUMBER_MAX bytes."""
    cdef Text text
    text.at = room
    text.length = <uint32_t> (<uint8_t *> add_number(<char *> room, value) - room)
    return text


cdef inline bint plain_text_of(object value, Text *text) except -1:
    """The bytes of a string; False unless it is printable ASCII."""
    if not PyUnicode_IS_ASCII(<str?> value):
        return False
    text[0] = utf8_of(value)
    return is_printable(text[0])


cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """As RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF."""
    cdef int more
    cdef uint8_t low, high
    while p < end:
        if p[0] < 0x80:
            p += 1
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= p[0] <= 0xDF:
            more = 1
        elif 0xE0 <= p[0] <= 0xEF:
            more = 2
            low = 0xA0 if p[0] == 0xE0 else 0x80
            high = 0x9F if p[0] == 0xED else 0xBF
        elif 0xF0 <= p[0] <= 0xF4:
            more = 3
            low = 0x90 if p[0] == 0xF0 else 0x80
            high = 0x8F if p[0] == 0xF4 else 0xBF
        else:
            return False
        if end - p <= more or not low <= p[1] <= high:
            return False
        p += 2
        more -= 1
        while more:
            if p[0] & 0xC0 != 0x80:
                return False
            p, more = p + 1, more - 1
    return True


@cython.final
cdef class BeginRequest:
    cdef readonly str group, topic, key
    cdef readonly bint has_key
    cdef readonly int64_t queue_id, born_ms  # queue_id -1: not given
    cdef uint8_t *base  # the properties
    cdef object held  # what the body lies in
    cdef Parts message

    def __dealloc__(self):
        free(self.base)

    @property
    def body(self):
        return copy(self.message.body.at, self.message.body.length)

    @property
    def properties(self):
        return copy(self.message.properties.at, self.message.properties.length)

    @property
    def flag(self):
        return self.message.flag


@cython.final
cdef class BeginReader(PropertyWriter):
    cdef GeneratedKeys keys

    def __cinit__(self, NameRules rules not None, GeneratedKeys keys not None):
        self.rules, self.keys, self.trailing = rules, keys, True

    def read(self, str group not None, str topic not None, message not None, int64_t now_ms):
        cdef BeginRequest begin = BeginRequest.__new__(BeginRequest)
        cdef Parts *m = &begin.message
        cdef uint8_t generated[MADE_KEY_SIZE]
        cdef Made made
        cdef object key = message.uniq_key, body = message.body, encoded = message.body_base64
        made.size, made.is_sure, made.ordering_key.length, made.delay.length = 0, True, 0, 0
        begin.group, begin.topic, begin.born_ms = group, topic, now_ms
        begin.queue_id = -1 if message.queue_id is None else message.queue_id
        if key is not None:
            made.uniq_key, begin.has_key = utf8_of(key), True
            if not is_plain_key(made.uniq_key) or made.uniq_key.length > BEGIN_KEY_MAX:
                return None
            if memchr(made.uniq_key.at, c"/", made.uniq_key.length) != NULL:
                return None  # it would be part of a path
        elif self.keys.write(generated, now_ms):
            made.uniq_key.at, made.uniq_key.length = generated, MADE_KEY_SIZE
        else:
            return None
        begin.key = java_text(made.uniq_key) if key is None else key
        if encoded is not None:
            if body is not None:
                return None
            try:
                body = a2b_base64(encoded, strict_mode=True)
            except ValueError:
                return None
        if not body:
            return None
        begin.held = body
        m.body = text_of(body) if isinstance(body, bytes) else utf8_of(body)
        m.flag = message.flag
        self.measure(message, &made)
        if not made.is_sure:
            return None
        begin.base = <uint8_t *> malloc(made.size)
        if begin.base == NULL:
            raise MemoryError("no memory for a half message")
        m.properties.at = begin.base
        m.properties.length = <uint32_t> (self.write(begin.base, message, &made) - begin.base)
        return begin if m.properties.length <= BEGIN_PROPERTIES_MAX else None


cdef int64_t put_committed_properties(
    uint8_t *to, Text properties, Text key, bint drops_place
) noexcept nogil:
    """Write the properties that the message of a half message has, each with a separator behind it;
    their size, or -1 where they must be decoded: one is empty or stands twice, the text is no UTF-8,
    or another message's key is among them."""
    cdef const uint8_t *p = properties.at
    cdef const uint8_t *end = p + properties.length
    cdef const uint8_t *stop
    cdef const uint8_t *equals
    cdef uint8_t *at = to
    cdef Text names[HALF_NAMES_MAX]
    cdef Text value
    cdef int count = 0, i
    cdef bint has_key = False
    if memchr(p, 0, properties.length) != NULL or not is_utf8(p, end):
        return -1
    while p < end:
        stop = <const uint8_t *> memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        equals = <const uint8_t *> memchr(p, 1, stop - p)
        if equals == NULL or equals == p or equals + 1 == stop or count == HALF_NAMES_MAX:
            return -1
        names[count].at, names[count].length = p, <uint32_t> (equals - p)
        value.at, value.length = equals + 1, <uint32_t> (stop - equals - 1)
        if memchr(value.at, 1, value.length) != NULL:
            return -1
        for i in range(count):
            if same(names[i], names[count]):
                return -1
        if same(names[count], UNIQ_NAME):
            has_key = same(value, key)
        if not is_dropped(names[count], drops_place):
            at = put_property(at, names[count], value)
        p, count = stop + 1, count + 1
    return at - to if has_key else -1


cdef inline bint is_dropped(Text name, bint drops_place) noexcept nogil:
    """Whether a committed message lacks this property of its half message."""
    if same(name, RECORD_CRC_NAME):
        return True
    return drops_place and (same(name, REAL_TOPIC_NAME) or same(name, REAL_QUEUE_NAME))


cdef struct Decided:
    # The records of one call.
    Item items[RUN_MAX]
    PutQueue places[RUN_MAX]
    uint32_t hashes[RUN_MAX * KEYS_MAX]
    Records records


@cython.final
cdef class TransactionLane:
    cdef LogEnd end
    cdef GeneratedKeys keys
    cdef object host
    cdef bint is_5x
    cdef tuple half_queue, op_queue
    cdef uint8_t *room  # properties of the records of one call

    def __cinit__(
        self, LogEnd end not None, GeneratedKeys keys not None, host not None, bint is_5x
    ):
        self.end, self.keys, self.host, self.is_5x = end, keys, host, is_5x
        self.half_queue, self.op_queue = (HALF_TEXT, 0), (OP_TEXT, 0)
        self.room = <uint8_t *> malloc(LANE_ROOM)
        if self.room == NULL:
            raise MemoryError("no memory for transactions")

    def __dealloc__(self):
        free(self.room)

    def begin(
        self, BeginRequest begin not None, int64_t queue_id, int64_t queue_offset,
        born_host not None,
    ):
        cdef Decided run
        cdef Parts *m = self.begin_run(&run)
        cdef uint8_t digits[NUMBER_MAX]
        cdef uint8_t *p = put_text(self.room, begin.message.properties)
        p = put_property(p, PREPARED_NAME, TRUE_TEXT)
        p = put_property(p, GROUP_NAME, utf8_of(begin.group))
        p = put_property(p, REAL_TOPIC_NAME, utf8_of(begin.topic))
        p = put_property(p, REAL_QUEUE_NAME, number_text(digits, queue_id))
        if self.is_5x:
            p = put_property(p, TRANSACTION_NAME, utf8_of(begin.key))
        if not self.stand_next(self.half_queue, queue_offset):
            return None
        self.set_up(m, HALF_TOPIC, self.room, p)
        m.body, m.flag, m.born_time = begin.message.body, begin.message.flag, begin.born_ms
        m.born, m.born_port = address_of(born_host), port_of(born_host)
        if not self.add(&run, self.half_queue):
            return None
        if self.end.put_records(&run.records, False) != PLACED:
            return None
        return placements_of(&run.records, None, self.host)[0]

    def decide(
        self, str key not None, tuple half not None, tuple place, int64_t op_offset,
        str verdict not None, str why not None,
    ):
        cdef int64_t now = self.end.now_ms()
        cdef Decided run
        cdef Parts *m = self.begin_run(&run)
        cdef uint8_t digits[2 * NUMBER_MAX]
        cdef uint8_t *p = self.room
        cdef Text texts[2]
        if not plain_text_of(key, &texts[0]) or not plain_text_of(why, &texts[1]):
            return None
        if texts[1].length > WHY_MAX or not 0 < texts[0].length <= BEGIN_KEY_MAX:
            return None
        if memchr(texts[0].at, c" ", texts[0].length) != NULL:
            return None  # it is one of the op record's KEYS
        if not self.stand_next(self.op_queue, op_offset):
            return None
        if place is not None:
            if place == self.half_queue or place == self.op_queue:
                return None
            p = self.read_half(half, place, texts[0], m)
            if p == NULL or not self.add(&run, place):
                return None
            m = &run.items[1].parts
        if not self.read_op(m, p, digits, half[2], texts[0], utf8_of(verdict), texts[1], now):
            return None
        if not self.add(&run, self.op_queue):
            return None
        if self.end.put_records(&run.records, False) != PLACED:
            return None
        return placements_of(&run.records, None, self.host), now

    cdef Parts *begin_run(self, Decided *run) noexcept:
        """The parts of the first record."""
        begin_records(&run.records, run.items, run.places, run.hashes)
        return &run.items[0].parts

    cdef bint add(self, Decided *run, tuple queue) noexcept:
        """Add the record whose parts are set; False where it may not be stored by one call."""
        cdef Records *r = &run.records
        cdef Parts *m = &r.items[r.count].parts
        cdef Facts facts
        cdef Hashes hashes
        if not is_ordinary(m, self.end.body_max) or m.body.length >= RELEASE_GIL_FROM:
            return False
        if not read_record_facts(m, self.end.index_tags(), &facts, &hashes):
            return False
        begin_place(&r.places[r.place_count], queue)
        r.place_count += 1
        add_record(r, <int32_t> r.place_count - 1, 1, &facts, True, &hashes)
        return True

    cdef bint stand_next(self, tuple queue, int64_t queue_offset) except -1:
        """Whether the next record of a queue gets this queue offset."""
        known = self.end.next_offsets.get(queue)
        return known is not None and <int64_t> known == queue_offset

    cdef int set_up(self, Parts *m, Text topic, uint8_t *properties, uint8_t *end) except -1:
        """Set the fields that all records have, and clear the others; each property has a separator
        behind it, the last one in 5.x only."""
        memset(m, 0, sizeof(Parts))
        m.topic, m.ascii = topic, True
        m.properties.at = properties
        m.properties.length = <uint32_t> (end - properties - (0 if self.is_5x else 1))
        m.stored, m.stored_port = address_of(self.host), port_of(self.host)
        m.born, m.born_port = m.stored, m.stored_port
        return 0

    cdef uint8_t *read_half(self, tuple half, tuple place, Text key, Parts *m) except? NULL:
        """Make the message that a commit of this half message stores; the end of its properties, or
        NULL where the half message must be read and decoded."""
        cdef int64_t offset = half[0], size = half[1], queue_id = place[1], used
        cdef const uint8_t *p = self.end.in_memory(offset, size)
        cdef Layout r
        cdef str topic = place[0]
        if p == NULL or not 0 <= queue_id <= INT32_MAX:
            return NULL
        if inspect(p, size, offset, True, &r) != DEFECT_NONE:
            return NULL
        if r.size != size or r.version != 1 or not same(r.topic, HALF_TOPIC):
            return NULL
        if get32(p + 12) != 0 or <int64_t> get64(p + 20) != <int64_t> half[2]:
            return NULL
        used = put_committed_properties(self.room, r.properties, key, self.is_5x)
        if used <= 0 or used > PROPERTIES_MAX or r.body_size >= RELEASE_GIL_FROM:
            return NULL
        self.set_up(m, utf8_of(topic), self.room, self.room + used)
        m.ascii = PyUnicode_IS_ASCII(topic)
        m.body.at, m.body.length = p + r.body_at, r.body_size
        m.queue_id, m.flag = <int32_t> queue_id, <int32_t> get32(p + 16)
        m.sys_flag = <int32_t> ((r.sys_flag & ~(BORN_V6 | STORE_V6)) | COMMITTED)
        m.born_time, m.prepared = <int64_t> get64(p + 40), offset
        m.born.at, m.born.length = p + 48, r.born_host_size - 4
        m.born_port = get32(p + 48 + m.born.length)
        m.reconsume_times = <int32_t> get32(p + r.body_at - 16)
        return self.room + used

    cdef bint read_op(
        self, Parts *m, uint8_t *room, uint8_t *digits, int64_t half_offset, Text key,
        Text verdict, Text why, int64_t now,
    ) except -1:
        """Make the op record of a decision, with its properties in ``room`` and its body in
        ``digits``; False where no key can be generated."""
        cdef uint8_t made[MADE_KEY_SIZE]
        cdef uint8_t *p = room
        cdef Text text
        if not self.keys.write(made, now):
            return False
        text.at, text.length = made, MADE_KEY_SIZE
        p = put_property(p, UNIQ_NAME, text)
        p = put_property(p, TAGS_NAME, OP_TAG)
        p = put_property(p, KEYS_NAME, key)
        p = put_property(p, DECISION_NAME, verdict)
        p = put_property(p, DECIDED_NAME, number_text(digits + NUMBER_MAX, now))
        if why.length:
            p = put_property(p, WHY_NAME, why)
        self.set_up(m, OP_TOPIC, room, p)
        m.body = number_text(digits, half_offset)
        if self.is_5x:
            digits[m.body.length] = c","
            m.body.length += 1
        m.born_time = now
        return True
