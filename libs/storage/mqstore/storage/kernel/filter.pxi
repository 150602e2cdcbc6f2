# Looking through queue entries in bulk -----------------------------------------------------------

cdef enum:
    TAGS_CODE_AT = 12
    UNIT_TAGS_AT = 2
    UNIT_TIME_AT = 10
    UNIT_BITMAP_SIZE_AT = 18

cdef int64_t EXT_ADDRESS = layout.EXT_ADDRESS_MAX
cdef int32_t PRE_BLANK = layout.PRE_BLANK_SIZE
cdef int64_t UNIT_MIN = layout.EXT_UNIT_SIZE_MIN
cdef int64_t UNIT_MAX = layout.EXT_UNIT_SIZE_MAX


cdef struct Units:
    # A file of ConsumeQueueExt; no bytes where there is none.
    const uint8_t *at
    int64_t length
    int64_t base


cdef inline int64_t get16(const uint8_t *p) noexcept nogil:
    return p[0] << 8 | p[1]


cdef int64_t unit_size(const Units *units, int64_t position) noexcept nogil:
    """The size of the whole unit that stands there, or 0."""
    cdef int64_t left = units.length - position, size
    if position < 0 or left < UNIT_MIN:
        return 0
    size = get16(units.at + position)
    if not UNIT_MIN <= size <= min(left, UNIT_MAX):
        return 0
    return size if get16(units.at + position + UNIT_BITMAP_SIZE_AT) == size - UNIT_MIN else 0


cdef const uint8_t *unit_of(const Units *units, int64_t code) noexcept nogil:
    """The unit whose address a tags code is, where it is whole and in this file; else NULL."""
    cdef int64_t position = <int64_t> (<uint64_t> code ^ <uint64_t> 1 << 63) - units.base
    return units.at + position if unit_size(units, position) else NULL


cdef bint has_code(int64_t code, const int64_t *codes, int64_t wanted) noexcept nogil:
    cdef int64_t i
    for i in range(wanted):
        if codes[i] == code:
            return True
    return False


cdef int64_t untagged(
    const uint8_t *entry, int64_t count, const int64_t *codes, int64_t wanted, const Units *units
) noexcept nogil:
    cdef int64_t number, code
    cdef const uint8_t *unit
    for number in range(count):
        code = <int64_t> get64(entry + TAGS_CODE_AT)
        if code <= EXT_ADDRESS:
            unit = unit_of(units, code)
            if unit == NULL:
                return number
            code = <int64_t> get64(unit + UNIT_TAGS_AT)
        if has_code(code, codes, wanted):
            return number
        entry += QUEUE_ENTRY
    return count


@cython.no_gc  # nothing that it refers to refers back
cdef class Tags:
    """The codes of tags in queue entries, and their texts in properties."""
    cdef bytes codes
    cdef list texts

    def __init__(self, codes not None, texts not None):
        self.codes, self.texts = bytes(codes), [bytes(each) for each in texts]
        if len(self.codes) != sizeof(int64_t) * len(self.texts):
            raise ValueError("there is not one code of 8 bytes for each tag")

    cdef bint has_code(self, const uint8_t *entry):
        cdef const int64_t *codes = <const int64_t *> PyBytes_AS_STRING(self.codes)
        return has_code(<int64_t> get64(entry + TAGS_CODE_AT), codes, len(self.texts))

    cdef int64_t count_without(self, const uint8_t *entry, int64_t count):
        """Count the entries before the first one that has one of the codes, or a unit's address."""
        cdef const int64_t *codes = <const int64_t *> PyBytes_AS_STRING(self.codes)
        cdef int64_t wanted = len(self.texts), passed
        cdef Units none
        none.at, none.length, none.base = NULL, 0, 0
        with nogil:
            passed = untagged(entry, count, codes, wanted, &none)
        return passed

    cdef bint has_tag(self, Text properties):
        cdef Facts f
        cdef bytes each
        read_facts(properties, &f)
        for each in self.texts:
            if same(f.tags, text_of(each)):
                return True
        return False


cdef struct Bits:
    const int64_t *positions
    int64_t count
    int64_t bitmap_size
    int64_t born


cdef bint has_bits(const uint8_t *unit, const Bits *bits) noexcept nogil:
    """Whether a message may be wanted, as its unit says; so are all that were stored before the
    subscription, or without its bitmap."""
    cdef int64_t i, position
    if <int64_t> get64(unit + UNIT_TIME_AT) <= bits.born:
        return True
    if get16(unit + UNIT_BITMAP_SIZE_AT) != bits.bitmap_size:
        return True
    for i in range(bits.count):
        position = bits.positions[i]
        if not unit[UNIT_MIN + position // 8] >> position % 8 & 1:
            return False
    return True


cdef int64_t unflagged(
    const uint8_t *entry, int64_t count, const Bits *bits, const Units *units
) noexcept nogil:
    cdef int64_t number, code
    cdef const uint8_t *unit
    for number in range(count):
        code = <int64_t> get64(entry + TAGS_CODE_AT)
        unit = unit_of(units, code) if code <= EXT_ADDRESS else NULL
        if unit == NULL or has_bits(unit, bits):
            return number
        entry += QUEUE_ENTRY
    return count


cdef Units units_in(const uint8_t[::1] view, int64_t base) noexcept:
    cdef Units units
    units.base = base
    units.length = 0 if view is None else view.shape[0]
    units.at = &view[0] if units.length else NULL
    return units


cdef int64_t entries_from(const uint8_t[::1] entries, int64_t position, int64_t count) except -1:
    check_range(position, position, entries.shape[0])
    return max(0, min(count, (entries.shape[0] - position) // QUEUE_ENTRY))


def count_untagged(
    const uint8_t[::1] entries not None,
    int64_t position,
    int64_t count,
    const int64_t[::1] codes not None,
    const uint8_t[::1] units=None,
    int64_t units_base=0,
):
    cdef Units within = units_in(units, units_base)
    cdef int64_t passed = entries_from(entries, position, count)
    if passed and codes.shape[0]:
        with nogil:
            passed = untagged(&entries[position], passed, &codes[0], codes.shape[0], &within)
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


def count_unflagged(
    const uint8_t[::1] entries not None,
    int64_t position,
    int64_t count,
    const int64_t[::1] positions not None,
    int64_t bits,
    int64_t born_ms,
    const uint8_t[::1] units not None,
    int64_t units_base,
):
    cdef Units within = units_in(units, units_base)
    cdef int64_t passed = entries_from(entries, position, count)
    cdef Bits wanted
    wanted.count, wanted.bitmap_size, wanted.born = positions.shape[0], bits // 8, born_ms
    if bits % 8 or not all(0 <= each < bits for each in positions):
        raise ValueError(f"a bitmap of {bits} bits has no such positions")
    if not passed or not wanted.count:
        return 0
    wanted.positions = &positions[0]
    with nogil:
        passed = unflagged(&entries[position], passed, &wanted, &within)
    return passed


def walk_units(const uint8_t[::1] units not None, int64_t position):
    cdef Units within = units_in(units, 0)
    cdef int64_t size = 1
    check_range(position, position, within.length)
    with nogil:
        while size:
            size = unit_size(&within, position)
            position += size
    return position
