/* Memory that another device's driver reaches by its address, for the process that asks (third_party_p2p.c
 * and third_party_p2p_ctrl.c of NVIDIA's open-gpu-kernel-modules; nvidia_p2p_get_pages() is for drivers). */
#include "rm.h"
#include <stdlib.h>
#include <string.h>

enum { TYPE_MASK = 3, BY_BAR1 = 1, BY_NVLINK = 2, FIRST_TOKEN = 0xfe00, PAGE_BYTES = 65536 };
enum { PROCESSES = 8, SPACES = 16, RANGES = 256 }; /* RM has 256 of the first two, and any number of ranges */

struct third_party {
    struct third_party *next; /* all of them */
    struct rm *rm;
    uint32_t client;
    int32_t tgid[PROCESSES];
    uint32_t vaspace[SPACES]; /* 0: free; its place is its token */
    struct {
        uint32_t memory; /* 0: free */
        uint64_t address, bytes;
    } range[RANGES];
};

static uint32_t add_process(struct third_party *t, int32_t tgid)
{
    for (uint32_t i = 0; i < PROCESSES; i++)
        if (!t->tgid[i] || t->tgid[i] == tgid) {
            t->tgid[i] = tgid;
            return NV_OK;
        }
    return NV_ERR_OBJECT_NOT_FOUND;
}

/* No card here has memory that is the processor's, too: none is reached over NVLink. */
uint32_t third_party_alloc(struct rm_call *call, struct rm_object *object)
{
    uint32_t type = *(const uint32_t *)call->params & TYPE_MASK;

    if (type != BY_BAR1)
        return type == BY_NVLINK ? NV_ERR_INVALID_STATE : NV_ERR_NOT_SUPPORTED;
    object->third_party = calloc(1, sizeof(*object->third_party));
    if (!object->third_party)
        return NV_ERR_NO_MEMORY;
    object->third_party->rm = call->rm;
    object->third_party->client = object->client->root.handle;
    object->third_party->next = call->rm->third_parties;
    call->rm->third_parties = object->third_party;
    return add_process(object->third_party, call->tgid);
}

void third_party_free(struct rm_object *object)
{
    struct third_party *t = object->third_party, **at;

    if (!t)
        return;
    for (at = &t->rm->third_parties; *at != t; at = &(*at)->next)
        ;
    *at = t->next;
    free(t);
}

static uint32_t *find_vaspace(struct third_party *t, uint32_t vaspace)
{
    for (uint32_t i = 0; i < SPACES; i++)
        if (t->vaspace[i] == vaspace)
            return &t->vaspace[i];
    return NULL;
}

uint32_t third_party_space(const struct rm_request *request)
{
    struct third_party *t = request->object->third_party;
    struct {
        uint32_t vaspace, pad;
        uint64_t token;
    } *params = request->params;
    uint32_t *place = find_vaspace(t, 0);

    if (find_vaspace(t, params->vaspace))
        return NV_ERR_INSERT_DUPLICATE_NAME;
    if (!place)
        return NV_ERR_INSUFFICIENT_RESOURCES;
    *place = params->vaspace;
    params->token = FIRST_TOKEN + (uint64_t)(place - t->vaspace);
    return NV_OK;
}

uint32_t third_party_no_space(const struct rm_request *request)
{
    uint32_t *place = find_vaspace(request->object->third_party, *(const uint32_t *)request->params);

    if (!place)
        return NV_ERR_OBJECT_NOT_FOUND;
    *place = 0;
    return NV_OK;
}

/* The process that made the client. */
uint32_t third_party_process(const struct rm_request *request)
{
    uint32_t name = *(const uint32_t *)request->params;
    const struct rm_object *root = object_find(request->rm, name, name);

    return root ? add_process(request->object->third_party, root->client->tgid) : NV_ERR_INVALID_CLIENT;
}

uint32_t third_party_memory(const struct rm_request *request)
{
    struct third_party *t = request->object->third_party;
    const struct {
        uint32_t memory, pad;
        uint64_t address, bytes, offset;
    } *params = request->params;
    const struct rm_object *memory = object_find(request->rm, request->object->client->root.handle,
                                                 params->memory);
    uint32_t place = RANGES;

    if (!memory || !class_has_names(memory->class_id) || memory->card != request->card)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (memory->class_id != NV01_MEMORY_LOCAL_USER)
        return NV_ERR_NOT_SUPPORTED;
    if (!params->bytes || (params->bytes | params->address | params->offset) % PAGE_BYTES ||
        params->address > -params->bytes || params->bytes > memory->memory_bytes ||
        params->offset > memory->memory_bytes - params->bytes)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = RANGES; i--;) {
        if (t->range[i].memory == params->memory)
            return NV_ERR_INSERT_DUPLICATE_NAME;
        place = t->range[i].memory ? place : i;
    }
    if (place == RANGES)
        return NV_ERR_NO_MEMORY;
    t->range[place].memory = params->memory;
    t->range[place].address = params->address;
    t->range[place].bytes = params->bytes;
    return NV_OK;
}

static bool forget(struct third_party *t, uint32_t memory)
{
    for (uint32_t i = 0; i < RANGES; i++)
        if (t->range[i].memory == memory) {
            t->range[i].memory = 0;
            return true;
        }
    return false;
}

uint32_t third_party_no_memory(const struct rm_request *request)
{
    uint32_t memory = *(const uint32_t *)request->params;

    return memory && forget(request->object->third_party, memory) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

void third_party_forget(struct rm *rm, const struct rm_object *memory)
{
    for (struct third_party *t = rm->third_parties; t; t = t->next)
        if (t->client == memory->client->root.handle)
            forget(t, memory->handle);
}

void third_party_print(struct rm *rm, FILE *out)
{
    const char *comma = "";

    fputc('[', out);
    for (const struct third_party *t = rm->third_parties; t; t = t->next, comma = ",") {
        fprintf(out, "%s{\"tgids\":[", comma);
        for (uint32_t i = 0; i < PROCESSES && t->tgid[i]; i++)
            fprintf(out, "%s%d", i ? "," : "", t->tgid[i]);
        fputs("],\"ranges\":[", out);
        comma = "";
        for (uint32_t i = 0; i < RANGES; i++)
            if (t->range[i].memory) {
                fprintf(out, "%s[%llu,%llu]", comma, (unsigned long long)t->range[i].address,
                        (unsigned long long)t->range[i].bytes);
                comma = ",";
            }
        fputs("]}", out);
    }
    fputc(']', out);
}
