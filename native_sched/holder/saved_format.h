/* The layout of saved.h's bytes: a head, then records. Any change here needs a new SAVED_FORMAT. */
#ifndef MGPU_HOLDER_SAVED_FORMAT_H
#define MGPU_HOLDER_SAVED_FORMAT_H
#include <stddef.h>
#include <stdint.h>

#define SAVED_MAGIC "mgpuhold" /* 8 bytes, without the NUL */

enum saved_record { A_LISTENER = 1, AN_INTAKE, A_CANDIDATE, A_CHILD, THE_MGPUD, THE_REST };

struct saved_head {
    char magic[sizeof(SAVED_MAGIC) - 1];
    uint32_t format, reserved;
    uint64_t bytes, checksum; /* of the records */
};

/* Followed by `bytes`: one of the structs below, then a text if it has one. */
struct saved_record_head {
    uint32_t record, bytes;
};

struct saved_listener {
    uint64_t id;
    int32_t fd;
    uint16_t handed, stored;
};

struct saved_intake {
    int32_t fd, listener;
    int64_t deadline_ms;
    uint32_t depth, in_string, escaped, reserved;
};

struct saved_candidate {
    int32_t fd, pidfd, pid;
    uint32_t is_next;
    int64_t deadline_ms;
    uint64_t hello;
};

struct saved_child {
    int32_t pid, pidfd;
    int64_t started_ms;
    uint64_t ready;
};

struct saved_mgpud {
    int32_t fd, pidfd, pid;
    uint32_t serves, gives_back, all_sent, doomed, sent;
    int64_t served_ms, silent_ms;
};

struct saved_rest {
    int32_t runtimes_fd, mgpuds_fd;
    uint64_t next_id;
    uint32_t told_ready, killed, kills_lately, replaced, fence, ever_ready, young_ends, refused;
    int64_t start_ms, patience_ms;
};

/* FNV-1a. */
static inline uint64_t saved_checksum(const char *at, size_t bytes)
{
    uint64_t sum = 14695981039346656037u;

    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ (unsigned char)at[i]) * 1099511628211u;
    return sum;
}
#endif
