# Pages in memory ---------------------------------------------------------------------------------


cdef bint covers_in_memory(Segment segment, int64_t begin, int64_t stop) noexcept:
    """The checksums of the blocks within ``begin`` … ``stop`` of a segment."""
    cdef int64_t first = BLOCK_HEADER + begin // BLOCK_SIZE * BLOCK_ENTRY
    cdef int64_t last = BLOCK_HEADER + (stop + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_ENTRY
    if not segment.has_covers:
        return True
    return mq_in_memory(<const uint8_t *> segment.covers.buf + first, last - first)


def in_memory(
    LogWindow window not None, entries not None, int64_t position, int64_t count,
    int64_t max_bytes,
):
    cdef Py_buffer queue
    cdef Moment moment
    PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
    try:
        check_range(position, position, queue.len)
        count = min(count, (queue.len - position) // QUEUE_ENTRY)
        if count <= 0 or not window.enter(&moment):
            return 0
        return entries_in_memory(
            window, <const uint8_t *> queue.buf + position, count, max_bytes
        )
    finally:
        PyBuffer_Release(&queue)


cdef int64_t entries_in_memory(
    LogWindow window, const uint8_t *entry, int64_t count, int64_t max_bytes
):
    cdef Place place
    cdef Segment segment, looked_at = None
    cdef int64_t limit, size, begin, stop, number, taken = 0, from_ = 0, to = 0
    if not mq_in_memory(entry, count * QUEUE_ENTRY):
        return 0
    limit = min(
        <int64_t> atomic_load64(window.dispatched_word.at),
        <int64_t> atomic_load64(window.max_word.at),
    )
    for number in range(count):
        size = <int32_t> get32(entry + 8)
        segment = window.place(<int64_t> get64(entry), limit, &place)
        taken += size
        if segment is None or not 0 < size <= place.available or taken > max_bytes:
            return number
        # Whole blocks: their checksums may have to be compared.
        begin = place.position // BLOCK_SIZE * BLOCK_SIZE
        stop = (place.position + size + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE
        stop = min(stop, place.position + place.available)
        if segment is not looked_at or begin < from_ or begin > to:
            looked_at, from_, to = segment, begin, begin
        if stop > to:
            if not mq_in_memory(<const uint8_t *> segment.log.buf + to, stop - to):
                return number
            if not covers_in_memory(segment, to, stop):
                return number
            to = stop
        entry += QUEUE_ENTRY
    return count
