#define _GNU_SOURCE
#include "base/write_whole.h"
#include "child.h"
#include "mgpud.h"
#include "runtimes.h"
#include "saved.h"
#include "saved_format.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void put(FILE *out, enum saved_record record, const void *what, size_t bytes, const char *text,
                size_t text_bytes)
{
    struct saved_record_head head = {record, (uint32_t)(bytes + text_bytes)};

    fwrite(&head, sizeof(head), 1, out);
    fwrite(what, bytes, 1, out);
    if (text_bytes)
        fwrite(text, text_bytes, 1, out);
}

static void put_listeners(FILE *out)
{
    for (const struct held *h = held; h < held + HELD_MAX; h++) {
        struct saved_listener l = {.id = h->id, .fd = h->fd, .handed = h->handed, .stored = h->stored};

        if (h->id)
            put(out, A_LISTENER, &l, sizeof(l), h->text, h->text_bytes);
    }
}

static void put_intakes(FILE *out)
{
    for (const struct intake *in = intakes; in < intakes + INTAKE_MAX; in++) {
        struct saved_intake s = {
            .fd = in->fd,
            .listener = in->listener,
            .deadline_ms = in->deadline_ms,
            .depth = in->scan.depth,
            .in_string = in->scan.in_string,
            .escaped = in->scan.escaped,
        };

        if (in->fd >= 0)
            put(out, AN_INTAKE, &s, sizeof(s), in->text, in->bytes);
    }
}

static void put_processes(FILE *out)
{
    const struct mgpud *w = &mgpuds.now;
    struct saved_mgpud mgpud = {
        .fd = w->fd,
        .pidfd = w->pidfd,
        .pid = w->pid,
        .serves = w->serves,
        .gives_back = w->gives_back,
        .all_sent = w->all_sent,
        .doomed = w->doomed,
        .sent = w->sent,
        .served_ms = w->served_ms,
        .silent_ms = w->silent_ms,
    };

    put(out, THE_MGPUD, &mgpud, sizeof(mgpud), NULL, 0);
    for (int i = 0; i < CANDIDATES_MAX; i++) {
        const struct candidate *c = &mgpuds.candidates[i];
        struct saved_candidate s = {c->fd, c->pidfd, c->pid, mgpuds.next == i, c->deadline_ms, c->hello};

        if (c->fd >= 0)
            put(out, A_CANDIDATE, &s, sizeof(s), NULL, 0);
    }
    for (int i = 0; i < CHILDREN_MAX; i++) {
        const struct child *c = &children.child[i];
        struct saved_child s = {c->pid, c->pidfd, c->started_ms, c->ready};

        if (c->pidfd >= 0)
            put(out, A_CHILD, &s, sizeof(s), NULL, 0);
    }
}

static void put_rest(FILE *out, const struct own *own)
{
    struct saved_rest rest = {
        .runtimes_fd = own->runtimes_fd,
        .mgpuds_fd = own->mgpuds_fd,
        .next_id = held_next_id(),
        .told_ready = own->told_ready,
        .killed = mgpuds.killed,
        .kills_lately = mgpuds.kills_lately,
        .replaced = mgpuds.replaced,
        .refused = mgpuds.refused,
        .fence = mgpuds.fence,
        .ever_ready = children.ever_ready,
        .young_ends = children.young_ends,
        .start_ms = children.start_ms,
        .patience_ms = children.patience_ms,
    };

    put(out, THE_REST, &rest, sizeof(rest), NULL, 0);
}

int saved_write(const struct own *own)
{
    char *data = NULL;
    size_t bytes = 0;
    struct saved_head head = {.format = SAVED_FORMAT};
    FILE *out = open_memstream(&data, &bytes);
    int fd, e;

    if (!out)
        return -errno;
    memcpy(head.magic, SAVED_MAGIC, sizeof(head.magic));
    fwrite(&head, sizeof(head), 1, out);
    put_listeners(out);
    put_intakes(out);
    put_processes(out);
    put_rest(out, own);
    e = ferror(out) ? -ENOMEM : 0;
    if (fclose(out) || e < 0) {
        free(data);
        return -ENOMEM;
    }
    head.bytes = bytes - sizeof(head);
    head.checksum = saved_checksum(data + sizeof(head), head.bytes);
    memcpy(data, &head, sizeof(head));
    fd = memfd_create("mgpu-holder", MFD_CLOEXEC);
    e = fd < 0 ? -errno : write_whole(fd, data, bytes);
    free(data);
    if (e < 0 && fd >= 0)
        close(fd);
    return e < 0 ? e : fd;
}

static void keep(int fd, bool open)
{
    if (fd >= 0)
        fcntl(fd, F_SETFD, open ? 0 : FD_CLOEXEC);
}

void saved_keep_open(const struct own *own, bool open)
{
    keep(own->runtimes_fd, open);
    keep(own->mgpuds_fd, open);
    keep(mgpuds.now.fd, open);
    keep(mgpuds.now.pidfd, open);
    for (struct held *h = held; h < held + HELD_MAX; h++)
        if (h->id)
            keep(h->fd, open);
    for (struct intake *in = intakes; in < intakes + INTAKE_MAX; in++) {
        keep(in->fd, open);
        keep(in->listener, open);
    }
    for (int i = 0; i < CANDIDATES_MAX; i++) {
        keep(mgpuds.candidates[i].fd, open);
        keep(mgpuds.candidates[i].pidfd, open);
    }
    for (int i = 0; i < CHILDREN_MAX; i++)
        keep(children.child[i].pidfd, open);
}
