# Batches as their producers encoded them ---------------------------------------------------------
# Per message: total size 4, magic 4, body CRC 4, flag 4, body length 4, body, properties length 2,
# properties. Other batches are left to codec/batch.py, which names the defect.


cdef enum:
    BATCH_ITEM = 22  # bytes of one message beside its body and properties
    BATCH_MAX = 1 << 20  # longer ones would keep the GIL for too long


cdef struct Item:
    Text body
    Text properties
    Text uniq_key
    int64_t size  # of its record
    int32_t flag
    uint32_t tags_hash
    int32_t hashes  # how many, of those that follow one another in the batch's


cdef struct BatchPlace:  # of the first message of a batch
    int64_t queue_offset
    int64_t offset
    int64_t time


cdef inline int64_t read_item(const uint8_t *p, int64_t left, Item *item) noexcept nogil:
    """The size of the first message in so many bytes, or 0 where its parts do not add up."""
    cdef int64_t total, body, properties
    if left < BATCH_ITEM:
        return 0
    total, body = <int32_t> get32(p), <int32_t> get32(p + 16)
    if total > left or body < 0 or body > total - BATCH_ITEM:
        return 0
    properties = <int64_t> p[20 + body] << 8 | p[21 + body]
    if properties > PROPERTIES_MAX or total != BATCH_ITEM + body + properties:
        return 0
    item.flag = <int32_t> get32(p + 12)
    item.body.at, item.body.length = p + 20, <uint32_t> body
    item.properties.at, item.properties.length = p + BATCH_ITEM + body, <uint32_t> properties
    return total


cdef int64_t count_items(const uint8_t *p, int64_t size) noexcept nogil:
    """How many messages there are; 0 where they do not add up to ``size`` bytes."""
    cdef Item item
    cdef int64_t count = 0, taken
    while size > 0:
        taken = read_item(p, size, &item)
        if taken == 0:
            return 0
        p, size, count = p + taken, size - taken, count + 1
    return count


cdef bint is_printable(Text text) noexcept nogil:
    cdef uint32_t i
    for i in range(text.length):
        if not 0x20 <= text.at[i] < 0x7F:
            return False
    return True


cdef bint is_ascii(Text text) noexcept nogil:
    cdef uint32_t i
    cdef uint8_t bits = 0
    for i in range(text.length):
        bits |= text.at[i]
    return bits < 0x80


@cython.final
cdef class NameRules:
    cdef tuple kept
    cdef Text *names
    cdef int free_count, count

    def __cinit__(self, free_names not None, refused not None):
        cdef bytes name
        cdef int i = 0
        self.kept = (*free_names, *refused)
        self.free_count, self.count = len(free_names), len(self.kept)
        self.names = <Text *> calloc(max(self.count, 1), sizeof(Text))
        if self.names == NULL:
            raise MemoryError("no memory for property names")
        for name in self.kept:
            self.names[i] = text_of(name)
            i += 1

    def __dealloc__(self):
        free(self.names)

    cdef bint allow(self, Text name, Text value) noexcept nogil:
        """False where Python has to decide."""
        cdef int i
        for i in range(self.count):
            if same(self.names[i], name):
                return i < self.free_count
        return is_printable(name) and is_printable(value)

    cdef bint allow_all(self, Text properties) noexcept nogil:
        cdef Text name, value
        cdef const uint8_t *p = properties.at
        cdef const uint8_t *end = p + properties.length
        cdef const uint8_t *stop
        cdef const uint8_t *equals
        while p < end:
            stop = <const uint8_t *> memchr(p, 2, end - p)
            if stop == NULL:
                stop = end
            equals = <const uint8_t *> memchr(p, 1, stop - p)
            if equals != NULL and equals > p and equals + 1 < stop:
                name.at, name.length = p, <uint32_t> (equals - p)
                value.at, value.length = equals + 1, <uint32_t> (stop - equals - 1)
                if not self.allow(name, value):
                    return False
            p = stop + 1
        return True


@cython.final
@cython.no_gc
cdef class EncodedBatch:
    cdef readonly Message message
    cdef readonly bytes data, digests
    cdef tuple kept  # what the texts lie in
    cdef Parts shared
    cdef Item *items
    cdef Py_ssize_t count, hash_count, hash_room
    cdef uint32_t *hashes
    cdef int64_t size  # of all records

    def __dealloc__(self):
        free(self.items)
        free(self.hashes)

    def __len__(self):
        return self.count

    @property
    def keys(self):
        cdef list found = []
        cdef Py_ssize_t i
        for i in range(self.count):
            found.append(decoded(self.items[i].uniq_key))
        return found

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = self.hash_room
        cdef void *grown
        if self.hash_count + more > room:
            room = 2 * room + more
            grown = realloc(self.hashes, room * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError("no memory for a batch")
            self.hashes, self.hash_room = <uint32_t *> grown, room
        return 0

    cdef bint read(
        self, Message message, bytes data, int64_t body_max, bint index_tags, NameRules rules
    ) except -1:
        """False where the batch is not plain."""
        cdef int64_t size = PyBytes_GET_SIZE(data)
        cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef Py_ssize_t i
        self.kept = read_parts(message, &self.shared)
        self.message, self.data, self.size = message, data, 0
        self.count = count_items(p, size) if size <= min(body_max, <int64_t> BATCH_MAX) else 0
        if self.count == 0 or self.shared.sys_flag & <int32_t> TRANSACTION:
            return False
        self.items = <Item *> calloc(self.count, sizeof(Item))
        if self.items == NULL:
            raise MemoryError("no memory for a batch")
        self.reserve(4 * self.count)
        for i in range(self.count):
            p += read_item(p, size, &self.items[i])
            if not self.check(&self.items[i], body_max, index_tags, rules):
                return False
        self.digests = self.digest()
        return True

    cdef bint check(
        self, Item *item, int64_t body_max, bint index_tags, NameRules rules
    ) except -1:
        cdef Parts *m = &self.shared
        cdef Facts f
        cdef Hashes hashes
        m.body, m.properties, m.flag = item.body, item.properties, item.flag
        if not is_ordinary(m, body_max) or m.body.length >= RELEASE_GIL_FROM:
            return False
        if not read_plain_facts(m.topic, m.properties, m.sys_flag, &f):
            return False
        if f.delay or not is_ascii(f.uniq_key) or not hash_keys(&f, index_tags, &hashes):
            return False
        if rules is not None and not rules.allow_all(m.properties):
            return False
        self.reserve(hashes.count)
        memcpy(self.hashes + self.hash_count, hashes.at, hashes.count * sizeof(uint32_t))
        self.hash_count += hashes.count
        item.hashes, item.tags_hash, item.uniq_key = hashes.count, f.tags_hash, f.uniq_key
        item.size = size_of_parts(m, 1)
        self.size += item.size
        return True

    cdef bytes digest(self):
        """As ``key_digests`` of the keys."""
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, 8 * self.count)
        cdef char *at = PyBytes_AS_STRING(packed)
        cdef uint64_t of_topic = topic_digest(self.shared.topic), digest
        cdef Py_ssize_t i
        for i in range(self.count):
            digest = digest_of(of_topic, self.items[i].uniq_key)
            if self.items[i].uniq_key.length == 0:
                digest = 0
            memcpy(at + 8 * i, &digest, 8)
        return packed

    cdef list places(self, const BatchPlace *first):
        """The placements of the messages."""
        cdef list placed = []
        cdef int64_t offset = first.offset
        cdef Py_ssize_t i
        for i in range(self.count):
            placed.append(
                placement_of(
                    offset, self.items[i].size, self.shared.queue_id, first.queue_offset + i,
                    first.time, self.message.store_host,
                )
            )
            offset += self.items[i].size
        return placed

    cdef void write(
        self, uint8_t *to, QueueState *queue, IndexState *index, const BatchPlace *first
    ) noexcept:
        """Records, queue entries and, unless ``index`` is NULL, items. There is room for them."""
        cdef Parts *m = &self.shared
        cdef const uint32_t *hash = self.hashes
        cdef Item *item
        cdef int64_t offset = first.offset, time = first.time
        cdef Py_ssize_t i
        cdef int k
        for i in range(self.count):
            item = &self.items[i]
            m.body, m.properties, m.flag = item.body, item.properties, item.flag
            put_parts(to, m, 1, item.size, first.queue_offset + i, offset, time)
            put_entry(queue, offset, <uint32_t> item.size, item.tags_hash)
            for k in range(item.hashes if index != NULL else 0):
                insert(index.base, index.slots, index.index_num, hash[k], offset, time)
            to, offset, hash = to + item.size, offset + item.size, hash + item.hashes
