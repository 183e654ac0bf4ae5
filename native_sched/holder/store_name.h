/* Names in the service manager's descriptor store. */
#ifndef MGPU_HOLDER_STORE_NAME_H
#define MGPU_HOLDER_STORE_NAME_H
#include "manager.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { STORE_NAME_MAX = 256 }; /* with its NUL; sd_notify(3) takes 255 characters */
#define STORE_SOCKET "seccomp.sock"

static inline void store_name(char name[STORE_NAME_MAX], uint64_t id)
{
    snprintf(name, STORE_NAME_MAX, "listener-%" PRIu64, id);
}

/* 0: it names no listener. */
static inline uint64_t store_id(const char *name)
{
    char again[STORE_NAME_MAX];
    uint64_t id;

    if (sscanf(name, "listener-%" SCNu64, &id) != 1)
        return 0;
    store_name(again, id);
    return strcmp(name, again) ? 0 : id;
}

/* As manager_tell(). */
static inline int store_forget(const char *name)
{
    char lines[64 + STORE_NAME_MAX];

    snprintf(lines, sizeof(lines), "FDSTOREREMOVE=1\nFDNAME=%s", name);
    return manager_tell(lines, NULL, 0);
}
#endif
