/* What tests do to the engine itself, and look up in it. */
#define _GNU_SOURCE
#include "../../native_sched/engine/engine_private.h"
#include "../../native_sched/nvidia/account/external.h"
#include "../../native_sched/nvidia/boundary/call/page.h"
#include "../../native_sched/nvidia/boundary/managed/managed.h"
#include "../../native_sched/nvidia/driver/nvidia/private.h"
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include "uvm_on_card.h"
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

/* With a tenant that cannot be suspended. */
void on_card_patience(struct mgpu_engine *e, uint64_t ns)
{
    e->loop.patience_ns = ns;
}

/* What the kernel says of its memory. */
void on_card_memory_block(struct mgpu_engine *e, uint64_t bytes)
{
    e->mediator.memory_block_bytes = bytes;
}

/* For files that end. */
void on_card_waits(struct mgpu_engine *e, uint32_t ms)
{
    e->mediator.close_wait_ms = ms;
}

uint64_t on_card_client_file(struct mgpu_engine *e, uint64_t tenant, uint32_t client)
{
    const struct objects *o = &tenant_by_id(e, tenant)->objects;

    return o->slot[objects_find(o, client, client)].file;
}

uint64_t on_card_tables(struct mgpu_engine *e, uint64_t tenant, uint32_t card)
{
    const struct external *x = tenant_by_id(e, tenant)->external;
    uint64_t bytes = 0;

    for (const struct external_map *m = x->map + 1; m <= x->map + x->slab.high; m++)
        if (m->check && m->card == card)
            bytes += page_tables_bytes(m->base, m->end, m->page_shift);
    return bytes;
}

/* As if the previous mgpud had died in the middle of a mapping, between the object's share and its end. */
int on_card_died_mapping(const char *journal, uint64_t listener, uint64_t file_id, uint32_t of,
                         uint32_t memory)
{
    int folder = open(journal, O_RDONLY | O_DIRECTORY | O_CLOEXEC), e;
    struct store page;
    struct inflight *k;
    char name[STORE_NAME_MAX];

    snprintf(name, sizeof(name), "listener-%llu", (unsigned long long)listener);
    if (folder < 0 || (e = store_open(&page, folder, name, &listener_layout)) < 0)
        return -1;
    k = &((struct listener_page *)(void *)page.at)->inflight;
    k->req.id = 1;
    k->req.data.args[1] = UVM_MAP_EXTERNAL_ALLOCATION;
    k->was = (struct inflight_intent){.what = INTENT_UVM,
                                      .client = UVM_MAP_EXTERNAL_ALLOCATION,
                                      .parent = of,
                                      .handle = memory,
                                      .file = file_id};
    k->check = store_check(&k->was, sizeof(k->was));
    k->stage = INFLIGHT_INTENDED;
    uvm_on_card_share(of, memory, true);
    e = page.found;
    store_close(&page);
    close(folder);
    return e;
}

/* How long it is from one look through all processes to the next, the first of which is due, whoever waits.
 */
void on_card_looks(struct mgpu_engine *e, uint64_t gap_ns)
{
    e->mediator.driver->scan_gap_ns = gap_ns;
    e->mediator.driver->scans_sooner = false;
    e->mediator.driver->scanned_at_ns = 0;
}

/* How many of nvidia-uvm's files scans look for, and how many were released and are unlocated. */
void on_card_lost(struct mgpu_engine *e, uint32_t *missed, uint32_t *unlocated)
{
    struct nvidia_files *f = &e->mediator.driver->files;
    WITH_TABLE(f);

    *missed = *unlocated = 0;
    for (uint32_t i = 0; i < f->unpollables; i++) {
        const struct nvidia_file *one = &f->slot[f->unpollable[i]];

        *missed += one->held_fd >= 0 && one->missed_scans;
        *unlocated += one->held_fd < 0;
    }
}

void on_card_managed_looks(struct mgpu_engine *e, uint64_t gap_ns)
{
    e->managed_gap_ns = gap_ns;
}

/* As if as many calls of mmap() were under way as there is room for: all of them are the one that is. */
void on_card_fill_calls(struct mgpu_engine *e, uint64_t tenant)
{
    struct tenant *t = tenant_by_id(e, tenant);
    WITH_CALLS_OF(t);
    struct managed_call *call = t->managed->page->call, one = {.tid = 0};

    for (int i = 0; i < MANAGED_CALLS; i++)
        one = call[i].tid ? call[i] : one;
    for (int i = 0; i < MANAGED_CALLS; i++)
        call[i] = one;
}

static struct driver_ops held_ops;
static atomic_bool held;
static sem_t let_go;

static int64_t held_managed(struct driver *d, int map, pid_t tid, uint64_t from, uint64_t to)
{
    if (!atomic_exchange(&held, true))
        sem_wait(&let_go);
    return nvidia_managed(d, map, tid, from, to);
}

static atomic_uint looks;

static int64_t counted_managed(struct driver *d, int map, pid_t tid, uint64_t from, uint64_t to)
{
    atomic_fetch_add(&looks, 1);
    return nvidia_managed(d, map, tid, from, to);
}

/* How many maps have been read since this was asked last; the first time they were not counted. */
uint32_t on_card_looked(struct mgpu_engine *e)
{
    WITH_ENGINE(e);

    held_ops = *e->mediator.ops;
    held_ops.managed = counted_managed;
    e->mediator.ops = &held_ops;
    return atomic_exchange(&looks, 0);
}

/* The next look at a map takes until it is let go. */
void on_card_hold_look(struct mgpu_engine *e)
{
    WITH_ENGINE(e);

    atomic_store(&held, false);
    sem_init(&let_go, 0, 0);
    held_ops = *e->mediator.ops;
    held_ops.managed = held_managed;
    e->mediator.ops = &held_ops;
}

int on_card_look_is_held(void)
{
    return atomic_load(&held);
}

void on_card_let_go_look(void)
{
    sem_post(&let_go);
}

/* As one that is interrupted between two of the registers that it reads. */
static int slow_status(struct driver *d, const struct card *card, uint64_t engines, struct engine_status *out)
{
    const struct registers seen = d->registers[card->index];
    int n = 0;

    for (int i = 0; i < 20 && n >= 0; i++) {
        n = registers_read(&seen, engines, out);
        usleep(50);
    }
    return n;
}

/* Before there are tenants: reading what engines execute takes a millisecond. */
void on_card_slow_status(struct mgpu_engine *e)
{
    WITH_ENGINE(e);

    held_ops = *e->mediator.ops;
    held_ops.engine_status = slow_status;
    e->mediator.ops = &held_ops;
}
