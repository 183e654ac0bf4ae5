#include "../../base/mutex.h"
#include "rm.h"
#include <pthread.h>
#include <sys/socket.h>

enum { EVENT_QUEUE_BYTES = 8 << 20, MAX_SUBSCRIBERS = 64 };

static pthread_mutex_t subscribers_lock = PTHREAD_MUTEX_INITIALIZER;
static int subscribers[MAX_SUBSCRIBERS];
static uint32_t subscriber_count;

/* A subscriber that does not read is cut off: it knows then that it has missed something; no thread waits for
 * it. */
void subscribers_tell(const struct sim_event *event)
{
    LOCKED(&subscribers_lock);
    for (uint32_t i = 0; i < subscriber_count; i++)
        if (send(subscribers[i], event, sizeof *event, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            shutdown(subscribers[i], SHUT_RDWR);
}

static bool subscriber_add(int connection)
{
    static const struct sim_event subscribed = {.kind = SIM_EVENT_SUBSCRIBED};
    bool added;

    LOCKED(&subscribers_lock);
    added = subscriber_count < MAX_SUBSCRIBERS &&
            send(connection, &subscribed, sizeof subscribed, MSG_NOSIGNAL) >= 0;
    if (added)
        subscribers[subscriber_count++] = connection;
    return added;
}

static void subscriber_remove(int connection)
{
    LOCKED(&subscribers_lock);
    for (uint32_t i = 0; i < subscriber_count; i++)
        if (subscribers[i] == connection)
            subscribers[i--] = subscribers[--subscriber_count];
}

void subscribers_stream(int connection)
{
    int bytes = EVENT_QUEUE_BYTES;
    char byte;

    setsockopt(connection, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    if (!subscriber_add(connection))
        return;
    while (recv(connection, &byte, 1, 0) > 0)
        ;
    subscriber_remove(connection);
}
