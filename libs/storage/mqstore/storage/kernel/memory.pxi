# Pages in memory ---------------------------------------------------------------------------------


cdef enum:
    PAGE = 4096  # bytes; on a machine with larger pages, a part of one
    REGION_PAGES = 16
    RECENT_REGIONS = 4096  # that are remembered, of 64 KiB each

cdef double RECENT_S = 1.0  # for which pages count as in memory after they were there


cdef struct Region:
    uint64_t number
    double until_s
    uint32_t pages  # a bit for each that was in memory

cdef Region recent_regions[RECENT_REGIONS]


cdef bint is_recently_in_memory(const uint8_t *p, int64_t size, double now_s) noexcept:
    """Whether bytes of a map are in memory, or were less than RECENT_S ago."""
    cdef uint64_t page = <uint64_t> p // PAGE
    cdef uint64_t end = (<uint64_t> p + <uint64_t> size + PAGE - 1) // PAGE, stop, first
    cdef uint32_t wanted
    cdef Region *region
    while page < end:
        first = page - page % REGION_PAGES
        stop = min(end, first + REGION_PAGES)
        wanted = (<uint32_t> 1 << (stop - first)) - (<uint32_t> 1 << (page - first))
        region = &recent_regions[first // REGION_PAGES % RECENT_REGIONS]
        if region.number != first or now_s >= region.until_s:
            region.number, region.until_s, region.pages = first, now_s + RECENT_S, 0
        if wanted & ~region.pages:
            if not mq_in_memory(<const uint8_t *> (page * PAGE), (stop - page) * PAGE):
                return False
            region.pages |= wanted
        page = stop
    return True


cdef bint covers_in_memory(
    Segment segment, int64_t begin, int64_t stop, double now_s
) noexcept:
    """The checksums of the blocks within ``begin`` … ``stop`` of a segment."""
    cdef int64_t first = BLOCK_HEADER + begin // BLOCK_SIZE * BLOCK_ENTRY
    cdef int64_t last = BLOCK_HEADER + (stop + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_ENTRY
    if not segment.has_covers:
        return True
    return is_recently_in_memory(
        <const uint8_t *> segment.covers.buf + first, last - first, now_s
    )


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
    cdef int64_t limit = window.readable_end()
    cdef int64_t size, begin, stop, number, taken = 0, from_ = 0, to = 0
    cdef double now_s = mq_monotonic()
    if not is_recently_in_memory(entry, count * QUEUE_ENTRY, now_s):
        return 0
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
            if not is_recently_in_memory(
                <const uint8_t *> segment.log.buf + to, stop - to, now_s
            ) or not covers_in_memory(segment, to, stop, now_s):
                return number
            to = stop
        entry += QUEUE_ENTRY
    return count
