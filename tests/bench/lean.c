/*
 * lean: a client that costs as little as possible, the same for HTTP and for RocketMQ's remoting
 * protocol. One thread serves all connections over epoll; each connection repeats one exchange, a
 * request or several, and sends a request after the reply to the one before.
 *
 *   lean PROTOCOL PORT CONNECTIONS SECONDS EXCHANGES MESSAGES WRAP RUN SERVERS < EXCHANGE
 *
 * PROTOCOL is http or remoting. An exchange begins while SECONDS have not passed (0: no limit) and
 * its connection has begun fewer than EXCHANGES (0: no limit). MESSAGES is the number of messages of
 * an exchange; 0: the records in the replies are counted. A capture 0 that reaches WRAP becomes 0.
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
    TIME = 'T',       /* Unix milliseconds at the start */
    QUEUE = 'Q',      /* one digit: the connection's number modulo QUEUES */
    CAPTURED = 'V',   /* a captured text; data: its index */
    CAPTURED_HEX = 'X', /* the last 16 hexadecimal digits of a captured text, in decimal */
    HEADER_END = 'H', /* a remoting header ends here */
    REQUEST_END = 'E',
    CAPTURE = 'G',    /* of the reply to the last request; data: index, then the text before it */
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
    int number, socket;
    size_t next_part; /* the first one of the next request, or a CAPTURE before it */
    struct buffer request, reply;
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
static double deadline_s;
static const char *run_id;
static char born_ms[24];
static float *latencies_ms;
static size_t latencies_capacity;

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
        append(request, born_ms, 13);
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

static void send_request(struct connection *c) {
    c->request.size = 0;
    if (is_remoting)
        append(&c->request, "\0\0\0\0\0\0\0\0", 8);
    while (parts[c->next_part].kind != REQUEST_END)
        append_part(c, &parts[c->next_part++]);
    c->next_part++;
    if (is_remoting)
        put_big_endian(c->request.data, (uint32_t)c->request.size - 4);
    send_all(c);
}

/* Whether an exchange began. */
static int begin_exchange(struct connection *c) {
    double now_s = clock_s(CLOCK_MONOTONIC);
    if ((deadline_s != 0 && now_s >= deadline_s)
        || (exchanges_max != 0 && c->begun >= (uint64_t)exchanges_max))
        return 0;
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
    if (find(data, head, "\"code\":0,", 9) == NULL)
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

static void keep_latency(double ms) {
    if (exchanges == latencies_capacity) {
        latencies_capacity = latencies_capacity ? latencies_capacity * 2 : 1 << 16;
        latencies_ms = realloc(latencies_ms, latencies_capacity * sizeof *latencies_ms);
        if (latencies_ms == NULL)
            fail("out of memory");
    }
    latencies_ms[exchanges++] = (float)ms;
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
    while (c->next_part < part_count && parts[c->next_part].kind == CAPTURE)
        capture(c, &parts[c->next_part++]);
    if (c->next_part == part_count)
        messages += messages_each ? messages_each : count_records(c, head, whole);
    c->reply.size = 0;
    if (c->next_part < part_count) {
        send_request(c);
        return 1;
    }
    keep_latency((clock_s(CLOCK_MONOTONIC) - c->began_s) * 1e3);
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

static void run_until_all_end(int count) {
    struct epoll_event events[64];
    int busy = 0;
    for (int i = 0; i < count; i++)
        busy += begin_exchange(&connections[i]);
    while (busy > 0) {
        int ready = epoll_wait(poll_descriptor, events, 64, REPLY_TIMEOUT_MS);
        if (ready == 0)
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
    }
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(double share) {
    return exchanges ? latencies_ms[(size_t)((double)exchanges * share)] : 0;
}

int main(int count, char **values) {
    if (count != 10 || strlen(values[8]) != 16) {
        fprintf(stderr, "usage: lean PROTOCOL PORT CONNECTIONS SECONDS EXCHANGES MESSAGES WRAP RUN SERVERS\n");
        return 2;
    }
    int connection_count = atoi(values[3]);
    if (connection_count < 1 || connection_count > CONNECTIONS_MAX)
        fail("%s connections; 1 to %d are possible", values[3], CONNECTIONS_MAX);
    is_remoting = strcmp(values[1], "remoting") == 0;
    exchanges_max = atoll(values[5]);
    messages_each = strtoull(values[6], NULL, 10);
    wrap = atoll(values[7]);
    run_id = values[8];
    read_parts();
    poll_descriptor = epoll_create1(0);
    for (int i = 0; i < connection_count; i++)
        connect_to(&connections[i], i, atoi(values[2]));
    snprintf(born_ms, sizeof born_ms, "%013.0f", clock_s(CLOCK_REALTIME) * 1e3);
    double servers_s = servers_cpu_s(values[9]);
    double client_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    double began_s = clock_s(CLOCK_MONOTONIC);
    deadline_s = atof(values[4]) > 0 ? began_s + atof(values[4]) : 0;
    run_until_all_end(connection_count);
    double seconds = clock_s(CLOCK_MONOTONIC) - began_s;
    client_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - client_s;
    servers_s = servers_cpu_s(values[9]) - servers_s;
    qsort(latencies_ms, exchanges, sizeof *latencies_ms, compare);
    printf("{\"exchanges\": %llu, \"messages\": %llu, \"bytes\": %llu, \"seconds\": %.6f,"
           " \"client_s\": %.6f, \"server_s\": %.6f, \"p50\": %.6f, \"p99\": %.6f, \"p99.9\": %.6f}\n",
           (unsigned long long)exchanges, (unsigned long long)messages,
           (unsigned long long)reply_bytes, seconds, client_s, servers_s, percentile(0.5),
           percentile(0.99), percentile(0.999));
    return 0;
}
