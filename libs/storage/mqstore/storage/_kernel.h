/* The kernel's plain C: big-endian fields, checksums, hashes, words shared by processes.

   Included once, by _kernel.pyx. */

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The C library's functions of these names forbid a null address even for no bytes, and a text of no
   bytes may have none: the kernel calls these instead. */

static inline void mq_copy(void *to, const void *p, size_t n) { if (n) memcpy(to, p, n); }
static inline void mq_fill(void *p, int byte, size_t n) { if (n) memset(p, byte, n); }
static inline int mq_compare(const void *a, const void *b, size_t n) {
    return n ? memcmp(a, b, n) : 0;
}
static inline const void *mq_find(const void *p, int byte, size_t n) {
    return n ? memchr(p, byte, n) : NULL;
}

/* big-endian fields ------------------------------------------------------------------- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define MQ_LITTLE 0
#define mq_swap32(v) (v)
#define mq_swap64(v) (v)
#else
#define MQ_LITTLE 1
#define mq_swap32 __builtin_bswap32
#define mq_swap64 __builtin_bswap64
#endif

static inline uint32_t get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return mq_swap32(v);
}
static inline uint64_t get64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return mq_swap64(v);
}
static inline void put32(uint8_t *p, uint32_t v) {
    v = mq_swap32(v);
    memcpy(p, &v, sizeof v);
}
static inline void put64(uint8_t *p, uint64_t v) {
    v = mq_swap64(v);
    memcpy(p, &v, sizeof v);
}

/* The lines of a record of `size` bytes that hold its header, topic and most properties */
static inline void prefetch(const uint8_t *p, int64_t size) {
    const uint8_t *tail = p + (size > 256 ? size - 256 : 0);
    for (int i = 0; i < 2; i++) __builtin_prefetch(p + 64 * i);
    for (int i = 0; i < 4; i++) __builtin_prefetch(tail + 64 * i);
}
static inline void prefetch_line(const uint8_t *p) { __builtin_prefetch(p, 1); }
/* Read a byte of each page of a mapped file's bytes, so that all of them are in memory */
static inline void mq_touch(const uint8_t *p, size_t n) {
    for (size_t at = 0; at < n; at += 4096) *(const volatile uint8_t *)(p + at);
    if (n) *(const volatile uint8_t *)(p + n - 1);
}
/* Whether all pages of a mapped file's bytes are in the page cache: reading them waits for no disk */
static int mq_in_memory(const uint8_t *p, size_t n) {
    unsigned char pages[256];
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)p & ~(page - 1), end = (uintptr_t)p + n;
    while (at < end) {
        size_t left = (end - at + page - 1) / page;
        size_t count = left < sizeof pages ? left : sizeof pages;
        if (mincore((void *)at, count * page, pages)) return 0;
        for (size_t i = 0; i < count; i++) if (!(pages[i] & 1)) return 0;
        at += count * page;
    }
    return 1;
}

/* JSON text: both loops over 16 bytes are vectorized. */

static size_t mq_json_run(const uint8_t *p, size_t n) {
    /* Bytes before the first one that a JSON string escapes. */
    size_t at = 0;
    while (n - at >= 16) {
        unsigned odd = 0;
        for (int i = 0; i < 16; i++) {
            uint8_t c = p[at + i];
            odd |= (c < 0x20) | (c == '"') | (c == '\\');
        }
        if (odd) break;
        at += 16;
    }
    while (at < n && p[at] >= 0x20 && p[at] != '"' && p[at] != '\\') at++;
    return at;
}

static int mq_is_ascii(const uint8_t *p, size_t n) {
    uint8_t all = 0;
    for (size_t i = 0; i < n; i++) all |= p[i];
    return all < 0x80;
}

static inline void acquire_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
static inline void release_fence(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
static inline void sequential_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

static inline int mq_is_zero(const uint8_t *p, size_t n) {
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* CRC-32 and CRC-32C -------------------------------------------------------------------
   Bits are reflected: bit 31 of a state is x^0. mq_power(n) is x^n mod P in that form.
   Table k of eight advances a byte that is followed by k more bytes. */

typedef struct {
    uint32_t polynomial;
    uint32_t table[8][256];
    uint64_t fold_512[2], fold_128[2];
} mq_crc_kind;
static mq_crc_kind mq_ieee = {.polynomial = 0xEDB88320u};
static mq_crc_kind mq_castagnoli = {.polynomial = 0x82F63B78u};

static uint32_t mq_power(const mq_crc_kind *kind, unsigned n) {
    uint32_t v = 0x80000000u;
    while (n--) v = (v >> 1) ^ ((v & 1) ? kind->polynomial : 0);
    return v;
}

static uint32_t mq_crc_by_table(
    const mq_crc_kind *kind, uint32_t state, const uint8_t *p, size_t n
) {
    const uint32_t (*table)[256] = kind->table;
    for (; MQ_LITTLE && n >= 8; p += 8, n -= 8) {
        uint32_t a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + 4, 4);
        a ^= state;
        state = table[7][a & 255] ^ table[6][a >> 8 & 255]
              ^ table[5][a >> 16 & 255] ^ table[4][a >> 24]
              ^ table[3][b & 255] ^ table[2][b >> 8 & 255]
              ^ table[1][b >> 16 & 255] ^ table[0][b >> 24];
    }
    while (n--) state = state >> 8 ^ table[0][(state ^ *p++) & 255];
    return state;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define MQ_CLMUL __attribute__((target("pclmul,sse4.1")))
static int mq_has_clmul;

/* Moving a 16-byte block D bits towards the end multiplies its first half by x^(D+64) and its
   second by x^D. A carry-less product of reflected halves comes out multiplied by x, hence
   the powers one less; 32-bit residues sit in the upper half of a reflected 64-bit word. */
static void mq_fold_constants(const mq_crc_kind *kind, uint64_t fold[2], unsigned distance) {
    fold[0] = (uint64_t)mq_power(kind, distance + 63) << 32;
    fold[1] = (uint64_t)mq_power(kind, distance - 1) << 32;
}

MQ_CLMUL static inline __m128i mq_fold(__m128i block, __m128i k, __m128i next) {
    return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(block, k, 0x00),
                                             _mm_clmulepi64_si128(block, k, 0x11)));
}

/* Bytes ahead: the processor's own reading ahead ends at each page, and takes twice as long. */
#define MQ_AHEAD 4096
#define MQ_LOAD(i) _mm_loadu_si128((const __m128i *)(p) + (i))
/* With `parity`, the exclusive or of all 16-byte words joins it: memory is passed over once. */
MQ_CLMUL static inline __attribute__((always_inline)) uint32_t mq_crc_by_clmul(
    const mq_crc_kind *kind, uint32_t state, const uint8_t *p, size_t n, __m128i *parity
) {
    __m128i far = _mm_loadu_si128((const __m128i *)kind->fold_512);
    __m128i near = _mm_loadu_si128((const __m128i *)kind->fold_128);
    __m128i next[4] = {MQ_LOAD(0), MQ_LOAD(1), MQ_LOAD(2), MQ_LOAD(3)}, all[4];
    __m128i a = _mm_xor_si128(next[0], _mm_cvtsi32_si128((int)state));
    __m128i b = next[1], c = next[2], d = next[3];
    uint8_t rest[16];
    int far_ahead = n > 4 * MQ_AHEAD;
    for (int i = 0; i < 4; i++) all[i] = next[i];
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        if (far_ahead) __builtin_prefetch(p + MQ_AHEAD);
        for (int i = 0; i < 4; i++) next[i] = MQ_LOAD(i);
        a = mq_fold(a, far, next[0]);
        b = mq_fold(b, far, next[1]);
        c = mq_fold(c, far, next[2]);
        d = mq_fold(d, far, next[3]);
        if (parity)
            for (int i = 0; i < 4; i++) all[i] = _mm_xor_si128(all[i], next[i]);
    }
    a = mq_fold(mq_fold(mq_fold(a, near, b), near, c), near, d);
    for (; n >= 16; p += 16, n -= 16) {
        next[0] = MQ_LOAD(0);
        a = mq_fold(a, near, next[0]);
        all[0] = _mm_xor_si128(all[0], next[0]);
    }
    if (parity)
        *parity = _mm_xor_si128(_mm_xor_si128(all[0], all[1]), _mm_xor_si128(all[2], all[3]));
    _mm_storeu_si128((__m128i *)rest, a);
    return mq_crc_by_table(kind, mq_crc_by_table(kind, 0, rest, 16), p, n);
}

MQ_CLMUL static uint32_t mq_crc_alone(
    const mq_crc_kind *kind, uint32_t state, const uint8_t *p, size_t n
) {
    return mq_crc_by_clmul(kind, state, p, n, NULL);
}

MQ_CLMUL static uint32_t mq_crc_and_parity(
    const mq_crc_kind *kind, uint32_t state, const uint8_t *p, size_t n, uint32_t *parity
) {
    __m128i all;
    uint32_t words[4];
    state = mq_crc_by_clmul(kind, state, p, n, &all);
    _mm_storeu_si128((__m128i *)words, all);
    *parity ^= mq_swap32(words[0] ^ words[1] ^ words[2] ^ words[3]);
    return state;
}
#endif

static void mq_prepare_kind(mq_crc_kind *kind) {
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t v = byte;
        for (int bit = 0; bit < 8; bit++) v = (v >> 1) ^ ((v & 1) ? kind->polynomial : 0);
        kind->table[0][byte] = v;
    }
    for (unsigned k = 1; k < 8; k++)
        for (unsigned byte = 0; byte < 256; byte++)
            kind->table[k][byte] = kind->table[k - 1][byte] >> 8
                                 ^ kind->table[0][kind->table[k - 1][byte] & 255];
#if defined(__x86_64__)
    mq_fold_constants(kind, kind->fold_512, 512);
    mq_fold_constants(kind, kind->fold_128, 128);
#endif
}

static void mq_crc_prepare(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    mq_has_clmul = __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 1) && (c & 1u << 19);
#endif
    mq_prepare_kind(&mq_ieee);
    mq_prepare_kind(&mq_castagnoli);
}

static uint32_t mq_crc_of(
    const mq_crc_kind *kind, uint32_t crc, const uint8_t *p, size_t n, int hardware
) {
#if defined(__x86_64__)
    if (hardware && mq_has_clmul && n >= 64) return ~mq_crc_alone(kind, ~crc, p, n);
#endif
    return ~mq_crc_by_table(kind, ~crc, p, n);
}

static uint32_t mq_crc(uint32_t crc, const uint8_t *p, size_t n, int hardware) {
    return mq_crc_of(&mq_ieee, crc, p, n, hardware);
}

static uint32_t mq_crc32c(uint32_t crc, const uint8_t *p, size_t n, int hardware) {
    return mq_crc_of(&mq_castagnoli, crc, p, n, hardware);
}

/* CRC-32s of many ranges of the same bytes, which may lie in one another ---------------------
   Blocks of a level are SUMS_FAN blocks of the level below, and the sum of each is made once: however
   many ranges there are, each byte is passed over once, and for each range the bytes of less than
   two of the least blocks. Only bytes of the ranges are read. */

enum { SUMS_LEVELS = 4, SUMS_STEP = 1024, SUMS_FAN = 32, SUMS_FROM = 4 * SUMS_STEP };
static uint32_t mq_move_table[SUMS_LEVELS][4][256];

typedef struct {
    const uint8_t *bytes;
    uint64_t passed;  /* bytes passed over */
    uint64_t *blocks[SUMS_LEVELS];  /* 0 where unknown, else the sum and SUM_KNOWN */
} mq_sums;
#define SUM_KNOWN ((uint64_t)1 << 32)

static size_t mq_block_size(int level) { return level ? SUMS_FAN * mq_block_size(level - 1) : SUMS_STEP; }

/* The product of two polynomials mod P */
static uint32_t mq_product(const mq_crc_kind *kind, uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a; a <<= 1) {
        if (a & 0x80000000u) product ^= b;
        b = (b >> 1) ^ ((b & 1) ? kind->polynomial : 0);
    }
    return product;
}

static void mq_sums_prepare(void) {
    uint32_t power = mq_power(&mq_ieee, 8 * SUMS_STEP);
    for (int level = 0; level < SUMS_LEVELS; level++) {
        for (int at = 0; at < 4; at++) {
            uint32_t *table = mq_move_table[level][at];
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t bit = byte & -byte;
                table[byte] = bit == byte ? mq_product(&mq_ieee, bit << 8 * at, power)
                                          : table[bit] ^ table[byte ^ bit];
            }
        }
        for (int fan = SUMS_FAN; fan > 1; fan /= 2) power = mq_product(&mq_ieee, power, power);
    }
}

/* What the CRC-32 of the bytes before a block of a level adds to that of both together */
static inline uint32_t mq_moved(int level, uint32_t crc) {
    const uint32_t (*table)[256] = mq_move_table[level];
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255]
         ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
}

static uint32_t mq_block_sum(mq_sums *sums, int level, size_t number) {
    uint64_t *sum = &sums->blocks[level][number];
    uint32_t crc = 0;
    if (*sum) return (uint32_t)*sum;
    if (level)
        for (size_t i = number * SUMS_FAN; i < (number + 1) * SUMS_FAN; i++)
            crc = mq_moved(level - 1, crc) ^ mq_block_sum(sums, level - 1, i);
    else {
        crc = mq_crc(0, sums->bytes + number * SUMS_STEP, SUMS_STEP, 1);
        sums->passed += SUMS_STEP;
    }
    *sum = crc | SUM_KNOWN;
    return crc;
}

static uint32_t mq_sum_directly(mq_sums *sums, uint32_t crc, size_t at, size_t end) {
    sums->passed += end - at;
    return mq_crc(crc, sums->bytes + at, end - at, 1);
}

/* 0 without memory */
static int mq_sums_open(mq_sums *sums, size_t length) {
    for (int level = 0; level < SUMS_LEVELS; level++) {
        if (sums->blocks[level]) continue;
        sums->blocks[level] = calloc(length / mq_block_size(level) + 1, sizeof(uint64_t));
        if (!sums->blocks[level]) return 0;
    }
    return 1;
}

static void mq_sums_close(mq_sums *sums) {
    for (int level = 0; level < SUMS_LEVELS; level++) free(sums->blocks[level]);
}

/* The CRC-32 of n bytes that begin at p, of `length` bytes that `sums` is of */
static uint32_t mq_sum(mq_sums *sums, size_t length, const uint8_t *p, size_t n) {
    size_t at = (size_t)(p - sums->bytes), end = at + n, size = SUMS_STEP;
    size_t first = (at + SUMS_STEP - 1) & ~(size_t)(SUMS_STEP - 1);
    uint32_t crc;
    int level = 0;
    if (n < SUMS_FROM || !mq_sums_open(sums, length)) return mq_sum_directly(sums, 0, at, end);
    crc = mq_sum_directly(sums, 0, at, first);
    for (at = first; end - at >= SUMS_STEP; at += size) {
        for (; level + 1 < SUMS_LEVELS && at % (size * SUMS_FAN) == 0; level++) size *= SUMS_FAN;
        for (; end - at < size; level--) size /= SUMS_FAN;
        crc = mq_moved(level, crc) ^ mq_block_sum(sums, level, at / size);
    }
    return mq_sum_directly(sums, crc, at, end);
}

/* Whether n bytes have a run of so many zeros */
static int mq_has_zero_run(const uint8_t *p, size_t n, size_t run) {
    uint64_t word;
    for (size_t at = 0; at < n; at += 8) {
        size_t begin = at, end;
        for (; n - at >= 8; at += 8) {
            memcpy(&word, p + at, 8);
            if (word) break;
        }
        if (at - begin + 16 <= run) continue;
        for (end = at; end < n && !p[end]; end++);
        while (begin && !p[begin - 1]) begin--;
        if (end - begin >= run) return 1;
    }
    return 0;
}

/* The exclusive or of all 4-byte words of a block, of which p is byte number `at` -------------- */

static uint32_t mq_parity(uint32_t parity, const uint8_t *p, size_t n, size_t at) {
    uint64_t word, wide = 0;
    for (; n && at & 3; n--, at++) parity ^= (uint32_t)*p++ << (24 - 8 * (at & 3));
    for (; n >= 8; p += 8, n -= 8, at += 8) {
        memcpy(&word, p, 8);
        wide ^= word;
    }
    wide = mq_swap64(wide);
    parity ^= (uint32_t)(wide >> 32) ^ (uint32_t)wide;
    for (; n; n--, at++) parity ^= (uint32_t)*p++ << (24 - 8 * (at & 3));
    return parity;
}

/* Both over n more bytes of a block, of which p is byte number `at` */

static void mq_extend_cover(
    uint32_t *crc, uint32_t *parity, const uint8_t *p, size_t n, size_t at
) {
#if defined(__x86_64__)
    if (mq_has_clmul && n >= 64 && !(at & 3)) {
        size_t whole = n & ~(size_t)15;
        *crc = ~mq_crc_and_parity(&mq_castagnoli, ~*crc, p, whole, parity);
        p += whole, n -= whole, at += whole;
    }
#endif
    *crc = mq_crc32c(*crc, p, n, 1);
    *parity = mq_parity(*parity, p, n, at);
}

static inline uint32_t mq_four_zeros(uint32_t state) {
    const uint32_t (*table)[256] = mq_castagnoli.table;
    return table[3][state & 255] ^ table[2][state >> 8 & 255]
         ^ table[1][state >> 16 & 255] ^ table[0][state >> 24];
}

/* Where in n bytes the one aligned word stands whose change alone changes their CRC-32C and parity
   by these values, or -1. The change is tried with more and more bytes behind it. */

static int64_t mq_changed_word(uint32_t crc, uint32_t parity, size_t n) {
    uint8_t change[4];
    uint32_t state;
    size_t first = (n - 1) & ~(size_t)3, cut = n - first;
    put32(change, parity);
    if (!parity) return -1;
    if (!(cut < 4 && parity & (0xFFFFFFFFu >> 8 * cut))) {
        if (mq_crc_by_table(&mq_castagnoli, 0, change, cut) == crc) return (int64_t)first;
    }
    state = mq_crc_by_table(&mq_castagnoli, 0, change, 4);
    for (size_t i = 0; i < cut; i++)
        state = state >> 8 ^ mq_castagnoli.table[0][state & 255];
    while (first) {
        first -= 4;
        if (state == crc) return (int64_t)first;
        state = mq_four_zeros(state);
    }
    return -1;
}

/* String.hashCode over the UTF-16 units of well-formed UTF-8; 0 when it is malformed -------- */

static int mq_hash(const uint8_t *p, size_t n, uint32_t *hash) {
    const uint8_t *end = p + n;
    uint32_t h = *hash;
    while (p < end) {
        uint32_t c, word;
        for (; end - p >= 4; p += 4) {
            memcpy(&word, p, 4);
            if (word & 0x80808080u) break;
            h = h * 923521u + p[0] * 29791u + p[1] * 961u + p[2] * 31u + p[3];
        }
        if (p == end) break;
        c = *p++;
        if (c >= 0x80) {
            unsigned more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
            if (c < 0xC2 || c > 0xF4 || (size_t)(end - p) < more) return 0;
            c &= 0x3Fu >> more;
            for (unsigned i = more; i--; c = c << 6 | (*p++ & 0x3F))
                if ((*p & 0xC0) != 0x80) return 0;
            if (more == 2 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) return 0;
            if (more == 3 && (c < 0x10000 || c > 0x10FFFF)) return 0;
        }
        if (c >= 0x10000) {
            h = h * 31 + (0xD7C0 + (c >> 10));
            c = 0xDC00 + (c & 0x3FF);
        }
        h = h * 31 + c;
    }
    *hash = h;
    return 1;
}

/* A keyed digest of bytes, for tables in memory: folded 128-bit products ---------------------- */

static inline uint64_t mq_fold_product(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t mq_digest(const uint8_t *p, size_t n, uint64_t seed, uint64_t secret) {
    uint64_t state = seed ^ n, words[2];
    for (; n > 16; p += 16, n -= 16) {
        memcpy(words, p, 16);
        state = mq_fold_product(words[0] ^ secret, words[1] ^ state);
    }
    words[0] = words[1] = 0;
    mq_copy(words, p, n);
    state = mq_fold_product(words[0] ^ secret, words[1] ^ state);
    return mq_fold_product(state ^ secret, state ^ 0x9E3779B97F4A7C15u);
}

/* words shared between processes --------------------------------------------------------- */

static inline uint64_t atomic_load64(const void *p) {
    return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}
static inline void atomic_store64(void *p, uint64_t v) {
    __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
}
static inline uint32_t atomic_load32(const void *p) {
    return __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE);
}
static inline uint32_t atomic_add32(void *p, uint32_t v) {
    return __atomic_add_fetch((uint32_t *)p, v, __ATOMIC_ACQ_REL);
}

static inline int64_t mq_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
static inline double mq_monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Adds 1 to an event file descriptor. The write fails only where the count is not 0 already. */
#include <unistd.h>
static inline void count_event(int event_fd) {
    const uint64_t one = 1;
    const ssize_t written = write(event_fd, &one, sizeof one);
    (void)written;
}

#if defined(__linux__)
#include <sys/syscall.h>
/* 0 FUTEX_WAIT and 1 FUTEX_WAKE, without FUTEX_PRIVATE_FLAG: waiters are in other processes */
static long mq_futex(const void *word, int operation, uint32_t value, double timeout_s) {
    struct timespec limit, *timeout = NULL;
    long result;
    if (timeout_s >= 0) {
        limit.tv_sec = (time_t)timeout_s;
        limit.tv_nsec = (long)((timeout_s - (double)limit.tv_sec) * 1e9);
        timeout = &limit;
    }
    result = syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
    return result < 0 ? -(long)errno : result;
}
#else
static long mq_futex(const void *word, int operation, uint32_t value, double timeout_s) {
    return -(long)ENOSYS;
}
#endif
