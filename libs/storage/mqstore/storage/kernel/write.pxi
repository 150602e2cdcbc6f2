# Messages and their placements -----------------------------------------------------------------


@cython.final
@cython.freelist(64)
@cython.no_gc  # texts, numbers and hosts: nothing that leads back here
cdef class Message:
    cdef public object topic, queue_id, body, properties, born_host, store_host, born_timestamp_ms
    cdef public object flag, sys_flag, reconsume_times, prepared_transaction_offset

    def __init__(
        self, topic, queue_id, body, properties, born_host, store_host, born_timestamp_ms,
        flag=0, sys_flag=0, reconsume_times=0, prepared_transaction_offset=0,
    ):
        self.topic, self.queue_id, self.body, self.properties = topic, queue_id, body, properties
        self.born_host, self.store_host = born_host, store_host
        self.born_timestamp_ms = born_timestamp_ms
        self.flag, self.sys_flag, self.reconsume_times = flag, sys_flag, reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset

    @property
    def has_delay(self):
        cdef const char *at
        cdef const char *end
        if not isinstance(self.properties, bytes):
            return False
        at = PyBytes_AS_STRING(self.properties)
        end = at + PyBytes_GET_SIZE(self.properties)
        while end - at >= DELAY_PROPERTY.length:
            if memcmp(at, DELAY_PROPERTY.at, DELAY_PROPERTY.length) == 0:
                return True
            if end - at >= DELIVER_PROPERTY.length:
                if memcmp(at, DELIVER_PROPERTY.at, DELIVER_PROPERTY.length) == 0:
                    return True
            at = <const char *> memchr(at, 2, end - at)
            if at == NULL:
                return False
            at += 1
        return False

    cdef tuple fields(self):
        return (
            self.topic, self.queue_id, self.body, self.properties, self.born_host,
            self.store_host, self.born_timestamp_ms, self.flag, self.sys_flag,
            self.reconsume_times, self.prepared_transaction_offset,
        )

    def replace(self, **changes):
        copied = Message(*self.fields())
        for name, value in changes.items():
            setattr(copied, name, value)
        return copied

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        return self.fields() == (<Message> other).fields()

    def __repr__(self):
        return f"Message{self.fields()}"


@cython.freelist(64)
@cython.no_gc
cdef class Placement:
    cdef readonly int64_t physical_offset, size, queue_id, queue_offset, store_timestamp_ms
    cdef readonly object store_host

    def __init__(
        self, int64_t physical_offset, int64_t size, int64_t queue_id, int64_t queue_offset,
        int64_t store_timestamp_ms, store_host,
    ):
        self.physical_offset, self.size = physical_offset, size
        self.queue_id, self.queue_offset = queue_id, queue_offset
        self.store_timestamp_ms, self.store_host = store_timestamp_ms, store_host

    @property
    def end(self):
        return self.physical_offset + self.size

    @property
    def offset_message_id(self):
        return encode_message_id(self.store_host, self.physical_offset)

    cdef tuple fields(self):
        return (
            self.physical_offset, self.size, self.queue_id, self.queue_offset,
            self.store_timestamp_ms, self.store_host,
        )

    def __eq__(self, other):
        if not isinstance(other, Placement):
            return NotImplemented
        return self.fields() == (<Placement> other).fields()

    def __repr__(self):
        return f"Placement{self.fields()}"


cdef inline Placement placement_of(
    int64_t offset, int64_t size, int64_t queue_id, int64_t queue_offset, int64_t time, object host
):
    cdef Placement placement = Placement.__new__(Placement)
    placement.physical_offset, placement.size = offset, size
    placement.queue_id, placement.queue_offset = queue_id, queue_offset
    placement.store_timestamp_ms, placement.store_host = time, host
    return placement


# Writing records -----------------------------------------------------------------------------


cdef inline Text address_of(object host) except *:
    """The 4 or 16 address bytes of a Host."""
    cdef object address
    if not PyTuple_Check(host) or PyTuple_GET_SIZE(host) != 2:
        raise ValueError("a host is an address and a port")
    address = <object> PyTuple_GET_ITEM(host, 0)
    if not isinstance(address, bytes) or PyBytes_GET_SIZE(address) not in (4, 16):
        raise ValueError("a host's address has 4 or 16 bytes")
    return text_of(address)


cdef inline uint32_t port_of(object host) except? 65536:
    cdef int64_t port = <object> PyTuple_GET_ITEM(host, 1)
    if not 0 <= port <= 65535:
        raise ValueError(f"port {port} is not between 0 and 65535")
    return <uint32_t> port


cdef inline uint8_t *put_host(uint8_t *p, Text address, uint32_t port) noexcept nogil:
    memcpy(p, address.at, address.length)
    put32(p + address.length, port)
    return p + address.length + 4


cdef uint32_t put_body(uint8_t *p, Text body) noexcept nogil:
    memcpy(p, body.at, body.length)
    return mq_crc(0, body.at, body.length, 1) & CRC_MASK


cdef struct Parts:
    # A message in C, checked. What read_parts returned keeps its texts alive.
    Text topic
    Text properties
    Text body
    Text born
    Text stored
    uint32_t born_port
    uint32_t stored_port
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int64_t born_time
    int64_t prepared
    bint ascii  # the topic; its length is then also that in characters


cdef tuple read_parts(Message message, Parts *m):
    """``take_apart``, and the objects that its texts lie in, the topic first."""
    cdef tuple kept = (
        message.topic, message.properties, message.body, message.born_host, message.store_host
    )
    take_apart(message, kept[0], kept[1], kept[2], kept[3], kept[4], m)
    return kept


cdef int take_apart(
    Message message, str topic, bytes properties, bytes body, object born, object stored, Parts *m
) except -1:
    """The caller holds the texts while ``m`` is used. ValueError, TypeError, OverflowError for a
    message that no record can hold."""
    cdef Py_ssize_t topic_size
    m.topic.at = <const uint8_t *> PyUnicode_AsUTF8AndSize(topic, &topic_size)
    if not 0 < topic_size <= <Py_ssize_t> TOPIC_MAX_V2:
        raise ValueError(f"a topic of {topic_size} bytes does not fit a record")
    m.topic.length = <uint32_t> topic_size
    m.ascii = topic_size == len(topic)
    if properties is None:
        raise ValueError("properties are bytes, empty when there are none")
    if PyBytes_GET_SIZE(properties) > PROPERTIES_MAX:
        raise ValueError(f"properties over {PROPERTIES_MAX} bytes do not fit a record")
    m.properties = text_of(properties)
    m.body.length = 0
    if body is not None:
        if PyBytes_GET_SIZE(body) > INT32_MAX:
            raise ValueError("a body over 2 GiB does not fit a record")
        m.body = text_of(body)
    m.born, m.stored = address_of(born), address_of(stored)
    m.born_port, m.stored_port = port_of(born), port_of(stored)
    m.queue_id = message.queue_id
    m.flag = message.flag
    m.sys_flag = message.sys_flag
    m.reconsume_times = message.reconsume_times
    m.born_time = message.born_timestamp_ms
    m.prepared = message.prepared_transaction_offset
    return 0


cdef inline int64_t size_of_parts(const Parts *m, int version) noexcept nogil:
    return (
        FIXED_SIZE + version - 1 + m.topic.length + m.properties.length + m.body.length
        + m.born.length + m.stored.length - 8
    )


cdef void put_parts(
    uint8_t *p,
    const Parts *m,
    int version,
    int64_t size,
    int64_t queue_offset,
    int64_t physical_offset,
    int64_t store_time,
) noexcept:
    """Write a record of ``size`` bytes; cannot fail."""
    cdef uint32_t sys_flag = <uint32_t> m.sys_flag & ~(BORN_V6 | STORE_V6), crc = 0
    cdef uint8_t *q
    sys_flag |= (BORN_V6 if m.born.length == 16 else 0) | (STORE_V6 if m.stored.length == 16 else 0)
    put32(p + 12, <uint32_t> m.queue_id)
    put32(p + 16, <uint32_t> m.flag)
    put64(p + 20, <uint64_t> queue_offset)
    put64(p + 28, <uint64_t> physical_offset)
    put32(p + 36, sys_flag)
    put64(p + 40, <uint64_t> m.born_time)
    q = put_host(p + 48, m.born, m.born_port)
    put64(q, <uint64_t> store_time)
    q = put_host(q + 8, m.stored, m.stored_port)
    put32(q, <uint32_t> m.reconsume_times)
    put64(q + 4, <uint64_t> m.prepared)
    put32(q + 12, m.body.length)
    q += 16
    if m.body.length >= RELEASE_GIL_FROM:
        with nogil:
            crc = put_body(q, m.body)
    elif m.body.length:
        crc = put_body(q, m.body)
    q += m.body.length
    if version == 2:
        q[0] = <uint8_t> (m.topic.length >> 8)
        q += 1
    q[0] = <uint8_t> m.topic.length
    memcpy(q + 1, m.topic.at, m.topic.length)
    q += 1 + m.topic.length
    q[0] = <uint8_t> (m.properties.length >> 8)
    q[1] = <uint8_t> m.properties.length
    memcpy(q + 2, m.properties.at, m.properties.length)
    put32(p + 8, crc)
    release_fence()
    put32(p, <uint32_t> size)
    put32(p + 4, MAGIC_V1 if version == 1 else MAGIC_V2)


cdef int64_t put_record(
    uint8_t *p,
    int64_t room,
    Message message,
    int version,
    int64_t queue_offset,
    int64_t physical_offset,
    int64_t store_time,
) except -1:
    """All decisions come before the first write."""
    cdef Parts m
    cdef int64_t size
    cdef tuple kept = read_parts(message, &m)
    if version not in (1, 2):
        raise ValueError(f"record version {version} is neither 1 nor 2")
    if version == 1 and m.topic.length > TOPIC_MAX_V1:
        raise ValueError(f"a topic of {m.topic.length} bytes does not fit a V1 record")
    size = size_of_parts(&m, version)
    if size > room or size > INT32_MAX:
        raise ValueError(f"a record of {size} bytes does not fit the {room} bytes left")
    put_parts(p, &m, version, size, queue_offset, physical_offset, store_time)
    return size


def encode_record(
    uint8_t[::1] view not None,
    int64_t position,
    Message message not None,
    int version,
    int64_t queue_offset,
    int64_t physical_offset,
    int64_t store_timestamp_ms,
):
    cdef int64_t length = view.shape[0]
    if not 0 <= position < length:
        raise ValueError(f"position {position} is outside a view of {length} bytes")
    return put_record(
        &view[position],
        length - position,
        message,
        version,
        queue_offset,
        physical_offset,
        store_timestamp_ms,
    )


def write_blank(uint8_t[::1] view not None, int64_t position, int64_t size):
    check_range(position, position + BLANK_SIZE, view.shape[0])
    if not BLANK_SIZE <= size <= INT32_MAX:
        raise ValueError(f"a blank record cannot stand for {size} bytes")
    put32(&view[position], <uint32_t> size)
    put32(&view[position] + 4, MAGIC_BLANK)
