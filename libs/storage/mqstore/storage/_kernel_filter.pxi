# Looking through queue entries in bulk -----------------------------------------------------------

cdef enum:
    TAGS_CODE_AT = 12

cdef int64_t EXT_ADDRESS = layout.EXT_ADDRESS_MAX
cdef int32_t PRE_BLANK = layout.PRE_BLANK_SIZE


cdef int64_t untagged(
    const uint8_t *entry, int64_t count, const int64_t *codes, int64_t wanted
) noexcept nogil:
    cdef int64_t number, i, code
    for number in range(count):
        code = <int64_t> get64(entry + TAGS_CODE_AT)
        if code <= EXT_ADDRESS:
            return number
        for i in range(wanted):
            if codes[i] == code:
                return number
        entry += QUEUE_ENTRY
    return count


def count_untagged(
    const uint8_t[::1] entries not None,
    int64_t position,
    int64_t count,
    const int64_t[::1] codes not None,
):
    cdef int64_t passed
    check_range(position, position, entries.shape[0])
    count = min(count, (entries.shape[0] - position) // QUEUE_ENTRY)
    if count <= 0 or codes.shape[0] == 0:
        return max(count, 0)
    with nogil:
        passed = untagged(&entries[position], count, &codes[0], codes.shape[0])
    return passed


cdef inline bint follows(const uint8_t *entry) noexcept nogil:
    """Whether an entry and the one before name records, the later one behind the earlier one."""
    cdef const uint8_t *before = entry - QUEUE_ENTRY
    cdef int32_t size = <int32_t> get32(before + 8)
    if size <= 0 or size == PRE_BLANK or <int32_t> get32(entry + 8) <= 0:
        return False
    return <int64_t> get64(entry) > <int64_t> get64(before)


def split_entries_out_of_order(const uint8_t[::1] entries not None, int64_t length, int64_t sector):
    cdef int64_t at
    cdef const uint8_t *entry
    cdef list found = []
    check_range(0, length, entries.shape[0])
    if sector < 2 * QUEUE_ENTRY:
        raise ValueError(f"a sector of {sector} bytes does not hold two entries")
    for at in range(sector, length, sector):
        if at // QUEUE_ENTRY * QUEUE_ENTRY + QUEUE_ENTRY > entries.shape[0]:
            break
        entry = &entries[at // QUEUE_ENTRY * QUEUE_ENTRY]
        if not follows(entry):
            found.append(at // QUEUE_ENTRY)
    return found
