# Index files -----------------------------------------------------------------------------------


cdef int64_t index_file_size(int64_t slots, int64_t index_num) except -1:
    if not (0 < slots <= INT32_MAX and 0 < index_num <= INT32_MAX):
        raise ValueError(f"an index file of {slots} slots and {index_num} entries is impossible")
    return INDEX_HEADER + INDEX_SLOT * slots + INDEX_ITEM * index_num


cdef int check_index(int64_t length, int64_t slots, int64_t index_num) except -1:
    cdef int64_t size = index_file_size(slots, index_num)
    if length < size:
        raise ValueError(f"an index file of {size} bytes does not fit a view of {length}")
    return 0


cdef inline int64_t index_count(const uint8_t *file) noexcept nogil:
    """Number of the next entry; a new file's header holds 0, and entry 0 is never used."""
    cdef int32_t count = <int32_t> get32(file + 36)
    return count if count > 0 else 1


cdef inline uint32_t index_hash(uint32_t hash) noexcept nogil:
    """The absolute value of a String.hashCode; that of -2**31 becomes 0."""
    return -hash & <uint32_t> INT32_MAX if hash > <uint32_t> INT32_MAX else hash


cdef uint32_t index_seconds(int64_t begin, int64_t store_time) noexcept nogil:
    cdef int64_t difference = <int64_t> (<uint64_t> store_time - <uint64_t> begin) // 1000
    if begin <= 0 or difference < 0:
        return 0
    return <uint32_t> min(difference, <int64_t> INT32_MAX)


cdef bint insert(
    uint8_t *file,
    int64_t slots,
    int64_t index_num,
    uint32_t hash,
    int64_t physical_offset,
    int64_t store_time,
) noexcept nogil:
    """One entry; readers follow the slot, so it is stored after the entry, the count after it."""
    cdef int64_t count = index_count(file)
    cdef uint8_t *slot = file + INDEX_HEADER + INDEX_SLOT * (hash % <uint64_t> slots)
    cdef uint8_t *item = file + INDEX_HEADER + INDEX_SLOT * slots + INDEX_ITEM * count
    cdef int32_t previous
    if count >= index_num:
        return False
    previous = <int32_t> get32(slot)
    if previous <= 0 or previous > count:
        previous = 0
    put32(item, hash)
    put64(item + 4, <uint64_t> physical_offset)
    put32(item + 12, index_seconds(<int64_t> get64(file), store_time))
    put32(item + 16, <uint32_t> previous)
    release_fence()
    put32(slot, <uint32_t> count)
    if count <= 1:
        put64(file, <uint64_t> store_time)
        put64(file + 16, <uint64_t> physical_offset)
    if previous == 0:
        put32(file + 32, get32(file + 32) + 1)
    release_fence()
    put32(file + 36, <uint32_t> (count + 1))
    put64(file + 24, <uint64_t> physical_offset)
    put64(file + 8, <uint64_t> store_time)
    return True


def index_put(
    uint8_t[::1] view not None,
    int64_t slots,
    int64_t index_num,
    int64_t key_hash,
    int64_t physical_offset,
    int64_t store_timestamp,
):
    check_index(view.shape[0], slots, index_num)
    if not 0 <= key_hash <= INT32_MAX:
        raise ValueError(f"{key_hash} is no index hash: java_text.index_hash makes them")
    return insert(&view[0], slots, index_num, <uint32_t> key_hash, physical_offset, store_timestamp)


cdef struct Chain:
    const uint8_t *items
    int64_t begin
    int64_t begin_ms
    int64_t end_ms
    int64_t entry  # to be read next; 0 at the chain's end
    uint32_t hash
    int found
    int64_t offsets[FIND_CHUNK]


cdef void follow(Chain *c, int room) noexcept nogil:
    """Collect up to ``room`` offsets; every step leads to an older entry, so it ends."""
    cdef const uint8_t *item
    cdef int32_t seconds
    cdef int64_t previous, time
    c.found = 0
    while c.entry > 0 and c.found < room:
        item = c.items + INDEX_ITEM * c.entry
        seconds = <int32_t> get32(item + 12)
        if seconds < 0:
            c.entry = 0
            return
        time = <int64_t> (<uint64_t> c.begin + <uint64_t> seconds * 1000)
        if get32(item) == c.hash and c.begin_ms <= time <= c.end_ms:
            c.offsets[c.found] = <int64_t> get64(item + 4)
            c.found += 1
        previous = <int32_t> get32(item + 16)
        c.entry = previous if previous < c.entry and time >= c.begin_ms else 0


cdef bint begin_chain(
    Chain *c, const uint8_t *file, int64_t slots, int64_t index_num, uint32_t hash, int64_t begin_ms,
    int64_t end_ms,
) noexcept nogil:
    """False where the file holds nothing under a hash."""
    cdef int64_t count
    c.entry = <int32_t> get32(file + INDEX_HEADER + INDEX_SLOT * (hash % slots))
    acquire_fence()  # the slot before the count: a writer stores them in that order
    count = index_count(file)
    c.items = file + INDEX_HEADER + INDEX_SLOT * slots
    c.begin = <int64_t> get64(file)
    c.begin_ms, c.end_ms, c.hash = begin_ms, end_ms, hash
    return count > 1 and c.entry <= min(count, index_num - 1)


def index_find(
    const uint8_t[::1] view not None,
    int64_t slots,
    int64_t index_num,
    int64_t key_hash,
    int64_t begin_ms,
    int64_t end_ms,
    int64_t limit,
    int64_t entry = -1,
):
    cdef Chain c
    cdef int64_t left = limit
    cdef list found = []
    cdef int i, room
    check_index(view.shape[0], slots, index_num)
    if not 0 <= key_hash <= INT32_MAX:
        raise ValueError(f"{key_hash} is no index hash: java_text.index_hash makes them")
    if not begin_chain(&c, &view[0], slots, index_num, <uint32_t> key_hash, begin_ms, end_ms):
        return found, 0
    if entry >= 0:
        c.entry = min(entry, min(index_count(&view[0]), index_num) - 1)
    while c.entry > 0 and left > 0:
        room = <int> min(left, <int64_t> FIND_CHUNK)
        with nogil:
            follow(&c, room)
        for i in range(c.found):
            found.append(c.offsets[i])
        left -= c.found
    return found, max(c.entry, 0)
