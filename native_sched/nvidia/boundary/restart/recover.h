/* A tenant as the previous mgpud left it: its account from the journal, corrected by what the driver says is
 * left of it. */
#ifndef MGPU_RECOVER_H
#define MGPU_RECOVER_H
#include "native_sched/nvidia/boundary/notify/listener.h"

/* The pages of listeners that no tenant has adopted yet. */
struct orphan_page {
    uint64_t listener;
    struct store store;
    struct orphan_page *next;
};

/* All pages in the folder. Files that are none are left alone. */
int orphan_pages_read(struct orphan_page **all, int folder);
/* Takes the page of that listener out, if it is the tenant's; NULL when there is none. */
struct orphan_page *orphan_page_take(struct orphan_page **all, uint64_t listener, uint64_t tenant);
/* Removes what is left, and journals of tenants for which `known` is false: how many there were. */
uint32_t orphans_forget(struct orphan_page **all, int folder, bool (*known)(void *context, uint64_t tenant),
                        void *context);

/* Where a tenant's slots lie in its store, after struct unconfirmed. */
enum { TENANT_SLOTS_AT = (sizeof(struct unconfirmed) + 63) / 64 * 64 };
/* Opens the tenant's store in the folder (-1: memory that ends with us), its account and its channels; t->id
 * is set. 1: the previous mgpud's, whose pages of listeners are among `left`. A negative errno: nothing of it
 * is left open, and the previous mgpud's journal stays. */
int tenant_open(const struct mediator *m, struct tenant *t, int folder, const struct orphan_page *left);

/* For one that could not be opened: the files that the previous mgpud knew as its own are known as such
 * again. True when there are any, or a journal. */
bool tenant_has_orphans(const struct mediator *m, struct tenant *t, int folder);
/* The driver has nothing of it, so its journal goes too. */
void tenant_forget(uint64_t id, int folder);
#endif
