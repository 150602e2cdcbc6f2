# A search by key, and its answer ----------------------------------------------------------------


cdef enum:
    INDEX_STEP_MS = 1000  # an item's time is its record's, in whole seconds
    REPLACEMENT_BEGIN = 0xEF  # the first byte of U+FFFD in UTF-8, and of little else


cdef struct Search:
    Text topic
    Text key
    uint32_t hash
    int64_t from_ms
    int64_t to_ms
    int64_t minimum
    int64_t below
    int64_t limit
    int64_t most
    int64_t looked_at
    int64_t next
    bint uniq_key_only


cdef bint begin_search(Search *s, str topic, str key) except -1:
    """False for text that bytes cannot be compared with: invalid Unicode, and Java's U+FFFD."""
    cdef Py_ssize_t size
    cdef uint32_t hash = 0
    try:
        s.topic.at = <const uint8_t *> PyUnicode_AsUTF8AndSize(topic, &size)
        s.topic.length = <uint32_t> size
        s.key.at = <const uint8_t *> PyUnicode_AsUTF8AndSize(key, &size)
        s.key.length = <uint32_t> size
    except UnicodeEncodeError:
        return False
    if memchr(s.topic.at, REPLACEMENT_BEGIN, s.topic.length) != NULL:
        return False
    if memchr(s.key.at, REPLACEMENT_BEGIN, s.key.length) != NULL:
        return False
    mq_hash(s.topic.at, s.topic.length, &hash)
    hash = hash * 31 + c'#'
    mq_hash(s.key.at, s.key.length, &hash)
    s.hash = index_hash(hash)
    return True


cdef bint has_key(Text properties, Text key, bint uniq_key_only) noexcept nogil:
    """Whether this is the UNIQ_KEY, or one of KEYS."""
    cdef Facts f
    cdef Text each
    cdef const uint8_t *stop
    read_facts(properties, &f)
    if key.length == 0:
        return False
    if same(f.uniq_key, key):
        return True
    each.at = f.keys.at
    while not uniq_key_only and f.keys.length:
        stop = <const uint8_t *> memchr(each.at, c' ', f.keys.length)
        each.length = f.keys.length if stop == NULL else <uint32_t> (stop - each.at)
        if same(each, key):
            return True
        if stop == NULL:
            break
        f.keys.length -= each.length + 1
        each.at = stop + 1
    return False


@cython.no_gc  # numbers only
cdef class ScanRange:
    cdef readonly int64_t from_ms
    cdef readonly int64_t to_ms
    cdef readonly int64_t candidates
    cdef readonly int64_t min_offset
    cdef readonly int64_t max_offset

    def __init__(
        self, int64_t from_ms, int64_t to_ms, int64_t candidates, int64_t min_offset,
        int64_t max_offset,
    ):
        self.from_ms, self.to_ms, self.candidates = from_ms, to_ms, candidates
        self.min_offset, self.max_offset = min_offset, max_offset

    cdef tuple fields(self):
        return self.from_ms, self.to_ms, self.candidates, self.min_offset, self.max_offset

    def __eq__(self, other):
        if not isinstance(other, ScanRange):
            return NotImplemented
        return self.fields() == (<ScanRange> other).fields()

    def __repr__(self):
        return f"ScanRange{self.fields()}"


cdef class KeyAnswer:
    cdef readonly list records
    cdef readonly object unreadable
    cdef public str cursor
    cdef readonly bint complete
    cdef readonly ScanRange scanned
    cdef readonly int64_t following

    def __init__(
        self, list records not None, unreadable not None, str cursor, bint complete,
        ScanRange scanned not None,
    ):
        self.records, self.unreadable, self.cursor = records, unreadable, cursor
        self.complete, self.scanned, self.following = complete, scanned, -1

    cdef tuple fields(self):
        return self.records, self.unreadable, self.cursor, self.complete, self.scanned

    def __eq__(self, other):
        if not isinstance(other, KeyAnswer):
            return NotImplemented
        return self.fields() == (<KeyAnswer> other).fields()

    def __repr__(self):
        return f"KeyAnswer{self.fields()}"


cdef KeyAnswer answer_of(list records, const Search *s, int64_t minimum, bint is_complete):
    cdef KeyAnswer answer = KeyAnswer.__new__(KeyAnswer)
    cdef ScanRange scanned = ScanRange.__new__(ScanRange)
    scanned.from_ms, scanned.to_ms, scanned.candidates = s.from_ms, s.to_ms, s.looked_at
    scanned.min_offset, scanned.max_offset = minimum, s.limit
    answer.records, answer.unreadable, answer.scanned = records, (), scanned
    answer.complete, answer.following = is_complete and s.next < 0, s.next
    return answer
