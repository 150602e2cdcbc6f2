# Index items gathered in many places, and index files built from them by ranges of slots ----------


cdef struct GatheredItem:
    uint32_t number
    uint32_t hash
    int64_t physical
    int64_t store_time


cdef class IndexItems:
    cdef list parts
    cdef uint64_t slots
    cdef bint index_tags
    cdef readonly int64_t records
    cdef readonly int64_t items
    cdef readonly int64_t before_last

    def __init__(self, int64_t parts, int64_t slots, bint index_tags):
        if not 0 < parts <= slots <= INT32_MAX:
            raise ValueError(f"{slots} slots cannot be {parts} parts")
        self.parts = [Grown() for _ in range(parts)]
        self.slots, self.index_tags = slots, index_tags

    cdef void begin_record(self):
        self.before_last = self.items
        self.records += 1

    cdef int put(self, uint32_t hash, int64_t physical, int64_t store_time) except -1:
        cdef GatheredItem item
        cdef uint64_t part = hash % self.slots * <uint64_t> len(self.parts) // self.slots
        item.number, item.hash = <uint32_t> self.items, hash
        item.physical, item.store_time = physical, store_time
        (<Grown> self.parts[part]).put(&item, sizeof(GatheredItem))
        self.items += 1
        return 0

    def add_record(self, hashes not None, int64_t physical_offset, int64_t store_timestamp):
        cdef uint32_t hash
        self.begin_record()
        for hash in hashes:
            if hash > <uint32_t> INT32_MAX:
                raise ValueError(f"{hash} is no index hash: java_text.index_hash makes them")
            self.put(hash, physical_offset, store_timestamp)

    def add(
        self,
        const uint8_t[::1] view not None,
        int64_t position,
        int64_t stop,
        int64_t base,
        int64_t max_records,
    ):
        cdef Run run
        cdef Found found
        cdef IndexState no_file
        cdef int i, why = STOP_END
        check_range(position, stop, view.shape[0])
        if position == stop:
            return (STOPS[STOP_END], position)
        no_file.base = NULL
        run.log, run.end, run.base = &view[0], view.shape[0], base
        run.index, run.index_tags, run.skip_index_below = &no_file, self.index_tags, 0
        while position < stop:
            if self.records >= max_records:
                return (STOPS[STOP_LIMIT], position)
            why = read_one(&run, position, &found)
            if why == STOP_END and not found.hashed:
                why = STOP_SPECIAL
            if why != STOP_END:
                return (STOPS[why], position)
            self.begin_record()
            for i in range(found.hashes.count):
                self.put(found.hashes.at[i], found.physical, found.store_time)
            position += found.size
        return (STOPS[STOP_END], position)

    def take(self):
        self.records = self.items = self.before_last = 0
        return [(<Grown> part).take() for part in self.parts]


def index_chain(
    bytes items not None,
    int64_t start,
    uint8_t[::1] file not None,
    int64_t slots,
    int64_t index_num,
    int64_t first,
    int64_t begin_ms,
    int64_t carried_ms,
):
    cdef GatheredItem item
    cdef uint8_t *slot
    cdef uint8_t *entry
    cdef const char *at = PyBytes_AS_STRING(items)
    cdef int64_t length = PyBytes_GET_SIZE(items), number, previous, used = 0
    check_index(file.shape[0], slots, index_num)
    if length % sizeof(GatheredItem) or start % sizeof(GatheredItem) or not 0 <= start <= length:
        raise ValueError(f"{length} bytes from {start} on are no whole items")
    while start < length:
        memcpy(&item, at + start, sizeof(GatheredItem))
        number = first + item.number
        if number >= index_num:
            break
        slot = &file[0] + INDEX_HEADER + INDEX_SLOT * (item.hash % <uint64_t> slots)
        previous = <int32_t> get32(slot)
        if not 0 <= previous < number:
            raise ValueError(f"item {number} cannot follow item {previous} in its slot")
        entry = &file[0] + INDEX_HEADER + INDEX_SLOT * slots + INDEX_ITEM * number
        put32(entry, item.hash)
        put64(entry + 4, <uint64_t> item.physical)
        put32(
            entry + 12,
            index_seconds(carried_ms if number == 1 else begin_ms, item.store_time),
        )
        put32(entry + 16, <uint32_t> previous)
        put32(slot, <uint32_t> number)
        used += previous == 0
        start += sizeof(GatheredItem)
    return start, used


def item_at(bytes items not None, int64_t number):
    cdef GatheredItem item
    cdef int64_t at
    for at in range(0, PyBytes_GET_SIZE(items), <int64_t> sizeof(GatheredItem)):
        memcpy(&item, PyBytes_AS_STRING(items) + at, sizeof(GatheredItem))
        if item.number == number:
            return item.physical, item.store_time
    return None
