/* Processes that have a tenant's open file and no filter: their calls there reach the driver unseen, and what
 * they make is in no account. The tenant has to answer for them: its container is ended.
 *
 * A process in no tenant's pid namespace, or below one, is a stranger by having the file: the driver names
 * no process for a client without a subdevice, or whose maker has died. In these namespaces processes have
 * the filter, but for those that a debugger brings: there a process is a stranger if the driver counts
 * something for it that is in no account. Checkpoints have files for a moment, so two looks in a row have to
 * find the file. The second one follows at once, without pauses.
 *
 * A look at all processes takes 2 to 4 us for each of their descriptors, in which one that works for a card
 * may wait for this processor: it is done in slices. The pauses between them get shorter the longer the last
 * look was, and there are none once a look has lasted for a quarter of a second, so that it ends whatever
 * there is. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/scoped.h"
#include "engine_private.h"
#include "native_sched/nvidia/boundary/continued/continued.h"
#include "native_sched/process/address_space.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum {
    PAUSE_PARTS = 50, /* a pause is at most so many slices long */
    /* So many descriptors of a process in a tenant's namespace cost what asking the driver for it does. */
    ASK_AFTER = 64,
    PAGE_BYTES = 2048, /* of names: more at once would be a slice of milliseconds */
};
enum { REST_PARTS = 3 }; /* the thread rests so many times as long as a look has taken */
static const uint64_t slice_ns = 200 * 1000, spread_ns = 250 * 1000 * 1000;
/* From the begin of a look to that of the next one, and from the end of one that has found a stranger. */
static const uint64_t gap_ns = 500 * 1000 * 1000, again_ns = 50 * 1000 * 1000;

static struct look {
    struct mgpu_engine *e;
    DIR *proc;            /* NULL: no look is under way */
    uint64_t began_ns;    /* the look */
    uint64_t spent_ns;    /* in its slices */
    uint64_t expected_ns; /* what the last one has spent */
    pid_t pid;            /* that is looked at */
    int fds;              /* its descriptors' folder; -1: none */
    uint32_t walked;      /* of them */
    bool found;           /* a stranger, in this look */
    bool again;           /* it follows one that has found a stranger */
    ino_t pid_ns;         /* of a tenant, that it is in or below; 0: of none */
    bool judged;          /* `unknown` is this process's */
    bool unknown;         /* the driver counts something for it, and no account does */
    uint32_t tenants;
    struct {
        struct tenant *tenant;
        ino_t pid_ns;
    } of[MAX_TENANTS];
} looking = {.fds = -1}; /* the thread's alone */

static void note_tenants(struct look *l)
{
    struct mgpu_engine *e = l->e;
    WITH_ENGINE(e);

    l->tenants = 0;
    for (struct tenant *t = e->tenant; t < e->tenant + MAX_TENANTS; t++)
        if (t->id && !t->lost) {
            l->of[l->tenants].tenant = t;
            l->of[l->tenants++].pid_ns = t->pid_space;
        }
}

static bool is_of_a_tenant(const struct look *l, const struct stat *pid_ns)
{
    for (uint32_t i = 0; i < l->tenants; i++)
        if (l->of[i].pid_ns == pid_ns->st_ino)
            return true;
    return false;
}

static ino_t pid_ns_of(const struct look *l)
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
static bool is_accounted(const struct look *l, ino_t pid_ns)
{
    WITH_ENGINE(l->e);

    for (uint32_t i = 0; i < l->tenants; i++)
        if ((!pid_ns || l->of[i].pid_ns == pid_ns) && l->of[i].tenant->id &&
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

static bool judge(struct look *l)
{
    if (!l->judged)
        l->unknown = is_unknown(l);
    l->judged = true;
    return l->unknown;
}

static void suspect(struct look *l, struct tenant *t)
{
    struct mgpu_engine *e = l->e;
    bool unknown = judge(l);
    uint32_t card = 0;
    WITH_ENGINE(e);

    if (!t->id || t->lost || ((l->pid_ns || !t->pid_space) && !unknown))
        return;
    WITH_TENANT(t);
    while (card < MAX_CARDS - 1 && !t->granted[card])
        card++;
    if (t->suspected_at && t->suspected_at + 1 == e->strangers.looks)
        audit_stranger(&e->mediator, t, card);
    t->suspected_at = e->strangers.looks;
    l->found = true;
}

static void leave_process(struct look *l)
{
    if (l->fds >= 0)
        close(l->fds);
    l->fds = -1;
}

/* False: there is none left. */
static bool next_process(struct look *l)
{
    const struct dirent *entry = readdir(l->proc);
    char path[40];

    l->pid = entry ? (pid_t)strtol(entry->d_name, NULL, 10) : 0;
    if (l->pid <= 0 || l->pid == getpid())
        return entry;
    l->judged = false;
    l->walked = 0;
    l->pid_ns = pid_ns_of(l);
    /* Most have many files, and need no walk of them. */
    if (l->pid_ns && is_accounted(l, l->pid_ns))
        return true;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)l->pid);
    l->fds = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return true;
}

/* In a tenant's namespace a process of which the driver counts nothing is no stranger, whatever it has; nor
 * is a child of this process, which has its descriptors until it has begun its program. */
static void walk_some(struct look *l)
{
    const struct mediator *m = &l->e->mediator;
    _Alignas(struct dirent64) char page[PAGE_BYTES];
    ssize_t n = getdents64(l->fds, page, sizeof(page));
    const struct dirent64 *entry;
    struct open_file file;

    if (n <= 0 || (l->pid_ns && l->walked >= ASK_AFTER && !judge(l))) {
        leave_process(l);
        return;
    }
    for (ssize_t at = 0; at < n; at += entry->d_reclen, l->walked++) {
        entry = (const struct dirent64 *)(const void *)(page + at);
        if (m->ops->known_file(m->driver, l->pid, l->fds, entry->d_name, &file) && file.tenant &&
            !address_space_same(getpid(), l->pid))
            suspect(l, file.tenant);
    }
}

static bool begin(struct look *l)
{
    note_tenants(l);
    if (l->proc || !l->tenants)
        return l->proc;
    l->proc = opendir("/proc");
    l->began_ns = loop_now_ns();
    l->spent_ns = 0;
    l->again = l->found;
    l->found = false;
    WITH_ENGINE(l->e);
    l->e->strangers.looks++;
    return l->proc;
}

static void end(struct look *l)
{
    leave_process(l);
    if (l->proc)
        closedir(l->proc);
    l->proc = NULL;
    l->expected_ns = l->spent_ns;
}

static uint64_t pause_ns(const struct look *l, uint64_t now, uint64_t took_ns)
{
    bool hurries = l->again || now - l->began_ns >= spread_ns;
    uint64_t parts = hurries ? 0 : spread_ns / (l->expected_ns + 1);

    return took_ns * (parts < PAUSE_PARTS ? parts : PAUSE_PARTS);
}

static uint64_t begins_ns(const struct look *l, uint64_t now)
{
    uint64_t rested = now + REST_PARTS * l->spent_ns, due = l->began_ns + gap_ns;

    if (l->found)
        return now + again_ns;
    return rested > due ? rested : due;
}

/* A slice of a look. When the next one is due. */
static uint64_t look_on(struct look *l)
{
    uint64_t began = loop_now_ns(), now;
    bool goes_on = begin(l);

    while (goes_on && loop_now_ns() - began < slice_ns) {
        if (l->fds >= 0)
            walk_some(l);
        else
            goes_on = next_process(l);
    }
    now = loop_now_ns();
    l->spent_ns += now - began;
    if (goes_on)
        return now + pause_ns(l, now, now - began);
    if (!l->proc)
        return now + gap_ns;
    end(l);
    return begins_ns(l, now);
}

/* False: the engine ends. */
static bool wait_until(struct mgpu_engine *e, uint64_t at_ns)
{
    struct timespec until = timespec_of(at_ns);
    WITH_ENGINE(e);

    while (!e->strangers.over && loop_now_ns() < at_ns)
        pthread_cond_timedwait(&e->strangers.end, &e->lock, &until);
    return !e->strangers.over;
}

static void *watch(void *arg)
{
    struct look *l = &looking;
    uint64_t due_ns = 0;

    l->e = arg;
    while (wait_until(l->e, due_ns))
        due_ns = look_on(l);
    end(l);
    return NULL;
}

int strangers_start(struct mgpu_engine *e)
{
    int error;

    cond_init_monotonic(&e->strangers.end);
    if ((error = -pthread_create(&e->strangers.thread, NULL, watch, e)) < 0)
        pthread_cond_destroy(&e->strangers.end);
    return error;
}

void strangers_stop(struct mgpu_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->strangers.over = true;
    pthread_cond_signal(&e->strangers.end);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->strangers.thread, NULL);
    pthread_cond_destroy(&e->strangers.end);
}
