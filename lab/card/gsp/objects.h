/* What the driver has made on its GSP, by client and handle: what of it the engines have to know. */
#ifndef MGPU_LAB_OBJECTS_H
#define MGPU_LAB_OBJECTS_H
#include "../state/card.h"

struct name {
    uint32_t client, handle;
};

struct object {
    struct object *next; /* in the table */
    struct name name, parent;
    struct name original;   /* a duplicate's; client 0: it is none */
    struct name vaspace_of; /* a channel's, a group's, a share's address space; client 0: its parent's */
    uint32_t class_id;
    struct vaspace *vaspace; /* an address space's; NULL until it is used */
    struct gpu_group *group; /* a group's; or a channel's that is in none */
    struct gpu_channel *channel;
    struct object *in_group; /* a channel's, whose group it does not outlive */
};

enum { OBJECT_BUCKETS = 1024 };
struct objects {
    struct card *card;
    struct object *bucket[OBJECT_BUCKETS];
};

/* Duplicates are followed. NULL: there is none. */
struct object *object_find(struct objects *objects, struct name name);
/* An object of that name, in place of one that there was. NULL: no room. */
struct object *object_make(struct objects *objects, struct name name, struct name parent, uint32_t class_id);
/* It and everything below it; a client's own name is its handle. */
void object_free(struct objects *objects, struct name name);
void objects_clear(struct objects *objects);
/* The address space of that name, made when it is first asked for. NULL: no room. */
struct vaspace *object_space(struct objects *objects, struct name name);
#endif
