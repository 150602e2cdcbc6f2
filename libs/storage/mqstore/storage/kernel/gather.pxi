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


cdef struct ChainRun:
    uint8_t *slots_at
    uint8_t *items_at
    int64_t slots
    int64_t low_slot
    int64_t high_slot
    int64_t low
    int64_t high
    int64_t index_num
    int64_t first
    int64_t count
    int64_t begin_ms
    int64_t carried_ms
    int64_t after  # number of the item before, in the chunk; -1 for none
    int64_t used


cdef bint chain_one(ChainRun *run, const GatheredItem *item) noexcept nogil:
    """False, and nothing is written, for an item outside of the part."""
    cdef int64_t number = run.first + item.number, previous
    cdef int64_t slot = <int64_t> (item.hash % <uint64_t> run.slots)
    cdef uint8_t *head = run.slots_at + INDEX_SLOT * slot
    cdef uint8_t *entry = run.items_at + INDEX_ITEM * number
    if item.number <= run.after or item.number >= run.count or number < 1:
        return False
    if item.hash > <uint32_t> INT32_MAX or not run.low_slot <= slot < run.high_slot:
        return False
    previous = <int32_t> get32(head)
    if not run.low <= item.physical < run.high:
        return False
    if not 0 <= previous < number:
        return False
    put32(entry, item.hash)
    put64(entry + 4, <uint64_t> item.physical)
    put32(
        entry + 12,
        index_seconds(run.carried_ms if number == 1 else run.begin_ms, item.store_time),
    )
    put32(entry + 16, <uint32_t> previous)
    put32(head, <uint32_t> number)
    run.used += previous == 0
    run.after = item.number
    return True


def index_chain(
    bytes items not None,
    int64_t start,
    uint8_t[::1] file not None,
    tuple layout not None,
    tuple slots_of_part not None,
    tuple chunk not None,
    int64_t first,
    int64_t begin_ms,
    int64_t carried_ms,
):
    cdef GatheredItem item
    cdef ChainRun run
    cdef const char *at = PyBytes_AS_STRING(items)
    cdef int64_t length = PyBytes_GET_SIZE(items), at_item = start
    cdef bint is_fine = True
    run.slots, run.index_num = layout
    run.low_slot, run.high_slot = slots_of_part
    run.low, run.high, run.count = chunk
    check_index(file.shape[0], run.slots, run.index_num)
    if length % sizeof(GatheredItem) or start % sizeof(GatheredItem) or not 0 <= start <= length:
        raise ValueError(f"{length} bytes from {start} on are no whole items")
    run.slots_at = &file[0] + INDEX_HEADER
    run.items_at = run.slots_at + INDEX_SLOT * run.slots
    run.first, run.begin_ms, run.carried_ms = first, begin_ms, carried_ms
    run.after, run.used = -1, 0
    if start:
        memcpy(&item, at + start - sizeof(GatheredItem), sizeof(GatheredItem))
        run.after = item.number
    with nogil:
        while at_item < length:
            memcpy(&item, at + at_item, sizeof(GatheredItem))
            if first + item.number >= run.index_num:
                break
            is_fine = chain_one(&run, &item)
            if not is_fine:
                break
            at_item += sizeof(GatheredItem)
    if not is_fine:
        raise ValueError(
            f"item {item.number} of hash {item.hash} and offset {item.physical} cannot stand here"
        )
    return at_item, run.used


def item_at(bytes items not None, int64_t number):
    cdef GatheredItem item
    cdef int64_t at
    for at in range(0, PyBytes_GET_SIZE(items), <int64_t> sizeof(GatheredItem)):
        memcpy(&item, PyBytes_AS_STRING(items) + at, sizeof(GatheredItem))
        if item.number == number:
            return item.physical, item.store_time
    return None
