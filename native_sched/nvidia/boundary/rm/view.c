/* What a tenant sees: its own memory, its own processes under its own pids, its own cards. */
#include "view.h"
#include "handlers.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "usage.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

bool granted_gpu(const struct call *c, uint32_t gpu_id)
{
    for (uint32_t i = 0; i < c->m->cards; i++)
        if (c->m->card[i].gpu_id == gpu_id && c->tenant->granted[c->m->card[i].index])
            return true;
    return false;
}

/* OBJECT_NO_CARD when this call's file has no such object, or it is not on a card. */
static uint32_t card_of_object(struct call *c, uint32_t client, uint32_t object)
{
    WITH_TENANT(c->tenant);
    uint32_t slot = call_find(c, client, object);

    return slot ? c->tenant->objects.slot[slot].card : OBJECT_NO_CARD;
}

struct answer mediate_card_info(struct call *c)
{
    struct rm_card_info *info = (void *)c->outer;
    uint32_t requested = c->outer_bytes / sizeof(*info), kept = 0;
    int e = call_driver(c);

    if (e < 0)
        return failed(e);
    for (uint32_t i = 0; i < requested; i++)
        if (info[i].valid && granted_gpu(c, info[i].gpu_id))
            info[kept++] = info[i];
    memset(info + kept, 0, c->outer_bytes - kept * sizeof(*info));
    return answered(NV_OK);
}

/* Answered here: the granted cards are ours to name, and no other card's id leaves this process. */
int view_attached_ids(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct rm_gpu_ids *ids = (void *)c->params;
    uint32_t kept = 0;
    WITH_TENANT(c->tenant);

    if (!call_find(c, ctl->client, ctl->client)) {
        *status = NV_ERR_INVALID_CLIENT;
        return 0;
    }
    memset(ids, 0xff, sizeof(*ids));
    for (uint32_t i = 0; i < c->m->cards; i++)
        if (c->tenant->granted[c->m->card[i].index])
            ids->id[kept++] = c->m->card[i].gpu_id;
    return 0;
}

int view_id_info(struct call *c, uint32_t *status)
{
    struct rm_id_info *info = (void *)c->params;

    if (!granted_gpu(c, info->gpu_id)) {
        *status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    info->name_pointer = 0; /* an embedded pointer into the caller: never the driver's to follow from here */
    return call_driver(c);
}

/* Totals become the cap, what is free what is left of it; every value at most the card's own, where memory
 * that gives way to the tenant is free. In KiB. */
static uint32_t capped_kib(uint32_t index, uint32_t kib, const struct ledger *l)
{
    uint64_t limit = kib, most = kib;

    switch (index) {
    case RM_FB_RAM_SIZE:
    case RM_FB_TOTAL_RAM_SIZE:
    case RM_FB_HEAP_SIZE:
    case RM_FB_MAPPABLE_HEAP_SIZE:
    case RM_FB_USABLE_RAM_SIZE:
        limit = l->cap_bytes >> 10;
        break;
    case RM_FB_LARGEST_FREE:
    case RM_FB_HEAP_FREE:
        limit = ledger_free_bytes(l) >> 10;
        most += ledger_gives_way_bytes(l) >> 10;
        break;
    default:
        break;
    }
    return (uint32_t)(limit < most ? limit : most);
}

/* Entries that fit the caller's size, which the driver may not have judged yet; it writes the count, too. */
static uint32_t fb_entries(const struct call *c)
{
    const struct rm_fb_info *info = (const void *)c->params;
    uint32_t head = offsetof(struct rm_fb_info, entry), room;

    if (c->params_bytes < head)
        return 0;
    room = (c->params_bytes - head) / sizeof(struct rm_fb_entry);
    if (room > RM_FB_ENTRIES)
        room = RM_FB_ENTRIES;
    return info->count < room ? info->count : room;
}

static bool asks_what_is_free(const struct call *c)
{
    const struct rm_fb_info *info = (const void *)c->params;

    for (uint32_t i = 0; i < fb_entries(c); i++)
        if (info->entry[i].index == RM_FB_LARGEST_FREE || info->entry[i].index == RM_FB_HEAP_FREE)
            return true;
    return false;
}

/* Without a charge on the card no close can free anything there, and nothing is waited for. libcuda closes a
 * file just before it asks for the first time. */
static bool has_any(struct call *c, uint32_t card)
{
    WITH_TENANT(c->tenant);

    return card != OBJECT_NO_CARD &&
           (c->tenant->ledger[card].used_bytes || c->tenant->ledger[card].reserved_bytes);
}

/* The account of the card that the call asks about; false: none. */
static bool account_of_call(struct call *c, struct ledger *out)
{
    const struct rm_control *ctl = (const void *)c->outer;
    uint32_t card = card_of_object(c, ctl->client, ctl->object);
    WITH_TENANT(c->tenant);

    if (card != OBJECT_NO_CARD)
        *out = c->tenant->ledger[card];
    return card != OBJECT_NO_CARD;
}

void view_fb_list(struct call *c, void *list, uint32_t count, uint32_t *status)
{
    struct rm_fb_entry *entry = list;
    struct ledger ledger;

    if (!account_of_call(c, &ledger)) {
        *status = NV_ERR_INVALID_OBJECT_HANDLE;
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        entry[i].data = capped_kib(entry[i].index, entry[i].data, &ledger);
}

int view_fb_info(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct rm_fb_info *info = (void *)c->params;
    int e;

    if (info->count > RM_FB_ENTRIES) {
        *status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    if (c->tenant->whole)
        return call_driver(c); /* what a whole card has is the driver's to say */
    e = asks_what_is_free(c) && has_any(c, card_of_object(c, ctl->client, ctl->object)) ? close_wait_all(c)
                                                                                        : 0;
    if (e == 0)
        e = call_driver(c);
    if (e < 0 || *status)
        return e;
    view_fb_list(c, info->entry, fb_entries(c), status);
    c->params_out = c->params_out && !*status;
    return 0;
}

/* The head of NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO_PARAMS and of its regions. A tenant's memory ends at the
 * cap: regions behind it are left out, and the region with the cap is cut. */
int view_fb_regions(struct call *c, uint32_t *status)
{
    enum { REGIONS = 16, HEAD = 8 };
    struct {
        uint64_t base, limit;
    } region;
    uint32_t bytes = (c->params_bytes - HEAD) / REGIONS, count, i = 0;
    struct ledger ledger;
    uint64_t left;
    int e = call_driver(c);

    if (e < 0 || *status)
        return e;
    if (!account_of_call(c, &ledger)) {
        *status = NV_ERR_INVALID_OBJECT_HANDLE;
        c->params_out = false;
        return 0;
    }
    memcpy(&count, c->params, sizeof(count));
    count = count < REGIONS ? count : REGIONS;
    for (left = ledger.cap_bytes; i < count && left; i++) {
        uint8_t *at = c->params + HEAD + (size_t)i * bytes;

        memcpy(&region, at, sizeof(region));
        if (region.limit - region.base >= left)
            region.limit = region.base + left - 1;
        left -= region.limit - region.base + 1;
        memcpy(at, &region, sizeof(region));
    }
    memset(c->params + HEAD + (size_t)i * bytes, 0, c->params_bytes - HEAD - (size_t)i * bytes);
    memcpy(c->params, &i, sizeof(i));
    return 0;
}

/* A process as the caller's pid namespace names it; 0 when that namespace cannot see it. */
static pid_t pid_for(const struct process_id *p, int level)
{
    return level < p->levels ? p->at[level] : 0;
}

/* The tenant's processes on the card that the call asks about; -ESRCH when the caller has exited. Answered
 * from the account: the driver knows other tenants' too, and pids are used again. */
static int own_processes(struct call *c, struct process_use *use, struct process_id *caller, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    uint32_t card = card_of_object(c, ctl->client, ctl->object), n, kept = 0;

    if (card == OBJECT_NO_CARD) {
        *status = NV_ERR_INVALID_OBJECT_HANDLE;
        return 0;
    }
    if (caller_process_id(c->caller, caller) < 0)
        return -ESRCH;
    WITH_TENANT(c->tenant);
    n = usage_by_process(c->tenant, use, USAGE_MAX);
    for (uint32_t i = 0; i < n; i++)
        if (use[i].card == card && pid_for(&use[i].who, caller->levels - 1))
            use[kept++] = use[i];
    return (int)kept;
}

int view_pids(struct call *c, uint32_t *status)
{
    struct rm_pids *list = (void *)c->params;
    struct process_use use[USAGE_MAX];
    struct process_id caller;
    int n = own_processes(c, use, &caller, status);

    if (n < 0 || *status)
        return n;
    memset(list->pid, 0, sizeof(list->pid));
    list->count = (uint32_t)n < RM_MAX_PIDS ? (uint32_t)n : RM_MAX_PIDS;
    for (uint32_t i = 0; i < list->count; i++)
        list->pid[i] = (uint32_t)pid_for(&use[i].who, caller.levels - 1);
    return 0;
}

int view_pid_info(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct card *card = mediator_card(c->m, card_of_object(c, ctl->client, ctl->object));
    struct rm_pid_info *list = (void *)c->params;
    struct process_use use[USAGE_MAX];
    struct process_id caller;
    int n;

    if (list->count > RM_MAX_PID_INFO) {
        *status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    n = own_processes(c, use, &caller, status);
    if (n < 0 || *status)
        return n;
    for (uint32_t i = 0; i < list->count; i++) {
        struct rm_pid_entry *e = &list->entry[i];

        *e = (struct rm_pid_entry){
            .pid = e->pid,
            .index = e->index,
            .compute_instance = card ? card->compute_instance : RM_NO_INSTANCE,
            .gpu_instance = card ? card->gpu_instance : RM_NO_INSTANCE,
        };
        for (int k = 0; k < n; k++)
            if (pid_for(&use[k].who, caller.levels - 1) == (pid_t)e->pid)
                e->memory_private += use[k].bytes;
    }
    return 0;
}

int view_only_process(struct call *c, uint32_t *pid, uint32_t *status)
{
    struct process_use use[USAGE_MAX];
    struct process_id caller;
    int n = own_processes(c, use, &caller, status);

    if (n < 0 || *status)
        return n;
    *pid = n == 1 ? (uint32_t)pid_for(&use[0].who, caller.levels - 1) : (uint32_t)RM_PERFMON_NO_PID;
    return 0;
}
