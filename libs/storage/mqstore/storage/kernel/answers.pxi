# Placements as text ------------------------------------------------------------------------------


cdef enum:
    NUMBER_MAX = 20  # characters of an int64
    PLACED_MAX = 128 + 56 + 6 * NUMBER_MAX  # of one placement beside its key: names, id, numbers


cdef inline char *add_text(char *p, Text text) noexcept:
    memcpy(p, text.at, text.length)
    return p + text.length


cdef inline char *add_number(char *p, int64_t value) noexcept:
    cdef char digits[NUMBER_MAX]
    cdef uint64_t left = <uint64_t> value
    cdef int at = NUMBER_MAX
    if value < 0:
        p[0], p, left = c"-", p + 1, 0 - left
    while True:
        at -= 1
        digits[at] = <char> (48 + left % 10)
        left //= 10
        if left == 0:
            break
    memcpy(p, digits + at, NUMBER_MAX - at)
    return p + NUMBER_MAX - at


cdef inline char *add_hex(char *p, const uint8_t *data, Py_ssize_t size) noexcept:
    cdef const char *digits = "0123456789ABCDEF"
    cdef Py_ssize_t i
    for i in range(size):
        p[2 * i], p[2 * i + 1] = digits[data[i] >> 4], digits[data[i] & 15]
    return p + 2 * size


cdef inline bint is_plain_json(Text text) noexcept:
    """Whether the text needs no escapes in JSON."""
    cdef uint32_t i
    for i in range(text.length):
        if not 0x20 <= text.at[i] < 0x7F or text.at[i] == c'"' or text.at[i] == c"\\":
            return False
    return True


cdef char *add_id(char *p, Text address, uint32_t port, int64_t offset) noexcept:
    """As ``codec.message_id.encode``."""
    cdef uint8_t numbers[12]
    put32(numbers, port)
    put64(numbers + 4, <uint64_t> offset)
    return add_hex(add_hex(p, address.at, address.length), numbers, 12)


# In the order of an answer's fields.
cdef bytes _id_text = b'{"offsetMsgId":"'
cdef bytes _key_text = b'","uniqKey":'
cdef bytes _queue_text = b',"queueId":'
cdef bytes _queue_offset_text = b',"queueOffset":'
cdef bytes _offset_text = b',"physicalOffset":'
cdef bytes _size_text = b',"size":'
cdef bytes _time_text = b',"storeTimestamp":'
cdef bytes _shard_text = b',"shard":'
cdef bytes _repeat_text = b',"repeat":true'

cdef Text ID_JSON = text_of(_id_text)
cdef Text KEY_JSON = text_of(_key_text)
cdef Text QUEUE_JSON = text_of(_queue_text)
cdef Text QUEUE_OFFSET_JSON = text_of(_queue_offset_text)
cdef Text OFFSET_JSON = text_of(_offset_text)
cdef Text SIZE_JSON = text_of(_size_text)
cdef Text TIME_JSON = text_of(_time_text)
cdef Text SHARD_JSON = text_of(_shard_text)
cdef Text REPEAT_JSON = text_of(_repeat_text)


cdef char *add_numbers(
    char *p, int64_t queue_id, int64_t queue_offset, int64_t offset, int64_t size, int64_t time,
    int64_t shard,
) noexcept:
    p = add_number(add_text(p, QUEUE_JSON), queue_id)
    p = add_number(add_text(p, QUEUE_OFFSET_JSON), queue_offset)
    p = add_number(add_text(p, OFFSET_JSON), offset)
    p = add_number(add_text(p, SIZE_JSON), size)
    p = add_number(add_text(p, TIME_JSON), time)
    return add_number(add_text(p, SHARD_JSON), shard)


cdef dict odd_keys(list keys, quote, Py_ssize_t *room):
    """Keys that need escapes, quoted, by number; ``room`` grows by the size of all keys."""
    cdef dict odd = {}
    cdef Py_ssize_t i
    cdef Text text
    cdef bytes quoted
    for i in range(len(keys)):
        if PyUnicode_IS_ASCII(<str?> keys[i]):
            text = utf8_of(keys[i])
            if is_plain_json(text):
                room[0] += text.length + 2
                continue
        quoted = quote(keys[i])
        odd[i] = quoted
        room[0] += PyBytes_GET_SIZE(quoted)
    return odd


cdef char *add_key(char *p, str key, bytes quoted) except NULL:
    if quoted is not None:
        return add_text(p, text_of(quoted))
    p[0] = c'"'
    p = add_text(p + 1, utf8_of(key))
    p[0] = c'"'
    return p + 1


def placements_json(list placements not None, list keys not None, int64_t shard, repeats, quote):
    cdef Py_ssize_t count = len(placements), i
    cdef Py_ssize_t room = 2 + PLACED_MAX * count
    cdef dict odd
    cdef Placement placed
    cdef char *base
    cdef char *p
    if len(keys) != count:
        raise ValueError(f"{len(keys)} keys for {count} placements")
    odd = odd_keys(keys, quote, &room)
    base = <char *> malloc(room)
    if base == NULL:
        raise MemoryError("no memory for an answer")
    try:
        p = base + 1
        for i in range(count):
            placed = <Placement?> placements[i]
            p = add_id(
                add_text(p, ID_JSON), address_of(placed.store_host), port_of(placed.store_host),
                placed.physical_offset,
            )
            p = add_key(add_text(p, KEY_JSON), keys[i], odd.get(i) if odd else None)
            p = add_numbers(
                p, placed.queue_id, placed.queue_offset, placed.physical_offset, placed.size,
                placed.store_timestamp_ms, shard,
            )
            if repeats and i in repeats:
                p = add_text(p, REPEAT_JSON)
            p[0], p[1], p = c"}", c",", p + 2
        base[0], p = c"[", p - (1 if count else 0)
        p[0] = c"]"
        return PyBytes_FromStringAndSize(base, p + 1 - base)
    finally:
        free(base)


cdef bytes _messages_text = b'{"messages":['
cdef Text MESSAGES_JSON = text_of(_messages_text)


cdef bytes batch_json(const Records *r, int64_t shard):
    """The reply to a put: an object with the ``placements_json`` of its messages, whose keys need
    no escapes."""
    cdef int64_t offset = r.offset
    cdef Py_ssize_t room = MESSAGES_JSON.length + 2, i
    cdef const Item *item
    cdef char *base
    cdef char *p
    for i in range(r.count):
        room += PLACED_MAX + 2 + r.items[i].uniq_key.length
    base = <char *> malloc(room)
    if base == NULL:
        raise MemoryError("no memory for an answer")
    p = add_text(base, MESSAGES_JSON)
    for i in range(r.count):
        item = &r.items[i]
        p = add_id(add_text(p, ID_JSON), item.parts.stored, item.parts.stored_port, offset)
        p = add_text(p, KEY_JSON)
        p[0] = c'"'
        p = add_text(p + 1, item.uniq_key)
        p[0] = c'"'
        p = add_numbers(
            p + 1, item.parts.queue_id, item.queue_offset, offset, item.size, r.time, shard
        )
        p[0], p[1], p = c"}", c",", p + 2
        offset += item.size
    (p - 1)[0], p[0] = c"]", c"}"
    try:
        return PyBytes_FromStringAndSize(base, p + 1 - base)
    finally:
        free(base)
