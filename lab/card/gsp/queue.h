/* The two message queues that the driver and its GSP share, as message_queue_cpu.c of the open driver has
 * them: pages of the guest's memory, each message some pages long, with a checksum and a number. Read
 * pointers lie in the other's queue. What is longer than 16 pages goes on in records of its own (rpc.c). */
#ifndef MGPU_LAB_QUEUE_H
#define MGPU_LAB_QUEUE_H
#include "../facts/layout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QUEUE_PAGE = 4096,
    QUEUE_PAGES_MAX = 1024,
    MESSAGE_PAGES = 16,
    MESSAGE_BYTES = MESSAGE_PAGES * QUEUE_PAGE,
    RPC_HEADER_BYTES = 32,
    RPC_BYTES_MAX = 1 << 20, /* with what follows in records */
};

/* How the guest's memory is reached; false: there is none. */
struct queue_memory {
    bool (*read)(void *of, uint64_t address, void *to, size_t bytes);
    bool (*write)(void *of, uint64_t address, const void *from, size_t bytes);
    void *of;
};

struct rpc {
    uint32_t function, sequence;
    uint32_t bytes; /* of the body */
    uint8_t *body;  /* RPC_BYTES_MAX */
};

struct queues {
    struct queue_memory memory;
    const struct layout *layout;
    uint64_t page[QUEUE_PAGES_MAX];
    uint32_t pages;
    uint64_t command_at, status_at; /* in the pages, as one piece */
    uint32_t command_first, command_count, status_count;
    uint32_t read, write, sequence;
    uint32_t whole; /* of a message that comes in records: how long its body will be; 0: none does */
    struct rpc asked;
    uint8_t message[MESSAGE_BYTES];
};

/* Takes the queues whose description is at that address, and opens the status queue. False: it is no such
 * description. `asked.body` is the caller's. */
bool queues_open(struct queues *queues, uint64_t arguments);
/* The next whole request, into queues->asked. False: there is none yet. */
bool queues_next(struct queues *queues);
/* One message, with its records when it is long. False: the memory is gone, or nobody takes messages out. */
bool queues_send(struct queues *queues, uint32_t function, uint32_t sequence, const void *body,
                 uint32_t bytes);
#endif
