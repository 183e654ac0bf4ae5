#define _GNU_SOURCE
#include "recover.h"
#include "native_sched/nvidia/account/exported.h"
#include "native_sched/nvidia/account/external.h"
#include "native_sched/nvidia/boundary/call/page.h"
#include "native_sched/nvidia/boundary/continued/continued.h"
#include "native_sched/nvidia/boundary/managed/managed.h"
#include "native_sched/nvidia/boundary/rm/create.h"
#include "native_sched/nvidia/channels/groups.h"
#include "undo.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool number_after(const char *name, const char *prefix, uint64_t *out)
{
    size_t n = strlen(prefix);
    char *end;

    if (strncmp(name, prefix, n) || name[n] < '0' || name[n] > '9')
        return false;
    *out = strtoull(name + n, &end, 10);
    return !*end;
}

static struct orphan_page *open_page(int folder, const char *name, uint64_t listener)
{
    struct orphan_page *page = calloc(1, sizeof(*page));

    if (!page)
        return NULL;
    page->listener = listener;
    if (store_open(&page->store, folder, name, &listener_layout) == 0 && page->store.found &&
        page->store.reached_bytes >= sizeof(struct listener_page))
        return page;
    store_close(&page->store);
    free(page);
    return NULL;
}

static DIR *open_folder(int folder)
{
    int fd = dup(folder);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir)
        rewinddir(dir);
    else if (fd >= 0)
        close(fd);
    return dir;
}

int orphan_pages_read(struct orphan_page **all, int folder)
{
    DIR *dir = open_folder(folder);
    const struct dirent *entry;
    struct orphan_page *page;
    uint64_t listener;

    *all = NULL;
    if (!dir)
        return -errno;
    while ((entry = readdir(dir))) {
        if (!number_after(entry->d_name, "listener-", &listener) ||
            !(page = open_page(folder, entry->d_name, listener)))
            continue;
        page->next = *all;
        *all = page;
    }
    closedir(dir);
    return 0;
}

static struct listener_page *page_of(const struct orphan_page *left)
{
    return (struct listener_page *)(void *)left->store.at;
}

struct orphan_page *orphan_page_take(struct orphan_page **all, uint64_t listener, uint64_t tenant)
{
    for (struct orphan_page **at = all; *at; at = &(*at)->next) {
        struct orphan_page *page = *at;

        if (page->listener != listener || page_of(page)->tenant != tenant)
            continue;
        *at = page->next;
        return page;
    }
    return NULL;
}

uint32_t orphans_forget(struct orphan_page **all, int folder, bool (*known)(void *context, uint64_t tenant),
                        void *context)
{
    DIR *dir = open_folder(folder);
    const struct dirent *entry;
    uint64_t tenant;
    uint32_t n = 0;

    for (struct orphan_page *page; (page = *all); n++) {
        *all = page->next;
        store_remove(&page->store);
        free(page);
    }
    while (dir && (entry = readdir(dir)))
        if ((number_after(entry->d_name, "tenant-", &tenant) ||
             number_after(entry->d_name, "external-", &tenant) ||
             number_after(entry->d_name, "managed-", &tenant)) &&
            !known(context, tenant))
            n += unlinkat(folder, entry->d_name, 0) == 0;
    if (dir)
        closedir(dir);
    return n;
}

static uint32_t client_on(const struct objects *o, uint64_t file)
{
    uint32_t i = o->slot ? o->slot[0].first_child : 0;

    while (i && (o->slot[i].file != file || !o->slot[i].client))
        i = o->slot[i].next_sibling;
    return i ? o->slot[i].client : 0;
}

/* Memory is charged that it alone keeps. */
static bool exports(const struct tenant *t, const struct open_file *file)
{
    return t->objects.slot && exported_root(&t->objects, file->id);
}

static bool may_hold(const struct tenant *t, const struct open_file *file)
{
    return external_from(t->external, file->id, 0);
}

/* Files that were closed meanwhile are dropped. */
static void find_files(const struct mediator *m, struct tenant *t)
{
    struct open_file file = {.id = 0}, gone;

    files_adopt(m->files, t);
    while (m->ops->adopt && files_after(m->files, t, file.id, &file)) {
        if (m->ops->adopt(m->driver, &file, client_on(&t->objects, file.id),
                          exports(t, &file) || may_hold(t, &file)) != -EBADF)
            continue;
        if (files_take(m->files, file.id, &gone))
            files_forget(m->files, t);
    }
}

/* With a file all that was made through it has ended. */
static void drop_ended_files(const struct mediator *m, struct tenant *t)
{
    struct objects *o = &t->objects;
    struct open_file gone;

    for (uint32_t i = o->slot[0].first_child, next; i; i = next) {
        uint64_t file = o->slot[i].file;

        next = o->slot[i].next_sibling;
        if (files_by_id(m->files, file, &gone) && gone.tenant == t)
            continue;
        objects_drop(o, i, NULL, NULL);
    }
}

static void drop_mappings_of_ended_files(const struct mediator *m, struct tenant *t)
{
    struct external *x = t->external;
    struct open_file file;

    for (uint32_t i = 1; i <= x->slab.high; i++)
        if (x->map[i].check && (!files_by_id(m->files, x->map[i].file, &file) || file.tenant != t))
            external_drop(x, i);
}

/* The charges, and the channels with what drives them. */
static int take_on(const struct mediator *m, struct tenant *t)
{
    const struct objects *o = &t->objects;
    struct rm_target name;
    struct open_file file;
    int e = 0;

    for (uint32_t i = objects_next(o, 0, 0); i && e >= 0; i = objects_next(o, 0, i)) {
        const struct rm_object *obj = &o->slot[i];

        if (obj->card >= MAX_CARDS)
            continue;
        ledger_charge(&t->ledger[obj->card], obj->bytes);
        if (!files_by_id(m->files, o->slot[objects_root(o, i)].file, &file) ||
            !object_target(m, obj, &file, &name))
            continue;
        if (rm_kind_of(obj->class_id) == RM_KIND_GROUP)
            e = groups_recover(t->groups, &name, obj, subdevice_below(o, obj->parent));
        else
            e = groups_recover_channel(t->groups, &name, obj, o->slot[obj->parent].handle);
    }
    external_recover(t);
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        t->ledger[i].peak_bytes = t->ledger[i].used_bytes;
    return e;
}

static int recover(const struct mediator *m, struct tenant *t, const struct orphan_page *left)
{
    int e = objects_recover(&t->objects);

    /* Whatever becomes of it, its files are its own. */
    find_files(m, t);
    if (e < 0)
        return e;
    drop_ended_files(m, t);
    drop_mappings_of_ended_files(m, t);
    for (; left; left = left->next)
        if (page_of(left)->tenant == t->id)
            inflight_roll_back(m, t, &page_of(left)->inflight);
    if ((e = take_on(m, t)) == 0)
        continued_recover(m, t);
    return e;
}

static void name_of(uint64_t id, char name[STORE_NAME_MAX])
{
    snprintf(name, STORE_NAME_MAX, "tenant-%llu", (unsigned long long)id);
}

int tenant_open(const struct mediator *m, struct tenant *t, int folder, const struct orphan_page *left)
{
    static const struct store_layout layout = {
        .kind = STORE_TENANT,
        .record_bytes = sizeof(struct rm_object),
        .max_bytes = TENANT_SLOTS_AT + OBJECTS_BYTES,
    };
    char name[STORE_NAME_MAX];
    bool found;
    int e;

    assert_held(&t->calls);
    name_of(t->id, name);
    if ((e = store_open(&t->store, folder, name, &layout)) < 0)
        return e;
    found = t->store.found;
    if ((e = objects_init(&t->objects, &t->store, TENANT_SLOTS_AT)) == 0) {
        t->unconfirmed = (struct unconfirmed *)(void *)t->store.at;
        if ((e = external_open(t, folder)) == 0 && (!found || (e = recover(m, t, left)) == 0) &&
            (e = managed_open(t, folder)) == 0)
            return found;
        if (!found) {
            external_remove(t->external);
            managed_remove(t->managed);
        }
        objects_destroy(&t->objects);
    }
    if (found)
        store_close(&t->store);
    else
        store_remove(&t->store);
    return e;
}

bool tenant_has_orphans(const struct mediator *m, struct tenant *t, int folder)
{
    char name[STORE_NAME_MAX];

    assert_held(&t->calls);
    name_of(t->id, name);
    /* Where they were found already the driver is not to be asked twice: it takes a file that it knows for
     * another's. */
    if (!files_of(m->files, t))
        find_files(m, t);
    return files_of(m->files, t) || (folder >= 0 && faccessat(folder, name, F_OK, 0) == 0);
}

void tenant_forget(uint64_t id, int folder)
{
    char name[STORE_NAME_MAX];

    if (folder < 0)
        return;
    external_name(id, name);
    unlinkat(folder, name, 0);
    managed_name(id, name);
    unlinkat(folder, name, 0);
    name_of(id, name);
    unlinkat(folder, name, 0);
}
