#include "objects.h"
#include <string.h>

enum { BUCKETS = 1024, ALIGNMENT_SHIFT = 4 };

static struct object *buckets[BUCKETS];

static struct object **bucket_of(const void *handle)
{
    uintptr_t number = (uintptr_t)handle >> ALIGNMENT_SHIFT;

    return &buckets[(number ^ number / BUCKETS) % BUCKETS];
}

void object_add(struct object *object, enum object_kind kind, CUcontext context,
                void (*end)(struct object *object))
{
    struct object **bucket = bucket_of(object);

    *object = (struct object){.next = *bucket, .context = context, .end = end, .kind = kind, .refs = 1};
    *bucket = object;
    if (context)
        context_hold(context);
}

void object_remove(struct object *object)
{
    struct object **at = bucket_of(object);

    while (*at != object)
        at = &(*at)->next;
    *at = object->next;
    object_release(object);
}

struct object *object_find(const void *handle, enum object_kind kind)
{
    for (struct object *object = *bucket_of(handle); object; object = object->next)
        if (object == handle)
            return object->kind == kind ? object : NULL;
    return NULL;
}

struct object *object_next(const void *after, enum object_kind kind)
{
    struct object **bucket = after ? bucket_of(after) : buckets;
    struct object *object = after ? ((const struct object *)after)->next : *bucket;

    for (;; object = *bucket) {
        for (; object; object = object->next)
            if (object->kind == kind)
                return object;
        if (++bucket == buckets + BUCKETS)
            return NULL;
    }
}

struct object *object_hold(struct object *object)
{
    __atomic_fetch_add(&object->refs, 1, __ATOMIC_RELAXED);
    return object;
}

void object_release(struct object *object)
{
    CUcontext context = object->context;

    if (__atomic_sub_fetch(&object->refs, 1, __ATOMIC_ACQ_REL))
        return;
    object->end(object);
    if (context)
        context_release(context);
}

void objects_end_context(CUcontext context)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct object **at = &buckets[i]; *at;) {
            struct object *object = *at;

            if (object->context != context) {
                at = &object->next;
                continue;
            }
            *at = object->next;
            object_release(object);
        }
    }
}

void objects_forget(void)
{
    memset(buckets, 0, sizeof buckets);
}
