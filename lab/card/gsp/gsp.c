#include "gsp.h"
#include "../answers/table.h"
#include "../facts/control_names.h"
#include "engines.h"
#include "queue.h"
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MAX = 64, ARGUMENT_BYTES = 32, SUSPENDED_AT = 0x40 / 4 };
#define RMARGS    UINT64_C(0x524d41524753) /* "RMARGS", as a number */
#define SUSPENDED (1u << 31)
enum { SET_PAGE_DIRECTORY = 0x801813, UNSET_PAGE_DIRECTORY = 0x801814, COPY_PDES = 0x90f10106 };

struct gsp {
    struct card *card;
    bool ready;
    struct queues queues;
    struct objects objects;
};

/* How an alloc and a control begin; what a control has between this and its parameters is a fact. */
struct control_head {
    uint32_t client, object, number, status, bytes, flags;
};
struct alloc_head {
    uint32_t client, parent, object, class_id, status, bytes, flags, spare;
};

static bool read_guest(void *of, uint64_t address, void *to, size_t bytes)
{
    return physical_read(of, (struct where){HOST, address}, to, bytes);
}

static bool write_guest(void *of, uint64_t address, const void *from, size_t bytes)
{
    return physical_write(of, (struct where){HOST, address}, from, bytes);
}

struct gsp *gsp_create(struct card *card)
{
    struct gsp *gsp = calloc(1, sizeof *gsp);

    if (!gsp)
        return NULL;
    gsp->card = card;
    gsp->objects.card = card;
    gsp->queues.memory = (struct queue_memory){read_guest, write_guest, card->physical};
    gsp->queues.layout = card->layout;
    gsp->queues.asked.body = malloc(RPC_BYTES_MAX);
    if (gsp->queues.asked.body)
        return gsp;
    free(gsp);
    return NULL;
}

void gsp_power_off(struct gsp *gsp)
{
    gsp->ready = false;
    objects_clear(&gsp->objects);
}

void gsp_boot(struct gsp *gsp, uint64_t arguments)
{
    struct {
        uint64_t id, address, bytes;
        uint8_t kind, location;
    } argument = {.id = 0};

    for (uint32_t i = 0; i < ARGUMENTS_MAX && argument.id != RMARGS; i++)
        if (!read_guest(gsp->card->physical, arguments + (uint64_t)i * ARGUMENT_BYTES, &argument, 26) ||
            !argument.id)
            break;
    gsp_power_off(gsp);
    if (argument.id != RMARGS || !queues_open(&gsp->queues, argument.address)) {
        card_log(gsp->card, "GSP: no queues at %#llx", (unsigned long long)arguments);
        return;
    }
    gsp->ready = true;
    gsp_look(gsp);
    card_report(gsp->card, "NV_VGPU_MSG_EVENT_GSP_INIT_DONE", false, "the driver waits for it, kernel_gsp.c");
    queues_send(&gsp->queues, gsp->card->layout->value[AT_event_init_done], 0, NULL, 0);
}

static uint64_t number_at(const struct rpc *rpc, uint32_t at, uint32_t bytes)
{
    uint64_t value = 0;

    if (at <= rpc->bytes && rpc->bytes - at >= bytes)
        memcpy(&value, rpc->body + at, bytes);
    return value;
}

static void set_directory(struct gsp *gsp, struct name name, struct where directory)
{
    struct vaspace *vaspace = object_space(&gsp->objects, name);

    card_log(gsp->card, "directory of %08x:%08x: %s %#llx", name.client, name.handle,
             directory.aperture == VIDEO ? "video" : "host", (unsigned long long)directory.address);
    if (vaspace)
        tables_set(vaspace, directory);
}

static struct vaspace *vaspace_known(struct gsp *gsp, struct name name)
{
    struct object *object = object_find(&gsp->objects, name);

    return object ? object->vaspace : NULL;
}

/* The RPC and the control have the same parameters, at another place (params). */
static void set_page_directory(struct gsp *gsp, const struct rpc *rpc, uint32_t client, uint64_t params)
{
    enum { APERTURE_MASK = 3, IN_VIDEO = 0 };
    const uint32_t *at = gsp->card->layout->value;
    uint64_t to_space = at[AT_directory_space] - at[AT_directory_address],
             to_flags = at[AT_directory_flags] - at[AT_directory_address];
    uint64_t flags = number_at(rpc, params + to_flags, 4);

    set_directory(
        gsp, (struct name){client, (uint32_t)number_at(rpc, params + to_space, 4)},
        (struct where){(flags & APERTURE_MASK) == IN_VIDEO ? VIDEO : HOST, number_at(rpc, params, 8)});
}

/* Controls that say where page tables are. The levels: address, bytes, aperture, page shift. */
static void follow_control(struct gsp *gsp, const struct control_head *head, const struct rpc *rpc)
{
    const uint32_t *at = gsp->card->layout->value;
    uint32_t params = at[AT_control_params], levels = params + at[AT_pdes_levels];
    struct vaspace *vaspace;

    if (head->number == COPY_PDES)
        set_directory(
            gsp, (struct name){head->client, head->object},
            (struct where){number_at(rpc, levels + 16, 4) == 1 ? VIDEO : HOST, number_at(rpc, levels, 8)});
    if (head->number == SET_PAGE_DIRECTORY)
        set_page_directory(gsp, rpc, head->client, params);
    if (head->number == UNSET_PAGE_DIRECTORY) {
        vaspace = vaspace_known(gsp, (struct name){head->client, (uint32_t)number_at(rpc, params, 4)});
        if (vaspace)
            tables_unset(vaspace);
    }
}

static void control(struct gsp *gsp, struct rpc *rpc)
{
    struct control_head *head = (struct control_head *)(void *)rpc->body;
    uint32_t params = gsp->card->layout->value[AT_control_params];
    struct asked asked = {gsp->card, rpc->body + params, rpc->bytes - params};
    bool scheduled = schedule_has(head->number);
    const struct answer *answer = scheduled ? &answer_scheduled : answer_of(head->number);
    char number[16];
    const char *name;

    follow_control(gsp, head, rpc);
    head->status = scheduled ? schedule_control(&gsp->objects, (struct name){head->client, head->object},
                                                head->number, asked.params, asked.bytes)
                             : answer->call(&asked);
    name = control_name(head->number);
    if (!*name) {
        snprintf(number, sizeof number, "0x%08x", head->number);
        name = number;
    }
    card_log(gsp->card, "%08x %s of %08x:%08x, %u bytes -> %#x", head->number, name, head->client,
             head->object, head->bytes, head->status);
    card_report(gsp->card, name, answer->made_up, answer->source);
}

static void alloc(struct gsp *gsp, struct rpc *rpc)
{
    const struct alloc_head *head = (const struct alloc_head *)(const void *)rpc->body;
    const struct answer *answer = answer_of_rpc(gsp->card->layout, rpc->function);
    const struct name name = {head->client, head->object}, parent = {head->client, head->parent};
    struct object *object = object_make(&gsp->objects, name, parent, head->class_id);

    card_log(gsp->card, "alloc %04x %08x:%08x below %08x, %u bytes", head->class_id, head->client,
             head->object, head->parent, head->bytes);
    if (object)
        engines_made(&gsp->objects, object, rpc->body + sizeof *head, rpc->bytes - (uint32_t)sizeof *head);
    card_report(gsp->card, answer->name, answer->made_up, answer->source);
}

static void dup_object(struct gsp *gsp, const struct rpc *rpc)
{
    const struct name name = {(uint32_t)number_at(rpc, 0, 4), (uint32_t)number_at(rpc, 8, 4)};
    const struct name parent = {name.client, (uint32_t)number_at(rpc, 4, 4)};
    const struct name original = {(uint32_t)number_at(rpc, 12, 4), (uint32_t)number_at(rpc, 16, 4)};
    struct object *object = object_make(&gsp->objects, name, parent, 0);

    card_log(gsp->card, "%08x:%08x is %08x:%08x", name.client, name.handle, original.client, original.handle);
    if (object)
        object->original = original;
}

static void update_bar(struct gsp *gsp, const struct rpc *rpc)
{
    const uint32_t *at = gsp->card->layout->value;
    uint64_t mib = number_at(rpc, at[AT_bar_pde_bar], 4) ? BAR2_DIRECTORY_MIB : BAR1_DIRECTORY_MIB;
    uint64_t entry = number_at(rpc, at[AT_bar_pde_entry], 8);

    physical_write(gsp->card->physical,
                   (struct where){VIDEO, physical_video_bytes(gsp->card->physical) - mib * MIB}, &entry,
                   sizeof entry);
}

/* What else than answering a request causes. */
static void follow(struct gsp *gsp, const struct rpc *rpc)
{
    const uint32_t *at = gsp->card->layout->value;
    const struct name first = {(uint32_t)number_at(rpc, 0, 4), (uint32_t)number_at(rpc, 8, 4)};

    if (rpc->function == at[AT_rpc_free])
        object_free(&gsp->objects, first);
    else if (rpc->function == at[AT_rpc_dup_object])
        dup_object(gsp, rpc);
    else if (rpc->function == at[AT_rpc_update_bar_pde])
        update_bar(gsp, rpc);
    else if (rpc->function == at[AT_rpc_set_page_directory])
        set_page_directory(gsp, rpc, first.client, at[AT_directory_address]);
}

static void other(struct gsp *gsp, struct rpc *rpc)
{
    const uint32_t *at = gsp->card->layout->value;
    const struct answer *answer = answer_of_rpc(gsp->card->layout, rpc->function);
    struct asked asked = {gsp->card, rpc->body, rpc->bytes};

    if (rpc->function == at[AT_rpc_static_info]) {
        asked.bytes = rpc->bytes = at[AT_static_bytes];
        answer_zero(&asked);
    }
    answer->call(&asked);
    follow(gsp, rpc);
    card_log(gsp->card, "rpc %u %s, %u bytes", rpc->function, answer->name, rpc->bytes);
    card_report(gsp->card, answer->name, answer->made_up, answer->source);
}

static bool is_answered(const struct gsp *gsp, const struct rpc *rpc)
{
    const uint32_t *at = gsp->card->layout->value;

    return rpc->function != at[AT_rpc_system_info] && rpc->function != at[AT_rpc_registry];
}

static void request(struct gsp *gsp, struct rpc *rpc)
{
    const uint32_t *at = gsp->card->layout->value;

    if (rpc->function == at[AT_rpc_control] && rpc->bytes >= at[AT_control_params])
        control(gsp, rpc);
    else if (rpc->function == at[AT_rpc_alloc] && rpc->bytes >= sizeof(struct alloc_head))
        alloc(gsp, rpc);
    else
        other(gsp, rpc);
    if (is_answered(gsp, rpc) &&
        !queues_send(&gsp->queues, rpc->function, rpc->sequence, rpc->body, rpc->bytes))
        card_log(gsp->card, "no room for an answer");
    if (rpc->function != at[AT_rpc_unloading])
        return;
    /* What the driver looks at to see it suspended. */
    gsp->card->falcon[FALCON_GSP].reg[SUSPENDED_AT] = SUSPENDED;
    gsp->card->falcon[FALCON_GSP].riscv_runs = false;
    gsp_power_off(gsp);
}

void gsp_look(struct gsp *gsp)
{
    while (gsp->ready && queues_next(&gsp->queues))
        request(gsp, &gsp->queues.asked);
}
