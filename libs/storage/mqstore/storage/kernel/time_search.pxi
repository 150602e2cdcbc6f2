# Searches for a time in a queue -------------------------------------------------------------------

# Store times must not go back in the log. A search that is bounded runs on the event loop: a page is
# read only where it is in memory, and the bytes that are compared with checksums or read are bounded.


cdef enum:
    ODD_TIME = -1  # an examined entry or record needs the full checks
    TIME_NOT_IN_MEMORY = -2


@cython.final
@cython.no_gc
cdef class TimeSearch:
    """One search; ``files`` of the queue that are mapped are tried before it is requested for
    another."""
    cdef LogWindow window
    cdef object queue
    cdef list files
    cdef QueueFile spare
    cdef int64_t left  # bytes that may be read; below 0 without a bound
    cdef double now_s

    cdef int64_t first_at(self, int64_t timestamp_ms, int64_t low, int64_t high) except -3:
        """The first entry stored at or after a time, ``high`` without one; or why there is none."""
        cdef int64_t end = high, middle, stored
        while low < high:
            middle = (low + high) // 2
            stored = self.stored_at(middle)
            if stored < 0:
                return stored
            if stored >= timestamp_ms:
                high = middle
            else:
                low = middle + 1
        if low < end:
            stored = self.stored_at(low)
            if stored < 0:
                return stored
        return low

    cdef QueueFile file_of(self, int64_t index):
        cdef QueueFile file = holding(self.files, index)
        if file is not None:
            return file
        if not self.spare.first <= index < self.spare.stop:
            block = self.queue.block(index)
            if block is None:
                return None
            self.spare.hold(block[0], index, block[1])
        return self.spare

    cdef int64_t stored_at(self, int64_t index) except -3:
        """When the record of an entry was stored, in ms, or why that is unknown."""
        cdef uint8_t head[HEAD_MOST]
        cdef uint8_t entry[QUEUE_ENTRY_SIZE]
        cdef Place place
        cdef Layout r
        cdef int64_t physical, size, left, number
        cdef int state
        cdef Segment segment
        cdef QueueFile file = self.file_of(index)
        if file is None:
            return ODD_TIME
        if self.left >= 0 and not is_recently_in_memory(
            file.entry(index), QUEUE_ENTRY_SIZE, self.now_s
        ):
            return TIME_NOT_IN_MEMORY
        memcpy(entry, file.entry(index), QUEUE_ENTRY_SIZE)
        physical, size = <int64_t> get64(entry), <int32_t> get32(entry + 8)
        segment = self.window.place(
            physical, <int64_t> atomic_load64(self.window.dispatched_word.at), &place
        )
        if segment is None or not 0 < size <= place.available:
            return ODD_TIME
        if self.left >= 0 and not is_at_hand(
            segment, &place, size, min(size, <int64_t> HEAD_MOST), &self.left, self.now_s
        ):
            return TIME_NOT_IN_MEMORY
        take_copy(<char *> head, place.at, min(place.available, <int64_t> HEAD_MOST))
        if parse_head(head, place.available, &r, &left) != DEFECT_NONE or r.total != size:
            return ODD_TIME
        if <int64_t> get64(head + 28) != physical or get64(head + r.body_at - 12) == TOMBSTONE:
            return ODD_TIME
        # Where checksums cover all of it, nothing after its head is fetched from memory.
        state = segment.judge(place.position, size, &number)
        if state == CHANGED:
            return ODD_TIME
        if state == OPEN and inspect(place.at, place.available, physical, True, &r) != DEFECT_NONE:
            return ODD_TIME
        return max(<int64_t> ODD_TIME, <int64_t> get64(head + r.store_time_at))


cdef TimeSearch time_search(LogWindow window, queue, list files, int64_t most_in_memory):
    cdef TimeSearch search = TimeSearch.__new__(TimeSearch)
    search.window, search.queue, search.files = window, queue, files
    search.spare = QueueFile.__new__(QueueFile)
    search.left, search.now_s = most_in_memory, mq_monotonic()
    return search


def first_at(
    LogWindow window not None, queue not None, int64_t timestamp_ms, int64_t low, int64_t high
):
    cdef Moment moment
    cdef int64_t found
    if not window.enter(&moment):
        return None
    found = time_search(window, queue, [], -1).first_at(timestamp_ms, low, high)
    return found if found >= 0 and window.is_at(&moment) else None
