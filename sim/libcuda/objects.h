/* What handles name: every handle but a context's is looked up, so that a stale one is an error and not a
 * crash. An object lives while it is in the table or held; a thread that waits holds what it waits
 * with and has left the library's lock. */
#ifndef MGPU_SIM_CUDA_OBJECTS_H
#define MGPU_SIM_CUDA_OBJECTS_H
#include "cuda.h"

enum object_kind {
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_MODULE,
    OBJECT_FUNCTION,
    OBJECT_GRAPH,
    OBJECT_EXEC,
    OBJECT_POOL,
};

struct object {
    struct object *next; /* of its bucket */
    CUcontext context;   /* held; NULL for what outlives contexts */
    void (*end)(struct object *object);
    enum object_kind kind;
    unsigned int refs;
};

/* Lock held. The table has a reference of its own; `end` frees the memory when the last is gone. */
void object_add(struct object *object, enum object_kind kind, CUcontext context,
                void (*end)(struct object *object));
void object_remove(struct object *object);
/* NULL when the handle names no live object of that kind. */
struct object *object_find(const void *handle, enum object_kind kind);
/* The one behind `after`, a live object, or the first; NULL: there is none. */
struct object *object_next(const void *after, enum object_kind kind);
struct object *object_hold(struct object *object);
void objects_end_context(CUcontext context);
/* In a forked child: nothing of the parent's exists. What another thread was about to change is left
 * alone. */
void objects_forget(void);

/* Any time. */
void object_release(struct object *object);
#endif
