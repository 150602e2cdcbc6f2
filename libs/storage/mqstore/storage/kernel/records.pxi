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
                (<tuple> kept[i if len(kept) > 1 else 0])[4] if host is None else host,
            )
        )
        offset += item.size
    return placed


cdef str java_text(Text text):
    """A text of properties, as Java decodes it."""
    found = decoded(text)
    if found is None:
        from mqstore.storage.codec.java_text import decode_utf8  # which imports the kernel

        found = decode_utf8(copy(text.at, text.length))
    return found


@cython.final
@cython.no_gc  # texts, numbers, hosts and messages of requests: nothing that leads back here
cdef class EncodedBatch:
    cdef readonly bytes digests
    cdef readonly list ordering
    cdef readonly bint has_delay
    cdef bint has_keys, has_plain_keys, has_further_queues, is_batch, index_tags
    cdef Records records
    cdef list kept  # topic, properties, body, hosts: a tuple for each message, or for all
    cdef list held  # what the texts lie in besides
    cdef list given_keys
    cdef list queues
    cdef dict places  # their numbers
    cdef Py_ssize_t room, hash_room
    cdef uint8_t *made  # properties
    cdef int64_t made_size, made_room

    def __dealloc__(self):
        free(self.records.items)
        free(self.records.places)
        free(self.records.hashes)
        free(self.made)

    def __len__(self):
        return self.records.count

    @property
    def topic(self):
        return (<tuple> self.kept[0])[0]

    @property
    def size(self):
        return self.records.size

    @property
    def end(self):
        return self.records.offset + self.records.size

    @property
    def placements(self):
        return placements_of(&self.records, self.kept, None)

    @property
    def is_changed(self):
        if self.is_batch:
            return False
        return self.has_delay or (self.has_further_queues and self.records.count == 1)

    @property
    def keys(self):
        return [java_text(self.records.items[i].uniq_key) for i in range(self.records.count)]

    @property
    def given(self):
        if self.given_keys is None and self.has_keys:
            self.given_keys = [key or None for key in self.keys]
        return self.given_keys

    @property
    def counts(self):
        return {queue: self.records.places[i].count for i, queue in enumerate(self.queues)}

    def messages(self):
        cdef list found = []
        cdef const Parts *m
        cdef tuple kept
        cdef Py_ssize_t i
        for i in range(self.records.count):
            m = &self.records.items[i].parts
            kept = self.kept[i if len(self.kept) > 1 else 0]
            found.append(
                Message(
                    kept[0], m.queue_id, copy(m.body.at, m.body.length),
                    copy(m.properties.at, m.properties.length), kept[3], kept[4], m.born_time,
                    m.flag, m.sys_flag, m.reconsume_times, m.prepared,
                )
            )
        return found

    def only(self, list numbers not None):
        cdef EncodedBatch part = EncodedBatch.__new__(EncodedBatch)
        cdef const Item *item
        cdef Py_ssize_t number
        cdef int32_t place
        part.begin(len(numbers), len(numbers))
        part.held.append(self)
        part.is_batch, part.has_plain_keys = self.is_batch, self.has_plain_keys
        for number in numbers:
            item = &self.records.items[number]
            part.kept.append(self.kept[number if len(self.kept) > 1 else 0])
            place = -1
            if item.place >= 0:
                place = part.place_of(self.queues[item.place][0], item.parts.queue_id)
            part.records.items[part.records.count].parts = item.parts
            part.add(place, item.version, self.index_tags)
        if self.ordering is not None:
            part.ordering = [self.ordering[number] for number in numbers]
        if self.given is not None:
            part.name_all([self.given[number] for number in numbers])
        return part

    def name_all(self, keys not None):
        self.given_keys = list(keys)
        self.has_keys = any(self.given_keys)
        self.read_digests()

    cdef int name(self, Py_ssize_t number, str key) except -1:
        """Note the unique key that the client gave a message."""
        if self.given_keys is None:
            self.given_keys = [None] * self.room
        self.given_keys[number], self.has_keys = key, True
        return 0

    cdef int begin(self, Py_ssize_t count, Py_ssize_t queues) except -1:
        """Make room for so many records, of at most so many queues."""
        begin_records(&self.records, NULL, NULL, NULL)
        self.kept, self.held, self.queues, self.places = [], [], [], {}
        self.hash_room, self.room = 0, count
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

    cdef uint8_t *room_for(self, int64_t more) except NULL:
        """Where properties of at most so many bytes are written."""
        cdef void *grown
        if self.made_size + more > self.made_room:
            grown = realloc(self.made, 2 * self.made_room + more)
            if grown == NULL:
                raise MemoryError("no memory for properties")
            self.made, self.made_room = <uint8_t *> grown, 2 * self.made_room + more
        return self.made + self.made_size

    cdef int put_key(self, Parts *m, Text key) except -1:
        """Give a message this unique key; ``m.properties`` are read once all are made."""
        cdef int64_t size = UNIQ_NAME.length + 1 + <int64_t> key.length
        cdef uint8_t *start = self.room_for(size + 1 + m.properties.length)
        cdef uint8_t *p = put_property(start, UNIQ_NAME, key)
        p = put_text(p, m.properties) if m.properties.length else p - 1
        m.properties.at, m.properties.length = NULL, <uint32_t> (p - start)
        self.made_size += p - start
        return 0

    cdef int32_t place_of(self, str topic, int32_t queue_id) except -1:
        """The number of a queue's place, which is added where it is new."""
        cdef tuple queue = (topic, queue_id)
        found = self.places.get(queue)
        if found is None:
            found = self.places[queue] = self.records.place_count
            self.queues.append(queue)
            begin_place(&self.records.places[self.records.place_count], queue)
            self.records.place_count += 1
        return found

    cdef int add(self, int32_t place, int version, bint index_tags) except -1:
        """Add the record behind the last one, whose parts are set."""
        cdef Facts facts
        cdef Hashes hashes
        cdef bint is_plain = read_record_facts(
            &self.records.items[self.records.count].parts, index_tags, &facts, &hashes
        )
        self.index_tags = index_tags
        self.has_delay = self.has_delay or facts.delay
        self.has_further_queues = self.has_further_queues or facts.multi_dispatch
        self.reserve(hashes.count)
        add_record(&self.records, place, version, &facts, is_plain, &hashes)
        return 0

    cdef int store_as(self, list versions) except -1:
        """Store the records in these versions, for which they were checked."""
        cdef Item *item
        cdef Py_ssize_t i
        self.records.size = 0
        for i in range(self.records.count):
            item = &self.records.items[i]
            item.version = versions[i]
            item.size = size_of_parts(&item.parts, item.version)
            self.records.size += item.size
        return 0

    cdef int read_digests(self) except -1:
        """As ``key_digests`` of the given keys, where there are any."""
        cdef const Records *r = &self.records
        cdef uint64_t of_topic, digest
        cdef Py_ssize_t i
        cdef Text key
        cdef char *at
        if self.given_keys is None:
            for i in range(r.count):
                self.has_keys = self.has_keys or r.items[i].uniq_key.length > 0
        if not self.has_keys:
            return 0
        of_topic = topic_digest(r.items[0].parts.topic)
        self.digests = PyBytes_FromStringAndSize(NULL, 8 * r.count)
        at = PyBytes_AS_STRING(self.digests)
        for i in range(r.count):
            key = r.items[i].uniq_key
            if self.given_keys is not None:
                key = utf8_of(self.given_keys[i] or "")
            digest = digest_of(of_topic, key) if key.length else 0
            memcpy(at + 8 * i, &digest, 8)
        return 0

    cdef bint take(
        self, list messages, list versions, bint as_batch, int64_t body_max, bint index_tags
    ) except -1:
        """Encode messages; without ``versions``, False where one may have to be refused."""
        cdef Records *r = &self.records
        cdef Parts *m
        cdef Py_ssize_t count = len(messages), i
        cdef int64_t left = body_max
        cdef int32_t place = -1, queue_id = -1
        cdef tuple kept
        cdef str topic = None
        cdef int version = 1
        self.is_batch = as_batch
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
                place = self.place_of(topic, queue_id)
            if as_batch:
                if r.place_count > 1:
                    return False
                left -= BATCH_ITEM + m.body.length + m.properties.length
                if left < 0 or m.sys_flag & <int32_t> TRANSACTION:
                    return False
            self.add(place, version, index_tags)
        return count > 0
