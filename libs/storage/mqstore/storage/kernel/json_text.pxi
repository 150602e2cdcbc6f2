# JSON text ---------------------------------------------------------------------------------------


cdef const uint8_t *end_of_string(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The quote that closes a string which begins at ``p``, or the end of the text."""
    cdef const uint8_t *quote
    cdef const uint8_t *before
    while p < end:
        quote = <const uint8_t *> memchr(p, c'"', end - p)
        if quote == NULL:
            return end
        before = quote
        while before > p and (before - 1)[0] == c"\\":
            before -= 1
        if (quote - before) % 2 == 0:
            return quote
        p = quote + 1
    return end


cdef int64_t count_values(const uint8_t *p, const uint8_t *end, int64_t most) noexcept nogil:
    cdef int64_t found = 1
    while p < end and found <= most:
        if p[0] == c'"':
            p = end_of_string(p + 1, end)
        elif p[0] == c",":
            found += 1
        p += 1
    return found


def count_json_values(bytes text not None, int64_t most):
    cdef const uint8_t *p = text
    cdef const uint8_t *end = p + len(text)
    cdef int64_t found
    if end - p < RELEASE_GIL_FROM:
        return count_values(p, end, most)
    with nogil:
        found = count_values(p, end, most)
    return found


cdef enum:
    DEPTH_MAX = 8  # of objects and arrays that are looked at
    NAMES_MAX = 64  # of the objects around a place; each is compared with those of its object


cdef bint are_distinct(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef Text names[NAMES_MAX]
    cdef Text name
    cdef int first[DEPTH_MAX]  # of the names of each object around this place; -1: an array
    cdef int depth = -1, count = 0, i
    cdef bint is_name = False
    cdef uint8_t c
    while p < end:
        c, p = p[0], p + 1
        if c == c'"':
            name.at = p
            p = end_of_string(p, end)
            if not is_name:
                p += 1
                continue
            name.length = <uint32_t> (p - name.at)
            if count == NAMES_MAX or memchr(name.at, c"\\", name.length) != NULL:
                return False
            for i in range(first[depth], count):
                if same(names[i], name):
                    return False
            names[count] = name
            count, is_name, p = count + 1, False, p + 1
        elif c == c"{" or c == c"[":
            depth += 1
            if depth == DEPTH_MAX:
                return False
            is_name = c == c"{"
            first[depth] = count if is_name else -1
        elif c == c"}" or c == c"]":
            if depth < 0:
                return False
            if first[depth] >= 0:
                count = first[depth]
            depth, is_name = depth - 1, False
        elif c == c",":
            is_name = depth >= 0 and first[depth] >= 0
    return True


def has_distinct_members(bytes text not None):
    cdef const uint8_t *p = text
    return are_distinct(p, p + len(text))
