/* The journal's part of managed.h: what the next mgpud finds. */
#include "native_sched/process/address_space.h"
#include "private.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void managed_name(uint64_t tenant, char name[STORE_NAME_MAX])
{
    snprintf(name, STORE_NAME_MAX, "managed-%llu", (unsigned long long)tenant);
}

/* An earlier one of the same process was another address space, which no process has now. */
static bool is_last(const struct managed *g, uint32_t i)
{
    const struct managed_space *s = &g->page->address_space[i];

    for (const struct managed_space *o = g->page->address_space; o < g->page->address_space + MANAGED_SPACES;
         o++)
        if (o->check && o->who.tgid == s->who.tgid && o->number > s->number)
            return false;
    return true;
}

/* Of any thread that the process has by now. */
static int open_again(struct managed_space *s, struct managed_handle *h)
{
    struct process_id now;
    char path[32];
    struct dirent *entry;
    DIR *threads;
    int e;

    /* The number may be another process's by now. */
    if (caller_process_id_of(s->who.tgid, &now) < 0 || now.levels != s->who.levels ||
        memcmp(now.at, s->who.at, (size_t)now.levels * sizeof(*now.at)))
        return -ESRCH;
    e = address_space_open(s->who.tgid, &h->map, &h->memory);
    snprintf(path, sizeof(path), "/proc/%d/task", (int)s->who.tgid);
    if (e == 0 || !(threads = opendir(path)))
        return e;
    while (e < 0 && (entry = readdir(threads)))
        e = address_space_open((pid_t)atoi(entry->d_name), &h->map, &h->memory);
    closedir(threads);
    return e;
}

/* Their memory is found again where their process lives: what it has now is what counts. */
static void take_over(struct managed *g)
{
    atomic_store(&g->begun, g->page->begun);
    for (uint32_t i = 0; i < MANAGED_SPACES; i++) {
        struct managed_space *s = &g->page->address_space[i];

        if (!s->check)
            continue;
        if (s->check != managed_space_check(s) || !is_last(g, i) || open_again(s, &g->handle[i]) < 0) {
            managed_drop_space(g, i);
            continue;
        }
        g->bytes += s->bytes;
    }
    atomic_store(&g->due, true);
    atomic_store(&g->watched, true);
}

int managed_open(struct tenant *t, int folder)
{
    static const struct store_layout layout = {
        .kind = STORE_MANAGED,
        .record_bytes = sizeof(struct managed_page),
        .max_bytes = sizeof(struct managed_page),
    };
    struct managed *g = calloc(1, sizeof(*g));
    char name[STORE_NAME_MAX];
    int e;

    if (!g)
        return -ENOMEM;
    for (int i = 0; i < MANAGED_SPACES; i++)
        g->handle[i] = (struct managed_handle){-1, -1};
    managed_name(t->id, name);
    if ((e = store_open(&g->store, folder, name, &layout)) < 0) {
        free(g);
        return e;
    }
    if (g->store.found && g->store.reached_bytes >= sizeof(*g->page) && managed_reach(g) == 0)
        take_over(g);
    t->managed = g;
    return 0;
}

void managed_close(struct managed *g)
{
    if (!g)
        return;
    for (int i = 0; i < MANAGED_SPACES; i++)
        managed_close_handle(&g->handle[i]);
    store_close(&g->store);
    free(g);
}

void managed_remove(struct managed *g)
{
    if (g)
        store_remove(&g->store);
}
