#include "queue.h"
#include <string.h>

/* Of a queue's first page, in words. */
struct head {
    uint32_t version, bytes, message_bytes, count, write, flags, read_at, first_at;
};
struct rpc_head {
    uint32_t version, signature, length, function, result, result_private, sequence, spare;
};
_Static_assert(sizeof(struct rpc_head) == RPC_HEADER_BYTES, "as rpc_message_header_v");

enum { SIGNATURE = 0x43505256, VERSION = 0x03000000, SWAP_READ = 1 };
enum { WRITE_AT = 16, READ_AT = 32, STATUS_BYTES = 0x40000 };
/* Of an alloc and of a control, in their bodies: how many bytes of parameters follow. */
enum { CONTROL_BYTES_AT = 16, ALLOC_PARAMS = 32, ALLOC_BYTES_AT = 20 };

/* The sum of all words of a message, folded; with the field for it zero, what that has to be. */
static uint32_t queue_checksum(const uint8_t *message, size_t bytes)
{
    uint64_t sum = 0, word;

    for (size_t at = 0; at < bytes; at += sizeof word) {
        word = 0;
        memcpy(&word, message + at, bytes - at < sizeof word ? bytes - at : sizeof word);
        sum ^= word;
    }
    return (uint32_t)(sum >> 32) ^ (uint32_t)sum;
}

/* The pages are one piece to what follows. */
static bool move(struct queues *q, uint64_t at, void *to, const void *from, size_t bytes)
{
    while (bytes) {
        uint64_t page = at / QUEUE_PAGE, inside = at % QUEUE_PAGE;
        size_t n = QUEUE_PAGE - inside < bytes ? QUEUE_PAGE - inside : bytes;

        if (page >= q->pages)
            return false;
        if (to && !q->memory.read(q->memory.of, q->page[page] + inside, to, n))
            return false;
        if (from && !q->memory.write(q->memory.of, q->page[page] + inside, from, n))
            return false;
        to = to ? (uint8_t *)to + n : NULL;
        from = from ? (const uint8_t *)from + n : NULL;
        at += n;
        bytes -= n;
    }
    return true;
}

static bool get(struct queues *q, uint64_t at, void *to, size_t bytes)
{
    return move(q, at, to, NULL, bytes);
}

static bool put(struct queues *q, uint64_t at, const void *from, size_t bytes)
{
    return move(q, at, NULL, from, bytes);
}

static bool open_command(struct queues *q)
{
    struct head head;

    if (!get(q, q->command_at, &head, sizeof head))
        return false;
    q->command_first = head.first_at;
    q->command_count = head.count;
    return head.count && head.message_bytes == QUEUE_PAGE && head.first_at % 8 == 0 &&
           head.first_at < q->pages * (uint64_t)QUEUE_PAGE && head.count <= q->pages;
}

static bool open_status(struct queues *q)
{
    const struct head head = {
        .bytes = STATUS_BYTES,
        .message_bytes = QUEUE_PAGE,
        .count = STATUS_BYTES / QUEUE_PAGE - 1,
        .flags = SWAP_READ,
        .read_at = READ_AT,
        .first_at = QUEUE_PAGE,
    };
    const uint32_t read = 0;

    q->status_count = head.count;
    return put(q, q->status_at, &head, sizeof head) && put(q, q->status_at + READ_AT, &read, sizeof read);
}

bool queues_open(struct queues *q, uint64_t arguments)
{
    const uint32_t *at = q->layout->value;
    uint64_t shared;

    if (!q->memory.read(q->memory.of, arguments, &shared, sizeof shared) ||
        !q->memory.read(q->memory.of, arguments + at[AT_init_pages], &q->pages, sizeof q->pages) ||
        !q->memory.read(q->memory.of, arguments + at[AT_init_command], &q->command_at,
                        sizeof q->command_at) ||
        !q->memory.read(q->memory.of, arguments + at[AT_init_status], &q->status_at, sizeof q->status_at))
        return false;
    if (!q->pages || q->pages > QUEUE_PAGES_MAX ||
        !q->memory.read(q->memory.of, shared, q->page, q->pages * sizeof q->page[0]))
        return false;
    q->read = q->write = q->sequence = q->whole = 0;
    return open_command(q) && open_status(q);
}

/* One message out of the queue into q->message: its bytes behind the element's header, or 0. */
static uint32_t take(struct queues *q, const struct rpc_head **head)
{
    uint64_t base = q->command_at + q->command_first;
    uint32_t written, count, header = q->layout->value[AT_queue_rpc];

    if (!get(q, q->command_at + WRITE_AT, &written, sizeof written) || written == q->read ||
        written >= q->command_count)
        return 0;
    if (!get(q, base + (uint64_t)q->read * QUEUE_PAGE, q->message, QUEUE_PAGE))
        return 0;
    memcpy(&count, q->message + q->layout->value[AT_queue_elements], sizeof count);
    if (!count || count > MESSAGE_PAGES)
        count = 1;
    for (uint32_t i = 1; i < count; i++)
        if (!get(q, base + (uint64_t)((q->read + i) % q->command_count) * QUEUE_PAGE,
                 q->message + i * QUEUE_PAGE, QUEUE_PAGE))
            return 0;
    q->read = (q->read + count) % q->command_count;
    if (!put(q, q->status_at + READ_AT, &q->read, sizeof q->read))
        return 0;
    *head = (const struct rpc_head *)(const void *)(q->message + header);
    return count * QUEUE_PAGE - header;
}

/* How long the whole body is. An alloc's header leaves its parameters out. */
static uint64_t body_bytes(const struct queues *q, const struct rpc_head *head, const uint8_t *body,
                           uint32_t room)
{
    uint32_t params, control = q->layout->value[AT_control_params];

    if (head->function == q->layout->value[AT_rpc_alloc] && room >= ALLOC_PARAMS) {
        memcpy(&params, body + ALLOC_BYTES_AT, sizeof params);
        return (uint64_t)ALLOC_PARAMS + params;
    }
    if (head->function == q->layout->value[AT_rpc_control] && room >= control) {
        memcpy(&params, body + CONTROL_BYTES_AT, sizeof params);
        return (uint64_t)control + params;
    }
    return head->length < RPC_HEADER_BYTES ? 0 : head->length - RPC_HEADER_BYTES;
}

/* A message's body is put behind what there is of the request. False: it does not belong there. */
static bool add(struct queues *q, const struct rpc_head *head, uint32_t bytes)
{
    const uint8_t *body = (const uint8_t *)head + RPC_HEADER_BYTES;
    uint32_t room = bytes - RPC_HEADER_BYTES, stated, n;

    if (head->function == q->layout->value[AT_rpc_continuation]) {
        if (!q->whole || head->length < RPC_HEADER_BYTES)
            return false;
        stated = head->length - RPC_HEADER_BYTES;
    } else {
        uint64_t whole = body_bytes(q, head, body, room);

        if (whole > RPC_BYTES_MAX)
            return false;
        q->whole = stated = (uint32_t)whole;
        if (head->function != q->layout->value[AT_rpc_alloc] && head->length >= RPC_HEADER_BYTES)
            stated = head->length - RPC_HEADER_BYTES;
        q->asked.function = head->function;
        q->asked.sequence = head->sequence;
        q->asked.bytes = 0;
    }
    n = stated < room ? stated : room;
    n = n < q->whole - q->asked.bytes ? n : q->whole - q->asked.bytes;
    memcpy(q->asked.body + q->asked.bytes, body, n);
    q->asked.bytes += n;
    return q->asked.bytes == q->whole;
}

bool queues_next(struct queues *q)
{
    const struct rpc_head *head;
    uint32_t bytes;

    while ((bytes = take(q, &head)))
        if (head->signature == SIGNATURE && add(q, head, bytes)) {
            q->whole = 0;
            return true;
        }
    return false;
}

static bool send_one(struct queues *q, uint32_t function, uint32_t sequence, const uint8_t *body,
                     uint32_t bytes)
{
    const uint32_t *at = q->layout->value;
    uint32_t total = at[AT_queue_rpc] + RPC_HEADER_BYTES + bytes,
             count = (total + QUEUE_PAGE - 1) / QUEUE_PAGE, sum;
    const struct rpc_head head = {VERSION, SIGNATURE, RPC_HEADER_BYTES + bytes, function, 0, 0, sequence, 0};
    uint32_t read, used;

    if (!get(q, q->command_at + READ_AT, &read, sizeof read) || read >= q->status_count)
        return false;
    used = (q->write + q->status_count - read) % q->status_count;
    if (count >= q->status_count - used)
        return false;
    memset(q->message, 0, count * QUEUE_PAGE);
    memcpy(q->message + at[AT_queue_sequence], &q->sequence, sizeof q->sequence);
    memcpy(q->message + at[AT_queue_elements], &count, sizeof count);
    memcpy(q->message + at[AT_queue_rpc], &head, sizeof head);
    if (bytes)
        memcpy(q->message + at[AT_queue_rpc] + sizeof head, body, bytes);
    sum = queue_checksum(q->message, total);
    memcpy(q->message + at[AT_queue_checksum], &sum, sizeof sum);
    q->sequence++;
    for (uint32_t i = 0; i < count; i++) {
        if (!put(q, q->status_at + QUEUE_PAGE + (uint64_t)q->write * QUEUE_PAGE, q->message + i * QUEUE_PAGE,
                 QUEUE_PAGE))
            return false;
        q->write = (q->write + 1) % q->status_count;
    }
    return put(q, q->status_at + WRITE_AT, &q->write, sizeof q->write);
}

bool queues_send(struct queues *q, uint32_t function, uint32_t sequence, const void *body, uint32_t bytes)
{
    uint32_t most = MESSAGE_BYTES - q->layout->value[AT_queue_rpc] - RPC_HEADER_BYTES, at = 0;

    do {
        uint32_t n = bytes - at < most ? bytes - at : most;

        if (!send_one(q, at ? q->layout->value[AT_rpc_continuation] : function, sequence,
                      (const uint8_t *)body + at, n))
            return false;
        at += n;
    } while (at < bytes);
    return true;
}
