# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""The code that runs per record: encode, check, decode, bulk dispatch, index chains, atomics, futex.

Signatures and their contracts are in ``_kernel.pyi``; tests/unit/storage/kernel_model.py is the
same in slow, obvious Python. Every length that comes from a file is compared with the bytes that
are there before it is used. Offsets inside one record fit 32 bits because TOTALSIZE does.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.stdlib cimport calloc, free, malloc, realloc

import binascii
from enum import IntEnum

from mqstore.storage import layout
from mqstore.storage.codec.hosts import unpack_host
from mqstore.storage.codec.message_id import encode as encode_message_id

cdef extern from "Python.h":
    ctypedef struct PyObject:
        pass
    bint PyUnicode_IS_ASCII(object text)

cdef extern from "_kernel.h":
    void memcpy "mq_copy"(void *to, const void *p, size_t n) noexcept nogil
    void memset "mq_fill"(void *p, int byte, size_t n) noexcept nogil
    int memcmp "mq_compare"(const void *a, const void *b, size_t n) noexcept nogil
    const void *memchr "mq_find"(const void *p, int byte, size_t n) noexcept nogil
    uint32_t get32(const uint8_t *p) noexcept nogil
    uint64_t get64(const uint8_t *p) noexcept nogil
    void put32(uint8_t *p, uint32_t v) noexcept nogil
    void put64(uint8_t *p, uint64_t v) noexcept nogil
    void prefetch(const uint8_t *p, int64_t size) noexcept nogil
    void prefetch_line(const uint8_t *p) noexcept nogil
    int mq_is_zero(const uint8_t *p, size_t n) noexcept nogil
    bint mq_in_memory(const uint8_t *p, size_t n) noexcept nogil
    void mq_touch(const uint8_t *p, size_t n) noexcept nogil
    size_t mq_json_run(const uint8_t *p, size_t n) noexcept nogil
    bint mq_is_ascii(const uint8_t *p, size_t n) noexcept nogil
    void acquire_fence() noexcept nogil
    void release_fence() noexcept nogil
    void sequential_fence() noexcept nogil
    void mq_crc_prepare() noexcept nogil
    void mq_sums_prepare() noexcept nogil
    uint32_t mq_crc(uint32_t crc, const uint8_t *p, size_t n, int hardware) noexcept nogil
    uint32_t mq_crc32c(uint32_t crc, const uint8_t *p, size_t n, int hardware) noexcept nogil
    ctypedef struct mq_sums:
        const uint8_t *bytes
        uint64_t passed
    uint32_t mq_sum(mq_sums *sums, size_t length, const uint8_t *p, size_t n) noexcept nogil
    void mq_sums_close(mq_sums *sums) noexcept nogil
    bint mq_has_zero_run(const uint8_t *p, size_t n, size_t run) noexcept nogil
    void mq_extend_cover(
        uint32_t *crc, uint32_t *parity, const uint8_t *p, size_t n, size_t at
    ) noexcept nogil
    int64_t mq_changed_word(uint32_t crc, uint32_t parity, size_t n) noexcept nogil
    int mq_hash(const uint8_t *p, size_t n, uint32_t *hash) noexcept nogil
    uint64_t mq_digest(const uint8_t *p, size_t n, uint64_t seed, uint64_t secret) noexcept nogil
    uint64_t atomic_load64(const void *p) noexcept nogil
    void atomic_store64(void *p, uint64_t v) noexcept nogil
    uint32_t atomic_load32(const void *p) noexcept nogil
    uint32_t atomic_add32(void *p, uint32_t v) noexcept nogil
    int64_t mq_now_ms() noexcept nogil
    double mq_monotonic() noexcept nogil
    void count_event(int event_fd) noexcept nogil
    long mq_futex(const void *word, int operation, uint32_t value, double timeout_s) noexcept nogil
    int EINTR, EAGAIN, ETIMEDOUT

mq_crc_prepare()
mq_sums_prepare()


class Stop(IntEnum):
    END = 0
    BLANK = 1
    DEFECT = 2
    QUEUE = 3
    INDEX = 4
    SPECIAL = 5
    LIMIT = 6


class Defect(IntEnum):
    NONE = 0
    BLANK = 1
    TRUNCATED = 2
    MAGIC_UNKNOWN = 3
    SIZE_WRONG = 4
    LENGTHS_DISAGREE = 5
    MISPLACED = 6
    HOST_INVALID = 7
    TOPIC_INVALID = 8
    PROPERTIES_MALFORMED = 9
    BODY_CORRUPT = 10
    CRC_MISMATCH = 11


cdef enum:
    STOP_NEED_QUEUE = -1
    STOP_END = 0
    STOP_BLANK = 1
    STOP_DEFECT = 2
    STOP_QUEUE = 3
    STOP_INDEX = 4
    STOP_SPECIAL = 5
    STOP_LIMIT = 6

    DEFECT_NONE = 0
    DEFECT_BLANK = 1
    DEFECT_TRUNCATED = 2
    DEFECT_MAGIC_UNKNOWN = 3
    DEFECT_SIZE_WRONG = 4
    DEFECT_LENGTHS_DISAGREE = 5
    DEFECT_MISPLACED = 6
    DEFECT_HOST_INVALID = 7
    DEFECT_TOPIC_INVALID = 8
    DEFECT_PROPERTIES_MALFORMED = 9
    DEFECT_BODY_CORRUPT = 10
    DEFECT_CRC_MISMATCH = 11

    KEYS_MAX = 64  # of one record; more go to Python
    TORN_RUN = 512  # zeros in the properties that only a lost sector leaves
    CRC_PROPERTY_SIZE = 20
    RELEASE_GIL_FROM = 65536  # bytes; below, giving the GIL away costs more than it gains
    FIND_CHUNK = 256
    STARTS_CHUNK = 1024
    SEARCH_CHUNK = 1 << 24  # bytes that are searched between two looks at signals
    READ_AHEAD = 8  # records that dispatch reads before it writes what the first of them needs
    SPARE_QUEUES = 16

cdef tuple STOPS = tuple(Stop)
cdef tuple DEFECTS = tuple(Defect)

cdef uint32_t MAGIC_V1 = layout.MAGIC_V1
cdef uint32_t MAGIC_V2 = layout.MAGIC_V2
cdef uint32_t MAGIC_BLANK = layout.MAGIC_BLANK
cdef uint32_t BLANK_SIZE = layout.BLANK_RECORD_SIZE
cdef uint32_t FIXED_SIZE = layout.RECORD_FIXED_SIZE
cdef uint32_t V6_EXTRA = layout.RECORD_IPV6_EXTRA_SIZE
cdef uint32_t TOPIC_MAX_V1 = layout.TOPIC_LENGTH_MAX_V1
cdef uint32_t TOPIC_MAX_V2 = layout.TOPIC_LENGTH_MAX_V2
cdef uint32_t PROPERTIES_MAX = layout.PROPERTIES_LENGTH_MAX
cdef uint32_t CRC_MASK = layout.BODY_CRC_MASK
cdef uint32_t COMPRESSED = layout.SysFlag.COMPRESSED
cdef uint32_t BORN_V6 = layout.SysFlag.BORN_HOST_V6
cdef uint32_t STORE_V6 = layout.SysFlag.STORE_HOST_V6
cdef uint32_t INNER_BATCH = layout.SysFlag.INNER_BATCH
cdef uint32_t TRANSACTION = layout.TRANSACTION_MASK
cdef uint32_t COMMITTED = layout.SysFlag.TRANSACTION_COMMIT
cdef uint32_t ROLLED_BACK = layout.SysFlag.TRANSACTION_ROLLBACK
cdef uint64_t TOMBSTONE = layout.TOMBSTONE_MARK
cdef int64_t QUEUE_ENTRY = layout.QUEUE_ENTRY_SIZE
cdef int64_t INDEX_HEADER = layout.INDEX_HEADER_SIZE
cdef int64_t INDEX_SLOT = layout.INDEX_SLOT_SIZE
cdef int64_t INDEX_ITEM = layout.INDEX_ITEM_SIZE

# Module-level bytes, so that these pointers stay valid in loops without the GIL.
cdef bytes _schedule_topic = layout.SCHEDULE_TOPIC.encode()
cdef bytes _crc_property = layout.PROPERTY_CRC32.encode() + b"\x01"
cdef bytes _delay_name = layout.PROPERTY_DELAY.encode()
cdef bytes _delay_property = _delay_name + b"\x01"
cdef bytes _deliver_name = layout.PROPERTY_DELIVER_AT.encode()
cdef bytes _deliver_property = _deliver_name + b"\x01"
cdef bytes _timer_topic = layout.TIMER_TOPIC.encode()
cdef bytes _timer_out_name = layout.PROPERTY_TIMER_OUT.encode()
cdef bytes _keys_name = layout.PROPERTY_KEYS.encode()
cdef bytes _tags_name = layout.PROPERTY_TAGS.encode()
cdef bytes _uniq_name = layout.PROPERTY_UNIQ_KEY.encode()
cdef bytes _ordering_name = layout.PROPERTY_SHARDING_KEY.encode()
cdef bytes _half_topic = layout.HALF_TOPIC.encode()
cdef bytes _real_topic_name = layout.PROPERTY_REAL_TOPIC.encode()
cdef bytes _wait_name = layout.PROPERTY_WAIT.encode()
cdef bytes _multi_name = layout.PROPERTY_MULTI_DISPATCH.encode()

cdef str KEYS_TEXT = layout.PROPERTY_KEYS
cdef str TAGS_TEXT = layout.PROPERTY_TAGS
cdef str UNIQ_TEXT = layout.PROPERTY_UNIQ_KEY
cdef str WAIT_TEXT = layout.PROPERTY_WAIT


cdef struct Text:
    const uint8_t *at
    uint32_t length


cdef inline Text text_of(bytes value) noexcept:
    cdef Text text
    text.at = <const uint8_t *> PyBytes_AS_STRING(value)
    text.length = <uint32_t> PyBytes_GET_SIZE(value)
    return text

cdef Text SCHEDULE_TOPIC = text_of(_schedule_topic)
cdef Text CRC_PROPERTY = text_of(_crc_property)
cdef Text DELAY_PROPERTY = text_of(_delay_property)
cdef Text DELAY_NAME = text_of(_delay_name)
cdef Text DELIVER_PROPERTY = text_of(_deliver_property)
cdef Text DELIVER_NAME = text_of(_deliver_name)
cdef Text TIMER_TOPIC = text_of(_timer_topic)
cdef Text TIMER_OUT_NAME = text_of(_timer_out_name)
cdef Text KEYS_NAME = text_of(_keys_name)
cdef Text TAGS_NAME = text_of(_tags_name)
cdef Text UNIQ_NAME = text_of(_uniq_name)
cdef Text ORDERING_NAME = text_of(_ordering_name)
cdef Text HALF_TOPIC = text_of(_half_topic)
cdef Text REAL_TOPIC_NAME = text_of(_real_topic_name)
cdef Text WAIT_NAME = text_of(_wait_name)
cdef Text MULTI_NAME = text_of(_multi_name)


cdef inline bint same(Text a, Text b) noexcept nogil:
    return a.length == b.length and memcmp(a.at, b.at, a.length) == 0


cdef int check_range(int64_t position, int64_t end, int64_t length) except -1:
    if not 0 <= position <= end <= length:
        raise ValueError(f"range {position}..{end} is outside a view of {length} bytes")
    return 0


@cython.final
@cython.no_gc
cdef class Held:
    """A view's bytes, until this object is freed.

    Kept from the garbage collector, which crashed over stores that were dropped without a close:
    it breaks a cycle at a memoryview too, also while its bytes are in use.
    """
    cdef Py_buffer bytes

    def __cinit__(self, view not None, bint writable):
        PyObject_GetBuffer(view, &self.bytes, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.bytes)


include "kernel/read.pxi"
include "kernel/search.pxi"
include "kernel/write.pxi"
include "kernel/index.pxi"
include "kernel/dispatch.pxi"
include "kernel/columns.pxi"
include "kernel/gather.pxi"
include "kernel/blocks.pxi"
include "kernel/filter.pxi"
include "kernel/keys.pxi"


# Checksums and hashes for Python -------------------------------------------------------------


def crc32(const uint8_t[::1] data not None, uint32_t value=0):
    return mq_crc(value, &data[0], data.shape[0], 1) if data.shape[0] else value


def crc32_by_table(const uint8_t[::1] data not None, uint32_t value=0):
    return mq_crc(value, &data[0], data.shape[0], 0) if data.shape[0] else value


def crc32c(const uint8_t[::1] data not None, uint32_t value=0):
    return mq_crc32c(value, &data[0], data.shape[0], 1) if data.shape[0] else value


def crc32c_by_table(const uint8_t[::1] data not None, uint32_t value=0):
    return mq_crc32c(value, &data[0], data.shape[0], 0) if data.shape[0] else value


def is_zero(const uint8_t[::1] data not None):
    cdef int zero = 1
    if data.shape[0]:
        with nogil:
            zero = mq_is_zero(&data[0], data.shape[0])
    return zero == 1


def utf16_hash(bytes units not None):
    cdef const char *p = PyBytes_AS_STRING(units)
    cdef uint32_t hash = 0
    cdef uint16_t unit
    cdef Py_ssize_t i
    for i in range(PyBytes_GET_SIZE(units) // 2):
        memcpy(&unit, p + 2 * i, 2)
        hash = hash * 31 + unit
    return <int32_t> hash


def utf8_hash(bytes text not None):
    cdef Text t = text_of(text)
    cdef uint32_t hash = 0
    return <int32_t> hash if mq_hash(t.at, t.length, &hash) else None


# Words shared between processes ---------------------------------------------------------------


# A typed memoryview argument costs 100 ns a call; a plain buffer a third of that.


cdef inline const void *word_at(const Py_buffer *page, int64_t offset, int width) except NULL:
    cdef const uint8_t *word = <const uint8_t *> page.buf + offset
    if not 0 <= offset <= page.len - width:
        raise ValueError(f"offset {offset} is outside a view of {page.len} bytes")
    if <uint64_t> word % width:
        raise ValueError(f"offset {offset} is not aligned to {width} bytes")
    return word


def full_fence():
    sequential_fence()


def load_u64(view not None, int64_t offset):
    cdef Py_buffer page
    PyObject_GetBuffer(view, &page, PyBUF_SIMPLE)
    try:
        return atomic_load64(word_at(&page, offset, 8))
    finally:
        PyBuffer_Release(&page)


def store_u64(view not None, int64_t offset, uint64_t value):
    cdef Py_buffer page
    PyObject_GetBuffer(view, &page, PyBUF_WRITABLE)
    try:
        atomic_store64(<void *> word_at(&page, offset, 8), value)
    finally:
        PyBuffer_Release(&page)


def load_u32(view not None, int64_t offset):
    cdef Py_buffer page
    PyObject_GetBuffer(view, &page, PyBUF_SIMPLE)
    try:
        return atomic_load32(word_at(&page, offset, 4))
    finally:
        PyBuffer_Release(&page)


def add_u32(view not None, int64_t offset, uint32_t value):
    cdef Py_buffer page
    PyObject_GetBuffer(view, &page, PyBUF_WRITABLE)
    try:
        return atomic_add32(<void *> word_at(&page, offset, 4), value)
    finally:
        PyBuffer_Release(&page)


cdef class Word:
    """An aligned 64-bit word of a shared page."""
    cdef Held page
    cdef void *at

    def __cinit__(self, view not None, int64_t offset):
        self.page = Held(view, False)
        self.at = <void *> word_at(&self.page.bytes, offset, 8)

    @property
    def value(self):
        acquire_fence()  # earlier reads are ordered before this one
        return atomic_load64(self.at)

    @value.setter
    def value(self, uint64_t value):
        if self.page.bytes.readonly:
            raise BufferError("the word's page is read-only")
        atomic_store64(self.at, value)


def futex_wait(view not None, int64_t offset, uint32_t expected, timeout_s):
    cdef Py_buffer page
    cdef const void *word
    cdef double limit = -1.0
    cdef long result
    if timeout_s is not None:
        limit = min(max(float(timeout_s), 0.0), 1e9)
    PyObject_GetBuffer(view, &page, PyBUF_SIMPLE)
    try:
        word = word_at(&page, offset, 4)
        with nogil:
            result = mq_futex(word, 0, expected, limit)
    finally:
        PyBuffer_Release(&page)
    if result == -EINTR:
        PyErr_CheckSignals()
    elif result < 0 and result != -EAGAIN and result != -ETIMEDOUT:
        raise OSError(-result, "futex wait failed")
    return result != -ETIMEDOUT


cdef long wake(const void *word) except -1:
    cdef long result = mq_futex(word, 1, <uint32_t> INT32_MAX, -1.0)
    if result < 0:
        raise OSError(-result, "futex wake failed")
    return result


def futex_wake(view not None, int64_t offset):
    cdef Py_buffer page
    PyObject_GetBuffer(view, &page, PyBUF_SIMPLE)
    try:
        return wake(word_at(&page, offset, 4))
    finally:
        PyBuffer_Release(&page)


include "kernel/records.pxi"
include "kernel/batch.pxi"
include "kernel/put.pxi"
include "kernel/segment.pxi"
include "kernel/entries.pxi"
include "kernel/key_search.pxi"
include "kernel/lookup.pxi"
include "kernel/memory.pxi"
include "kernel/bulk.pxi"
include "kernel/answers.pxi"
include "kernel/json_text.pxi"
include "kernel/exchange.pxi"
include "kernel/sends.pxi"
include "kernel/transaction_lane.pxi"
include "kernel/message_json.pxi"
include "kernel/pull_lane.pxi"
include "kernel/time_search.pxi"
include "kernel/lookup_lanes.pxi"
include "kernel/places.pxi"
include "kernel/receipts.pxi"
