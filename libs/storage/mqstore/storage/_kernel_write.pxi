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


cdef inline uint8_t *put_host(uint8_t *p, Text address, object host) except NULL:
    cdef int64_t port = <object> PyTuple_GET_ITEM(host, 1)
    if not 0 <= port <= 65535:
        raise ValueError(f"port {port} is not between 0 and 65535")
    memcpy(p, address.at, address.length)
    put32(p + address.length, <uint32_t> port)
    return p + address.length + 4


cdef uint32_t put_body(uint8_t *p, Text body) noexcept nogil:
    memcpy(p, body.at, body.length)
    return mq_crc(0, body.at, body.length, 1) & CRC_MASK


cdef int64_t put_record(
    uint8_t *p,
    int64_t room,
    object message,
    int version,
    int64_t queue_offset,
    int64_t physical_offset,
    int64_t store_time,
) except -1:
    cdef object born_host = message.born_host, store_host = message.store_host
    cdef Text born = address_of(born_host), stored = address_of(store_host)
    cdef Text topic, properties, body
    cdef bytes raw_properties = message.properties, raw_body = message.body
    cdef uint32_t sys_flag = <uint32_t> <int32_t> message.sys_flag, crc = 0
    cdef int64_t size
    cdef Py_ssize_t topic_size
    cdef str topic_text = message.topic
    cdef uint8_t *q
    topic.at = <const uint8_t *> PyUnicode_AsUTF8AndSize(topic_text, &topic_size)
    if raw_properties is None:
        raise ValueError("properties are bytes, empty when there are none")
    if version not in (1, 2):
        raise ValueError(f"record version {version} is neither 1 nor 2")
    if not 0 < topic_size <= <Py_ssize_t> (TOPIC_MAX_V1 if version == 1 else TOPIC_MAX_V2):
        raise ValueError(f"a topic of {topic_size} bytes does not fit a V{version} record")
    if PyBytes_GET_SIZE(raw_properties) > PROPERTIES_MAX:
        raise ValueError(f"properties over {PROPERTIES_MAX} bytes do not fit a record")
    size = FIXED_SIZE + version - 1 + topic_size + PyBytes_GET_SIZE(raw_properties)
    size += born.length + stored.length - 8
    if raw_body is not None:
        size += PyBytes_GET_SIZE(raw_body)
    if size > room or size > INT32_MAX:
        raise ValueError(f"a record of {size} bytes does not fit the {room} bytes left")
    topic.length = <uint32_t> topic_size
    properties = text_of(raw_properties)
    body.length = 0
    if raw_body is not None:
        body = text_of(raw_body)
    sys_flag &= ~(BORN_V6 | STORE_V6)
    sys_flag |= (BORN_V6 if born.length == 16 else 0) | (STORE_V6 if stored.length == 16 else 0)

    put32(p + 12, <uint32_t> <int32_t> message.queue_id)
    put32(p + 16, <uint32_t> <int32_t> message.flag)
    put64(p + 20, <uint64_t> queue_offset)
    put64(p + 28, <uint64_t> physical_offset)
    put32(p + 36, sys_flag)
    put64(p + 40, <uint64_t> <int64_t> message.born_timestamp_ms)
    q = put_host(p + 48, born, born_host)
    put64(q, <uint64_t> store_time)
    q = put_host(q + 8, stored, store_host)
    put32(q, <uint32_t> <int32_t> message.reconsume_times)
    put64(q + 4, <uint64_t> <int64_t> message.prepared_transaction_offset)
    put32(q + 12, body.length)
    q += 16
    if body.length >= RELEASE_GIL_FROM:
        with nogil:
            crc = put_body(q, body)
    elif body.length:
        crc = put_body(q, body)
    q += body.length
    if version == 2:
        q[0] = <uint8_t> (topic.length >> 8)
        q += 1
    q[0] = <uint8_t> topic.length
    memcpy(q + 1, topic.at, topic.length)
    q += 1 + topic.length
    q[0] = <uint8_t> (properties.length >> 8)
    q[1] = <uint8_t> properties.length
    memcpy(q + 2, properties.at, properties.length)
    put32(p + 8, crc)
    release_fence()
    put32(p, <uint32_t> size)
    put32(p + 4, MAGIC_V1 if version == 1 else MAGIC_V2)
    return size


def encode_record(
    uint8_t[::1] view not None,
    int64_t position,
    message not None,
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


def encode_batch(
    uint8_t[::1] view not None,
    int64_t position,
    messages not None,
    versions not None,
    queue_offsets not None,
    int64_t physical_offset,
    int64_t store_timestamp_ms,
):
    cdef int64_t length = view.shape[0], at = position, size
    cdef list sizes = []
    check_range(position, position, length)
    for message, version, queue_offset in zip(messages, versions, queue_offsets, strict=True):
        if at == length:
            raise ValueError("a batch does not fit: no byte is left")
        size = put_record(
            &view[at],
            length - at,
            message,
            version,
            queue_offset,
            physical_offset + (at - position),
            store_timestamp_ms,
        )
        sizes.append(size)
        at += size
    return sizes


def write_blank(uint8_t[::1] view not None, int64_t position, int64_t size):
    check_range(position, position + BLANK_SIZE, view.shape[0])
    if not BLANK_SIZE <= size <= INT32_MAX:
        raise ValueError(f"a blank record cannot stand for {size} bytes")
    put32(&view[position], <uint32_t> size)
    put32(&view[position] + 4, MAGIC_BLANK)
