# A pull in one call -------------------------------------------------------------------------------


cdef enum:
    QUEUE_FILES_MAX = 5  # of one queue, for readers at different places of it
    ARRIVED_MAX = 10_000  # entries by which the end of a queue moves in one call
    FIELDS_MAX = 512  # bytes of the header fields of a reply that have numbers


LANE_COUNT_MAX = <int> RUN_MOST


cdef QueueFile holding(list files, int64_t index):
    cdef QueueFile file
    for file in files:
        if file.first <= index < file.stop:
            return file
    return None


@cython.final
cdef class PulledQueue:
    cdef LogWindow window
    cdef list files  # replaced, never changed
    cdef Moment moment  # of the bounds
    cdef int64_t low, high
    cdef bytes topic
    cdef int64_t queue_id

    def __init__(self, LogWindow window not None, bytes topic not None, int64_t queue_id):
        self.window, self.topic, self.queue_id, self.files = window, topic, queue_id, []
        self.moment.epoch = self.moment.minimum = -1

    def forget(self):
        self.files = []

    def release(self, int64_t first):
        cdef QueueFile file
        if self.moment.epoch == self.window.epoch:
            self.files = [file for file in self.files if file.first >= first]
        else:
            self.files = []

    def aim(self, queue not None, int64_t offset):
        cdef Moment moment
        cdef QueueFile file
        cdef int64_t low, high, index
        if not self.window.enter(&moment):
            return
        files = list(self.files) if self.moment.epoch == moment.epoch else []
        if (
            self.moment.minimum == moment.minimum and holding(files, offset) is not None
            and holding(files, self.high) is not None
        ):
            return
        high = queue.max_index
        low = min(<int64_t> queue.min_index, high)
        for index in (low, offset, high - 1, high):
            place = queue.block(index) if holding(files, index) is None else None
            if place is not None:
                file = QueueFile.__new__(QueueFile)
                file.hold(place[0], index, place[1])
                files.append(file)
        self.low, self.high, self.moment = low, high, moment
        self.files = files[-QUEUE_FILES_MAX:]
        self.leave_out_coming()
        if not self.window.is_at(&moment):
            self.forget()  # its files may be deleted ones

    cdef bint enter(self, Moment *moment) except -1:
        """Begin a read, with the bounds as they are now; False where these are unknown without
        ``aim``."""
        cdef double now_s = mq_monotonic()
        if not self.window.enter(moment):
            self.window.renew()
            if not self.window.enter(moment):
                return False
        if self.moment.epoch != moment.epoch:
            return False
        if self.moment.minimum != moment.minimum:
            if not self.find_start(moment.minimum, now_s):
                return False
            self.moment = moment[0]
        return self.find_end(now_s)

    cdef bint find_start(self, int64_t minimum, double now_s) except -1:
        """Move the start to the first entry at or above the log's minimum; False where it is
        unknown without ``aim``."""
        cdef int64_t low = self.low, high = self.high, middle = self.low
        cdef QueueFile file
        cdef const uint8_t *entry
        while low < high:
            file = holding(self.files, middle)
            if file is None:
                return False
            entry = file.entry(middle)
            if not is_recently_in_memory(entry, QUEUE_ENTRY, now_s):
                return False
            if <int32_t> get32(entry + 8) <= 0:
                return False  # a hole
            if <int64_t> get64(entry) >= minimum:
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
        self.low = low
        return True

    cdef int leave_out_coming(self) except -1:
        """Move the end before entries whose records are not dispatched."""
        cdef int64_t limit = self.window.readable_end(), left = ARRIVED_MAX
        cdef QueueFile file
        while self.high > self.low:
            file = holding(self.files, self.high - 1)
            left -= 1
            if file is None or left == 0:
                self.forget()
                return 0
            if record_end(file.entry(self.high - 1)) <= limit:
                return 0
            self.high -= 1
        return 0

    cdef bint find_end(self, double now_s) except -1:
        """Move the end behind the entries that arrived; False where it is unknown without
        ``aim``."""
        cdef int64_t limit = self.window.readable_end(), left = ARRIVED_MAX, end
        cdef QueueFile file
        cdef const uint8_t *entry
        while left > 0:
            file = holding(self.files, self.high)
            if file is None:
                return False
            entry = file.entry(self.high)
            if not is_recently_in_memory(entry, QUEUE_ENTRY, now_s):
                return False
            end = record_end(entry)
            if end < 0:
                return self.high > 0
            if end > limit:
                return self.high > 0 and end <= self.window.log_end()
            self.high += 1
            left -= 1
        return False

    cdef QueueFile begin(self, Entries *e, int64_t offset, int64_t count, int64_t max_bytes):
        """Begin to read at an offset of the queue, or at its end; None for any other, and where
        something is unknown without ``aim``. ``e`` is valid while the file is held."""
        cdef QueueFile file
        if not self.enter(&e.moment) or not self.low <= offset <= self.high:
            return None
        file = holding(self.files, offset)
        if file is not None:
            self.window.begin(
                e, &file.entries, file.position(offset), min(count, self.high - offset),
                self.topic, self.queue_id, offset, 0, max_bytes,
            )
        return file


cdef inline int64_t record_end(const uint8_t *entry) noexcept:
    """The physical offset at which the record of an entry ends; -1 for an unwritten entry,
    INT64_MAX for an impossible one."""
    cdef int64_t physical = <int64_t> get64(entry), size = <int32_t> get32(entry + 8)
    if size <= 0:
        return -1
    return physical + size if 0 <= physical <= INT64_MAX - size else INT64_MAX


cdef bytes _found_text = b"FOUND"
cdef bytes _at_end_text = b"OFFSET_OVERFLOW_ONE"
cdef bytes _records_text = b"content-type: application/x-rocketmq-records\r\ncontent-length: "
cdef bytes _json_text = b"content-type: application/json\r\ncontent-length: "
cdef bytes _status_line = b"x-mqstore-status: "
cdef bytes _next_line = b"\r\nx-mqstore-next: "
cdef bytes _minimum_line = b"\r\nx-mqstore-min-offset: "
cdef bytes _maximum_line = b"\r\nx-mqstore-max-offset: "
cdef bytes _messages_line = b"\r\nx-mqstore-messages: "
cdef bytes _shard_line = (
    b"\r\nx-mqstore-unreadable: 0\r\nx-mqstore-self-checked: 0\r\nx-mqstore-shard: "
)
cdef bytes _line_end = b"\r\n"
cdef bytes _messages_begin = b'{"messages":['
cdef bytes _next_text = b'],"unreadable":[],"next":'
cdef bytes _minimum_text = b',"minOffset":'
cdef bytes _maximum_text = b',"maxOffset":'
cdef bytes _status_text = b',"status":"'
cdef bytes _status_end = b'"'

cdef Text FOUND = text_of(_found_text)
cdef Text AT_END = text_of(_at_end_text)
cdef Text RECORDS_LINES = text_of(_records_text)
cdef Text JSON_LINES = text_of(_json_text)
cdef Text STATUS_LINE = text_of(_status_line)
cdef Text NEXT_LINE = text_of(_next_line)
cdef Text MINIMUM_LINE = text_of(_minimum_line)
cdef Text MAXIMUM_LINE = text_of(_maximum_line)
cdef Text MESSAGES_LINE = text_of(_messages_line)
cdef Text SHARD_LINE = text_of(_shard_line)
cdef Text LINE_END = text_of(_line_end)
cdef Text MESSAGES_BEGIN = text_of(_messages_begin)
cdef Text NEXT_TEXT = text_of(_next_text)
cdef Text MINIMUM_TEXT = text_of(_minimum_text)
cdef Text MAXIMUM_TEXT = text_of(_maximum_text)
cdef Text STATUS_TEXT = text_of(_status_text)
cdef Text STATUS_END = text_of(_status_end)


@cython.final
cdef class PullLane:
    cdef int64_t count, max_bytes, shard
    cdef bint sends_empty
    cdef MessageForm form  # None: records of the log
    cdef readonly int64_t messages
    cdef readonly int64_t size

    def __init__(
        self, int64_t count, *, int64_t max_bytes, int64_t shard, bint sends_empty,
        MessageForm form,
    ):
        if not 1 <= count <= RUN_MOST:
            raise ValueError(f"a pull in one call returns 1 to {<int> RUN_MOST} messages")
        self.count, self.max_bytes, self.shard = count, max_bytes, shard
        self.sends_empty, self.form = sends_empty, form

    def pull(
        self, PulledQueue queue not None, int64_t offset, bytes start not None,
        bytes fields not None, bytes ending not None,
    ):
        cdef Entries e
        cdef Named run[RUN_MOST]
        cdef LogWindow window = queue.window
        cdef int64_t number, size = 0
        cdef list kept = []
        cdef QueueFile file = queue.begin(&e, offset, self.count, self.max_bytes)
        if file is None:
            return None
        number = e.wanted
        if number > e.left or (number == 0 and not self.sends_empty):
            return None
        if number and (
            entries_in_memory(window, e.at, number, self.max_bytes) < number
            or window.name_run(&e, run, number, INT64_MAX, kept, &size) < number
        ):
            return None
        self.messages, self.size = number, size
        if self.form is None:
            reply = self.reply_records(queue, &e, run, start, fields, ending)
        else:
            reply = self.reply_json(queue, &e, run, start, fields, ending)
        return reply if window.is_at(&e.moment) else None

    cdef Text status(self):
        return FOUND if self.messages else AT_END

    cdef bytes reply_records(
        self, PulledQueue queue, Entries *e, Named *run, bytes start, bytes fields, bytes ending
    ):
        cdef char numbers[FIELDS_MAX]
        cdef Layout r
        cdef Text lines
        cdef bytes reply
        cdef char *to
        cdef int64_t i
        lines.at = <const uint8_t *> numbers
        to = add_text(numbers, STATUS_LINE)
        to = add_text(to, self.status())
        to = add_number(add_text(to, NEXT_LINE), <int64_t> e.index + self.messages)
        to = add_number(add_text(to, MINIMUM_LINE), queue.low)
        to = add_number(add_text(to, MAXIMUM_LINE), queue.high)
        to = add_number(add_text(to, MESSAGES_LINE), self.messages)
        to = add_number(add_text(to, SHARD_LINE), self.shard)
        lines.length = <uint32_t> (add_text(to, LINE_END) - numbers)
        reply = begin_reply(start, RECORDS_LINES, self.size, fields, lines, ending)
        to = PyBytes_AS_STRING(reply) + PyBytes_GET_SIZE(reply) - self.size
        for i in range(self.messages):
            if i + FETCH_AHEAD < self.messages and not e.is_known:
                prefetch(run[i + FETCH_AHEAD].at, run[i + FETCH_AHEAD].size)
            if not queue.window.take_named(e, &run[i], to, False, &r):
                return None
            to += run[i].size
        return reply

    cdef bytes reply_json(
        self, PulledQueue queue, Entries *e, Named *run, bytes start, bytes fields, bytes ending
    ):
        cdef Output out
        out.base, out.used, out.room = NULL, 0, 0
        try:
            append(&out, MESSAGES_BEGIN)
            if not self.append_messages(queue, e, run, &out):
                return None
            append_number(&out, NEXT_TEXT, <int64_t> e.index)
            append_number(&out, MINIMUM_TEXT, queue.low)
            append_number(&out, MAXIMUM_TEXT, queue.high)
            append(&out, STATUS_TEXT)
            append(&out, self.status())
            append(&out, STATUS_END)
            append_number(&out, SHARD_JSON, self.shard)
            append_byte(&out, c"}")
            return json_reply(&out, start, fields, ending)
        finally:
            free(out.base)

    cdef bint append_messages(
        self, PulledQueue queue, Entries *e, Named *run, Output *out
    ) except -1:
        cdef Layout r
        cdef bytes raw = PyBytes_FromStringAndSize(NULL, self.size)
        cdef char *to = PyBytes_AS_STRING(raw)
        cdef int64_t i
        for i in range(self.messages):
            if i + FETCH_AHEAD < self.messages:
                prefetch(run[i + FETCH_AHEAD].at, run[i + FETCH_AHEAD].size)
            if not queue.window.take_named(e, &run[i], to, True, &r):
                return False
            if i:
                append_byte(out, c",")
            self.form.append_message(out, <const uint8_t *> to, &r, None)
            to += run[i].size
        return True


cdef bytes begin_reply(
    bytes start, Text content, int64_t size, bytes fields, Text lines, bytes ending
):
    """A reply whose body of ``size`` bytes is yet to be filled in."""
    cdef char digits[NUMBER_MAX]
    cdef int64_t digits_size = add_number(digits, size) - digits
    cdef int64_t head = (
        PyBytes_GET_SIZE(start) + content.length + digits_size + LINE_END.length
        + PyBytes_GET_SIZE(fields) + lines.length + PyBytes_GET_SIZE(ending)
    )
    cdef bytes reply = PyBytes_FromStringAndSize(NULL, head + size)
    cdef char *to = PyBytes_AS_STRING(reply)
    to = add_text(add_text(to, text_of(start)), content)
    memcpy(to, digits, digits_size)
    to = add_text(to + digits_size, LINE_END)
    to = add_text(add_text(to, text_of(fields)), lines)
    add_text(to, text_of(ending))
    return reply


cdef bytes json_reply(const Output *out, bytes start, bytes fields, bytes ending):
    cdef Text no_lines
    cdef bytes reply
    no_lines.at, no_lines.length = NULL, 0
    reply = begin_reply(start, JSON_LINES, out.used, fields, no_lines, ending)
    memcpy(PyBytes_AS_STRING(reply) + PyBytes_GET_SIZE(reply) - out.used, out.base, out.used)
    return reply
