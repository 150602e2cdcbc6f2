# Receipts of leases --------------------------------------------------------------------------------

# Their form is in ``shared_groups.receipts``.


cdef enum:
    EPOCH_SHIFT = 20  # of the epoch in the lease of an ordered group


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
        or byte == c"+"  # of a POP retry topic
    )


cdef struct ReceiptText:
    int64_t shard, queue_id, offset, lease
    const uint8_t *topic
    Py_ssize_t topic_size


cdef bint read_receipt(str text, ReceiptText *found) except -1:
    """False for a text of another form; ``found`` points into the text."""
    cdef Py_ssize_t size, i
    cdef const uint8_t *p = <const uint8_t *> PyUnicode_AsUTF8AndSize(text, &size)
    cdef const uint8_t *end = p + size
    found.shard = base36(&p, end, 6)
    found.queue_id = base36(&p, end, 6) if found.shard >= 0 else -1
    found.offset = base36(&p, end, 12) if found.queue_id >= 0 else -1
    found.lease = base36(&p, end, 13) if found.offset >= 0 else -1
    found.topic, found.topic_size = p, end - p
    if found.lease < 0 or not 0 < found.topic_size <= 255:
        return False
    for i in range(found.topic_size):
        if not is_topic_byte(p[i]):
            return False
    return True


cdef inline int64_t epoch_in(int64_t lease) noexcept:
    """-1 for a lease of a shared group."""
    return -1 if lease & 1 else lease >> EPOCH_SHIFT


cdef inline bint of_one_queue(const ReceiptText *a, const ReceiptText *b) noexcept:
    return (
        a.shard == b.shard and a.queue_id == b.queue_id
        and epoch_in(a.lease) == epoch_in(b.lease) and a.topic_size == b.topic_size
        and memcmp(a.topic, b.topic, a.topic_size) == 0
    )


def receipts_by_queue(list texts not None, type kind not None):
    cdef ReceiptText receipt, before
    cdef Py_ssize_t number
    cdef dict by_queue = {}
    cdef list found = [], numbers = None, offsets = None, leases = None
    for number in range(len(texts)):
        if not read_receipt(texts[number], &receipt):
            return number
        if numbers is None or not of_one_queue(&receipt, &before):
            topic = PyUnicode_DecodeUTF8(<const char *> receipt.topic, receipt.topic_size, NULL)
            key = (receipt.shard, topic, receipt.queue_id, epoch_in(receipt.lease))
            queue = by_queue.get(key)
            if queue is None:
                epoch = None if receipt.lease & 1 else epoch_in(receipt.lease)
                queue = kind(receipt.shard, topic, receipt.queue_id, epoch, [], [], [])
                by_queue[key] = queue
                found.append(queue)
            numbers, offsets, leases = queue.numbers, queue.offsets, queue.leases
        numbers.append(number)
        offsets.append(receipt.offset)
        leases.append(receipt.lease)
        before = receipt  # ``texts`` keeps its bytes
    return found
