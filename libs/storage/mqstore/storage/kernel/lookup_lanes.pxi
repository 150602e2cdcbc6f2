# A look-up of one message or of one time in one call -----------------------------------------------

# Runs on the event loop: a page is read only where it is in memory, and the bytes that are compared
# with checksums or read are bounded.


cdef bint is_at_hand(
    Segment segment, const Place *place, int64_t size, int64_t needed, int64_t *left, double now_s
) noexcept:
    """Whether a record can be judged, and its first ``needed`` bytes be read, without waiting for
    the disk. ``left`` is reduced by the bytes that this takes, unless its blocks were judged
    before; False below 0."""
    cdef int64_t begin, stop
    if segment.is_known(place.position, size):
        return is_recently_in_memory(place.at, needed, now_s)
    # Whole blocks: they may have to be compared.
    begin = place.position // BLOCK_SIZE * BLOCK_SIZE
    stop = (place.position + size + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE
    stop = min(stop, place.position + place.available)
    if not covers_in_memory(segment, begin, stop, now_s):
        return False
    left[0] -= size + segment.count_uncompared(place.position, size)
    return left[0] >= 0 and is_recently_in_memory(
        <const uint8_t *> segment.log.buf + begin, stop - begin, now_s
    )


cdef int64_t size_in_memory(const Place *place, double now_s) noexcept:
    """The size that the record at a place states; 0 where it is impossible, or not in memory."""
    cdef int64_t size
    if place.available < 8 or not is_recently_in_memory(place.at, 8, now_s):
        return 0
    size = <int32_t> get32(place.at)
    return size if 0 < size <= place.available else 0


cdef list _detail_texts = [
    b',"segment":"', b'","segmentPosition":', b',"queueEntry":{"physicalOffset":', b',"size":',
    b',"tagsCode":', b',"namesIt":true,"unit":null},"checksum":{"bodyCrc":',
    b',"blocks":"verified","coveredBytes":', b',"blocks":"partly-verified","coveredBytes":',
    b',"blocks":"not-covered","coveredBytes":', b'}}',
]

cdef enum:
    D_SEGMENT, D_POSITION, D_ENTRY, D_SIZE, D_TAGS_CODE, D_CRC, D_WHOLE, D_PART, D_NOT_COVERED
    D_END, D_COUNT

cdef Text DETAIL_TEXTS[D_COUNT]
for _number in range(D_COUNT):
    DETAIL_TEXTS[_number] = text_of(_detail_texts[_number])

cdef enum:
    SEGMENT_DIGITS = 20


cdef struct Detail:
    # Where a message is, beside its record.
    int64_t base  # of its segment
    int64_t position
    int64_t covered  # bytes
    int64_t tags_code  # of its queue entry


cdef int append_padded(Output *out, int64_t value) except -1:
    """A number as the name of a segment."""
    cdef char *to = reserve(out, SEGMENT_DIGITS)
    cdef int i
    for i in range(SEGMENT_DIGITS - 1, -1, -1):
        to[i] = <char> (48 + value % 10)
        value //= 10
    out.used += SEGMENT_DIGITS
    return 0


cdef int append_detail(Output *out, const uint8_t *p, const Layout *r, const Detail *d) except -1:
    """Append the fields of ``replies.MessageDetail`` that follow those of a message."""
    cdef int cover = D_WHOLE
    if d.covered != r.size:
        cover = D_PART if d.covered else D_NOT_COVERED
    append(out, DETAIL_TEXTS[D_SEGMENT])
    append_padded(out, d.base)
    append_number(out, DETAIL_TEXTS[D_POSITION], d.position)
    append_number(out, DETAIL_TEXTS[D_ENTRY], <int64_t> get64(p + 28))
    append_number(out, DETAIL_TEXTS[D_SIZE], r.size)
    append_number(out, DETAIL_TEXTS[D_TAGS_CODE], d.tags_code)
    append_number(out, DETAIL_TEXTS[D_CRC], <int32_t> get32(p + 8))
    append_number(out, DETAIL_TEXTS[cover], d.covered)
    return append(out, DETAIL_TEXTS[D_END])


@cython.final
cdef class MessageLane:
    cdef MessageForm form
    cdef int64_t max_bytes

    def __init__(self, MessageForm form not None, *, int64_t max_bytes):
        self.form, self.max_bytes = form, max_bytes

    def find(
        self, LogWindow window not None, queues not None, bytes message_id not None,
        bytes start not None, bytes fields not None, bytes ending not None,
    ):
        cdef MessageId wanted
        cdef Moment moment
        cdef Detail detail
        cdef Layout r
        cdef bytes raw, reply
        cdef Text digits = text_of(message_id)
        if not parse_message_id(<const char *> digits.at, digits.length, &wanted):
            return None
        if not window.enter(&moment):
            return None
        raw = self.record(window, wanted.offset, &r, &detail)
        if raw is None or r.store_host_size != wanted.host_size:
            return None
        if memcmp(bytes_of(raw) + r.store_time_at + 8, wanted.host, wanted.host_size) != 0:
            return None
        if not self.find_entry(queues, bytes_of(raw), &r, &detail):
            return None
        reply = self.reply(bytes_of(raw), &r, &detail, start, fields, ending)
        return reply if window.is_at(&moment) else None

    cdef bytes record(self, LogWindow window, int64_t offset, Layout *r, Detail *detail):
        """A copy of a record that is in memory, and its place in its segment."""
        cdef Place place
        cdef int state
        cdef bytes raw
        cdef double now_s = mq_monotonic()
        cdef int64_t limit = <int64_t> atomic_load64(window.max_word.at), left = self.max_bytes
        cdef Segment segment = window.place(offset, limit, &place)
        cdef int64_t size = 0 if segment is None else size_in_memory(&place, now_s)
        if not 0 < size <= self.max_bytes:
            return None
        if not is_at_hand(segment, &place, size, size, &left, now_s):
            return None
        raw = window.copied(offset, limit, r, &state)
        detail.base, detail.position = segment.base, place.position
        detail.covered = 0 if raw is None else segment.count_covered(place.position, r.size)
        return raw

    cdef bint find_entry(
        self, queues, const uint8_t *p, const Layout *r, Detail *detail
    ) except -1:
        """Find the entry of the record in its queue; False where it names another record, has a
        unit, or is not in memory."""
        cdef uint8_t entry[QUEUE_ENTRY_SIZE]
        cdef QueueFile file = QueueFile.__new__(QueueFile)
        cdef int64_t index = <int64_t> get64(p + 20)
        topic = decoded(r.topic)
        queue = None if topic is None else queues.known(topic, <int32_t> get32(p + 12))
        block = None if queue is None or index < 0 else queue.block(index)
        if block is None:
            return False
        file.hold(block[0], index, block[1])
        if not is_recently_in_memory(file.entry(index), QUEUE_ENTRY_SIZE, mq_monotonic()):
            return False
        memcpy(entry, file.entry(index), QUEUE_ENTRY_SIZE)
        detail.tags_code = <int64_t> get64(entry + 12)
        return (
            get64(entry) == get64(p + 28)
            and get32(entry + 8) == r.size
            and detail.tags_code > EXT_ADDRESS
        )

    cdef bytes reply(
        self, const uint8_t *p, const Layout *r, const Detail *detail, bytes start, bytes fields,
        bytes ending,
    ):
        cdef Output out
        out.base, out.used, out.room = NULL, 0, 0
        try:
            self.form.append_message(&out, p, r, None)
            out.used -= 1  # the end of the object
            append_detail(&out, p, r, detail)
            return json_reply(&out, start, fields, ending)
        finally:
            free(out.base)


cdef bytes _search_offset_text = b',"offset":'
cdef Text SEARCH_OFFSET_TEXT = text_of(_search_offset_text)


@cython.final
cdef class TimeLane:
    cdef bytes begin  # of the reply, up to the time
    cdef int64_t shard, max_bytes

    def __init__(self, bytes begin not None, *, int64_t shard, int64_t max_bytes):
        self.begin, self.shard, self.max_bytes = begin, shard, max_bytes

    def find(
        self, queue not None, int64_t timestamp_ms, bytes start not None, bytes fields not None,
        bytes ending not None,
    ):
        cdef Output out
        cdef Moment moment
        cdef PulledQueue pulled = queue.pulled
        cdef int64_t low, high, found
        if not pulled.enter(&moment):
            return None
        low, high = pulled.low, pulled.high  # another thread may move them meanwhile
        found = time_search(pulled.window, queue, pulled.files, self.max_bytes).first_at(
            timestamp_ms, low, high
        )
        if found < 0 or not pulled.window.is_at(&moment):
            return None
        out.base, out.used, out.room = NULL, 0, 0
        try:
            append_number(&out, text_of(self.begin), timestamp_ms)
            append_number(&out, SEARCH_OFFSET_TEXT, found)
            append_number(&out, MINIMUM_TEXT, low)
            append_number(&out, MAXIMUM_TEXT, high)
            append_number(&out, SHARD_JSON, self.shard)
            append_byte(&out, c"}")
            return json_reply(&out, start, fields, ending)
        finally:
            free(out.base)
