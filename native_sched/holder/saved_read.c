#include "child.h"
#include "mgpud.h"
#include "runtimes.h"
#include "saved.h"
#include "saved_format.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static char *copied(const char *text, size_t bytes, size_t room)
{
    char *copy = malloc(room);

    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

static int take_listener(const struct saved_listener *s, const char *text, size_t bytes)
{
    char *copy = copied(text, bytes, bytes + 1);
    struct held *h = copy ? held_add(s->id, s->fd, copy, bytes) : NULL;

    if (!h) {
        free(copy);
        return -ENOMEM;
    }
    h->handed = s->handed;
    h->stored = s->stored;
    return 0;
}

static int take_intake(const struct saved_intake *s, const char *text, size_t bytes)
{
    const unsigned int i = free_intake();
    struct intake *in = &intakes[i];

    if (i == INTAKE_MAX || bytes > TEXT_MAX)
        return -EBADMSG;
    *in = (struct intake){
        .fd = s->fd,
        .listener = s->listener,
        .deadline_ms = s->deadline_ms,
        .scan = {.depth = s->depth, .in_string = s->in_string, .escaped = s->escaped},
        .text = copied(text, bytes, TEXT_MAX),
        .bytes = bytes,
    };
    return in->text ? 0 : -ENOMEM;
}

static int take_candidate(const struct saved_candidate *s)
{
    int i = 0;

    while (i < CANDIDATES_MAX && mgpuds.candidates[i].fd >= 0)
        i++;
    if (i == CANDIDATES_MAX)
        return -EBADMSG;
    mgpuds.candidates[i] = (struct candidate){
        .fd = s->fd,
        .pidfd = s->pidfd,
        .pid = s->pid,
        .deadline_ms = s->deadline_ms,
        .hello = s->hello,
    };
    if (s->is_next)
        mgpuds.next = i;
    return 0;
}

static int take_child(const struct saved_child *s)
{
    struct child *c = child_slot();

    if (!c)
        return -EBADMSG;
    *c = (struct child){
        .pid = s->pid,
        .pidfd = s->pidfd,
        .started_ms = s->started_ms,
        .ready = s->ready,
        .called.line = -1,
    };
    return 0;
}

static int take_mgpud(const struct saved_mgpud *s)
{
    mgpuds.now = (struct mgpud){
        .fd = s->fd,
        .pidfd = s->pidfd,
        .pid = s->pid,
        .serves = s->serves,
        .gives_back = s->gives_back,
        .all_sent = s->all_sent,
        .doomed = s->doomed,
        .sent = s->sent,
        .served_ms = s->served_ms,
        .silent_ms = s->silent_ms,
    };
    return 0;
}

static int take_rest(const struct saved_rest *s, struct own *own)
{
    *own = (struct own){s->runtimes_fd, s->mgpuds_fd, s->told_ready};
    held_number_from(s->next_id);
    mgpuds.killed = s->killed;
    mgpuds.kills_lately = s->kills_lately;
    mgpuds.replaced = s->replaced;
    mgpuds.refused = s->refused;
    mgpuds.fence = s->fence;
    children.ever_ready = s->ever_ready;
    children.young_ends = s->young_ends;
    children.start_ms = s->start_ms;
    children.patience_ms = s->patience_ms;
    return 0;
}

union any {
    struct saved_listener listener;
    struct saved_intake intake;
    struct saved_candidate candidate;
    struct saved_child child;
    struct saved_mgpud mgpud;
    struct saved_rest rest;
};

static size_t fixed_bytes(uint32_t record)
{
    static const size_t bytes[] = {
        [A_LISTENER] = sizeof(struct saved_listener),   [AN_INTAKE] = sizeof(struct saved_intake),
        [A_CANDIDATE] = sizeof(struct saved_candidate), [A_CHILD] = sizeof(struct saved_child),
        [THE_MGPUD] = sizeof(struct saved_mgpud),       [THE_REST] = sizeof(struct saved_rest),
    };

    return record < sizeof(bytes) / sizeof(bytes[0]) ? bytes[record] : 0;
}

static int take(uint32_t record, const char *data, size_t bytes, struct own *own)
{
    size_t fixed = fixed_bytes(record);
    union any s;

    if (!fixed || bytes < fixed)
        return -EBADMSG;
    memcpy(&s, data, fixed);
    switch ((enum saved_record)record) {
    case A_LISTENER:
        return take_listener(&s.listener, data + fixed, bytes - fixed);
    case AN_INTAKE:
        return take_intake(&s.intake, data + fixed, bytes - fixed);
    case A_CANDIDATE:
        return take_candidate(&s.candidate);
    case A_CHILD:
        return take_child(&s.child);
    case THE_MGPUD:
        return take_mgpud(&s.mgpud);
    case THE_REST:
        return take_rest(&s.rest, own);
    }
    return -EBADMSG;
}

static int take_all(const char *data, size_t bytes, struct own *own)
{
    struct saved_head head;
    size_t at = sizeof(head);
    bool any_rest = false;

    if (bytes < sizeof(head))
        return -EBADMSG;
    memcpy(&head, data, sizeof(head));
    if (memcmp(head.magic, SAVED_MAGIC, sizeof(head.magic)))
        return -EBADMSG;
    if (!saved_is_known(head.format))
        return -EPROTONOSUPPORT;
    if (head.bytes != bytes - at || head.checksum != saved_checksum(data + at, head.bytes))
        return -EBADMSG;
    while (at < bytes) {
        struct saved_record_head record;
        int e;

        if (bytes - at < sizeof(record))
            return -EBADMSG;
        memcpy(&record, data + at, sizeof(record));
        at += sizeof(record);
        if (bytes - at < record.bytes)
            return -EBADMSG;
        if ((e = take(record.record, data + at, record.bytes, own)) < 0)
            return e;
        any_rest |= record.record == THE_REST;
        at += record.bytes;
    }
    return any_rest ? 0 : -EBADMSG;
}

int saved_read(int memfd, struct own *own)
{
    struct stat is;
    char *data;
    int e;

    if (fstat(memfd, &is) < 0)
        return -errno;
    data = mmap(NULL, (size_t)is.st_size, PROT_READ, MAP_PRIVATE, memfd, 0);
    if (data == MAP_FAILED)
        return -errno;
    e = take_all(data, (size_t)is.st_size, own);
    munmap(data, (size_t)is.st_size);
    return e;
}
