#include "rm.h"

#define ENDED (UINT32_MAX - 1) /* the class of an object of which the handle alone is left */

/* They end with either subdevice, and their handle is taken until FREE (serverFreeResourceTree()). */
static void end_peers(struct rm *rm, const struct rm_object *subdevice)
{
    for (struct rm_object *object = subdevice->client->root.child; object; object = object->next)
        if (object->class_id == NV50_P2P &&
            (object->peers[0] == subdevice->handle || object->peers[1] == subdevice->handle)) {
            while (object->child)
                object_free(rm, object->child);
            object->class_id = ENDED;
        }
}

void object_free(struct rm *rm, struct rm_object *object)
{
    while (object->child)
        object_free(rm, object->child);
    dma_forget(rm, object);
    third_party_forget(rm, object);
    if (object->class_id == NV20_SUBDEVICE_0)
        end_peers(rm, object);
    if (object->release)
        object->release(object);
    leave_aliases(object);
    if (object->bytes)
        heap_give(&object->card->heap, object->bytes);
    if (object == &object->client->root)
        os_events_end(rm, 0, object->handle);
    object_drop(rm, object);
}

void objects_free_file(struct rm *rm, const struct sim_file *file)
{
    for (struct rm_client *client = rm->clients, *next; client; client = next) {
        next = client->next;
        if (client->file == file)
            object_free(rm, &client->root);
    }
}
