/* The journal's part of managed.h: what the next worker finds. */
#include "managed_private.h"
#include "space.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void managed_name(uint64_t tenant, char name[STORE_NAME_MAX])
{
    snprintf(name, STORE_NAME_MAX, "managed-%llu", (unsigned long long)tenant);
}

/* Their memory is found again where their process still has it. */
static void take_over(struct managed *g)
{
    atomic_store(&g->begun, g->page->begun);
    for (uint32_t i = 0; i < MANAGED_SPACES; i++) {
        struct managed_space *s = &g->page->space[i];
        struct space_name now;

        if (!s->check)
            continue;
        now = space_name_of(s->tid);
        if (s->check != managed_space_check(s) || now.started != s->started || now.layout != s->layout ||
            space_open(s->tid, &g->handle[i].map, &g->handle[i].memory) < 0) {
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
