/*
 * lean: a client that costs as little as possible, the same for HTTP and for RocketMQ's remoting
 * protocol. One thread serves all connections over epoll; each connection repeats one exchange, a
 * request or several, and sends a request after the reply to the one before.
 *
 *   lean PROTOCOL PORT CONNECTIONS SECONDS EXCHANGES MESSAGES WRAP RATE RUN SERVERS < EXCHANGE
 *
 * PROTOCOL is http or remoting. An exchange begins while SECONDS have not passed (0: no limit) and
 * its connection has begun fewer than EXCHANGES (0: no limit). MESSAGES is the number of messages of
 * an exchange; 0: the records in the replies, or the captured items, are counted. A capture 0 that
 * reaches WRAP becomes 0. RATE is the exchanges a second that begin over all connections (0: no limit).
 * A connection whose reply has no item to capture ends; the time counts to the last counted message.
 * RUN is 16 hexadecimal digits of the unique keys. SERVERS are process ids, joined by commas, whose
 * processor time is reported.
 *
 * EXCHANGE (tests/bench/lean.py writes it) is a sequence of parts: a kind, the length of its data as
 * a big-endian 32-bit number, the data. The kinds are in enum kind.
 *
 * One JSON object goes to standard output. Status 1: a connection or a reply failed; standard error
 * says which and why. Status 2: wrong arguments.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 1024,
    PARTS_MAX = 4096,
    CAPTURES = 4,
    CAPTURE_SIZE = 128,
    QUEUES = 4,
    SERVERS_MAX = 16,
    RECORD_HEAD = 8,
    REPLY_TIMEOUT_MS = 60000,
};

enum kind {
    LITERAL = 'L',
    UNIQUE_KEY = 'K', /* data: index of the message in the exchange, 32 bits */
    NUMBER = 'N',     /* the message's number in ten digits; data as of UNIQUE_KEY */
    OPAQUE = 'O',     /* number of a remoting request in ten digits */
    TIME = 'T',       /* Unix milliseconds */
    QUEUE = 'Q',      /* one digit: the connection's number modulo QUEUES */
    CAPTURED = 'V',   /* a captured text; data: its index */
    CAPTURED_HEX = 'X', /* the last 16 hexadecimal digits of a captured text, in decimal */
    HEADER_END = 'H', /* a remoting header ends here */
    REQUEST_END = 'E',
    CAPTURE = 'G',    /* of the reply to the last request; data: index, then the text before it */
    RUN = 'I',        /* RUN */
    NOW = 'U',        /* SENT and the monotonic time in nanoseconds, in 19 digits */
    LENGTH = 'C',     /* bytes behind an HTTP request's head */
    ITEMS = 'W',      /* the captured items, joined by commas */
    CAPTURE_TEXTS = 'F', /* items: each text behind the data, in quotes */
    CAPTURE_POPPED = 'P', /* items: a BatchAck of each queue of a POP's reply, from the data on */
};

struct part {
    enum kind kind;
    uint32_t size;
    const unsigned char *data;
};

struct buffer {
    unsigned char *data;
    size_t size, capacity;
};

struct connection {
    int number, socket, is_early;
    size_t next_part; /* the first one of the next request, or a CAPTURE before it */
    struct buffer request, reply, items;
    uint64_t item_count;
    size_t length_at; /* where LENGTH stands in the request; 0: nowhere */
    char captured[CAPTURES][CAPTURE_SIZE];
    char opaque[24]; /* as it stands in the reply's header */
    uint64_t first_message, begun;
    double began_s;
};

static struct part parts[PARTS_MAX];
static size_t part_count;
static struct connection connections[CONNECTIONS_MAX];
static int is_remoting, poll_descriptor;
static long long wrap, exchanges_max;
static uint64_t messages_each, next_message, next_opaque = 1000000000;
static uint64_t exchanges, messages, reply_bytes;
static double deadline_s, began_s, rate, last_message_s;
static int connection_count, captures_items;
static const char *run_id;

struct latencies {
    float *ms;
    size_t count, capacity;
};

static struct latencies of_exchanges, of_arrivals;
static const char SENT[] = "sent at ";

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void __attribute__((noreturn)) fail_reply(const struct connection *c, const char *what) {
    char text[400];
    size_t size = c->reply.size < sizeof text - 1 ? c->reply.size : sizeof text - 1;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = c->reply.data[i];
        text[i] = byte >= ' ' && byte < 127 ? (char)byte : ' ';
    }
    text[size] = 0;
    fail("connection %d: %s: %s", c->number, what, text);
}

static double clock_s(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time) != 0)
        fail("the processor time of a server cannot be read: %s", strerror(errno));
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Processor time of other processes (clock_getcpuclockid). */
static double servers_cpu_s(const char *list) {
    double sum = 0;
    for (const char *at = list; *at;) {
        char *end;
        long pid = strtol(at, &end, 10);
        sum += clock_s((clockid_t)((~(unsigned)pid << 3) | 2));
        at = *end == ',' ? end + 1 : end;
    }
    return sum;
}

static void reserve(struct buffer *buffer, size_t more) {
    if (buffer->size + more <= buffer->capacity)
        return;
    while (buffer->size + more > buffer->capacity)
        buffer->capacity = buffer->capacity ? buffer->capacity * 2 : 1 << 16;
    buffer->data = realloc(buffer->data, buffer->capacity);
    if (buffer->data == NULL)
        fail("out of memory");
}

static void append(struct buffer *buffer, const void *data, size_t size) {
    reserve(buffer, size);
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

static uint32_t big_endian(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_big_endian(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

static void append_digits(struct buffer *buffer, uint64_t value, unsigned base, int count) {
    char digits[24];
    for (int i = count - 1; i >= 0; i--, value /= base)
        digits[i] = "0123456789ABCDEF"[value % base];
    append(buffer, digits, (size_t)count);
}

static void append_captured_hex(struct connection *c, const char *text) {
    char decimal[24];
    size_t length = strlen(text);
    if (length < 16)
        fail_reply(c, "no message id in the reply");
    int size = snprintf(decimal, sizeof decimal, "%llu", strtoull(text + length - 16, NULL, 16));
    append(&c->request, decimal, (size_t)size);
}

static void append_part(struct connection *c, const struct part *part) {
    struct buffer *request = &c->request;
    switch (part->kind) {
    case LITERAL:
        append(request, part->data, part->size);
        break;
    case UNIQUE_KEY:
        append(request, run_id, 16);
        append_digits(request, c->first_message + big_endian(part->data), 16, 16);
        break;
    case NUMBER:
        append_digits(request, c->first_message + big_endian(part->data), 10, 10);
        break;
    case OPAQUE:
        snprintf(c->opaque, sizeof c->opaque, "\"opaque\":%llu", (unsigned long long)next_opaque);
        append(request, c->opaque + 9, 10);
        next_opaque++;
        break;
    case TIME:
        append_digits(request, (uint64_t)(clock_s(CLOCK_REALTIME) * 1e3), 10, 13);
        break;
    case QUEUE:
        append_digits(request, (uint64_t)c->number % QUEUES, 10, 1);
        break;
    case CAPTURED:
        append(request, c->captured[part->data[0]], strlen(c->captured[part->data[0]]));
        break;
    case CAPTURED_HEX:
        append_captured_hex(c, c->captured[part->data[0]]);
        break;
    case RUN:
        append(request, run_id, 16);
        break;
    case NOW:
        append(request, SENT, sizeof SENT - 1);
        append_digits(request, (uint64_t)(clock_s(CLOCK_MONOTONIC) * 1e9), 10, 19);
        break;
    case LENGTH:
        c->length_at = request->size;
        break;
    case ITEMS:
        append(request, c->items.data, c->items.size);
        break;
    case HEADER_END:
        put_big_endian(request->data + 4, (uint32_t)request->size - 8);
        break;
    default:
        fail("part %c does not belong into a request", part->kind);
    }
}

static void send_all(struct connection *c) {
    for (size_t sent = 0; sent < c->request.size;) {
        ssize_t size = send(c->socket, c->request.data + sent, c->request.size - sent, MSG_NOSIGNAL);
        if (size < 0)
            fail("connection %d: send: %s", c->number, strerror(errno));
        sent += (size_t)size;
    }
}

/* Puts the number of bytes behind the head where LENGTH stands. */
static void insert_length(struct connection *c) {
    struct buffer *request = &c->request;
    const unsigned char *head_end = memmem(request->data, request->size, "\r\n\r\n", 4);
    char digits[24];
    size_t body_size = request->size - (size_t)(head_end + 4 - request->data);
    size_t count = (size_t)snprintf(digits, sizeof digits, "%zu", body_size);
    reserve(request, count);
    unsigned char *at = request->data + c->length_at;
    memmove(at + count, at, request->size - c->length_at);
    memcpy(at, digits, count);
    request->size += count;
}

static void send_request(struct connection *c) {
    c->request.size = c->length_at = 0;
    if (is_remoting)
        append(&c->request, "\0\0\0\0\0\0\0\0", 8);
    while (parts[c->next_part].kind != REQUEST_END)
        append_part(c, &parts[c->next_part++]);
    c->next_part++;
    if (is_remoting)
        put_big_endian(c->request.data, (uint32_t)c->request.size - 4);
    else if (c->length_at)
        insert_length(c);
    send_all(c);
}

/* When the connection's next exchange may begin. */
static double due_s(const struct connection *c) {
    return began_s + (double)(c->begun * (uint64_t)connection_count + (uint64_t)c->number) / rate;
}

/* Whether an exchange began, or waits for its turn. */
static int begin_exchange(struct connection *c) {
    double now_s = clock_s(CLOCK_MONOTONIC);
    double begin_s = rate != 0 && now_s < due_s(c) ? due_s(c) : now_s;
    c->is_early = 0;
    if ((deadline_s != 0 && begin_s >= deadline_s)
        || (exchanges_max != 0 && c->begun >= (uint64_t)exchanges_max))
        return 0;
    c->is_early = begin_s > now_s;
    if (c->is_early)
        return 1;
    c->begun++;
    c->began_s = now_s;
    c->next_part = 0;
    c->first_message = next_message;
    next_message += messages_each ? messages_each : 1;
    send_request(c);
    return 1;
}

/* Finds text in the reply's head; NULL when it is not there. */
static const char *find(const unsigned char *head, size_t size, const void *text, size_t length) {
    const char *found = memmem(head, size, text, length);
    return found == NULL ? NULL : found + length;
}

/* Size of a whole reply's head, 0 while the reply is incomplete; *whole is then undefined. */
static size_t head_of_http(struct connection *c, size_t *whole) {
    const unsigned char *data = c->reply.data;
    const char *end = find(data, c->reply.size, "\r\n\r\n", 4);
    if (end == NULL)
        return 0;
    size_t head = (size_t)(end - (const char *)data);
    const char *length = find(data, head, "\r\ncontent-length:", 17);
    if (length == NULL)
        fail_reply(c, "a reply without content-length");
    *whole = head + strtoull(length, NULL, 10);
    if (c->reply.size < *whole)
        return 0;
    if (head < 12 || memcmp(data, "HTTP/1.1 20", 11) != 0)
        fail_reply(c, "the server refused a request");
    return head;
}

/* Whether a POP found no message: PULL_NOT_FOUND, POLLING_FULL or POLLING_TIMEOUT. */
static int has_popped_nothing(const unsigned char *data, size_t head) {
    return captures_items
        && (find(data, head, "\"code\":19,", 10) != NULL || find(data, head, "\"code\":209,", 11) != NULL
            || find(data, head, "\"code\":210,", 11) != NULL);
}

static size_t head_of_remoting(struct connection *c, size_t *whole) {
    const unsigned char *data = c->reply.data;
    if (c->reply.size < 8)
        return 0;
    *whole = 4 + (size_t)big_endian(data);
    if (c->reply.size < *whole)
        return 0;
    size_t head = 8 + (big_endian(data + 4) & 0xFFFFFF);
    if (head > *whole)
        fail_reply(c, "a header longer than its frame");
    if (find(data, head, "\"code\":0,", 9) == NULL && !has_popped_nothing(data, head))
        fail_reply(c, "the broker refused a request");
    if (find(data, head, c->opaque, strlen(c->opaque)) == NULL)
        fail_reply(c, "a reply to another request");
    return head;
}

static void capture(struct connection *c, const struct part *part) {
    char *captured = c->captured[part->data[0]];
    const char *text = find(c->reply.data, c->reply.size, part->data + 1, part->size - 1);
    if (text == NULL)
        fail_reply(c, "a reply without a value");
    const char *end = (const char *)c->reply.data + c->reply.size;
    size_t size = 0;
    while (text + size < end && size < CAPTURE_SIZE - 1 && strchr("\",}\r", text[size]) == NULL)
        size++;
    memcpy(captured, text, size);
    captured[size] = 0;
    if (part->data[0] == 0 && wrap != 0 && strtoll(captured, NULL, 10) >= wrap)
        strcpy(captured, "0");
}

static void begin_item(struct connection *c) {
    if (c->items.size)
        append(&c->items, ",", 1);
}

static void capture_texts(struct connection *c, const struct part *part) {
    const unsigned char *end = c->reply.data + c->reply.size;
    const char *text = (const char *)c->reply.data;
    while ((text = find((const unsigned char *)text, (size_t)(end - (const unsigned char *)text),
                part->data, part->size)) != NULL) {
        const char *stop = memchr(text, '"', (size_t)(end - (const unsigned char *)text));
        if (stop == NULL)
            fail_reply(c, "a text without an end");
        begin_item(c);
        append(&c->items, text - 1, (size_t)(stop - text) + 2);
        c->item_count++;
        text = stop;
    }
}

/* The text of a field of a remoting header; fails where there is none. */
static const char *field(struct connection *c, const char *name) {
    const char *found = find(c->reply.data, c->reply.size, name, strlen(name));
    if (found == NULL)
        fail_reply(c, "a POP's reply without a field");
    return found;
}

/* "0 QUEUE START;..." and "0 QUEUE OFFSET,OFFSET...;..." name what was popped of each queue. */
static void capture_popped(struct connection *c, const struct part *part) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = find(c->reply.data, c->reply.size, "\"msgOffsetInfo\":\"", 17);
    if (found == NULL || *found == '"')
        return;
    const char *starts = field(c, "\"startOffsetInfo\":\""), *offsets = field(c, "\"msgOffsetInfo\":\"");
    long long popped = strtoll(field(c, "\"popTime\":\""), NULL, 10);
    long long invisible = strtoll(field(c, "\"invisibleTime\":\""), NULL, 10);
    long revive = strtol(field(c, "\"reviveQid\":\""), NULL, 10);
    char *at = (char *)offsets - 1;
    do {
        unsigned char bits[64] = {0}, encoded[89];
        int last = 0;
        long queue = strtol(at + 3, &at, 10);
        strtol(strchr(starts, ' '), (char **)&starts, 10);
        long long start = strtoll(starts, (char **)&starts, 10);
        do {
            long long offset = strtoll(at + 1, &at, 10) - start;
            if (offset < 0 || offset >= 60 * 8)
                fail_reply(c, "a POP's reply with an offset out of bounds");
            last = (int)offset;
            bits[offset >> 3] |= (unsigned char)(1 << (offset & 7));
            c->item_count++;
        } while (*at == ',');
        for (int i = 0; i <= last / 24; i++) {
            uint32_t group = (uint32_t)bits[3 * i] << 16 | (uint32_t)bits[3 * i + 1] << 8 | bits[3 * i + 2];
            for (int j = 0; j < 4; j++)
                encoded[4 * i + j] = (unsigned char)digits[group >> (18 - 6 * j) & 63];
        }
        char text[256];
        int size = snprintf(text, sizeof text,
            "%s\",\"so\":%lld,\"q\":%ld,\"rq\":%ld,\"pt\":%lld,\"it\":%lld,\"b\":\"%.*s\"}", run_id, start,
            queue, revive, popped, invisible, 4 * (last / 24 + 1), (const char *)encoded);
        begin_item(c);
        append(&c->items, part->data, part->size);
        append(&c->items, text, (size_t)size);
    } while (*at == ';');
}

static uint64_t count_records(struct connection *c, size_t head, size_t whole) {
    uint64_t count = 0;
    for (size_t at = head; at < whole; count++) {
        uint32_t size = at + RECORD_HEAD <= whole ? big_endian(c->reply.data + at) : 0;
        if (size < RECORD_HEAD || at + size > whole)
            fail_reply(c, "a reply with a broken record");
        at += size;
    }
    if (count == 0)
        fail_reply(c, "a reply without records");
    return count;
}

static void keep_latency(struct latencies *kept, double ms) {
    if (kept->count == kept->capacity) {
        kept->capacity = kept->capacity ? kept->capacity * 2 : 1 << 16;
        kept->ms = realloc(kept->ms, kept->capacity * sizeof *kept->ms);
        if (kept->ms == NULL)
            fail("out of memory");
    }
    kept->ms[kept->count++] = (float)ms;
}

/* Keeps the time from the sending of each message in a reply that says when it was sent. */
static void keep_arrivals(const struct connection *c) {
    double now_ms = clock_s(CLOCK_MONOTONIC) * 1e3;
    const unsigned char *at = c->reply.data, *end = at + c->reply.size;
    const char *text;
    while ((text = find(at, (size_t)(end - at), SENT, sizeof SENT - 1)) != NULL) {
        at = (const unsigned char *)text;
        keep_latency(&of_arrivals, now_ms - (double)strtoull(text, NULL, 10) / 1e6);
    }
}

/* Captures of the reply to the last request; whether an exchange that captures items got one. */
static int capture_all(struct connection *c) {
    int is_empty = 0;
    for (; c->next_part < part_count; c->next_part++) {
        const struct part *part = &parts[c->next_part];
        if (part->kind == CAPTURE) {
            capture(c, part);
        } else if (part->kind == CAPTURE_TEXTS || part->kind == CAPTURE_POPPED) {
            c->items.size = c->item_count = 0;
            (part->kind == CAPTURE_TEXTS ? capture_texts : capture_popped)(c, part);
            keep_arrivals(c);
            is_empty = c->item_count == 0;
        } else {
            break;
        }
    }
    return !is_empty;
}

/* Handles what arrived; whether the connection has a request under way. */
static int receive(struct connection *c) {
    size_t whole, head;
    reserve(&c->reply, 1 << 16);
    ssize_t size = recv(c->socket, c->reply.data + c->reply.size, c->reply.capacity - c->reply.size, 0);
    if (size <= 0)
        fail("connection %d: %s", c->number, size ? strerror(errno) : "the server closed it");
    c->reply.size += (size_t)size;
    head = is_remoting ? head_of_remoting(c, &whole) : head_of_http(c, &whole);
    if (head == 0)
        return 1;
    reply_bytes += whole;
    if (!capture_all(c))
        return 0;
    if (c->next_part == part_count && captures_items)
        messages += c->item_count;
    else if (c->next_part == part_count)
        messages += messages_each ? messages_each : count_records(c, head, whole);
    c->reply.size = 0;
    if (c->next_part < part_count) {
        send_request(c);
        return 1;
    }
    exchanges++;
    last_message_s = clock_s(CLOCK_MONOTONIC);
    keep_latency(&of_exchanges, (last_message_s - c->began_s) * 1e3);
    return begin_exchange(c);
}

static void connect_to(struct connection *c, int number, int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    int one = 1;
    c->number = number;
    strcpy(c->captured[0], "0");
    c->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (c->socket < 0 || connect(c->socket, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connection %d: 127.0.0.1:%d: %s", number, port, strerror(errno));
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (epoll_ctl(poll_descriptor, EPOLL_CTL_ADD, c->socket, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
}

/* Begins the exchanges that are due; milliseconds to the next one. Reduces *busy by those that end. */
static int begin_due(int *busy) {
    double next_s = 0;
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = &connections[i];
        if (c->is_early && !begin_exchange(c))
            (*busy)--;
        if (c->is_early && (next_s == 0 || due_s(c) < next_s))
            next_s = due_s(c);
    }
    double left_s = next_s - clock_s(CLOCK_MONOTONIC);
    return next_s == 0 ? REPLY_TIMEOUT_MS : left_s > 0 ? (int)(left_s * 1e3) : 0;
}

static void run_until_all_end(void) {
    struct epoll_event events[64];
    int busy = 0;
    for (int i = 0; i < connection_count; i++)
        busy += begin_exchange(&connections[i]);
    while (busy > 0) {
        int patience_ms = rate != 0 ? begin_due(&busy) : REPLY_TIMEOUT_MS;
        if (busy <= 0)
            break;
        int ready = epoll_wait(poll_descriptor, events, 64, patience_ms);
        if (ready == 0 && patience_ms == REPLY_TIMEOUT_MS)
            fail("no reply within %d s", REPLY_TIMEOUT_MS / 1000);
        for (int i = 0; i < ready; i++)
            busy -= !receive(events[i].data.ptr);
    }
}

static void read_parts(void) {
    static struct buffer input;
    for (;;) {
        reserve(&input, 1 << 16);
        ssize_t size = read(STDIN_FILENO, input.data + input.size, input.capacity - input.size);
        if (size <= 0)
            break;
        input.size += (size_t)size;
    }
    for (size_t at = 0; at < input.size; part_count++) {
        if (part_count == PARTS_MAX || at + 5 > input.size)
            fail("an exchange of too many parts, or a broken one");
        struct part *part = &parts[part_count];
        part->kind = input.data[at];
        part->size = big_endian(input.data + at + 1);
        part->data = input.data + at + 5;
        at += 5 + part->size;
        if (at > input.size)
            fail("a broken exchange");
        captures_items |= part->kind == CAPTURE_TEXTS || part->kind == CAPTURE_POPPED;
    }
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void sort(struct latencies *kept) {
    if (kept->count)
        qsort(kept->ms, kept->count, sizeof *kept->ms, compare);
}

static double percentile(const struct latencies *kept, double share) {
    return kept->count ? kept->ms[(size_t)((double)kept->count * share)] : 0;
}

int main(int count, char **values) {
    if (count != 11 || strlen(values[9]) != 16) {
        fprintf(stderr,
            "usage: lean PROTOCOL PORT CONNECTIONS SECONDS EXCHANGES MESSAGES WRAP RATE RUN SERVERS\n");
        return 2;
    }
    connection_count = atoi(values[3]);
    if (connection_count < 1 || connection_count > CONNECTIONS_MAX)
        fail("%s connections; 1 to %d are possible", values[3], CONNECTIONS_MAX);
    is_remoting = strcmp(values[1], "remoting") == 0;
    exchanges_max = atoll(values[5]);
    messages_each = strtoull(values[6], NULL, 10);
    wrap = atoll(values[7]);
    rate = atof(values[8]);
    run_id = values[9];
    read_parts();
    poll_descriptor = epoll_create1(0);
    for (int i = 0; i < connection_count; i++)
        connect_to(&connections[i], i, atoi(values[2]));
    double servers_s = servers_cpu_s(values[10]);
    double client_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    began_s = clock_s(CLOCK_MONOTONIC);
    deadline_s = atof(values[4]) > 0 ? began_s + atof(values[4]) : 0;
    run_until_all_end();
    double seconds = exchanges ? last_message_s - began_s : 0;
    client_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - client_s;
    servers_s = servers_cpu_s(values[10]) - servers_s;
    sort(&of_exchanges);
    sort(&of_arrivals);
    printf("{\"exchanges\": %llu, \"messages\": %llu, \"bytes\": %llu, \"seconds\": %.6f,"
           " \"client_s\": %.6f, \"server_s\": %.6f, \"p50\": %.6f, \"p99\": %.6f, \"p99.9\": %.6f,"
           " \"arrival_p50\": %.6f, \"arrival_p99\": %.6f}\n",
           (unsigned long long)exchanges, (unsigned long long)messages,
           (unsigned long long)reply_bytes, seconds, client_s, servers_s, percentile(&of_exchanges, 0.5),
           percentile(&of_exchanges, 0.99), percentile(&of_exchanges, 0.999),
           percentile(&of_arrivals, 0.5), percentile(&of_arrivals, 0.99));
    return 0;
}
