# Produce requests in JSON -----------------------------------------------------------------------
# The plain form of the model ``ProduceRequest`` (mqstore.wire.produce). What is not plain, an error
# for one, is left to the decoder of the model, which has the reply to it.


cdef enum:
    JSON_PROPERTIES_MAX = 16  # user properties of a message; each is compared with those before
    JSON_KEYS_MAX = 16
    ORDERING_KEY_MAX = 255  # characters, as ``NewMessage`` has it


cdef struct Scan:
    const uint8_t *p
    const uint8_t *end


cdef struct JsonText:
    Text raw  # between the quotes
    bint given, escaped, ascii


cdef struct JsonMessage:
    JsonText body, base64, tags, uniq_key, ordering_key
    JsonText keys[16]
    JsonText names[16]
    JsonText values[16]
    int key_count, property_count
    int64_t queue_id, flag, crc32c  # queue_id and crc32c: -1 where they are not given
    uint32_t fields  # a bit for each field that was read


cdef enum JsonField:
    FIELD_BODY = 1
    FIELD_BASE64 = 2
    FIELD_TAGS = 4
    FIELD_KEYS = 8
    FIELD_PROPERTIES = 16
    FIELD_QUEUE = 32
    FIELD_FLAG = 64
    FIELD_DELAY = 128
    FIELD_UNIQ_KEY = 256
    FIELD_CRC32C = 512
    FIELD_ORDERING_KEY = 1024


cdef inline uint8_t skip_space(Scan *s) noexcept nogil:
    """The next character that is no white space, or 0 at the end; it is not taken."""
    while s.p < s.end and (s.p[0] == c" " or s.p[0] == 10 or s.p[0] == 13 or s.p[0] == 9):
        s.p += 1
    return s.p[0] if s.p < s.end else 0


cdef inline bint take(Scan *s, uint8_t character) noexcept nogil:
    """Whether this character is the next one; it is taken then."""
    if skip_space(s) != character:
        return False
    s.p += 1
    return True


cdef inline int next_item(Scan *s, uint8_t close) noexcept nogil:
    """1 behind a comma, 0 behind the closing bracket, -1 for anything else."""
    cdef uint8_t character = skip_space(s)
    s.p += 1
    if character == c",":
        return 1
    return 0 if character == close else -1


cdef bint scan_text(Scan *s, JsonText *text) noexcept nogil:
    """A string; its escapes and its UTF-8 are not looked at."""
    cdef const uint8_t *p
    cdef uint8_t bits = 0
    if not take(s, c'"'):
        return False
    p = s.p
    text.escaped = False
    while p < s.end and p[0] != c'"':
        if p[0] < 0x20:
            return False
        if p[0] == c"\\":
            text.escaped = True
            p += 1
            if p == s.end:
                return False
        bits |= p[0]
        p += 1
    if p >= s.end:
        return False
    text.raw.at, text.raw.length = s.p, <uint32_t> (p - s.p)
    text.given, text.ascii = True, bits < 0x80
    s.p = p + 1
    return True


cdef inline bint is_plain_text(const JsonText *text) noexcept nogil:
    """Whether a name, tag or key stands there as it is stored, and needs no closer look."""
    return not text.escaped and text.raw.length > 0 and is_printable(text.raw)


cdef inline bint is_plain_tag(Text tag) noexcept nogil:
    """Whether a filter can select a tag of at least one byte, without a closer look at a ``|``."""
    if tag.at[0] == c" " or tag.at[tag.length - 1] == c" ":
        return False
    return memchr(tag.at, c"|", tag.length) == NULL


cdef bint scan_number(Scan *s, int64_t low, int64_t high, int64_t *value) noexcept nogil:
    """A whole number of at most ten digits."""
    cdef int64_t found = 0
    cdef int digits = 0
    cdef bint negative = False
    if skip_space(s) == c"-":
        negative = True
        s.p += 1
    while s.p < s.end and c"0" <= s.p[0] <= c"9":
        if digits == 10 or (digits == 1 and found == 0):
            return False
        found = 10 * found + (s.p[0] - c"0")
        digits += 1
        s.p += 1
    if digits == 0 or (negative and found == 0) or (s.p < s.end and (s.p[0] == c"." or s.p[0] == c"e" or s.p[0] == c"E")):
        return False
    value[0] = -found if negative else found
    return low <= value[0] <= high


cdef inline bint is_name(Text name, const char *expected, size_t length) noexcept nogil:
    return name.length == length and memcmp(name.at, expected, length) == 0


cdef uint32_t field_of(Text name) noexcept nogil:
    """The field of ``NewMessage`` that has this name, or 0."""
    if is_name(name, "body", 4):
        return FIELD_BODY
    if is_name(name, "uniqKey", 7):
        return FIELD_UNIQ_KEY
    if is_name(name, "crc32c", 6):
        return FIELD_CRC32C
    if is_name(name, "tags", 4):
        return FIELD_TAGS
    if is_name(name, "keys", 4):
        return FIELD_KEYS
    if is_name(name, "properties", 10):
        return FIELD_PROPERTIES
    if is_name(name, "bodyBase64", 10):
        return FIELD_BASE64
    if is_name(name, "queueId", 7):
        return FIELD_QUEUE
    if is_name(name, "flag", 4):
        return FIELD_FLAG
    if is_name(name, "delayLevel", 10):
        return FIELD_DELAY
    if is_name(name, "orderingKey", 11):
        return FIELD_ORDERING_KEY
    return 0


cdef bint scan_keys(Scan *s, JsonMessage *m) noexcept nogil:
    cdef int more = 1
    cdef JsonText *key
    if not take(s, c"["):
        return False
    if skip_space(s) == c"]":
        s.p += 1
        return True
    while more == 1:
        if m.key_count == JSON_KEYS_MAX:
            return False
        key = &m.keys[m.key_count]
        if not scan_text(s, key) or not is_plain_text(key):
            return False
        if memchr(key.raw.at, c" ", key.raw.length) != NULL:
            return False
        m.key_count += 1
        more = next_item(s, c"]")
    return more == 0


cdef bint scan_properties(Scan *s, JsonMessage *m, NameRules rules) noexcept nogil:
    cdef int more = 1, i
    cdef JsonText *name
    cdef JsonText *value
    if not take(s, c"{"):
        return False
    if skip_space(s) == c"}":
        s.p += 1
        return True
    while more == 1:
        if m.property_count == JSON_PROPERTIES_MAX:
            return False
        name, value = &m.names[m.property_count], &m.values[m.property_count]
        if not scan_text(s, name) or not take(s, c":") or not scan_text(s, value):
            return False
        if not is_plain_text(name) or not is_plain_text(value):
            return False
        if not rules.allow(name.raw, value.raw):
            return False
        for i in range(m.property_count):
            if same(m.names[i].raw, name.raw):
                return False
        m.property_count += 1
        more = next_item(s, c"}")
    return more == 0


cdef bint scan_field(Scan *s, JsonMessage *m, NameRules rules) noexcept nogil:
    cdef JsonText name
    cdef uint32_t field
    cdef int64_t delay = 0
    if not scan_text(s, &name) or not take(s, c":"):
        return False
    field = field_of(name.raw)
    if field == 0 or m.fields & field:
        return False
    m.fields |= field
    if field == FIELD_BODY:
        return scan_text(s, &m.body)
    if field == FIELD_BASE64:
        return scan_text(s, &m.base64) and not m.base64.escaped
    if field == FIELD_TAGS:
        return scan_text(s, &m.tags) and is_plain_text(&m.tags) and is_plain_tag(m.tags.raw)
    if field == FIELD_UNIQ_KEY:
        return (
            scan_text(s, &m.uniq_key)
            and is_plain_text(&m.uniq_key)
            and memchr(m.uniq_key.raw.at, c" ", m.uniq_key.raw.length) == NULL
        )
    if field == FIELD_ORDERING_KEY:
        return (
            scan_text(s, &m.ordering_key)
            and is_plain_text(&m.ordering_key)
            and m.ordering_key.raw.length <= ORDERING_KEY_MAX
        )
    if field == FIELD_KEYS:
        return scan_keys(s, m)
    if field == FIELD_PROPERTIES:
        return scan_properties(s, m, rules)
    if field == FIELD_QUEUE:
        return scan_number(s, 0, INT32_MAX, &m.queue_id)
    if field == FIELD_FLAG:
        return scan_number(s, INT32_MIN, INT32_MAX, &m.flag)
    if field == FIELD_CRC32C:
        return scan_number(s, 0, 0xFFFFFFFF, &m.crc32c)
    return scan_number(s, 0, 0, &delay)


cdef bint scan_message(Scan *s, JsonMessage *m, NameRules rules) noexcept nogil:
    cdef int more = 1
    m.body.given = m.base64.given = m.tags.given = m.uniq_key.given = False
    m.ordering_key.given = False
    m.key_count = m.property_count = 0
    m.queue_id, m.flag, m.crc32c, m.fields = -1, 0, -1, 0
    if not take(s, c"{"):
        return False
    if skip_space(s) == c"}":
        s.p += 1
        return True
    while more == 1:
        if not scan_field(s, m, rules):
            return False
        more = next_item(s, c"}")
    return more == 0 and not (m.body.given and m.base64.given)


# Bodies ------------------------------------------------------------------------------------------


cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """As RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF."""
    cdef int more
    cdef uint8_t low, high
    while p < end:
        if p[0] < 0x80:
            p += 1
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= p[0] <= 0xDF:
            more = 1
        elif 0xE0 <= p[0] <= 0xEF:
            more = 2
            low = 0xA0 if p[0] == 0xE0 else 0x80
            high = 0x9F if p[0] == 0xED else 0xBF
        elif 0xF0 <= p[0] <= 0xF4:
            more = 3
            low = 0x90 if p[0] == 0xF0 else 0x80
            high = 0x8F if p[0] == 0xF4 else 0xBF
        else:
            return False
        if end - p <= more or not low <= p[1] <= high:
            return False
        p += 2
        more -= 1
        while more:
            if p[0] & 0xC0 != 0x80:
                return False
            p, more = p + 1, more - 1
    return True


cdef inline int hex_digit(uint8_t character) noexcept nogil:
    if c"0" <= character <= c"9":
        return character - c"0"
    character |= 0x20
    return character - c"a" + 10 if c"a" <= character <= c"f" else -1


cdef int32_t hex_unit(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The UTF-16 unit of four digits, or -1."""
    cdef int32_t unit = 0
    cdef int i, digit
    if end - p < 4:
        return -1
    for i in range(4):
        digit = hex_digit(p[i])
        if digit < 0:
            return -1
        unit = unit << 4 | digit
    return unit


cdef uint8_t *put_utf8(uint8_t *to, uint32_t code) noexcept nogil:
    if code < 0x80:
        to[0] = <uint8_t> code
        return to + 1
    if code < 0x800:
        to[0], to[1] = <uint8_t> (0xC0 | code >> 6), <uint8_t> (0x80 | code & 0x3F)
        return to + 2
    if code < 0x10000:
        to[0], to[1] = <uint8_t> (0xE0 | code >> 12), <uint8_t> (0x80 | code >> 6 & 0x3F)
        to[2] = <uint8_t> (0x80 | code & 0x3F)
        return to + 3
    to[0], to[1] = <uint8_t> (0xF0 | code >> 18), <uint8_t> (0x80 | code >> 12 & 0x3F)
    to[2], to[3] = <uint8_t> (0x80 | code >> 6 & 0x3F), <uint8_t> (0x80 | code & 0x3F)
    return to + 4


cdef inline uint8_t short_escape(uint8_t character) noexcept nogil:
    """What a backslash and this character stand for, or 0."""
    if character == c"n":
        return 10
    if character == c'"' or character == c"\\" or character == c"/":
        return character
    if character == c"t":
        return 9
    if character == c"r":
        return 13
    if character == c"b":
        return 8
    return 12 if character == c"f" else 0


cdef int64_t put_unescaped(uint8_t *to, Text raw) noexcept nogil:
    """Write a string with escapes, which is no longer then; its size, or -1."""
    cdef const uint8_t *p = raw.at
    cdef const uint8_t *end = p + raw.length
    cdef uint8_t *base = to
    cdef int32_t unit, low
    while p < end:
        if p[0] != c"\\":
            to[0], p, to = p[0], p + 1, to + 1
            continue
        if p[1] != c"u":
            to[0] = short_escape(p[1])
            if to[0] == 0:
                return -1
            p, to = p + 2, to + 1
            continue
        unit = hex_unit(p + 2, end)
        if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
            return -1
        p += 6
        if 0xD800 <= unit <= 0xDBFF:
            if end - p < 6 or p[0] != c"\\" or p[1] != c"u":
                return -1
            low = hex_unit(p + 2, end)
            if not 0xDC00 <= low <= 0xDFFF:
                return -1
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
            p += 6
        to = put_utf8(to, <uint32_t> unit)
    return to - base


cdef inline int base64_digit(uint8_t character) noexcept nogil:
    if c"A" <= character <= c"Z":
        return character - c"A"
    if c"a" <= character <= c"z":
        return character - c"a" + 26
    if c"0" <= character <= c"9":
        return character - c"0" + 52
    if character == c"+":
        return 62
    return 63 if character == c"/" else -1


cdef int64_t put_base64(uint8_t *to, Text raw) noexcept nogil:
    """Write what standard base64 with its padding stands for; its size, or -1."""
    cdef const uint8_t *p = raw.at
    cdef uint32_t left = raw.length, group
    cdef uint8_t *base = to
    cdef int digit, i, padding = 0
    if left % 4:
        return -1
    if left and p[left - 1] == c"=":
        padding = 2 if p[left - 2] == c"=" else 1
    while left:
        group = 0
        for i in range(4):
            digit = 0 if left == 4 and i >= 4 - padding else base64_digit(p[i])
            if digit < 0:
                return -1
            group = group << 6 | <uint32_t> digit
        p, left = p + 4, left - 4
        to[0], to[1], to[2] = <uint8_t> (group >> 16), <uint8_t> (group >> 8), <uint8_t> group
        to += 3
    return to - base - padding


cdef int64_t put_json_body(uint8_t *to, const JsonMessage *m) noexcept nogil:
    """Write a message's body; its size, or -1 for what is not plain."""
    cdef int64_t size = 0
    if m.base64.given:
        size = put_base64(to, m.base64.raw)
    elif m.body.given:
        if not m.body.ascii and not is_utf8(m.body.raw.at, m.body.raw.at + m.body.raw.length):
            return -1
        if m.body.escaped:
            size = put_unescaped(to, m.body.raw)
        else:
            size = m.body.raw.length
            memcpy(to, m.body.raw.at, m.body.raw.length)
    if size >= 0 and m.crc32c >= 0 and mq_crc32c(0, to, size, 1) != <uint32_t> m.crc32c:
        return -1
    return size
