/* Notified calls of two tenants, decoded and carried out by the mediator: whatever they hold, the account and
 * the driver agree after each, and no tenant is above a cap or on another's object. */
#include "../../native_sched/nvidia/boundary/call/replay.h"
#include "../../native_sched/nvidia/boundary/managed/managed.h"
#include "../../native_sched/nvidia/boundary/rm/handlers.h"
#include "world.h"
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

struct world world;

enum { MIB = 1 << 20, CAP_MIB = 48, CALLS_MAX = 96 };
enum { OUTER_AT = 0x10000 };

/* Everything once; a life starts and ends with no file open. */
static void world_start(void)
{
    static struct refusals refusals;
    static struct ids ids;
    static const struct store_layout layout = {.max_bytes = OBJECTS_BYTES};
    int kick = eventfd(0, EFD_NONBLOCK);

    memset(&refusals, 0, sizeof(refusals));
    memset(&ids, 0, sizeof(ids));
    refusals.events = -1;
    world.m = (struct mediator){.ops = &model_ops, .files = &world.files, .cards = CARDS};
    for (uint32_t i = 0; i < CARDS; i++)
        world.m.card[i] = (struct card){
            .index = i,
            .minor = i,
            .gpu_id = 100 + i,
            .device_instance = i,
            .gpu_instance = RM_NO_INSTANCE,
            .compute_instance = RM_NO_INSTANCE,
            .memory_bytes = 64 * MIB,
            .context_bytes = 5 * MIB,
            .copy_context_bytes = MIB,
        };
    if (rm_table_pick("580.95.05", &world.m.rm) < 0 || files_init(&world.files, -1) < 0)
        abort();
    for (uint32_t k = 0; k < TENANTS; k++) {
        struct tenant *t = &world.tenant[k];

        pthread_mutex_init(&t->lock, NULL);
        pthread_mutex_init(&t->calls, NULL);
        t->groups = calloc(1, sizeof(*t->groups));
        if (!t->groups || groups_init(t->groups, &model_ops, NULL, &refusals, &ids, kick) < 0 ||
            store_open(&t->store, -1, "tenant", &layout) < 0 || objects_init(&t->objects, &t->store, 0) < 0)
            abort();
        if (!(t->unconfirmed = calloc(1, sizeof(*t->unconfirmed))) || managed_open(t, -1) < 0 ||
            !(t->utilization = calloc(1, sizeof(*t->utilization))))
            abort();
        atomic_store(&t->utilization->kept, true);
        t->objects.hash_factor = 0x9e3779b97f4a7c15; /* the same every time */
        t->id = k + 1;
        for (uint32_t card = k; card < CARDS; card++)
            t->granted[card] = true;
    }
}

static void world_open(uint32_t tenant, uint32_t file)
{
    struct open_file made = {.id = ++world.last_file, .dev = 1, .tenant = &world.tenant[tenant]};

    made.ino = made.id;
    if (world.open[tenant][file] || files_add(&world.files, &made) < 0)
        return;
    world.open[tenant][file] = made.id;
}

static void world_close(uint32_t tenant, uint32_t file)
{
    uint64_t id = world.open[tenant][file];
    struct open_file gone;

    if (!id)
        return;
    world.open[tenant][file] = 0;
    model_file_gone(id);
    if (!files_take(&world.files, id, &gone))
        broken("an open file is not in the table");
    WITH_CALLS_OF(gone.tenant);
    account_file_closed(&world.m, &gone);
}

/* As a listener serves it. */
static void serve(struct tenant *t, struct replay *replay, const struct made *made)
{
    static struct call call;
    static struct caller caller;
    struct seccomp_notif req = {.id = 1, .pid = made->pid, .data = {.args = {made->fd, made->cmd, OUTER_AT}}};
    uint8_t before[OUTER_MAX];
    struct answer a;
    caller.req = &req;
    memset(&call, 0, offsetof(struct call, outer));
    call.m = &world.m;
    call.tenant = t;
    call.caller = &caller;
    call.cmd = made->cmd;
    call.outer_at = OUTER_AT;
    if (call_find_row(&call) < 0)
        return;
    if (call.outer_bytes > OUTER_MAX)
        broken("an outer struct of %u bytes", call.outer_bytes);
    if (model_ops.identify(NULL, &caller, t, (int)made->fd, &call.file) < 0)
        return;
    memcpy(call.outer, made->outer, sizeof(call.outer));
    memcpy(before, made->outer, sizeof(before));
    call_find_params_row(&call);
    world.outer = call.outer;
    world.made = made;
    a = replay_find(replay, &req, &call) ? answered(NV_OK) : mediate(&call);
    if (call.params_out && call.params_bytes > PARAMS_MAX)
        broken("%u bytes to write back", call.params_bytes);
    if (a.kind == FAIL && (a.error >= 0 || a.error < -4095))
        broken("ioctl() would return %d", a.error);
    if (a.kind == ANSWER && !one_in(world.choices, 8) && call_changes(&call))
        replay_keep(replay, &req, &call, before, true, !one_in(world.choices, 4));
}

static void look(struct tenant *t, struct choices *c)
{
    struct engine_status engine[2] = {
        {.tsg_id = one_byte(c), .engines = engine_bit(RM_ENGINE_GRAPHICS), .busy = one_in(c, 2)},
        {.tsg_id = one_byte(c), .engines = engine_bit(RM_ENGINE_COPY0), .busy = one_in(c, 2)}};

    for (uint32_t card = 0; card < CARDS; card++)
        groups_poll(t->groups, card, engine, 2);
}

/* A client with a device and memory on the tenant's second file: most calls mean nothing without. Channels:
 * with a group that runs if its tenant does, too. */
static void prepare_client(uint32_t k, struct replay *replay, bool channels)
{
    const uint32_t client = 0xc1 + k;
    const struct rm_alloc first[] = {
        {.root = client, .handle = client, .class_id = NV01_ROOT_CLIENT},
        {.root = client, .parent = client, .handle = 0xd0, .class_id = NV01_DEVICE_0, .params = 1},
        {.root = client, .parent = 0xd0, .handle = 0xe2, .class_id = NV01_MEMORY_LOCAL_USER, .params = 1},
        {.root = client, .parent = 0xd0, .handle = 0xd1, .class_id = NV20_SUBDEVICE_0, .params = 1},
        {.root = client, .parent = 0xd0, .handle = 0xe0, .class_id = KEPLER_CHANNEL_GROUP_A, .params = 1},
        {.root = client, .parent = 0xe0, .handle = 0xe1, .class_id = VOLTA_CHANNEL_GPFIFO_A, .params = 1},
    };
    struct made made = {.cmd = RM_CMD(NV_ESC_RM_ALLOC, sizeof(*first)), .fd = 1, .pid = 200};
    static const uint8_t nothing;
    struct choices none = {&nothing, &nothing}, *chosen = world.choices;

    world.choices = &none;
    for (int i = 0; i < (channels ? 6 : 3); i++) {
        memcpy(made.outer, &first[i], sizeof(first[i]));
        serve(&world.tenant[k], replay, &made);
    }
    if (channels)
        groups_want(world.tenant[k].groups, client, 0xe0, true);
    world.choices = chosen;
}

static void life(struct choices *c)
{
    static struct replay replay[TENANTS];
    struct made made = {.cmd = 0};
    uint32_t k = 0;

    memset(replay, 0, sizeof(replay));
    for (uint32_t i = 0; i < TENANTS; i++)
        if (!one_in(c, 8))
            prepare_client(i, &replay[i], one_in(c, 2));
    for (int i = 0; i < CALLS_MAX && c->at < c->end; i++) {
        switch (below(c, 16)) {
        case 0:
            world_close(below(c, TENANTS), below(c, TENANT_FILES));
            break;
        case 1:
            world_open(below(c, TENANTS), below(c, TENANT_FILES));
            break;
        case 2:
            groups_run(world.tenant[below(c, TENANTS)].groups, one_in(c, 2));
            break;
        case 3:
            look(&world.tenant[below(c, TENANTS)], c);
            break;
        case 4: /* once more, as after a signal */
            serve(&world.tenant[k], &replay[k], &made);
            break;
        default:
            k = below(c, TENANTS);
            some_call(c, &made);
            serve(&world.tenant[k], &replay[k], &made);
            break;
        }
        check_books();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct choices c = {data, data + bytes};

    if (!world.m.ops)
        world_start();
    world.choices = &c;
    for (uint32_t k = 0; k < TENANTS; k++) {
        for (uint32_t card = 0; card < CARDS; card++)
            world.tenant[k].ledger[card] = (struct ledger){
                .cap_bytes = world.tenant[k].granted[card] ? CAP_MIB * (uint64_t)MIB : 0};
        for (uint32_t i = 0; i < TENANT_FILES; i++)
            world_open(k, i);
    }
    life(&c);
    for (uint32_t k = 0; k < TENANTS; k++)
        for (uint32_t i = 0; i < TENANT_FILES; i++)
            world_close(k, i);
    check_books();
    for (uint32_t k = 0; k < TENANTS; k++)
        if (world.tenant[k].objects.live || files_of(&world.files, &world.tenant[k]))
            broken("something is left of a tenant without files");
    return 0;
}
