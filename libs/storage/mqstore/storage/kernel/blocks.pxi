# Checksums of the log's blocks ------------------------------------------------------------------

# An entry of a side file: CRC-32C, parity and length of what it covers from its block's first byte
# on, then a CRC-32C over these and the block's physical offset, so that an entry counts for its
# own block only.


cdef enum:
    BLOCK_SIZE = 65536
    BLOCK_HEADER = 64
    BLOCK_ENTRY = 16
    DOUBTFUL = 0x80000000  # beside the length: a repair left bytes that nothing compares

assert (BLOCK_SIZE, BLOCK_HEADER, BLOCK_ENTRY) == (
    layout.BLOCK_SIZE, layout.BLOCK_HEADER_SIZE, layout.BLOCK_ENTRY_SIZE
)
assert <uint32_t> DOUBTFUL == layout.BLOCK_DOUBTFUL


cdef struct Cover:
    uint32_t crc
    uint32_t parity
    uint32_t length
    uint32_t doubt  # 0, or DOUBTFUL


cdef inline uint32_t entry_seal(const uint8_t *entry, uint64_t offset) noexcept nogil:
    cdef uint8_t place[8]
    put64(place, offset)
    return mq_crc32c(mq_crc32c(0, entry, 12, 1), place, 8, 1)


cdef void read_cover(const uint8_t *entry, uint64_t offset, Cover *cover) noexcept nogil:
    """Length 0 for no entry and for an invalid one."""
    cdef uint8_t copy[BLOCK_ENTRY]
    memcpy(copy, entry, BLOCK_ENTRY)  # another process may be writing it
    cover.crc = get32(copy)
    cover.parity = get32(copy + 4)
    cover.doubt = get32(copy + 8) & DOUBTFUL
    cover.length = get32(copy + 8) & ~DOUBTFUL
    if cover.length > BLOCK_SIZE or get32(copy + 12) != entry_seal(copy, offset):
        cover.length = cover.doubt = 0
    if cover.length == 0:
        cover.crc = cover.parity = 0


cdef void write_cover(uint8_t *entry, uint64_t offset, const Cover *cover) noexcept nogil:
    cdef uint8_t made[BLOCK_ENTRY]
    put32(made, cover.crc)
    put32(made + 4, cover.parity)
    put32(made + 8, cover.length | cover.doubt)
    put32(made + 12, entry_seal(made, offset))
    memcpy(entry, made, BLOCK_ENTRY)


cdef inline void extend_cover(Cover *cover, const uint8_t *block, uint32_t due) noexcept nogil:
    cdef uint32_t length = due - cover.length
    mq_extend_cover(&cover.crc, &cover.parity, block + cover.length, length, cover.length)
    cover.length = due


cdef inline bint is_as_covered(const Cover *cover, const uint8_t *block) noexcept nogil:
    cdef Cover now = Cover(0, 0, 0, 0)
    extend_cover(&now, block, cover.length)
    return now.crc == cover.crc and now.parity == cover.parity


cdef int64_t cover_range(
    const uint8_t *log, uint8_t *entries, int64_t base, int64_t start, int64_t end
) noexcept nogil:
    cdef int64_t at = start - start % BLOCK_SIZE
    cdef int64_t added = 0
    cdef uint32_t due
    cdef uint8_t *entry
    cdef Cover cover
    while at < end:
        entry = entries + BLOCK_HEADER + at // BLOCK_SIZE * BLOCK_ENTRY
        due = <uint32_t> min(end - at, BLOCK_SIZE)
        read_cover(entry, base + at, &cover)
        if cover.length < due:
            added += due - cover.length
            extend_cover(&cover, log + at, due)
            write_cover(entry, base + at, &cover)
        at += BLOCK_SIZE
    return added


cdef int check_entries(int64_t length, int64_t end) except -1:
    cdef int64_t due = BLOCK_HEADER + (end + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_ENTRY
    if length < due:
        raise ValueError(f"{length} bytes of entries where {due} are due")
    return 0


def cover_blocks(
    const uint8_t[::1] log not None,
    uint8_t[::1] entries not None,
    int64_t base,
    int64_t start,
    int64_t end,
):
    cdef int64_t added
    check_range(start, end, log.shape[0])
    check_entries(entries.shape[0], end)
    if start == end:
        return 0
    if end - start < RELEASE_GIL_FROM:
        return cover_range(&log[0], &entries[0], base, start, end)
    with nogil:
        added = cover_range(&log[0], &entries[0], base, start, end)
    return added


cdef const uint8_t *covered_block(
    const uint8_t[::1] log, const uint8_t[::1] entries, int64_t base, int64_t number, Cover *cover
) except NULL:
    """A block's first byte, and its entry."""
    cdef int64_t at = number * BLOCK_SIZE
    if not 0 <= number <= INT32_MAX or at >= log.shape[0]:
        raise ValueError(f"block {number} is outside a view of {log.shape[0]} bytes")
    check_entries(entries.shape[0], at + 1)
    read_cover(&entries[BLOCK_HEADER + number * BLOCK_ENTRY], base + at, cover)
    cover.length = <uint32_t> min(<int64_t> cover.length, log.shape[0] - at)
    return &log[at]


def check_block(
    const uint8_t[::1] log not None,
    const uint8_t[::1] entries not None,
    int64_t base,
    int64_t number,
    int64_t known,
):
    cdef Cover cover
    cdef const uint8_t *block = covered_block(log, entries, base, number, &cover)
    cdef bint whole
    if cover.length <= known:
        return cover.length
    with nogil:
        whole = is_as_covered(&cover, block)
    return <int64_t> cover.length if whole else -1


def locate_damage(
    const uint8_t[::1] log not None,
    const uint8_t[::1] entries not None,
    int64_t base,
    int64_t number,
):
    cdef Cover cover
    cdef Cover now = Cover(0, 0, 0, 0)
    cdef const uint8_t *block = covered_block(log, entries, base, number, &cover)
    cdef int64_t at = number * BLOCK_SIZE, word
    cdef uint32_t first = 0, last = 3
    if cover.length == 0:
        return (at, at)
    with nogil:
        extend_cover(&now, block, cover.length)
        now.crc ^= cover.crc
        now.parity ^= cover.parity
        word = mq_changed_word(now.crc, now.parity, cover.length)
    if word < 0:
        return (at, at + (cover.length if now.crc or now.parity else 0))
    while not now.parity >> (24 - 8 * first) & 255:
        first += 1
    while not now.parity >> (24 - 8 * last) & 255:
        last -= 1
    return (at + word + first, at + word + last + 1)
