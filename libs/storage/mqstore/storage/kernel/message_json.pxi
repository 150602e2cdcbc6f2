# Messages as JSON ---------------------------------------------------------------------------------

# The fields of ``Message`` of the REST contract in their order. Text is UTF-8, escaped as msgspec
# escapes it. Text that Java decodes by its own rules, and bodies that are compressed or shown in
# another form, come from Python.


cdef enum:
    PROPERTIES_SHOWN = 64  # compared with those before; more are shown from a dict
    BASE36_MAX = 13  # digits of 64 bits


cdef struct Output:
    # Text that grows.
    char *base
    int64_t used
    int64_t room


cdef struct Shown:
    # The properties of a record.
    int count
    Text names[PROPERTIES_SHOWN]
    Text values[PROPERTIES_SHOWN]
    Text tags, keys, uniq_key  # NULL where there is none
    void *odd  # a dict in place of names and values, or NULL


cdef inline char *reserve(Output *out, int64_t more) except NULL:
    """Make room for ``more`` bytes; returns where they begin."""
    cdef char *base
    if out.used + more >= out.room:  # also at first
        base = <char *> realloc(out.base, 2 * (out.used + more) + 1)
        if base == NULL:
            raise MemoryError("no memory for a reply")
        out.base, out.room = base, 2 * (out.used + more) + 1
    return out.base + out.used


cdef inline int append(Output *out, Text text) except -1:
    memcpy(reserve(out, text.length), text.at, text.length)
    out.used += text.length
    return 0


cdef inline int append_byte(Output *out, char byte) except -1:
    reserve(out, 1)[0] = byte
    out.used += 1
    return 0


cdef char *add_escaped(char *to, uint8_t character) noexcept:
    cdef const char *digits = "0123456789abcdef"
    cdef uint8_t short_form = 0
    if character == c'"' or character == c"\\":
        short_form = character
    elif character == 8:
        short_form = c"b"
    elif character == 9:
        short_form = c"t"
    elif character == 10:
        short_form = c"n"
    elif character == 12:
        short_form = c"f"
    elif character == 13:
        short_form = c"r"
    to[0] = c"\\"
    if short_form:
        to[1] = <char> short_form
        return to + 2
    memcpy(to + 1, "u00", 3)
    to[4], to[5] = digits[character >> 4], digits[character & 15]
    return to + 6


cdef int append_quoted(Output *out, Text text) except -1:
    """A JSON string of UTF-8."""
    cdef char *to = reserve(out, 6 * <int64_t> text.length + 2)
    cdef int64_t at = 0, run
    to[0], to = c'"', to + 1
    while at < text.length:
        run = <int64_t> mq_json_run(text.at + at, text.length - at)
        memcpy(to, text.at + at, run)
        to, at = to + run, at + run
        if at < text.length:
            to, at = add_escaped(to, text.at[at]), at + 1
    to[0] = c'"'
    out.used = to + 1 - out.base
    return 0


cdef inline int append_optional(Output *out, Text text) except -1:
    cdef Text null
    if text.at != NULL:
        return append_quoted(out, text)
    null.at, null.length = <const uint8_t *> "null", 4
    return append(out, null)


cdef inline int append_number(Output *out, Text name, int64_t value) except -1:
    append(out, name)
    out.used = add_number(reserve(out, NUMBER_MAX), value) - out.base
    return 0


cdef int append_base64(Output *out, const uint8_t *data, int64_t size) except -1:
    cdef const char *digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef char *to = reserve(out, (size + 2) // 3 * 4 + 2)
    cdef int64_t at
    cdef uint32_t group
    to[0], to = c'"', to + 1
    for at in range(0, size, 3):
        group = <uint32_t> data[at] << 16
        group |= <uint32_t> data[at + 1] << 8 if at + 1 < size else 0
        group |= data[at + 2] if at + 2 < size else 0
        to[0], to[1] = digits[group >> 18], digits[group >> 12 & 63]
        to[2] = digits[group >> 6 & 63] if at + 1 < size else c"="
        to[3] = digits[group & 63] if at + 2 < size else c"="
        to += 4
    to[0] = c'"'
    out.used = to + 1 - out.base
    return 0


cdef int append_address(Output *out, Text name, const uint8_t *host) except -1:
    """Four bytes of address and four of port as ``address:port``."""
    cdef char *to
    cdef int i
    append(out, name)
    to = reserve(out, 5 * NUMBER_MAX + 6)
    to[0], to = c'"', to + 1
    for i in range(4):
        to = add_number(to, host[i])
        to[0], to = c"." if i < 3 else c":", to + 1
    to = add_number(to, <int32_t> get32(host + 4))
    to[0] = c'"'
    out.used = to + 1 - out.base
    return 0


cdef inline bint is_text(const uint8_t *p, int64_t size) noexcept nogil:
    """Whether bytes are UTF-8."""
    return mq_is_ascii(p, size) or is_utf8(p, p + size)


cdef bint show_properties(Text text, Shown *shown) noexcept:
    """As ``split_text``; False for malformed UTF-8, for a name that occurs twice and for many."""
    cdef const uint8_t *p = text.at
    cdef const uint8_t *end = p + text.length
    cdef const uint8_t *stop
    cdef const uint8_t *equals
    cdef Text name, value
    cdef int i
    shown.count, shown.odd = 0, NULL
    shown.tags.at = shown.keys.at = shown.uniq_key.at = NULL
    if text.length and not is_text(p, text.length):
        return False
    while p < end:
        stop = <const uint8_t *> memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        equals = <const uint8_t *> memchr(p, 1, stop - p)
        if equals != NULL and equals > p and equals + 1 < stop:
            name.at, name.length = p, <uint32_t> (equals - p)
            value.at, value.length = equals + 1, <uint32_t> (stop - equals - 1)
            if shown.count == PROPERTIES_SHOWN:
                return False
            for i in range(shown.count):
                if same(shown.names[i], name):
                    return False
            shown.names[shown.count], shown.values[shown.count] = name, value
            shown.count += 1
            if same(name, TAGS_NAME):
                shown.tags = value
            elif same(name, KEYS_NAME):
                shown.keys = value
            elif same(name, UNIQ_NAME):
                shown.uniq_key = value
        p = stop + 1
    return True


cdef int append_keys(Output *out, Text keys) except -1:
    """The keys in KEYS, which spaces separate, as a list."""
    cdef const uint8_t *p = keys.at
    cdef const uint8_t *end = p + (keys.length if keys.at != NULL else 0)
    cdef const uint8_t *stop
    cdef Text key
    cdef bint is_first = True
    append_byte(out, c"[")
    while p < end:
        stop = <const uint8_t *> memchr(p, c" ", end - p)
        if stop == NULL:
            stop = end
        if stop > p:
            if not is_first:
                append_byte(out, c",")
            key.at, key.length = p, <uint32_t> (stop - p)
            append_quoted(out, key)
            is_first = False
        p = stop + 1
    return append_byte(out, c"]")


cdef Text text_in(dict found, str name) except *:
    """NULL without that property."""
    cdef Text text
    value = found.get(name)
    text.at, text.length = NULL, 0
    return text if value is None else utf8_of(<str?> value)


cdef int show_odd_properties(dict found, Shown *shown) except -1:
    """Show decoded properties, which stay valid while ``found`` is kept."""
    shown.odd = <void *> found
    shown.uniq_key = text_in(found, UNIQ_TEXT)
    shown.tags, shown.keys = text_in(found, TAGS_TEXT), text_in(found, KEYS_TEXT)
    return 0


cdef int append_property(Output *out, Text name, Text value) except -1:
    if out.base[out.used - 1] != c"{":
        append_byte(out, c",")
    append_quoted(out, name)
    append_byte(out, c":")
    return append_quoted(out, value)


cdef int append_properties(Output *out, const Shown *shown) except -1:
    cdef int i
    append_byte(out, c"{")
    if shown.odd != NULL:
        for name, value in (<dict> shown.odd).items():
            append_property(out, utf8_of(name), utf8_of(value))
    for i in range(shown.count):
        append_property(out, shown.names[i], shown.values[i])
    return append_byte(out, c"}")


# The texts between values, in the order of a message's fields.
cdef list _message_texts = [
    b'{"topic":', b',"queueId":', b',"queueOffset":', b',"physicalOffset":', b',"size":',
    b',"offsetMsgId":"', b'","uniqKey":', b',"tags":', b',"keys":', b',"properties":',
    b',"flag":', b',"sysFlag":', b',"sysFlagNames":', b',"bornTimestamp":', b',"bornHost":',
    b',"storeTimestamp":', b',"storeHost":', b',"reconsumeTimes":',
    b',"preparedTransactionOffset":', b',"shard":', b',"bodySize":', b',"body":',
    b',"bodyBase64":',
]

cdef enum:
    M_TOPIC, M_QUEUE, M_QUEUE_OFFSET, M_OFFSET, M_SIZE, M_ID, M_UNIQ_KEY, M_TAGS, M_KEYS
    M_PROPERTIES, M_FLAG, M_SYS_FLAG, M_FLAG_NAMES, M_BORN, M_BORN_HOST, M_STORED, M_STORE_HOST
    M_RECONSUMED, M_PREPARED, M_SHARD, M_BODY_SIZE, M_BODY, M_BASE64, M_COUNT

cdef Text MESSAGE_TEXTS[M_COUNT]
cdef int _number
for _number in range(M_COUNT):
    MESSAGE_TEXTS[_number] = text_of(_message_texts[_number])

cdef bytes _receipt = b',"receipt":', _attempt = b',"deliveryAttempt":'
cdef Text RECEIPT = text_of(_receipt)
cdef Text ATTEMPT = text_of(_attempt)


@cython.final
cdef class MessageForm:
    cdef int64_t shard
    cdef type kind
    cdef object bodies, flag_names, host_text, encode_rest
    cdef int32_t named_flag
    cdef bytes names  # of ``named_flag``

    def __init__(
        self, int64_t shard, type kind not None, *, bodies, flag_names not None,
        host_text not None, encode_rest not None,
    ):
        check_kind(kind)
        self.shard, self.kind, self.bodies = shard, kind, bodies
        self.flag_names, self.host_text, self.encode_rest = flag_names, host_text, encode_rest

    cdef int append_flags(self, Output *out, int32_t sys_flag) except -1:
        if self.names is None or sys_flag != self.named_flag:
            self.named_flag, self.names = sys_flag, self.flag_names(sys_flag)
        append_number(out, MESSAGE_TEXTS[M_SYS_FLAG], sys_flag)
        append(out, MESSAGE_TEXTS[M_FLAG_NAMES])
        return append(out, text_of(self.names))

    cdef int append_message(
        self, Output *out, const uint8_t *p, const Layout *r, StoredRecord record
    ) except -1:
        """Append the message of a checked record at ``p``; ``record`` may be None."""
        cdef Shown shown
        cdef dict odd
        cdef str topic
        cdef char *to
        append(out, MESSAGE_TEXTS[M_TOPIC])
        if is_text(r.topic.at, r.topic.length):
            append_quoted(out, r.topic)
        else:
            topic = self.record_of(record, p, r).topic
            append_quoted(out, utf8_of(topic))
        if not show_properties(r.properties, &shown):
            odd = self.record_of(record, p, r).properties or {}
            shown.count = 0
            show_odd_properties(odd, &shown)
        append_number(out, MESSAGE_TEXTS[M_QUEUE], <int32_t> get32(p + 12))
        append_number(out, MESSAGE_TEXTS[M_QUEUE_OFFSET], <int64_t> get64(p + 20))
        append_number(out, MESSAGE_TEXTS[M_OFFSET], <int64_t> get64(p + 28))
        append_number(out, MESSAGE_TEXTS[M_SIZE], r.size)
        append(out, MESSAGE_TEXTS[M_ID])
        to = reserve(out, 2 * MESSAGE_ID_MAX)
        to = add_hex(to, p + r.store_time_at + 8, r.store_host_size)
        out.used = add_hex(to, p + 28, 8) - out.base
        append(out, MESSAGE_TEXTS[M_UNIQ_KEY])
        append_optional(out, shown.uniq_key)
        append(out, MESSAGE_TEXTS[M_TAGS])
        append_optional(out, shown.tags)
        append(out, MESSAGE_TEXTS[M_KEYS])
        append_keys(out, shown.keys)
        append(out, MESSAGE_TEXTS[M_PROPERTIES])
        append_properties(out, &shown)
        append_number(out, MESSAGE_TEXTS[M_FLAG], <int32_t> get32(p + 16))
        self.append_flags(out, <int32_t> r.sys_flag)
        append_number(out, MESSAGE_TEXTS[M_BORN], <int64_t> get64(p + 40))
        self.append_host(out, MESSAGE_TEXTS[M_BORN_HOST], p + 48, r.born_host_size)
        append_number(out, MESSAGE_TEXTS[M_STORED], <int64_t> get64(p + r.store_time_at))
        self.append_host(
            out, MESSAGE_TEXTS[M_STORE_HOST], p + r.store_time_at + 8, r.store_host_size
        )
        append_number(out, MESSAGE_TEXTS[M_RECONSUMED], <int32_t> get32(p + r.body_at - 16))
        append_number(out, MESSAGE_TEXTS[M_PREPARED], <int64_t> get64(p + r.body_at - 12))
        append_number(out, MESSAGE_TEXTS[M_SHARD], self.shard)
        append_number(out, MESSAGE_TEXTS[M_BODY_SIZE], r.body_size)
        return self.append_rest(out, p, r, record)

    cdef object record_of(self, StoredRecord record, const uint8_t *p, const Layout *r):
        if record is not None:
            return record
        return record_in(
            self.kind, PyBytes_FromStringAndSize(<const char *> p, r.size), 0, r, True
        )

    cdef int append_host(
        self, Output *out, Text name, const uint8_t *host, uint32_t size
    ) except -1:
        cdef str text
        if size == 8:
            return append_address(out, name, host)
        text = self.host_text(unpack_host(copy(host, size)))
        append(out, name)
        return append_quoted(out, utf8_of(text))

    cdef int append_rest(
        self, Output *out, const uint8_t *p, const Layout *r, StoredRecord record
    ) except -1:
        """Append the body, and the fields behind it."""
        cdef bytes rest
        if (
            self.bodies is None or r.sys_flag & COMPRESSED
            or record is not None and type(record) is not self.kind
        ):
            rest = self.encode_rest(self.record_of(record, p, r))
            if PyBytes_GET_SIZE(rest) > 2:
                append_byte(out, c",")
                append_part(out, rest, 1, PyBytes_GET_SIZE(rest) - 1)
        elif self.bodies:
            self.append_body(out, p + r.body_at, r.body_size)
        return append_byte(out, c"}")

    cdef int append_body(self, Output *out, const uint8_t *body, uint32_t size) except -1:
        cdef Text text
        if size and not is_text(body, size):
            append(out, MESSAGE_TEXTS[M_BASE64])
            return append_base64(out, body, size)
        text.at, text.length = body, size
        append(out, MESSAGE_TEXTS[M_BODY])
        return append_quoted(out, text)

    cdef int append_record(self, Output *out, StoredRecord record) except -1:
        cdef Layout r
        if parse(record.at, record.held(), -1, &r) != DEFECT_NONE:
            raise ValueError("a record is shown with its body")
        return self.append_message(out, record.at, &r, record)


cdef inline int append_part(Output *out, bytes text, Py_ssize_t start, Py_ssize_t stop) except -1:
    cdef Text part
    part.at, part.length = bytes_of(text) + start, <uint32_t> (stop - start)
    return append(out, part)


def messages_json(
    MessageForm form not None, list records not None, bytes before not None=b"",
    bytes behind not None=b"",
):
    cdef Output out
    cdef StoredRecord record
    cdef Py_ssize_t i
    out.base, out.used, out.room = NULL, 0, 0
    try:
        append(&out, text_of(before))
        for i in range(len(records)):
            record = records[i]
            if i:
                append_byte(&out, c",")
            form.append_record(&out, record)
        append(&out, text_of(behind))
        return PyBytes_FromStringAndSize(out.base, out.used)
    finally:
        free(out.base)


cdef inline char *add_base36(char *p, uint64_t value) noexcept:
    cdef char digits[BASE36_MAX]
    cdef int at = BASE36_MAX
    cdef int digit
    while True:
        at -= 1
        digit = <int> (value % 36)
        digits[at] = <char> (c"0" + digit if digit < 10 else c"a" + digit - 10)
        value //= 36
        if value == 0:
            break
    memcpy(p, digits + at, BASE36_MAX - at)
    return p + BASE36_MAX - at


cdef int append_delivered(
    MessageForm form, Output *out, list records, list attempts, bytes start, bytes end, bytes rest
) except -1:
    """Append messages with a comma behind each."""
    cdef StoredRecord record
    cdef Py_ssize_t i
    for i in range(len(records)):
        record = records[i]
        form.append_record(out, record)
        out.used -= 1  # the brace
        append(out, RECEIPT)
        append(out, text_of(start))
        out.used = add_base36(reserve(out, BASE36_MAX), get64(record.at + 20)) - out.base
        append(out, text_of(end))
        append_number(
            out, ATTEMPT, <int32_t> get32(record.at + record.body_at - 16) + <int64_t> attempts[i]
        )
        append(out, text_of(rest))
        append_byte(out, c",")
    return 0


def leased_json(
    MessageForm form not None, batches not None, bytes before not None, bytes behind not None
):
    cdef Output out
    cdef list records, attempts
    cdef bytes start, end, rest
    cdef int64_t begun
    out.base, out.used, out.room = NULL, 0, 0
    try:
        append(&out, text_of(before))
        begun = out.used
        for records, attempts, start, end, rest in batches:
            append_delivered(form, &out, records, attempts, start, end, rest)
        out.used -= out.used > begun  # the last comma
        append(&out, text_of(behind))
        return PyBytes_FromStringAndSize(out.base, out.used)
    finally:
        free(out.base)
