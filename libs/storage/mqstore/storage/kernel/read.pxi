# Reading one record -------------------------------------------------------------------------

cdef object copy_hook = None


def set_copy_hook(hook):
    global copy_hook
    copy_hook = hook


cdef int take_copy(char *to, const uint8_t *p, int64_t size) except -1:
    """Copy bytes of a map. Another process may change the map at any time, so each look-up checks,
    decodes and returns the copy."""
    if copy_hook is not None:
        copy_hook()
    memcpy(to, p, size)
    return 0


cdef struct Layout:
    uint32_t size  # TOTALSIZE once the parts add up to it, before that 0
    uint32_t total  # as it stands
    int32_t blank_size
    int version
    uint32_t sys_flag
    uint32_t born_host_size
    uint32_t store_time_at
    uint32_t store_host_size
    uint32_t body_at
    uint32_t body_size
    Text topic
    Text properties


cdef int parse_head(
    const uint8_t *p, int64_t available, Layout *r, int64_t *left
) noexcept nogil:
    """Check the fields before the body: first defect, or NONE with the body inside its size, and
    the lengths of topic and properties."""
    cdef uint32_t magic, width
    cdef int32_t total
    r.size = 0
    if available < BLANK_SIZE:
        return DEFECT_TRUNCATED
    total = <int32_t> get32(p)
    magic = get32(p + 4)
    if magic == MAGIC_BLANK:
        r.blank_size = total
        return DEFECT_BLANK
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return DEFECT_MAGIC_UNKNOWN
    width = 1 if magic == MAGIC_V1 else 2
    if total < <int32_t> (FIXED_SIZE + width - 1):
        return DEFECT_SIZE_WRONG
    if total > available:
        return DEFECT_TRUNCATED
    r.version = width
    r.sys_flag = get32(p + 36)
    r.born_host_size = 8 + (V6_EXTRA if r.sys_flag & BORN_V6 else 0)
    r.store_host_size = 8 + (V6_EXTRA if r.sys_flag & STORE_V6 else 0)
    r.store_time_at = 48 + r.born_host_size
    r.body_at = r.store_time_at + 8 + r.store_host_size + 16
    left[0] = <int64_t> total - r.body_at - width - 2
    if left[0] < 0:
        return DEFECT_SIZE_WRONG
    r.body_size = get32(p + r.body_at - 4)
    if r.body_size > left[0]:
        return DEFECT_LENGTHS_DISAGREE
    left[0] -= r.body_size
    r.total = total
    return DEFECT_NONE


cdef inline int parse_lengths(
    const uint8_t *p, int64_t available, Layout *r, uint32_t absent=0
) noexcept nogil:
    """First defect of the lengths, or NONE with every part inside its size. So many bytes of the
    body are ``absent``: the rest of the record follows without them."""
    cdef int64_t left
    cdef int defect = parse_head(p, available, r, &left)
    if defect != DEFECT_NONE:
        return defect
    if r.body_size < absent:
        return DEFECT_LENGTHS_DISAGREE
    r.topic.at = p + r.body_at + (r.body_size - absent) + r.version
    r.topic.length = (r.topic.at - 1)[0]
    if r.version == 2:
        r.topic.length |= <uint32_t> (r.topic.at - 2)[0] << 8
    if r.topic.length > left:
        return DEFECT_LENGTHS_DISAGREE
    left -= r.topic.length
    r.properties.at = r.topic.at + r.topic.length + 2
    r.properties.length = <uint32_t> (r.properties.at - 2)[0] << 8 | (r.properties.at - 1)[0]
    if r.properties.length != left:
        return DEFECT_LENGTHS_DISAGREE
    r.size = r.total
    return DEFECT_NONE


cdef int parse(
    const uint8_t *p, int64_t available, int64_t expected, Layout *r, uint32_t absent=0
) noexcept nogil:
    """Structure of the record at ``p``: first defect, or NONE. ``absent`` as ``parse_lengths``."""
    cdef int defect = parse_lengths(p, available, r, absent)
    if defect != DEFECT_NONE:
        return defect
    if expected >= 0 and <int64_t> get64(p + 28) != expected:
        return DEFECT_MISPLACED
    if get32(p + r.store_time_at - 4) > 65535 or get32(p + r.body_at - 20) > 65535:
        return DEFECT_HOST_INVALID
    if not topic_is_whole(r):
        return DEFECT_TOPIC_INVALID
    if r.properties.length and not properties_are_whole(r.properties):
        return DEFECT_PROPERTIES_MALFORMED
    return DEFECT_NONE


cdef bint topic_is_whole(const Layout *r) noexcept nogil:
    cdef uint32_t limit = TOPIC_MAX_V1 if r.version == 1 else TOPIC_MAX_V2
    if r.topic.length == 0 or r.topic.length > limit:
        return False
    return memchr(r.topic.at, 0, r.topic.length) == NULL


cdef bint properties_are_whole(Text text) noexcept nogil:
    """False for properties that only a torn write leaves; NULs inside a value are allowed."""
    if text.length > PROPERTIES_MAX or text.at[0] == 0 or text.at[text.length - 1] == 0:
        return False
    if memchr(text.at, 1, text.length) == NULL:
        return False
    return text.length <= TORN_RUN or not mq_has_zero_run(text.at, text.length, TORN_RUN)


cdef inline bint has_record_crc(const uint8_t *end, uint32_t length) noexcept nogil:
    """Whether properties of so many bytes end with the CRC of the record that they are in."""
    return (
        length >= CRC_PROPERTY_SIZE
        and end[-1] == 2
        and memcmp(end - CRC_PROPERTY_SIZE, CRC_PROPERTY.at, CRC_PROPERTY.length) == 0
    )


cdef struct Sums:
    mq_sums of
    size_t length  # of the bytes that they are of


cdef inline uint32_t crc_of(const uint8_t *p, size_t size, Sums *sums) noexcept nogil:
    """``sums``, or NULL: of bytes that contain these, where many records overlap."""
    return mq_crc(0, p, size, 1) if sums == NULL else mq_sum(&sums.of, sums.length, p, size)


cdef int verify(const uint8_t *p, const Layout *r, Sums *sums=NULL) noexcept nogil:
    """Compare the checksums; a body of no bytes is not compared, as RocketMQ does not."""
    cdef const uint8_t *mark
    cdef uint32_t crc
    cdef uint64_t stored = 0
    cdef int i
    if r.body_size:
        crc = crc_of(p + r.body_at, r.body_size, sums)
        if crc & CRC_MASK != get32(p + 8):
            return DEFECT_BODY_CORRUPT
    if not has_record_crc(p + r.size, r.properties.length):
        return DEFECT_NONE
    mark = p + r.size - CRC_PROPERTY_SIZE
    for i in range(18, 8, -1):
        if not c'0' <= mark[i] <= c'9':
            return DEFECT_CRC_MISMATCH
        stored = stored * 10 + (mark[i] - c'0')
    crc = crc_of(p, r.size - CRC_PROPERTY_SIZE, sums)
    return DEFECT_NONE if stored == (crc & CRC_MASK) else DEFECT_CRC_MISMATCH


cdef inline int inspect(
    const uint8_t *p, int64_t available, int64_t expected, bint verify_body, Layout *r
) noexcept nogil:
    cdef int defect = parse(p, available, expected, r)
    if defect == DEFECT_NONE and verify_body:
        defect = verify(p, r)
    return defect


cdef inline tuple defect_of(int defect, const Layout *r):
    return (DEFECTS[defect], r.blank_size if defect == DEFECT_BLANK else <int64_t> r.size)


def check_record(
    const uint8_t[::1] view not None,
    int64_t position,
    int64_t end,
    int64_t physical_offset,
    bint verify_body,
):
    cdef Layout r
    check_range(position, end, view.shape[0])
    if position == end:
        return (DEFECTS[DEFECT_TRUNCATED], 0)
    return defect_of(
        inspect(&view[position], end - position, physical_offset, verify_body, &r), &r
    )


@cython.no_gc  # nothing that it refers to refers back
cdef class StoredRecord:
    """A record's own bytes, checked once; fields are read from them on access."""
    cdef bytes run  # neighbours may share it
    cdef readonly int64_t size
    cdef readonly int version
    cdef dict known_properties
    cdef const uint8_t *at  # in ``run``
    cdef Text text_of_topic
    cdef Text text_of_properties
    cdef uint32_t body_at
    cdef uint32_t body_size
    cdef uint32_t store_time_at
    cdef uint32_t born_host_size
    cdef uint32_t store_host_size

    cdef void keep(self, bytes run, int64_t at, const Layout *r, bint with_body) noexcept:
        """``r`` is of the bytes at ``at``, or of them with the body that they are without."""
        cdef uint32_t gap = 0 if with_body else r.body_size
        self.run = run
        self.at = <const uint8_t *> PyBytes_AS_STRING(run) + at
        self.size, self.version = r.size, r.version
        self.body_at, self.body_size = r.body_at, r.body_size - gap
        self.store_time_at = r.store_time_at
        self.born_host_size, self.store_host_size = r.born_host_size, r.store_host_size
        self.text_of_topic.length = r.topic.length
        self.text_of_topic.at = self.at + r.body_at + self.body_size + r.version
        self.text_of_properties.length = r.properties.length
        self.text_of_properties.at = self.text_of_topic.at + r.topic.length + 2

    cdef uint32_t held(self) noexcept:
        """Bytes of ``run`` that are its own."""
        return <uint32_t> (self.text_of_properties.at - self.at) + self.text_of_properties.length

    def __eq__(self, other):
        if not isinstance(other, StoredRecord):
            return NotImplemented
        return self.raw == (<StoredRecord> other).raw

    @property
    def raw(self):
        cdef uint32_t held = self.held()
        return self.run if held == PyBytes_GET_SIZE(self.run) else copy(self.at, held)

    @property
    def body_crc(self):
        return <int32_t> get32(self.at + 8)

    @property
    def queue_id(self):
        return <int32_t> get32(self.at + 12)

    @property
    def flag(self):
        return <int32_t> get32(self.at + 16)

    @property
    def queue_offset(self):
        return <int64_t> get64(self.at + 20)

    @property
    def physical_offset(self):
        return <int64_t> get64(self.at + 28)

    @property
    def sys_flag(self):
        return <int32_t> get32(self.at + 36)

    @property
    def born_timestamp_ms(self):
        return <int64_t> get64(self.at + 40)

    @property
    def born_host(self):
        return unpack_host(copy(self.at + 48, self.born_host_size))

    @property
    def store_timestamp_ms(self):
        return <int64_t> get64(self.at + self.store_time_at)

    @property
    def store_host(self):
        return unpack_host(copy(self.at + self.store_time_at + 8, self.store_host_size))

    @property
    def reconsume_times(self):
        return <int32_t> get32(self.at + self.body_at - 16)

    @property
    def prepared_transaction_offset(self):
        return <int64_t> get64(self.at + self.body_at - 12)

    @property
    def body(self):
        return copy(self.at + self.body_at, self.body_size)

    @property
    def raw_topic(self):
        return copy(self.text_of_topic.at, self.text_of_topic.length)

    @property
    def raw_properties(self):
        return copy(self.text_of_properties.at, self.text_of_properties.length)

    def utf8_topic(self):
        return decoded(self.text_of_topic)

    @property
    def properties(self):
        if self.known_properties is None and self.text_of_properties.length:
            self.known_properties = split_text(self.text_of_properties)
            if self.known_properties is None:
                self.known_properties = self.odd_properties()
        return self.known_properties


cdef inline object record_in(
    type kind, bytes run, int64_t at, const Layout *r, bint with_body
):
    cdef StoredRecord found = StoredRecord.__new__(kind)
    found.keep(run, at, r, with_body)
    return found


cdef bytes copy_of(const uint8_t *p, int64_t size):
    """A copy of bytes of a map, as ``take_copy``."""
    cdef bytes found = PyBytes_FromStringAndSize(NULL, size)
    take_copy(PyBytes_AS_STRING(found), p, size)
    return found


cdef inline const uint8_t *bytes_of(bytes data) noexcept:
    return <const uint8_t *> PyBytes_AS_STRING(data)


cdef object without_body(type kind, bytes raw, const Layout *r):
    cdef uint32_t head = r.body_at, gap = r.body_size
    cdef bytes rest = PyBytes_FromStringAndSize(NULL, r.size - gap)
    memcpy(PyBytes_AS_STRING(rest), PyBytes_AS_STRING(raw), head)
    memcpy(PyBytes_AS_STRING(rest) + head, bytes_of(raw) + head + gap, r.size - gap - head)
    return record_in(kind, rest, 0, r, False)


cdef bytes copy_without_body(const uint8_t *p, const Layout *r):
    cdef uint32_t head = r.body_at, gap = r.body_size
    cdef bytes rest = PyBytes_FromStringAndSize(NULL, r.size - gap)
    take_copy(PyBytes_AS_STRING(rest), p, head)
    take_copy(PyBytes_AS_STRING(rest) + head, p + head + gap, r.size - gap - head)
    return rest


cdef int check_kind(type kind) except -1:
    if not issubclass(kind, StoredRecord):
        raise TypeError(f"{kind} is no StoredRecord")
    return 0


def decode_record(
    type kind not None,
    view not None,
    int64_t position,
    int64_t end,
    int64_t physical_offset,
    bint verify_body,
    bint with_body,
    bint leniently=False,
):
    """A record that is neither verified nor returned with its body costs no copy of that: many
    entries may name one record."""
    cdef Py_buffer log
    cdef Layout r
    cdef const uint8_t *p
    cdef bytes raw
    cdef int defect
    cdef int64_t size
    cdef uint32_t absent = 0
    check_kind(kind)
    PyObject_GetBuffer(view, &log, PyBUF_SIMPLE)
    try:
        check_range(position, end, log.len)
        if position == end:
            return (DEFECTS[DEFECT_TRUNCATED], 0)
        p = <const uint8_t *> log.buf + position
        defect = parse(p, end - position, physical_offset, &r)
        if is_refused(defect, &r, leniently):
            return defect_of(defect, &r)
        size = r.size
        if with_body or verify_body:
            raw = copy_of(p, size)
        else:
            absent = r.body_size
            raw = copy_without_body(p, &r)
    finally:
        PyBuffer_Release(&log)
    # The copy is checked: the map may change meanwhile.
    defect = parse(bytes_of(raw), size, physical_offset, &r, absent)
    if defect == DEFECT_NONE and verify_body:
        defect = verify(bytes_of(raw), &r)
    if defect == DEFECT_NONE and (r.size != size or absent and r.body_size != absent):
        defect = DEFECT_LENGTHS_DISAGREE
    if is_refused(defect, &r, leniently):
        return defect_of(defect, &r)
    if with_body:
        return record_in(kind, raw, 0, &r, True)
    return record_in(kind, raw, 0, &r, False) if absent else without_body(kind, raw, &r)


cdef inline bint is_refused(int defect, const Layout *r, bint leniently) noexcept:
    """Whether a record with this defect is rejected. A lenient reader only requires consistent
    lengths."""
    return defect != DEFECT_NONE and not (leniently and defect != DEFECT_BLANK and r.size)


cdef inline str decoded(Text text):
    """None for malformed UTF-8, which Java decodes by its own rules."""
    try:
        return PyUnicode_DecodeUTF8(<const char *> text.at, text.length, NULL)
    except UnicodeDecodeError:
        return None


cdef inline str name_of(Text text):
    """A name that occurs in most records is not made anew for each."""
    if same(text, UNIQ_NAME):
        return UNIQ_TEXT
    if same(text, KEYS_NAME):
        return KEYS_TEXT
    if same(text, TAGS_NAME):
        return TAGS_TEXT
    if same(text, WAIT_NAME):
        return WAIT_TEXT
    return decoded(text)


cdef dict split_text(Text text):
    """None where anything is malformed UTF-8."""
    cdef Text name, value
    cdef const uint8_t *p = text.at
    cdef const uint8_t *end = p + text.length
    cdef const uint8_t *stop
    cdef const uint8_t *equals
    cdef dict found = {}
    while p < end:
        stop = <const uint8_t *> memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        equals = <const uint8_t *> memchr(p, 1, stop - p)
        if equals == NULL:
            name.at, name.length = p, <uint32_t> (stop - p)
            if decoded(name) is None:
                return None
        else:
            name.at, name.length = p, <uint32_t> (equals - p)
            value.at, value.length = equals + 1, <uint32_t> (stop - equals - 1)
            name_text, value_text = name_of(name), decoded(value)
            if name_text is None or value_text is None:
                return None
            if name.length and value.length:
                found[name_text] = value_text
        p = stop + 1
    return found


def split_properties(bytes data not None):
    return split_text(text_of(data))


cdef inline bytes copy(const uint8_t *p, uint32_t size):
    return PyBytes_FromStringAndSize(<const char *> p, size)


# Walking many records -------------------------------------------------------------------------


cdef struct Walk:
    const uint8_t *log
    int64_t position
    int64_t end
    int64_t until  # at or beyond which no further record of a chunk begins
    int64_t base
    int64_t left  # records
    int64_t store_time
    bint verify_body
    int64_t starts[STARTS_CHUNK]


cdef int walk(Walk *w, int64_t *filled) noexcept nogil:
    """Up to STARTS_CHUNK records; NONE where the chunk, the records or the bytes run out."""
    cdef Layout r
    cdef int defect
    filled[0] = 0
    while w.left > 0 and w.position < w.until and filled[0] < STARTS_CHUNK:
        defect = inspect(
            w.log + w.position, w.end - w.position, w.base + w.position, w.verify_body, &r
        )
        if defect != DEFECT_NONE:
            return defect
        w.store_time = <int64_t> get64(w.log + w.position + r.store_time_at)
        w.starts[filled[0]] = w.position
        filled[0] += 1
        w.position += r.size
        w.left -= 1
    return DEFECT_NONE


def check_run(
    const uint8_t[::1] view not None,
    int64_t position,
    int64_t end,
    int64_t base,
    *,
    bint verify_body,
    int64_t max_records,
    starts=None,
):
    cdef Walk w
    cdef int64_t filled, records = 0, i
    cdef int defect = DEFECT_NONE
    check_range(position, end, view.shape[0])
    if position == end:
        return (DEFECTS[DEFECT_NONE], position, 0, 0)
    w.log, w.base = &view[0], base
    w.position, w.end = position, end
    w.left, w.store_time, w.verify_body = max_records, 0, verify_body
    while defect == DEFECT_NONE and w.left > 0 and w.position < w.end:
        w.until = min(w.end, w.position + SEARCH_CHUNK)
        with nogil:
            defect = walk(&w, &filled)
        PyErr_CheckSignals()
        records += filled
        if starts is not None:
            for i in range(filled):
                starts.append(w.starts[i])
    return (DEFECTS[defect], w.position, records, w.store_time)


cdef count_run(dict counts, Text topic, int64_t records, int64_t size):
    """Add records of one topic."""
    cdef bytes name = copy(topic.at, topic.length)
    found = counts.get(name)
    if found is None:
        counts[name] = [records, size]
    else:
        found[0] += records
        found[1] += size


def count_topics(
    const uint8_t[::1] view not None, int64_t position, int64_t end, dict counts not None
):
    cdef Layout r
    cdef Text topic
    cdef int64_t records = 0, size = 0
    cdef const uint8_t *log
    check_range(position, end, view.shape[0])
    if position == end:
        return
    log = &view[0]
    topic.at, topic.length = NULL, 0
    while position < end and inspect(log + position, end - position, -1, False, &r) == DEFECT_NONE:
        if records and not same(r.topic, topic):
            count_run(counts, topic, records, size)
            records = size = 0
        topic = r.topic
        records += 1
        size += r.size
        position += r.size
    if records:
        count_run(counts, topic, records, size)
