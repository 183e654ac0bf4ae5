#include "runtimes.h"
#include "events.h"
#include "mgpud.h"
#include "peer.h"
#include "store.h"
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct intake intakes[INTAKE_MAX];

void runtimes_init(void)
{
    for (int i = 0; i < INTAKE_MAX; i++)
        intakes[i] = (struct intake){.fd = -1, .listener = -1};
}

void runtimes_watch(void)
{
    for (unsigned int i = 0; i < INTAKE_MAX; i++)
        if (intakes[i].fd >= 0)
            watch(intakes[i].fd, FROM_INTAKE, i, EPOLLIN);
}

void runtimes_accept(int listening)
{
    int got = peer_accept(listening, true);
    unsigned int i = free_intake();

    if (got < 0)
        return;
    if (i == INTAKE_MAX) {
        /* Connections that have hung up or are complete make room, in whatever order their events come. */
        for (i = 0; i < INTAKE_MAX; i++)
            runtime_read(i);
        i = free_intake();
    }
    if (i < INTAKE_MAX) {
        intake_open(&intakes[i], got, now_ms());
        watch(got, FROM_INTAKE, i, EPOLLIN);
        return;
    }
    say("connection refused: %d container runtimes are connected already", INTAKE_MAX);
    close(got);
}

void runtime_read(unsigned int which)
{
    struct intake *in = &intakes[which];
    int e = in->fd < 0 ? 0 : intake_read(in);

    if (e == 0)
        return;
    if (e < 0) {
        say("message of a container runtime dropped: %s", strerror(-e));
    } else if (held_add(0, in->listener, in->text, in->bytes)) {
        in->listener = -1;
        in->text = NULL;
        store_tell();
        mgpud_send();
    } else {
        say("listener refused: %u are held already, of at most %d with %d bytes of messages", held_count(),
            HELD_MAX, TEXTS_MAX);
    }
    intake_close(in);
}

int64_t runtimes_poll(int64_t now)
{
    int64_t next = -1;

    for (struct intake *in = intakes; in < intakes + INTAKE_MAX; in++) {
        if (in->fd < 0)
            continue;
        if (in->deadline_ms <= now) {
            say("incomplete message of a container runtime dropped after %d ms", INTAKE_TIMEOUT_MS);
            intake_close(in);
        } else {
            next = sooner(next, in->deadline_ms - now);
        }
    }
    return next;
}
