# A produce request in one call --------------------------------------------------------------------


cdef enum:
    BOUNDS_MAX = 32
    LANE_KEYS_MAX = 64  # unique keys of a request, each of which is compared with those before


@cython.final
cdef class ValueCounts:
    cdef object histogram  # of Python, which the lane adds to as its ``observe`` does
    cdef list counts
    cdef int bound_count
    cdef double bounds[BOUNDS_MAX]

    def __init__(self, histogram not None):
        cdef int i
        self.histogram, self.counts = histogram, histogram.counts
        if not len(histogram.bounds) == len(self.counts) - 1 <= BOUNDS_MAX:
            raise ValueError(f"a histogram has one count more than bounds, of at most {BOUNDS_MAX}")
        self.bound_count = <int> len(histogram.bounds)
        for i in range(self.bound_count):
            self.bounds[i] = histogram.bounds[i]

    cdef int observe(self, double value) except -1:
        cdef int i = 0
        while i < self.bound_count and self.bounds[i] < value:
            i += 1
        self.counts[i] += 1
        self.histogram.total += value
        return 0


cdef class KeyTables:
    cdef public KeyTable younger, older
    cdef public object since
    cdef readonly int64_t count_max
    cdef readonly double span_s

    def __cinit__(self, *_, **__):
        self.younger, self.older = KeyTable(), KeyTable()

    def limit(self, int64_t count_max, double span_s):
        self.count_max, self.span_s = count_max, span_s

    cdef bint is_new(self, bytes digests, Py_ssize_t count) except -1:
        """Whether none of these keys is known, they all differ, and the younger table takes them."""
        cdef const uint64_t *at = <const uint64_t *> PyBytes_AS_STRING(digests)
        cdef Py_ssize_t i, k
        if self.since is None or count > LANE_KEYS_MAX:
            return False
        if self.younger.count + count >= self.count_max:
            return False
        if mq_monotonic() - <double> self.since >= self.span_s:
            return False
        for i in range(count):
            if self.younger.slot_of(at[i]).digest or self.older.slot_of(at[i]).digest:
                return False
            for k in range(i):
                if at[k] == at[i]:
                    return False
        return True

    cdef int keep(self, bytes digests, list placed) except -1:
        cdef const uint64_t *at = <const uint64_t *> PyBytes_AS_STRING(digests)
        cdef Py_ssize_t i
        self.younger.reserve(len(placed))
        for i in range(len(placed)):
            self.younger.put(at[i], (<Placement> placed[i]).physical_offset)
        return 0


@cython.final
cdef class QueueTurns:
    cdef int64_t count

    def take(self, int64_t queues):
        cdef int64_t turn = self.count % queues
        self.count += 1
        return turn


@cython.final
cdef class SendLane:
    cdef LogEnd end
    cdef JsonReader reader
    cdef KeyTables keys
    cdef object lock, quote, store_host
    cdef str topic
    cdef QueueTurns turns
    cdef int64_t shard
    cdef readonly int64_t queues
    cdef bint is_sync
    cdef EncodedBatch batch  # what was read and is not put
    cdef bint has_keys, is_turn, waits
    cdef double started_s
    cdef list traffic  # messages and bytes
    cdef ValueCounts put_s, record_size

    def __init__(
        self,
        LogEnd end not None,
        JsonReader reader not None,
        str topic not None,
        *,
        int64_t queues,
        QueueTurns turns not None,
        object store_host not None,
        KeyTables keys,
        lock,
        int64_t shard,
        bint is_sync,
        quote,
        list traffic not None,
        put_s,
        record_size,
    ):
        if queues < 1:
            raise ValueError("a topic that takes messages has a write queue or more")
        self.end, self.reader, self.topic, self.queues = end, reader, topic, queues
        self.store_host, self.keys, self.lock, self.turns = store_host, keys, lock, turns
        self.shard, self.is_sync, self.quote = shard, is_sync, quote
        self.traffic = traffic
        self.put_s, self.record_size = ValueCounts(put_s), ValueCounts(record_size)

    def send(self, bytes text not None, born_host not None):
        return self.store() if self.prepare(text, born_host) else None

    def read(self, bytes text not None, born_host not None):
        if not self.prepare(text, born_host):
            return None
        return self.batch.keys if self.has_keys else []

    def put(self):
        return None if self.batch is None else self.store()

    cdef bint prepare(self, bytes text, born_host) except -1:
        """Read a request into ``batch``; False for one that is not plain."""
        cdef int64_t now = self.end.now_ms(), queue_id
        cdef JsonBatch request
        cdef EncodedBatch batch
        cdef Message shared
        self.batch = None
        self.started_s = mq_monotonic()
        if not self.end.system_clock or self.end.dispatch is None:
            return False
        request = self.reader.read(text, now)
        if request is None:
            return False
        self.waits = self.is_sync if request.durability is None else request.durability == "sync"
        self.has_keys, self.is_turn = request.has_keys, request.queue_id < 0
        queue_id = self.turns.count % self.queues if self.is_turn else request.queue_id
        if queue_id >= self.queues:
            return False
        shared = Message(self.topic, queue_id, b"", b"", born_host, self.store_host, now)
        batch = EncodedBatch.__new__(EncodedBatch)
        if batch.read(
            shared, request.data, self.end.body_max, self.end.dispatch.index_tags, None
        ):
            self.batch = batch
        return self.batch is not None

    cdef object store(self):
        """Put what was read. Keys are looked up and added under their lock, as other threads do."""
        cdef EncodedBatch batch = self.batch
        cdef list placed
        self.batch = None
        if not self.has_keys or self.keys is None:
            placed = self.end.put_batch(batch)
        elif not self.lock.acquire(False):
            return None
        else:
            try:
                placed = self.put_once(batch)
            finally:
                self.lock.release()
        if placed is None:
            return None
        if self.is_turn:
            self.turns.count += 1
        self.note(batch)
        reply = b'{"messages":%b}' % placements_json(
            placed, batch.keys, self.shard, None, self.quote
        )
        return (reply, batch.keys, placed) if self.waits else reply

    cdef list put_once(self, EncodedBatch batch):
        """Put a batch none of whose keys is known; else None."""
        cdef list placed
        if not self.keys.is_new(batch.digests, batch.count):
            return None
        placed = self.end.put_batch(batch)
        if placed is not None:
            self.keys.keep(batch.digests, placed)
        return placed

    cdef int note(self, EncodedBatch batch) except -1:
        """Count an append."""
        self.traffic[0] += batch.count
        self.traffic[1] += batch.size
        self.put_s.observe(mq_monotonic() - self.started_s)
        self.record_size.observe(<double> batch.size / <double> batch.count)
        return 0
