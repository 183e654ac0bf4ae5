#include "rm.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FIRST_CLIENT_HANDLE = 0xc1d00001u, FIRST_OBJECT_HANDLE = 0xcaf00001u };

static struct rm_object **bucket(struct rm *rm, uint32_t client, uint32_t handle)
{
    uint64_t hash = ((uint64_t)client << 32 | handle) * 0x9e3779b97f4a7c15u;

    return &rm->objects[hash >> 47];
}
_Static_assert(RM_HASH_BUCKETS == 1 << (64 - 47), "bucket() yields as many bits as there are buckets");

static void hash_add(struct rm *rm, struct rm_object *object)
{
    struct rm_object **head = bucket(rm, object->client->root.handle, object->handle);

    object->hash_next = *head;
    *head = object;
}

static void hash_remove(struct rm *rm, struct rm_object *object)
{
    struct rm_object **at = bucket(rm, object->client->root.handle, object->handle);

    while (*at != object)
        at = &(*at)->hash_next;
    *at = object->hash_next;
}

struct rm_object *object_find(struct rm *rm, uint32_t client, uint32_t handle)
{
    struct rm_object *object = *bucket(rm, client, handle);

    while (object && (object->handle != handle || object->client->root.handle != client))
        object = object->hash_next;
    return object;
}

const struct rm_object *object_device(const struct rm_object *object)
{
    while (object && object->class_id != NV01_DEVICE_0)
        object = object->parent;
    return object;
}

bool client_handle_taken(struct rm *rm, uint32_t handle)
{
    return object_find(rm, handle, handle) != NULL;
}

struct rm_client *client_find(struct rm *rm, uint32_t handle, const struct sim_file *file)
{
    struct rm_object *root = object_find(rm, handle, handle);

    return root && root->client->file == file && !root->client->internal ? root->client : NULL;
}

/* NV_OK: the caller may use it by this file. */
uint32_t client_status(struct rm *rm, uint32_t handle, const struct sim_file *file)
{
    if (!handle)
        return NV_ERR_INVALID_OBJECT;
    if (client_find(rm, handle, file))
        return NV_OK;
    return client_handle_taken(rm, handle) ? NV_ERR_INVALID_CLIENT : NV_ERR_INVALID_OBJECT_HANDLE;
}

/* The effective one, whose the process's files under /proc are. */
static uint32_t uid_of(int32_t tgid)
{
    struct stat st;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d", (int)tgid);
    return stat(path, &st) ? UINT32_MAX : st.st_uid;
}

struct rm_client *client_create(struct rm *rm, struct sim_file *file, uint32_t handle, int32_t tgid)
{
    struct rm_client *client = calloc(1, sizeof *client);

    if (!client)
        return NULL;
    while (!handle || client_handle_taken(rm, handle)) {
        if (rm->last_client_handle < FIRST_CLIENT_HANDLE)
            rm->last_client_handle = FIRST_CLIENT_HANDLE - 1;
        handle = ++rm->last_client_handle;
    }
    client->root = (struct rm_object){.client = client, .handle = handle, .class_id = NV01_ROOT_CLIENT};
    client->file = file;
    client->tgid = tgid;
    client->uid = tgid ? uid_of(tgid) : UINT32_MAX;
    client->next_handle = FIRST_OBJECT_HANDLE;
    client->next = rm->clients;
    if (rm->clients)
        rm->clients->prev = client;
    rm->clients = client;
    hash_add(rm, &client->root);
    return client;
}

uint32_t object_new_handle(struct rm *rm, struct rm_client *client)
{
    while (!client->next_handle || object_find(rm, client->root.handle, client->next_handle))
        client->next_handle++;
    return client->next_handle++;
}

struct rm_object *object_create(struct rm *rm, struct rm_object *parent, uint32_t handle, uint32_t class_id)
{
    struct rm_object *object = malloc(sizeof *object);

    if (!object)
        return NULL;
    *object = (struct rm_object){
        .client = parent->client,
        .parent = parent,
        .next = parent->child,
        .card = parent->card,
        .handle = handle,
        .class_id = class_id,
    };
    if (parent->child)
        parent->child->prev = object;
    parent->child = object;
    hash_add(rm, object);
    return object;
}

bool object_take(struct rm_object *object, uint64_t bytes)
{
    object->bytes = object->memory_bytes = heap_take(&object->card->heap, bytes);
    return object->bytes != 0;
}

static void client_unlink(struct rm *rm, struct rm_client *client)
{
    if (client->next)
        client->next->prev = client->prev;
    if (client->prev)
        client->prev->next = client->next;
    else
        rm->clients = client->next;
}

static void object_unlink(struct rm_object *object)
{
    if (object->next)
        object->next->prev = object->prev;
    if (object->prev)
        object->prev->next = object->next;
    else
        object->parent->child = object->next;
}

void object_drop(struct rm *rm, struct rm_object *object)
{
    struct rm_client *client = object->client;

    hash_remove(rm, object);
    if (object == &client->root) {
        client_unlink(rm, client);
        sysmem_quota_put(client->sysmem);
        free(client);
    } else {
        object_unlink(object);
        free(object);
    }
}

static bool subtree_has_class(const struct rm_object *object, const struct sim_card *card, uint32_t class_id)
{
    if (object->card == card && object->class_id == class_id)
        return true;
    for (const struct rm_object *child = object->child; child; child = child->next)
        if (subtree_has_class(child, card, class_id))
            return true;
    return false;
}

bool client_has_class(const struct rm_client *client, const struct sim_card *card, uint32_t class_id)
{
    return subtree_has_class(&client->root, card, class_id);
}
