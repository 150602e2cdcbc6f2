# Requests to send ---------------------------------------------------------------------------------
# The messages of a request in their normal form, ``EncodedBatch``. What may have to be refused is
# shown to ``checks``, in Python, which raise the error; the form of what passes is made here alone.


cdef enum:
    REQUEST_KEYS_MAX = 256  # unique keys of a request, each of which is compared with those before
    MADE_KEY_SIZE = 32  # characters of a unique key that this store generates

cdef object a2b_base64 = binascii.a2b_base64


cdef inline uint8_t *put_text(uint8_t *to, Text text) noexcept nogil:
    memcpy(to, text.at, text.length)
    return to + text.length


cdef inline uint8_t *put_property(uint8_t *to, Text name, Text value) noexcept nogil:
    """A property and the separator behind it."""
    to = put_text(to, name)
    to[0] = 1
    to = put_text(to + 1, value)
    to[0] = 2
    return to + 1


@cython.final
cdef class GeneratedKeys:
    cdef bytes prefix
    cdef int64_t begin_ms, end_ms
    cdef uint32_t count

    def __cinit__(self, bytes prefix not None):
        if PyBytes_GET_SIZE(prefix) != MADE_KEY_SIZE - 12:
            raise ValueError(f"a prefix has {MADE_KEY_SIZE - 12} characters")
        self.prefix = prefix

    def begin_month(self, int64_t begin_ms, int64_t end_ms):
        self.begin_ms, self.end_ms = begin_ms, end_ms

    def next(self, int64_t now_ms):
        cdef uint8_t key[MADE_KEY_SIZE]
        if not self.begin_ms <= now_ms < self.end_ms:
            return None
        self.write(key, now_ms)
        return PyUnicode_DecodeUTF8(<char *> key, MADE_KEY_SIZE, NULL)

    cdef bint write(self, uint8_t *to, int64_t now_ms) noexcept:
        """False where the month is another one."""
        cdef uint8_t numbers[6]
        if not self.begin_ms <= now_ms < self.end_ms:
            return False
        put32(numbers, <uint32_t> (now_ms - self.begin_ms))
        numbers[4], numbers[5] = <uint8_t> (self.count >> 8), <uint8_t> self.count
        self.count += 1
        memcpy(to, PyBytes_AS_STRING(self.prefix), MADE_KEY_SIZE - 12)
        add_hex(<char *> to + MADE_KEY_SIZE - 12, numbers, 6)
        return True


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
        if self.since is None or count > REQUEST_KEYS_MAX:
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


cdef inline bint is_plain_tag(Text tag) noexcept nogil:
    """Whether a filter can select a tag, without a closer look at a ``|``."""
    if tag.length == 0 or tag.at[0] == c" " or tag.at[tag.length - 1] == c" ":
        return False
    return memchr(tag.at, c"|", tag.length) == NULL and is_printable(tag)


cdef inline bint is_plain_key(Text key) noexcept nogil:
    return key.length > 0 and is_printable(key) and memchr(key.at, c" ", key.length) == NULL


cdef struct Made:
    # What the properties of a message are made of, beside the user's.
    Text uniq_key, tags, ordering_key, delay
    int64_t size  # at most, of all
    bint is_sure  # nothing has to be checked in Python


cdef class PropertyWriter:
    """Makes properties and bodies of messages in JSON, which msgspec decoded."""
    cdef NameRules rules
    cdef bint trailing

    cdef int64_t measure(self, object message, Made *made) except -1:
        """Add up and check texts; ``made`` has the unique key."""
        cdef Text name, value
        cdef dict properties = message.properties
        cdef list keys = message.keys
        cdef object tags = message.tags
        made.size += made.uniq_key.length + 10
        for key, text in properties.items():
            name, value = utf8_of(key), utf8_of(text)
            made.size += <int64_t> name.length + value.length + 2
            if name.length == 0 or value.length == 0 or not self.rules.allow(name, value):
                made.is_sure = False
        made.size += 6
        for key in keys:
            name = utf8_of(key)
            made.size += <int64_t> name.length + 1
            made.is_sure = made.is_sure and is_plain_key(name)
        made.tags.length = 0
        if tags is not None:
            made.tags = utf8_of(tags)
            made.size += <int64_t> made.tags.length + 6
            made.is_sure = made.is_sure and (made.tags.length == 0 or is_plain_tag(made.tags))
        return 0

    cdef uint8_t *write(self, uint8_t *to, object message, const Made *made):
        """Write the user's properties, KEYS, UNIQ_KEY, TAGS, the ordering key and the delay."""
        cdef dict properties = message.properties
        cdef list keys = message.keys
        for key, text in properties.items():
            to = put_property(to, utf8_of(key), utf8_of(text))
        if keys:
            to = put_text(to, KEYS_NAME)
            to[0] = 1
            to += 1
            for key in keys:
                to = put_text(to, utf8_of(key))
                to[0] = c" "
                to += 1
            (to - 1)[0] = 2
        to = put_property(to, UNIQ_NAME, made.uniq_key)
        if made.tags.length:
            to = put_property(to, TAGS_NAME, made.tags)
        if made.ordering_key.length:
            to = put_property(to, ORDERING_NAME, made.ordering_key)
        if made.delay.length:
            to = put_text(to, made.delay)
            to[0] = 2
            to += 1
        return to if self.trailing else to - 1


@cython.final
cdef class Sends(PropertyWriter):
    cdef LogEnd end
    cdef NameRules encoded_rules
    cdef GeneratedKeys generated
    cdef QueueTurns turns
    cdef str topic
    cdef object checks, keys, queue_of, store_host, dedup, quote
    cdef int64_t queues, shard, count_max
    cdef KeyTables tables
    cdef list traffic  # messages and bytes
    cdef ValueCounts put_s, record_size
    cdef Parts shared  # by messages of this born host
    cdef object born_host, shared_texts

    def __init__(
        self,
        LogEnd end not None,
        str topic not None,
        *,
        checks not None,
        keys not None,
        NameRules rules not None,
        NameRules encoded_rules not None,
        bint trailing_separator,
        int64_t count_max,
        int64_t queues,
        QueueTurns turns not None,
        queue_of not None,
        store_host not None,
        dedup,
        int64_t shard,
        quote not None,
        list traffic not None,
        ValueCounts put_s not None,
        ValueCounts record_size not None,
    ):
        if queues < 1:
            raise ValueError("a topic that takes messages has a write queue or more")
        self.end, self.topic, self.checks, self.keys = end, topic, checks, keys
        self.generated, self.rules, self.encoded_rules = keys.generated, rules, encoded_rules
        self.trailing, self.count_max, self.queues = trailing_separator, count_max, queues
        self.turns, self.queue_of, self.store_host = turns, queue_of, store_host
        self.dedup, self.shard, self.quote = dedup, shard, quote
        self.traffic, self.put_s, self.record_size = traffic, put_s, record_size

    def read(self, list messages not None, born_host not None):
        cdef EncodedBatch batch = EncodedBatch.__new__(EncodedBatch)
        cdef int64_t now = self.end.now_ms(), queue_id = self.queue_for(messages)
        cdef Py_ssize_t count = len(messages), i
        self.begin(batch, count, born_host, now)
        batch.held.append(messages)
        for i in range(count):
            self.take_message(batch, i, messages[i], <int32_t> queue_id, now)
        return self.finish(batch, count, False)

    def read_batch(
        self, bytes data not None, born_host not None, int64_t queue_id=-1, keys_of=None
    ):
        cdef EncodedBatch batch = EncodedBatch.__new__(EncodedBatch)
        cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = p + PyBytes_GET_SIZE(data)
        cdef Py_ssize_t count = count_items(p, end - p), i
        cdef list keys
        cdef Parts *m
        cdef Text ordering
        cdef bint takes_turn = False
        if count == 0:
            self.checks.malformed(data)
        if not 0 < count <= self.count_max:
            self.checks.count(count)
        if queue_id >= self.queues:
            self.checks.queue(queue_id, self.queues)
        self.begin(batch, count, born_host, self.end.now_ms())
        batch.held.append(data)
        keys = None if keys_of is None else keys_of(count)
        for i in range(count):
            m = &batch.records.items[i].parts
            m[0] = batch.records.items[0].parts
            m.queue_id = <int32_t> queue_id
            p += read_item(p, end - p, m)
            if not self.allows(m.properties):
                self.checks.encoded(i, copy(m.properties.at, m.properties.length))
            ordering = property_named(m.properties, ORDERING_NAME)
            if ordering.length:
                if queue_id >= 0:
                    self.checks.both_named(i)
                m.queue_id = self.take_order(batch, i, java_text(ordering))
            elif queue_id < 0:
                takes_turn = True
            if keys is not None and property_named(m.properties, UNIQ_NAME).length == 0:
                batch.put_key(m, utf8_of(keys[i]))
        if takes_turn:
            queue_id = self.turns.take(self.queues)
            for i in range(count):
                m = &batch.records.items[i].parts
                if m.queue_id < 0:
                    m.queue_id = <int32_t> queue_id
        return self.finish(batch, count, True)

    def put(self, EncodedBatch batch not None):
        cdef double started_s = mq_monotonic()
        cdef Records *r = &batch.records
        cdef int reason
        if batch.has_keys and self.dedup is not None:
            reason = self.put_new(batch)
        else:
            reason = self.end.put_records(r, False)
        if reason != PLACED:
            return REASONS[reason]
        self.traffic[0] += r.count
        self.traffic[1] += r.size
        self.put_s.note(mq_monotonic() - started_s)
        self.record_size.note(<double> r.size / <double> r.count)
        if batch.has_plain_keys:
            return batch_json(r, self.shard)
        text = placements_json(batch.placements, batch.keys, self.shard, (), self.quote)
        return b'{"messages":%b}' % text

    cdef int put_new(self, EncodedBatch batch) except -1:
        """Put under unique keys, which are looked up and added under their lock, as other threads
        do."""
        cdef int reason = KEY_KNOWN
        if self.tables is None:
            self.tables = self.dedup.tables
        if self.tables is None or not self.end.system_clock or not self.dedup.lock.acquire(False):
            return KEY_KNOWN
        try:
            if self.tables.take_new(batch.digests, batch.records.count):
                reason = self.end.put_records(&batch.records, False)
            if reason == PLACED:
                self.tables.keep(batch.digests, &batch.records)
        finally:
            self.dedup.lock.release()
        return reason

    cdef int begin(self, EncodedBatch batch, Py_ssize_t count, born_host, int64_t now) except -1:
        """The first item's parts are those that all messages share."""
        cdef Parts *shared
        cdef Parts made
        batch.begin(count, count)
        if born_host is not self.born_host:
            kept = read_parts(Message(self.topic, 0, b"", b"", born_host, self.store_host, 0), &made)
            self.shared, self.shared_texts, self.born_host = made, kept, born_host
        shared = &batch.records.items[0].parts
        shared[0] = self.shared
        shared.born_time = now
        batch.kept.append(self.shared_texts)
        return 0

    cdef bint allows(self, Text properties) noexcept nogil:
        if properties.length and memchr(properties.at, 0, properties.length) != NULL:
            return False
        return self.encoded_rules.allow_all(properties)

    cdef int64_t queue_for(self, list messages) except -1:
        """The queue of the messages without an ordering key."""
        cdef int64_t named = -1
        cdef bint takes_turn = False
        for message in messages:
            queue_id = message.queue_id
            if queue_id is None:
                takes_turn = takes_turn or message.ordering_key is None
                continue
            if message.ordering_key is not None or named >= 0 and queue_id != named:
                self.checks.queues(messages)
            named = queue_id
        if named >= self.queues:
            self.checks.queue(named, self.queues)
        if named >= 0:
            return named
        return self.turns.take(self.queues) if takes_turn else 0

    cdef int32_t take_order(self, EncodedBatch batch, Py_ssize_t number, str key) except -1:
        """The queue of a message with an ordering key."""
        if batch.ordering is None:
            batch.ordering = [None] * batch.room
        batch.ordering[number] = key
        return self.queue_of(key, self.queues)

    cdef int take_message(
        self, EncodedBatch batch, Py_ssize_t number, object message, int32_t queue_id, int64_t now
    ) except -1:
        cdef Parts *m = &batch.records.items[number].parts
        cdef uint8_t generated[MADE_KEY_SIZE]
        cdef uint8_t *start
        cdef Made made
        cdef object key = message.uniq_key, ordering = message.ordering_key, body = message.body
        cdef object encoded = message.body_base64, crc = message.crc32c, delay = None
        m[0] = batch.records.items[0].parts
        m.queue_id, m.flag = queue_id, message.flag
        made.size, made.is_sure, made.ordering_key.length, made.delay.length = 0, True, 0, 0
        if key is not None:
            made.uniq_key = utf8_of(key)
            made.is_sure = is_plain_key(made.uniq_key)
            batch.name(number, key)
        elif self.generated.write(generated, now):
            made.uniq_key.at, made.uniq_key.length = generated, MADE_KEY_SIZE
        else:
            key = self.keys.next()
            made.uniq_key = utf8_of(key)
        if ordering is not None:
            made.ordering_key = utf8_of(ordering)
            made.size += <int64_t> made.ordering_key.length + ORDERING_NAME.length + 2
            made.is_sure = made.is_sure and is_printable(made.ordering_key)
            m.queue_id = self.take_order(batch, number, ordering)
        m.body.length = 0
        if encoded is not None:
            made.is_sure = made.is_sure and body is None
            try:
                body = a2b_base64(encoded, strict_mode=True)
            except ValueError:
                body, made.is_sure = b"", False
            batch.held.append(body)
            m.body = text_of(body)
        elif body is not None:
            m.body = utf8_of(body)
        if crc is not None:
            made.is_sure = made.is_sure and (
                mq_crc32c(0, m.body.at, m.body.length, 1) == <uint32_t> crc
            )
        if message.delay_level or message.deliver_at is not None or message.delay_s is not None:
            made.is_sure = False
        self.measure(message, &made)
        if not made.is_sure:
            body, delay = self.checks.message(number, message, java_text(made.uniq_key), now)
            batch.held.append(body)
            m.body, made.delay = text_of(body), text_of(delay)
            made.size += made.delay.length + 1
        start = batch.room_for(made.size)
        m.properties.at = NULL  # until ``finish``: the memory may move
        m.properties.length = <uint32_t> (self.write(start, message, &made) - start)
        batch.made_size += m.properties.length
        return 0

    cdef EncodedBatch finish(self, EncodedBatch batch, Py_ssize_t count, bint names_keys):
        """Add the messages whose parts are read. ``names_keys``: each unique key that they have is
        its client's; else only those that are noted are, and the others were generated here."""
        cdef Records *r = &batch.records
        cdef const uint8_t *made = batch.made
        cdef Parts *m
        cdef int64_t body_max = self.end.body_max, size = 0
        cdef int32_t place = -1, queue_id = -1
        cdef Py_ssize_t i
        cdef bint index_tags = self.end.index_tags(), is_ordinary_batch = True
        batch.has_plain_keys = True
        for i in range(count):
            m = &r.items[i].parts
            if m.properties.at == NULL:
                m.properties.at = made
                made += m.properties.length
            if m.queue_id != queue_id:
                queue_id = m.queue_id
                place = batch.place_of(self.topic, queue_id)
            size += BATCH_ITEM + <int64_t> m.body.length + m.properties.length
            if not is_ordinary(m, body_max) or m.properties.length > PROPERTIES_MAX:
                is_ordinary_batch = False
            batch.add(place, 1, index_tags)
            batch.has_plain_keys = batch.has_plain_keys and is_plain_json(r.items[i].uniq_key)
        batch.is_batch = count > 1 and not batch.has_delay and batch.ordering is None
        if not is_ordinary_batch or count > 1 and size > body_max:
            batch.store_as(self.checks.limits(batch.messages()))
        if names_keys or batch.given_keys is not None:
            batch.read_digests()
        return batch
