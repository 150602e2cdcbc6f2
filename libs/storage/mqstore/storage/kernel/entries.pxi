# Queue entries, and the records that they name -----------------------------------------------------

# An entry is trusted once its record was found to agree with it, in blocks that are whole. The
# results are cached by groups, under the digest of their bytes, so that damage of either is seen. In
# an epoch no record changes; a new epoch, another topic or another place make another digest.


cdef enum:
    FETCH_AHEAD = 4  # entries
    GROUP = 16  # entries
    KNOWN_GROUPS = 1 << 18  # of all queues together: 2 MiB, where they are used
    RUN_RECORDS = 32
    RUN_BYTES = 65536  # a record that is kept keeps no more of its neighbours
    RUN_MOST = 256  # slices are longer runs: they keep nothing that is not wanted


cdef struct Moment:
    # Epoch and minimum at a look-up's start. Its copy is valid while both are unchanged.
    int64_t epoch
    int64_t minimum


cdef struct Entries:
    # The rest of a queue file to read, and the facts that the next record must state.
    const uint8_t *start
    const uint8_t *at
    const uint8_t *end
    int64_t left  # in the file
    int64_t wanted
    int64_t limit
    Text topic
    int32_t queue_id
    uint64_t index  # the last one may be the greatest there is
    int64_t taken
    int64_t max_bytes
    bint is_full  # nothing more may be taken
    Moment moment
    uint64_t queue  # of the epoch and the queue
    const uint8_t *group_end
    uint64_t slot
    uint64_t digest
    bint is_known  # the group that ``at`` is in
    bint is_new  # not known, and all entries agreed so far
    bint is_sparse  # most are passed over: nothing is fetched ahead or remembered of groups


cdef struct Place:
    const uint8_t *at
    int64_t position
    int64_t available  # bytes that may be read


cdef struct Named:
    # Where the record of an entry stands, by the entry alone.
    const uint8_t *at
    int64_t physical
    int64_t position  # in its segment
    int64_t size
    void *segment


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    value = (value ^ value >> 32) * 0x9E3779B97F4A7C15u
    value = (value ^ value >> 32) * 0xD6E8FEB86659FD93u
    return value ^ value >> 32


cdef inline uint64_t queue_digest(int64_t epoch, bytes topic, int64_t queue_id) except? 0:
    """Python's own hashes of bytes are 64 bits under a secret of this process."""
    return mixed(mixed(<uint64_t> <Py_ssize_t> hash(topic) ^ <uint64_t> epoch) ^ <uint64_t> queue_id)


cdef inline uint64_t group_digest(const Entries *e, const uint8_t *group) noexcept nogil:
    """Never 0."""
    cdef uint32_t crc = mq_crc32c(0, group, GROUP * QUEUE_ENTRY, 1)
    return mixed(e.slot + crc) | 1


cdef void enter_group(Entries *e, const uint64_t *known) noexcept nogil:
    cdef int64_t before = <int64_t> (e.index % GROUP)
    cdef const uint8_t *group
    e.group_end = e.at + (GROUP - before) * QUEUE_ENTRY
    e.is_known = e.is_new = False
    if e.at - e.start < before * QUEUE_ENTRY or e.end < e.group_end:
        return
    group = e.at - before * QUEUE_ENTRY
    e.slot = mixed(e.queue + e.index // GROUP)
    e.digest = group_digest(e, group)
    e.is_known = known[e.slot % KNOWN_GROUPS] == e.digest
    e.is_new = before == 0 and not e.is_known


cdef void remember_group(Entries *e, uint64_t *known) noexcept nogil:
    """Cache the group that ended, unless its bytes changed meanwhile."""
    if group_digest(e, e.at - GROUP * QUEUE_ENTRY) == e.digest:
        known[e.slot % KNOWN_GROUPS] = e.digest


cdef inline bint is_whole_copy(
    const uint8_t *p, int64_t size, int64_t physical, int state, Layout *r
) noexcept nogil:
    """Whether a copy of a record is complete and no tombstone; ``state`` is the result of the
    checks of the blocks that it was copied from."""
    if parse(p, size, physical, r) != DEFECT_NONE or r.size != size:
        return False
    if get64(p + r.body_at - 12) == TOMBSTONE:
        return False
    return state == WHOLE or verify(p, r) == DEFECT_NONE


cdef inline bint is_named(
    const Entries *e, const uint8_t *p, const Named *named, int state, Layout *r
) noexcept nogil:
    """Whether the copy of a record is whole and agrees with its entry; in WHOLE blocks a known
    group of entries was found to agree before."""
    if e.is_known and state == WHOLE:
        return parse_lengths(p, named.size, r) == DEFECT_NONE and r.size == named.size
    if not is_whole_copy(p, named.size, named.physical, state, r):
        return False
    if not same(r.topic, e.topic) or <int32_t> get32(p + 12) != e.queue_id:
        return False
    return get64(p + 20) == e.index


cdef inline void pass_entry(Entries *e, int64_t size, int state) noexcept nogil:
    e.taken += size
    e.index += 1
    e.left -= 1
    e.wanted -= 1
    e.is_full = e.wanted == 0
    e.at += QUEUE_ENTRY
    if state != WHOLE:
        e.is_new = False


cdef inline void skip_entries(Entries *e, int64_t count) noexcept nogil:
    e.index += <uint64_t> count
    e.left -= count
    e.at += count * QUEUE_ENTRY


cdef inline void give_back(Entries *e, int64_t size) noexcept nogil:
    """The record that was passed last is not to be in the answer."""
    e.taken -= size
    e.wanted += 1
    e.is_full = False


@cython.final
@cython.no_gc
cdef class QueueFile:
    """A queue file while it is searched; none at first."""
    cdef Py_buffer entries
    cdef bint is_held
    cdef int64_t first
    cdef int64_t stop

    cdef int hold(self, view, int64_t index, int64_t position) except -1:
        """``position`` is that of entry ``index``."""
        self.let_go()
        PyObject_GetBuffer(view, &self.entries, PyBUF_SIMPLE)
        self.is_held = True
        check_range(position, position + QUEUE_ENTRY, self.entries.len)
        self.first = index - position // QUEUE_ENTRY
        self.stop = self.first + self.entries.len // QUEUE_ENTRY
        return 0

    cdef inline int64_t position(self, int64_t index) noexcept:
        return (index - self.first) * QUEUE_ENTRY

    cdef inline const uint8_t *entry(self, int64_t index) noexcept:
        """The entry at a queue offset of this file."""
        return <const uint8_t *> self.entries.buf + self.position(index)

    cdef void let_go(self) noexcept:
        if self.is_held:
            self.is_held = False
            self.first = self.stop = 0
            PyBuffer_Release(&self.entries)

    def __dealloc__(self):
        self.let_go()


# Results of a pull ---------------------------------------------------------------------------


cdef class LogWindow


cdef class Pulled:
    cdef public object status
    cdef public list unreadable
    cdef public int64_t next_offset
    cdef public int64_t min_offset
    cdef public int64_t max_offset

    cdef tuple fields(self):
        raise NotImplementedError

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return self.fields() == (<Pulled> other).fields()

    def __repr__(self):
        return f"{type(self).__name__}{self.fields()}"

    cpdef tuple take(
        self, LogWindow window, kind, entries, int64_t position, queue, int64_t count,
        int64_t taken, int64_t max_bytes,
    ):
        raise NotImplementedError

    def take_tagged(
        self, LogWindow window, kind, tags, entries, int64_t position, queue, int64_t most,
        int64_t count, int64_t taken, int64_t max_bytes,
    ):
        found, passed, reached, is_full = window.read_tagged(
            kind, tags, entries, position, queue.raw_topic, queue.queue_id, self.next_offset, most,
            count, taken, max_bytes,
        )
        for each in found:
            self.add(each)
        self.next_offset += passed
        return reached, is_full


cdef class Pull(Pulled):
    cdef public list records

    def __init__(
        self, status, list records not None, list unreadable not None, int64_t next_offset,
        int64_t min_offset, int64_t max_offset,
    ):
        self.status, self.records, self.unreadable = status, records, unreadable
        self.next_offset, self.min_offset, self.max_offset = next_offset, min_offset, max_offset

    cdef tuple fields(self):
        return (
            self.status, self.records, self.unreadable, self.next_offset, self.min_offset,
            self.max_offset,
        )

    def __len__(self):
        return len(self.records)

    def add(self, found not None):
        self.records.append(found)

    cpdef tuple take(
        self, LogWindow window, kind, entries, int64_t position, queue, int64_t count,
        int64_t taken, int64_t max_bytes,
    ):
        found, reached, is_full = window.records(
            kind, entries, position, queue.raw_topic, queue.queue_id, self.next_offset, count,
            taken, max_bytes,
        )
        self.records += <list> found
        self.next_offset += len(found)
        return reached, is_full


cdef class Slices(Pulled):
    cdef public list parts  # bytes
    cdef public int64_t count
    cdef readonly int64_t self_checked

    def __init__(
        self, status, list parts not None, list unreadable not None, int64_t next_offset,
        int64_t min_offset, int64_t max_offset,
    ):
        self.status, self.parts, self.unreadable = status, parts, unreadable
        self.next_offset, self.min_offset, self.max_offset = next_offset, min_offset, max_offset

    cdef tuple fields(self):
        return (
            self.status, self.parts, self.unreadable, self.next_offset, self.min_offset,
            self.max_offset,
        )

    def __len__(self):
        return self.count

    def add(self, found not None):
        self.parts.append(found.raw)
        self.count += 1
        self.self_checked += found.is_self_checked

    cpdef tuple take(
        self, LogWindow window, kind, entries, int64_t position, queue, int64_t count,
        int64_t taken, int64_t max_bytes,
    ):
        found, number, reached, is_full = window.slices(
            entries, position, queue.raw_topic, queue.queue_id, self.next_offset, count, taken,
            max_bytes,
        )
        self.parts += <list> found
        self.count += number
        self.next_offset += number
        return reached, is_full
