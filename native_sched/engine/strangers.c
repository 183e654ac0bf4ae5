/* Processes that have a tenant's open file and no filter: their calls there reach the driver unseen, and what
 * they make is in no account. The tenant has to answer for them: its container is ended.
 *
 * A process in no tenant's pid namespace, or below one, is a stranger by having the file: the driver names
 * no process for a client without a subdevice, or whose maker has died. In these namespaces processes have
 * the filter, but for those that a debugger brings: there a process is a stranger if the driver counts
 * something for it that is in no account. Checkpoints have files for a moment, so two looks in a row have to
 * find the file.
 *
 * A look at all processes takes milliseconds, in which one that works for a card may wait for this processor:
 * it is done in slices. */
#define _GNU_SOURCE
#include "base/scoped.h"
#include "native_sched/boundary/continued/continued.h"
#include "engine_private.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

static const uint64_t slice_ns = 200 * 1000;

static struct look {
    struct mgpu_engine *e;
    DIR *proc;    /* NULL: no look is under way */
    pid_t pid;    /* that is looked at */
    ino_t space;  /* of a tenant, that it is in or below; 0: of none */
    bool judged;  /* `unknown` is this process's */
    bool unknown; /* the driver counts something for it, and no account does */
    uint32_t tenants;
    struct {
        struct tenant *tenant;
        ino_t space;
    } of[MAX_TENANTS];
} looking; /* the poller's alone */

static void note_tenants(struct look *l)
{
    struct mgpu_engine *e = l->e;
    WITH_ENGINE(e);

    l->tenants = 0;
    for (struct tenant *t = e->tenant; t < e->tenant + MAX_TENANTS; t++)
        if (t->id && !t->lost) {
            l->of[l->tenants].tenant = t;
            l->of[l->tenants++].space = t->pid_space;
        }
}

static bool is_of_a_tenant(const struct look *l, const struct stat *space)
{
    for (uint32_t i = 0; i < l->tenants; i++)
        if (l->of[i].space == space->st_ino)
            return true;
    return false;
}

static ino_t space_of(const struct look *l)
{
    char path[40];
    struct stat st;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)l->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0) {
        scoped_fd int below = fd;

        if (fstat(fd, &st) == 0 && is_of_a_tenant(l, &st))
            return st.st_ino;
        fd = ioctl(below, NS_GET_PARENT);
    }
    return 0;
}

/* Whether a client of its is in an account, of a tenant in that namespace or, without one, of any. */
static bool is_accounted(const struct look *l, ino_t space)
{
    WITH_ENGINE(l->e);

    for (uint32_t i = 0; i < l->tenants; i++)
        if ((!space || l->of[i].space == space) && l->of[i].tenant->id &&
            audit_knows(l->of[i].tenant, l->pid))
            return true;
    return false;
}

static bool is_counted(const struct look *l, const struct card *card)
{
    static struct rm_pids pids;
    static struct rm_pid_info info;
    const struct mediator *m = &l->e->mediator;
    const struct rm_pid_entry *held = &info.entry[0];

    info = (struct rm_pid_info){.count = 1, .entry[0].pid = (uint32_t)l->pid};
    if (m->ops->pid_info(m->driver, card->minor, &info) == 0 &&
        (held->memory_private || held->memory_shared_owned || held->memory_shared_duped))
        return true;
    if (m->ops->pids(m->driver, card->minor, &pids) == 0)
        for (uint32_t i = 0; i < pids.count; i++)
            if (pids.pid[i] == (uint32_t)l->pid)
                return true;
    return false;
}

/* A client may be made or end meanwhile. */
static bool is_unknown(const struct look *l)
{
    const struct mediator *m = &l->e->mediator;

    if (is_accounted(l, 0))
        return false;
    for (uint32_t i = 0; i < m->cards; i++)
        if (is_counted(l, &m->card[i]))
            return !is_accounted(l, 0);
    return false;
}

static bool suspect(void *context, const struct open_file *file)
{
    struct look *l = context;
    struct mgpu_engine *e = l->e;
    struct tenant *t = file->tenant;
    uint32_t card = 0;

    if (!t)
        return false;
    if (!l->judged)
        l->unknown = is_unknown(l);
    l->judged = true;
    WITH_ENGINE(e);
    if (!t->id || t->lost || ((l->space || !t->pid_space) && !l->unknown))
        return false;
    WITH_TENANT(t);
    while (card < MAX_CARDS - 1 && !t->granted[card])
        card++;
    if (t->suspected_at && t->suspected_at + 1 == e->managed_poller.looks)
        audit_stranger(&e->mediator, t, card);
    t->suspected_at = e->managed_poller.looks;
    return false;
}

static void look_at(struct look *l)
{
    const struct mediator *m = &l->e->mediator;

    l->judged = false;
    l->space = space_of(l);
    /* Most have many files, and need no walk of them. */
    if (!l->space || !is_accounted(l, l->space))
        m->ops->known_files(m->driver, l->pid, suspect, l);
}

static bool begin(struct look *l, struct mgpu_engine *e)
{
    l->e = e;
    if (l->proc || !(l->proc = opendir("/proc")))
        return l->proc;
    WITH_ENGINE(e);
    e->managed_poller.looks++;
    return true;
}

bool strangers_look(struct mgpu_engine *e)
{
    uint64_t began = loop_now_ns();
    const struct dirent *entry;

    if (!begin(&looking, e))
        return true;
    note_tenants(&looking);
    while ((entry = readdir(looking.proc))) {
        looking.pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (looking.pid > 0 && looking.pid != getpid())
            look_at(&looking);
        if (loop_now_ns() - began >= slice_ns)
            return false;
    }
    strangers_end();
    return true;
}

void strangers_end(void)
{
    if (looking.proc)
        closedir(looking.proc);
    looking.proc = NULL;
}
