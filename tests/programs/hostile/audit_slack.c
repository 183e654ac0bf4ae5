/* Memory as large as what is charged for channel groups, by a call that mgpud lets its caller make and that
 * another thread changes on its way: an audit that takes the groups' charge for memory sees none of it. Then
 * the groups are freed, and all the memory is taken that is given. Usage: audit_slack. Prints "won TRIES",
 * "took MIB", and stands still; "lost" where the change never came in time. */
#include "../gpu.h"
#include <pthread.h>

enum { GROUPS = 16, GROUP = 0x100, RACED = 0x2000, FILL = 0x4000, TRIES = 400 };

static const uint64_t slack_bytes = 2ull << 30;

static struct gpu g;
static _Alignas(64) volatile struct rm_alloc call;
static _Alignas(64) struct rm_memory memory;

static void *turn(void *arg)
{
    usleep((useconds_t)(uintptr_t)arg);
    call.root = g.client;
    call.parent = DEVICE;
    call.handle = RACED;
    call.params_size = sizeof(memory);
    call.class_id = NV01_MEMORY_LOCAL_USER;
    return NULL;
}

static bool won(unsigned int after_us)
{
    pthread_t thread;
    bool mine;

    memory = (struct rm_memory){.owner = OWNER, .size = slack_bytes};
    call = (struct rm_alloc){.class_id = NV01_ROOT_CLIENT, .params = (uintptr_t)&memory};
    must(!pthread_create(&thread, NULL, turn, (void *)(uintptr_t)after_us), "thread");
    ioctl(g.ctl, RM_CMD(NV_ESC_RM_ALLOC, sizeof(call)), &call);
    mine = call.status == NV_OK && memory.limit;
    pthread_join(thread, NULL);
    return mine;
}

int main(void)
{
    struct rm_channel_group tsg = {.engine_type = RM_ENGINE_GRAPHICS};
    unsigned int tries = 0, took = 0;

    gpu_open(&g);
    for (uint32_t i = 0; i < GROUPS; i++)
        must(rm_alloc(g.ctl, g.client, DEVICE, GROUP + i, KEPLER_CHANNEL_GROUP_A, &tsg, sizeof(tsg)) == NV_OK,
             "group");
    while (tries < TRIES && !won(50 + tries++ % 40 * 50))
        ;
    if (tries == TRIES) {
        say("lost");
        hold();
    }
    say("won %u", tries);
    for (uint32_t i = 0; i < GROUPS; i++)
        rm_free(g.ctl, g.client, GROUP + i);
    for (uint32_t i = 0; i < 64; i++)
        took += rm_memory(g.ctl, g.client, FILL + i, 64 * MIB) == NV_OK ? 64 : 0;
    say("took %u", took);
    hold();
}
