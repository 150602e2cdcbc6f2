# JSON text ---------------------------------------------------------------------------------------


def count_json_values(bytes text not None, int64_t most):
    cdef const uint8_t *p = text
    cdef int64_t size = len(text), at = 0, found = 1
    cdef bint quoted = False
    cdef uint8_t c
    with nogil:
        while at < size and found <= most:
            c = p[at]
            if quoted:
                if c == c'"':
                    quoted = False
                elif c == c"\\":
                    at += 1
            elif c == c'"':
                quoted = True
            elif c == c",":
                found += 1
            at += 1
    return found
