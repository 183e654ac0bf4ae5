#define _GNU_SOURCE
#include "engine.h"
#include "base/memory_block.h"
#include "engine_private.h"
#include "native_sched/loop/poll.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

uint32_t mgpu_engine_abi(void)
{
    return MGPU_ENGINE_ABI;
}

static const struct driver_ops *const drivers[] = {&driver_nvidia, &driver_sim};

static const struct driver_ops *driver_named(const char *name)
{
    for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++)
        if (!strcmp(drivers[i]->name, name))
            return drivers[i];
    return NULL;
}

const char *mgpu_rm_known(void)
{
    return rm_table_known();
}

static uint32_t row_of(const struct rm_table *rm)
{
    return rm->major << 16 | rm->minor;
}

int mgpu_rm_row(const char *version)
{
    struct rm_table rm;

    return rm_table_pick(version, &rm) ? -EPROTONOSUPPORT : (int)row_of(&rm);
}

uint32_t mgpu_engine_rm_table(const struct mgpu_engine *e)
{
    return row_of(&e->mediator.rm);
}

static int open_journal(struct mgpu_engine *e, const char *folder)
{
    int error;

    e->journal = -1;
    if (!folder)
        return 0;
    if ((e->journal = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -errno;
    if ((error = orphan_pages_read(&e->left, e->journal)) < 0)
        close(e->journal);
    return error;
}

/* The pages stay for the next mgpud. */
static void close_journal(struct mgpu_engine *e)
{
    for (struct orphan_page *page; (page = e->left);) {
        e->left = page->next;
        store_close(&page->store);
        free(page);
    }
    if (e->journal >= 0)
        close(e->journal);
}

int mgpu_engine_open(const char *driver, const char *dir, const char *version, const char *journal,
                     struct mgpu_engine **out)
{
    const struct driver_ops *ops = driver_named(driver);
    struct rm_table rm;
    int error = rm_table_pick(version, &rm);
    struct mgpu_engine *e = ops && !error ? calloc(1, sizeof(*e)) : NULL;

    if (!e)
        return !ops ? -ENOENT : error ? -EPROTONOSUPPORT : -ENOMEM;
    e->managed_gap_ns = 1000ull * 1000 * 1000;
    e->events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->refusals.events = e->events;
    pthread_mutex_init(&e->lock, NULL);
    e->mediator = (struct mediator){.ops = ops,
                                    .files = &e->files,
                                    .rm = rm,
                                    .events = e->events,
                                    .close_wait_ms = CLOSE_WAIT_MS,
                                    .memory_block_bytes = memory_block_bytes()};
    if ((error = open_journal(e, journal)) < 0)
        goto fail;
    if ((error = files_init(&e->files, e->journal)) < 0)
        goto fail_journal;
    if ((error = ops->open(dir, &e->files, &e->mediator.driver)) < 0)
        goto fail_files;
    if ((error = file_reaper_start(e)) < 0)
        goto fail_driver;
    if ((error = managed_poller_start(e)) < 0)
        goto fail_watch;
    if ((error = strangers_start(e)) < 0)
        goto fail_poller;
    if ((error = reaper_start(e)) < 0)
        goto fail_strangers;
    if ((error = loop_start(&e->loop, &e->mediator, &e->refusals)) < 0)
        goto fail_reaper;
    *out = e;
    return 0;
fail_reaper:
    reaper_stop(e);
fail_strangers:
    strangers_stop(e);
fail_poller:
    managed_poller_stop(e);
fail_watch:
    file_reaper_stop(e);
fail_driver:
    ops->close(e->mediator.driver);
fail_files:
    files_destroy(&e->files);
fail_journal:
    close_journal(e);
fail:
    close(e->events);
    free(e);
    return error;
}

void mgpu_engine_close(struct mgpu_engine *e)
{
    reaper_stop(e);
    strangers_stop(e);
    managed_poller_stop(e);
    loop_stop(&e->loop);
    file_reaper_stop(e);
    for (uint32_t i = 0; i < MAX_TENANTS; i++) /* the driver undoes their mappings */
        if (e->tenant[i].id)
            tenant_destroy(&e->tenant[i]);
    e->mediator.ops->close(e->mediator.driver);
    files_destroy(&e->files);
    close_journal(e);
    close(e->events);
    free(e);
}

int mgpu_engine_context_bytes(struct mgpu_engine *e, uint32_t minor, uint32_t copies, uint64_t *out)
{
    const struct mediator *m = &e->mediator;

    return m->ops->context_bytes ? m->ops->context_bytes(m->driver, &m->rm, minor, copies, out) : -ENOSYS;
}

/* No tenant has the card: what it is by now, and what it was never asked. */
static void describe(struct card *at, const struct mgpu_card *card, uint32_t instance)
{
    at->device_instance = instance;
    at->context_bytes = card->context_bytes;
    at->copy_context_bytes = card->copy_context_bytes;
    memcpy(at->uuid, card->uuid, sizeof(at->uuid));
}

static void prepare_card(struct mgpu_engine *e, const struct card *card)
{
    const struct mediator *m = &e->mediator;
    struct engine_status engine[ENGINES_MAX];

    if (m->ops->add_card)
        m->ops->add_card(m->driver, card);
    /* Asked once, so that mgpu_card_without() never waits for a driver that hangs. */
    if (!m->ops->engine_status(m->driver, card, UINT64_MAX, engine))
        refusals_note(&e->refusals, card->index, MGPU_WITHOUT_ENGINE_STATUS, -ENODATA);
}

/* NULL: there is no such card. */
static struct card *own_card_of(struct mediator *m, uint32_t index)
{
    const struct card *known = mediator_card(m, index);

    return known ? &m->card[known - m->card] : NULL;
}

int mgpu_engine_add_card(struct mgpu_engine *e, const struct mgpu_card *card)
{
    struct mediator *m = &e->mediator;
    struct card *known = own_card_of(m, card->index), *added = known ? known : &m->card[m->cards];
    int instance = (int)card->device_instance;

    if (known && !loop_card_is_released(&e->loop, card->index))
        return -EEXIST;
    if (!known && (m->cards == MAX_CARDS || card->index >= MAX_CARDS))
        return -ENOSPC;
    if (!card->released && m->ops->device_instance &&
        (instance = m->ops->device_instance(m->driver, card->minor)) < 0)
        return instance;
    if (!known)
        *added = (struct card){
            .index = card->index,
            .minor = card->minor,
            .gpu_id = card->gpu_id,
            .gpu_instance = card->gpu_instance,
            .compute_instance = card->compute_instance,
            .memory_bytes = card->memory_bytes,
        };
    describe(added, card, (uint32_t)instance);
    e->memory[card->index].total_bytes = card->memory_bytes;
    if (!card->released)
        prepare_card(e, added);
    loop_release_card(&e->loop, card->index, card->released);
    if (!known)
        m->cards++; /* whole: from here on listeners' threads see it */
    return 0;
}

static bool any_tenant(struct mgpu_engine *e)
{
    WITH_ENGINE(e);

    for (uint32_t i = 0; i < MAX_TENANTS; i++)
        if (e->tenant[i].id)
            return true;
    return false;
}

int mgpu_engine_release_card(struct mgpu_engine *e, uint32_t card)
{
    const struct mediator *m = &e->mediator;
    const struct card *known = mediator_card(m, card);

    if (!known)
        return -ENOENT;
    loop_release_card(&e->loop, card, true);
    if (m->ops->release_card)
        m->ops->release_card(m->driver, known, !any_tenant(e));
    return 0;
}

int mgpu_engine_event_fd(const struct mgpu_engine *e)
{
    return e->events;
}

int mgpu_engine_driver_alive(const struct mgpu_engine *e)
{
    return !atomic_load(&e->driver_lost);
}
