# Passing over queue entries whose tags cannot be those wanted ------------------------------------

cdef enum:
    TAGS_CODE_AT = 12

cdef int64_t EXT_ADDRESS = layout.EXT_ADDRESS_MAX


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
