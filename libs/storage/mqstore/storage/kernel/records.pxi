# Records to put ---------------------------------------------------------------------------------
# The normal form of everything that is put: adjacent records, each with what dispatch writes of it.


cdef enum:
    BATCH_ITEM = 22  # bytes of one message, in RocketMQ's encoding, beside its body and properties


cdef struct Item:
    Parts parts
    Text uniq_key
    int64_t size
    int64_t queue_offset  # once it is put
    int32_t place  # of its queue; -1: it is not numbered
    int32_t version
    uint32_t tags_hash
    int32_t hashes  # how many, of those that follow one another in the batch's


cdef struct PutQueue:
    # A queue of a batch's records.
    PyObject *queue  # (topic, queue id), borrowed
    int64_t count
    int64_t first
    int64_t next
    QueueState *entries


cdef struct Records:
    # Adjacent records: all of them are put, or none.
    Item *items
    PutQueue *places
    uint32_t *hashes
    Py_ssize_t count, place_count, hash_count
    int64_t size
    int64_t offset  # once they are put
    int64_t time
    bint is_plain  # dispatch needs nothing but ``items`` and ``hashes``
    bint is_large  # the GIL is released while they are written


cdef inline void begin_records(Records *r, Item *items, PutQueue *places, uint32_t *hashes) noexcept:
    r.items, r.places, r.hashes = items, places, hashes
    r.count = r.place_count = r.hash_count = 0
    r.size = 0
    r.is_plain, r.is_large = True, False


cdef inline bint is_numbered(const Parts *m) noexcept nogil:
    cdef uint32_t transaction = <uint32_t> m.sys_flag & TRANSACTION
    return transaction == 0 or transaction == COMMITTED


cdef inline void add_record(
    Records *r, int32_t place, int version, const Facts *f, bint is_plain, const Hashes *hashes
) noexcept:
    """Add the item behind the last one, whose ``parts`` are set; ``r.hashes`` has room for its."""
    cdef Item *item = &r.items[r.count]
    item.place = place if is_numbered(&item.parts) else -1
    item.version, item.size = version, size_of_parts(&item.parts, version)
    item.tags_hash, item.uniq_key, item.hashes = f.tags_hash, f.uniq_key, 0
    if not is_plain or item.place < 0:
        r.is_plain = False
    elif r.is_plain:
        item.hashes = hashes.count
        memcpy(r.hashes + r.hash_count, hashes.at, hashes.count * sizeof(uint32_t))
        r.hash_count += hashes.count
    if item.place >= 0:
        r.places[place].count += 1
    r.is_large = r.is_large or item.parts.body.length >= RELEASE_GIL_FROM
    r.size += item.size
    r.count += 1


cdef inline void begin_place(PutQueue *place, tuple queue) noexcept:
    place.queue, place.count, place.entries = <PyObject *> queue, 0, NULL


cdef bint read_record_facts(
    const Parts *m, bint index_tags, Facts *f, Hashes *hashes
) noexcept nogil:
    """Read what dispatch writes of a record; False where the dispatcher has to read the record."""
    hashes.count = 0
    if not read_plain_facts(m.topic, m.properties, <uint32_t> m.sys_flag, f) or f.delay:
        return False
    return hash_keys(f, index_tags, hashes)


cdef bint is_ordinary(const Parts *m, int64_t body_max) noexcept nogil:
    """A record that is surely taken: V1, with whole properties."""
    if m.queue_id < 0 or m.body.length > body_max:
        return False
    if not m.ascii or m.topic.length > TOPIC_MAX_V1:
        return False
    if m.properties.length == 0:
        return True
    return (
        memchr(m.properties.at, 1, m.properties.length) != NULL
        and memchr(m.properties.at, 0, m.properties.length) == NULL
        and not has_record_crc(m.properties.at + m.properties.length, m.properties.length)
    )


cdef list placements_of(const Records *r, list kept, object host):
    """The places of records that were put; the store's host is ``host``, or in ``kept``."""
    cdef list placed = []
    cdef int64_t offset = r.offset
    cdef const Item *item
    cdef Py_ssize_t i
    for i in range(r.count):
        item = &r.items[i]
        placed.append(
            placement_of(
                offset, item.size, item.parts.queue_id, item.queue_offset, r.time,
                (<tuple> kept[i])[4] if host is None else host,
            )
        )
        offset += item.size
    return placed


@cython.final
@cython.no_gc  # texts, numbers and hosts: nothing that leads back here
cdef class EncodedBatch:
    cdef readonly Message message
    cdef readonly bytes data, digests
    cdef Records records
    cdef list kept  # what the texts lie in: a tuple for each message, or for all
    cdef list queues
    cdef Py_ssize_t hash_room

    def __dealloc__(self):
        free(self.records.items)
        free(self.records.places)
        free(self.records.hashes)

    def __len__(self):
        return self.records.count

    @property
    def size(self):
        return self.records.size

    @property
    def keys(self):
        cdef list found = []
        cdef Py_ssize_t i
        for i in range(self.records.count):
            found.append(decoded(self.records.items[i].uniq_key))
        return found

    @property
    def counts(self):
        cdef dict found = {}
        cdef Py_ssize_t i
        for i in range(self.records.place_count):
            found[self.queues[i]] = self.records.places[i].count
        return found

    cdef int begin(self, Py_ssize_t count, Py_ssize_t queues) except -1:
        """Make room for so many records, of at most so many queues."""
        begin_records(&self.records, NULL, NULL, NULL)
        self.kept, self.queues, self.hash_room = [], [], 0
        self.records.items = <Item *> malloc(count * sizeof(Item))
        self.records.places = <PutQueue *> malloc(queues * sizeof(PutQueue))
        if self.records.items == NULL or self.records.places == NULL:
            raise MemoryError("no memory for a batch")
        return self.reserve(4 * count)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Records *r = &self.records
        cdef Py_ssize_t room = self.hash_room
        cdef void *grown
        if r.hash_count + more > room:
            room = 2 * room + more
            grown = realloc(r.hashes, room * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError("no memory for a batch")
            r.hashes, self.hash_room = <uint32_t *> grown, room
        return 0

    cdef int32_t add_place(self, tuple queue) except -1:
        self.queues.append(queue)
        begin_place(&self.records.places[self.records.place_count], queue)
        self.records.place_count += 1
        return <int32_t> self.records.place_count - 1

    cdef bint take(
        self, list messages, list versions, bint as_batch, int64_t body_max, bint index_tags
    ) except -1:
        """Encode messages; without ``versions``, False where one may have to be refused."""
        cdef Records *r = &self.records
        cdef Facts facts
        cdef Hashes hashes
        cdef Parts *m
        cdef Py_ssize_t count = len(messages), i
        cdef int64_t left = body_max
        cdef int32_t place = -1
        cdef dict places = {}
        cdef tuple kept
        cdef str topic = None
        cdef int32_t queue_id = -1
        cdef int version = 1
        cdef bint is_plain
        self.begin(max(count, 1), max(count, 1))
        for i in range(count):
            m = &r.items[i].parts
            kept = read_parts(<Message?> messages[i], m)
            self.kept.append(kept)
            if versions is not None:
                version = versions[i]
                if version == 1 and m.topic.length > TOPIC_MAX_V1:
                    raise ValueError(f"a topic of {m.topic.length} bytes does not fit a V1 record")
            elif not is_ordinary(m, body_max):
                return False
            if is_numbered(m) and (m.queue_id != queue_id or kept[0] is not topic):
                topic, queue_id = kept[0], m.queue_id
                found = places.get((topic, queue_id))
                if found is None:
                    found = self.add_place((topic, queue_id))
                    places[self.queues[found]] = found
                place = found
            if as_batch:
                if r.place_count > 1:
                    return False
                left -= BATCH_ITEM + m.body.length + m.properties.length
                if left < 0 or m.sys_flag & <int32_t> TRANSACTION:
                    return False
            is_plain = read_record_facts(m, index_tags, &facts, &hashes)
            self.reserve(hashes.count)
            add_record(r, place, version, &facts, is_plain, &hashes)
        return count > 0
