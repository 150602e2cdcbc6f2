# A produce request in one call --------------------------------------------------------------------


cdef enum:
    WAITS_DISK = 1  # what a reply waits for
    WAITS_REPLICA = 2
    LANE_KEYS_MAX = 256  # unique keys of a request, each of which is compared with those before


cdef class KeyTables:
    cdef public KeyTable younger, older
    cdef public object since
    cdef readonly int64_t count_max
    cdef readonly double span_s

    def __cinit__(self, *_, **__):
        self.younger, self.older = KeyTable(), KeyTable()

    def limit(self, int64_t count_max, double span_s):
        self.count_max, self.span_s = count_max, span_s

    cdef bint take_new(self, bytes digests, Py_ssize_t count) except -1:
        """Whether none of these keys is known, they all differ, and the younger table takes them;
        it then has room for them."""
        cdef const uint64_t *at = <const uint64_t *> PyBytes_AS_STRING(digests)
        cdef Py_ssize_t i, k
        if self.since is None or count > LANE_KEYS_MAX:
            return False
        if self.younger.count + count >= self.count_max:
            return False
        if mq_monotonic() - <double> self.since >= self.span_s:
            return False
        for i in range(count):
            if at[i] == 0:
                continue
            if self.younger.slot_of(at[i]).digest or self.older.slot_of(at[i]).digest:
                return False
            for k in range(i):
                if at[k] == at[i]:
                    return False
        self.younger.reserve(count)
        return True

    cdef void keep(self, bytes digests, const Records *r) noexcept:
        """Add the keys of records that were put; ``take_new`` made room for them."""
        cdef const uint64_t *at = <const uint64_t *> PyBytes_AS_STRING(digests)
        cdef int64_t offset = r.offset
        cdef Py_ssize_t i
        for i in range(r.count):
            if at[i]:
                self.younger.put(at[i], offset)
            offset += r.items[i].size


@cython.final
cdef class QueueTurns:
    cdef int64_t count

    def take(self, int64_t queues):
        cdef int64_t turn = self.count % queues
        self.count += 1
        return turn


@cython.final
@cython.no_gc  # a batch does not lead back here
cdef class StoredSend:
    cdef readonly bytes reply
    cdef readonly int64_t end
    cdef readonly int waits
    cdef EncodedBatch batch

    @property
    def keys(self):
        return self.batch.keys

    @property
    def placements(self):
        return placements_of(&self.batch.records, None, self.batch.message.store_host)


cdef bint first_ordering_key(bytes data, Text *key) noexcept:
    """The ordering key of the first message of a batch, of length 0 where it has none. False where
    there is no message."""
    cdef Parts first
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
    if read_item(p, PyBytes_GET_SIZE(data), &first) == 0:
        return False
    key[0] = property_named(first.properties, ORDERING_NAME)
    return True


@cython.final
cdef class SendLane:
    cdef LogEnd end
    cdef JsonReader reader
    cdef NameRules rules
    cdef KeyTables keys
    cdef object lock, store_host, queue_of
    cdef str topic
    cdef QueueTurns turns
    cdef int64_t shard, count_max
    cdef readonly int64_t queues
    cdef int waits, default_waits
    cdef EncodedBatch batch  # what was read and is not put
    cdef readonly object ordering_key  # of what was read
    cdef bint has_keys, is_turn
    cdef double started_s
    cdef list traffic  # messages and bytes
    cdef ValueCounts put_s, record_size

    def __init__(
        self,
        LogEnd end not None,
        JsonReader reader not None,
        NameRules rules not None,
        str topic not None,
        *,
        int64_t queues,
        QueueTurns turns not None,
        object queue_of not None,
        object store_host not None,
        KeyTables keys,
        lock,
        int64_t shard,
        int waits,
        list traffic not None,
        ValueCounts put_s not None,
        ValueCounts record_size not None,
    ):
        if queues < 1:
            raise ValueError("a topic that takes messages has a write queue or more")
        self.end, self.reader, self.rules, self.topic = end, reader, rules, topic
        self.store_host, self.keys, self.lock, self.turns = store_host, keys, lock, turns
        self.shard, self.default_waits, self.queues, self.queue_of = shard, waits, queues, queue_of
        self.count_max = reader.count_max
        self.traffic, self.put_s, self.record_size = traffic, put_s, record_size

    def read(self, bytes text not None, born_host not None):
        cdef JsonBatch request
        cdef int64_t now = self.begin()
        if not self.can_put():
            return False
        request = self.reader.read(text, now)
        if request is None:
            return False
        self.waits = self.default_waits
        if request.durability == "async":
            self.waits = 0
        elif request.durability is not None:
            self.waits |= WAITS_DISK
            if request.durability == "replicated":
                self.waits |= WAITS_REPLICA
        self.has_keys = request.has_keys
        return self.prepare(request.data, request.queue_id, born_host, now, None)

    def read_batch(
        self, bytes data not None, born_host not None, int64_t queue_id, int waits
    ):
        cdef int64_t now = self.begin()
        if not self.can_put():
            return False
        self.waits, self.has_keys = waits, False
        return self.prepare(data, queue_id, born_host, now, self.rules)

    @property
    def given_keys(self):
        return self.batch.keys if self.batch is not None and self.has_keys else []

    def put(self):
        """Keys are looked up and added under their lock, as other threads do."""
        cdef EncodedBatch batch = self.batch
        cdef Records *r
        cdef bint is_put
        self.batch = None
        if batch is None:
            return None
        r = &batch.records
        if not self.has_keys or self.keys is None:
            is_put = self.end.put_records(r, False) == PLACED
        elif not self.lock.acquire(False):
            return None
        else:
            try:
                is_put = self.keys.take_new(batch.digests, r.count)
                is_put = is_put and self.end.put_records(r, False) == PLACED
                if is_put:
                    self.keys.keep(batch.digests, r)
            finally:
                self.lock.release()
        return self.reply(batch) if is_put else None

    cdef inline int64_t begin(self) except? -1:
        self.batch = self.ordering_key = None
        self.started_s = mq_monotonic()
        return self.end.now_ms()

    cdef inline bint can_put(self):
        return self.end.system_clock and self.end.dispatch is not None

    cdef bint prepare(
        self, bytes data, int64_t queue_id, born_host, int64_t now, NameRules rules
    ) except -1:
        """Read messages in RocketMQ's encoding into ``batch``; False where they are not plain."""
        cdef EncodedBatch batch
        cdef Item *item
        cdef Message shared
        cdef Py_ssize_t i
        cdef Text ordering
        if not first_ordering_key(data, &ordering):
            return False
        self.is_turn = queue_id < 0 and ordering.length == 0
        if self.is_turn:
            queue_id = self.turns.count % self.queues
        elif ordering.length:
            if queue_id >= 0 or not is_printable(ordering):
                return False
            self.ordering_key = decoded(ordering)
            queue_id = self.queue_of(self.ordering_key, self.queues)
        if queue_id >= self.queues:
            return False
        shared = Message(self.topic, queue_id, b"", b"", born_host, self.store_host, now)
        batch = read_batch(
            shared, data, self.end.body_max, self.end.dispatch.index_tags, rules
        )
        if batch is None or batch.records.count > self.count_max:
            return False
        for i in range(batch.records.count):
            item = &batch.records.items[i]
            if not is_plain_json(item.uniq_key):
                return False
            if not same(property_named(item.parts.properties, ORDERING_NAME), ordering):
                return False
            if rules is not None and item.uniq_key.length:
                self.has_keys = True  # its client gave it
        self.batch = batch
        return True

    cdef object reply(self, EncodedBatch batch):
        """Count an append, and return its reply."""
        cdef StoredSend sent
        cdef Records *r = &batch.records
        cdef bytes reply = batch_json(r, self.shard)
        if self.is_turn:
            self.turns.count += 1
        self.traffic[0] += r.count
        self.traffic[1] += r.size
        self.put_s.note(mq_monotonic() - self.started_s)
        self.record_size.note(<double> r.size / <double> r.count)
        if not self.waits:
            return reply
        sent = StoredSend.__new__(StoredSend)
        sent.reply, sent.batch = reply, batch
        sent.waits = self.waits
        sent.end = r.offset + r.size
        return sent
