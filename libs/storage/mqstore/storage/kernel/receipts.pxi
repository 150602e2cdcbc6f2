# Receipts of leases --------------------------------------------------------------------------------

# Their form is in ``shared_groups.receipts``.


cdef inline int64_t base36(const uint8_t **at, const uint8_t *end, int digits_max) noexcept:
    """Read a number up to the dot behind it, and pass the dot; -1 for another form."""
    cdef const uint8_t *p = at[0]
    cdef const uint8_t *stop = p + digits_max if digits_max < end - p else end
    cdef uint64_t number = 0
    cdef uint32_t digit
    while p < stop and p[0] != c".":
        digit = p[0] - <uint32_t> c"0" if p[0] <= c"9" else p[0] - <uint32_t> c"a" + 10
        if digit > 35 or (p[0] > c"9" and p[0] < c"a") or number > (<uint64_t> INT64_MAX - 35) // 36:
            return -1
        number = number * 36 + digit
        p += 1
    if p == at[0] or p >= end or p[0] != c".":
        return -1
    at[0] = p + 1
    return <int64_t> number


cdef inline bint is_topic_byte(uint8_t byte) noexcept:
    return (
        c"a" <= byte <= c"z" or c"A" <= byte <= c"Z" or c"0" <= byte <= c"9"
        or byte == c"_" or byte == c"-" or byte == c"%" or byte == c"|"
    )


def receipts_of(texts not None, type kind not None):
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *before = NULL  # the topic of the receipt before
    cdef Py_ssize_t size, i, before_size = -1
    cdef int64_t shard, queue_id, offset, lease
    cdef str text, topic = None
    cdef list found = []
    for text in texts:
        p = <const uint8_t *> PyUnicode_AsUTF8AndSize(text, &size)
        end = p + size
        shard = base36(&p, end, 6)
        queue_id = base36(&p, end, 6) if shard >= 0 else -1
        offset = base36(&p, end, 12) if queue_id >= 0 else -1
        lease = base36(&p, end, 13) if offset >= 0 else -1
        size = end - p
        if lease < 0 or not 0 < size <= 255:
            return None
        if size != before_size or memcmp(p, before, size):
            for i in range(size):
                if not is_topic_byte(p[i]):
                    return None
            topic = PyUnicode_DecodeUTF8(<const char *> p, size, NULL)
            before, before_size = p, size  # ``texts`` keeps its bytes
        found.append(kind(shard, topic, queue_id, offset, lease))
    return found
