/* The sizes of one driver version, chosen once at start from interface.def; and what the interface is made of. Functions
 * return 0 or a positive value, or a negative errno. */
#ifndef MGPU_RM_TABLE_H
#define MGPU_RM_TABLE_H
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { RM_NO_STATUS = 0xffff };
enum { RM_BYTES_CALLERS = 0x20000 }; /* rm_control_params(): the caller's size is the driver's to judge */

/* A size that is at least RM_BYTES_UNKNOWN is not a size: it names one that depends on the version. */
enum rm_bytes {
    RM_BYTES_UNKNOWN = 0x10000,
#define KEY(name) RM_BYTES_##name,
#include "interface.def"
    RM_BYTES_END,
    RM_BYTES_KEYS = RM_BYTES_END - RM_BYTES_UNKNOWN,
};

struct rm_table {
    uint32_t major, minor; /* the version at which the newest of these sizes appeared */
    uint32_t bytes[RM_BYTES_KEYS];
};

/* The size for this table's drivers; 0 also where it is not known. */
static inline uint32_t rm_bytes(const struct rm_table *t, uint32_t size)
{
    if (size < RM_BYTES_UNKNOWN)
        return size;
    return size < RM_BYTES_END ? t->bytes[size - RM_BYTES_UNKNOWN] : 0;
}

/* version: "580.95.05", "580.95", or "580" for the newest of a branch. -ENOENT: not a known one. */
static inline int rm_table_pick(const char *version, struct rm_table *out)
{
    static const struct {
        uint32_t major, first_minor;
    } branches[] = {
#define BRANCH(major, first_minor) {major, first_minor},
#include "interface.def"
    };
    static const struct {
        uint32_t key, major, minor, bytes;
    } changes[] = {
#define BYTES(name, major, minor, bytes) {RM_BYTES_##name - RM_BYTES_UNKNOWN, major, minor, bytes},
#include "interface.def"
    };
    unsigned int major, minor = UINT32_MAX;
    int used = 0, known = 0;

    if (sscanf(version, "%3u%n.%u%n", &major, &used, &minor, &used) < 1 ||
        (version[used] && version[used] != '.'))
        return -ENOENT;
    for (size_t i = 0; i < sizeof(branches) / sizeof(*branches); i++)
        known |= branches[i].major == major && branches[i].first_minor <= minor;
    if (!known)
        return -ENOENT;
    *out = (struct rm_table){0};
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        uint32_t at = changes[i].major, point = changes[i].minor;

        if (at > major || (at == major && point > minor))
            continue;
        out->bytes[changes[i].key] = changes[i].bytes;
        if (at > out->major || (at == out->major && point > out->minor)) {
            out->major = at;
            out->minor = point;
        }
    }
    return 0;
}

/* The known branches, for people to read. */
static inline const char *rm_table_known(void)
{
#define BRANCH(major, first_minor) ", " #major "." #first_minor
    static const char known[] =
#include "interface.def"
        ;

    return known + sizeof(", ") - 1;
}

/* RM_SIZE_*, RM_STATUS_*: of an escape's outer struct. */
enum rm_escape_layout {
#define ESCAPE(name, number, bytes, status_at) RM_SIZE_##name = bytes, RM_STATUS_##name = status_at,
#include "interface.def"
};

static const struct rm_class_bytes {
    uint32_t class_id, bytes;
} rm_class_bytes[] __attribute__((unused)) = {
#define CLASS(name, number, bytes) {number, bytes},
#include "interface.def"
};

static const struct rm_uvm_bytes {
    uint32_t cmd, bytes;
} rm_uvm_bytes[] __attribute__((unused)) = {
#define UVM(name, number, bytes) {number, bytes},
#include "interface.def"
};

static const struct rm_control_bytes {
    uint32_t cmd, bytes;
} rm_control_bytes[] __attribute__((unused)) = {
#define CONTROL(name, number, bytes)                     {number, bytes},
#define PASSED(name, number)                             {number, RM_BYTES_CALLERS},
#define LISTS(name, number, bytes, lists, element_bytes) {number, bytes},
#include "interface.def"
};

/* Bytes of the parameters, 0: none. -ENOENT: not a class of the table. */
static inline int rm_class_params(const struct rm_table *t, uint32_t class_id)
{
    for (size_t i = 0; i < sizeof(rm_class_bytes) / sizeof(*rm_class_bytes); i++)
        if (rm_class_bytes[i].class_id == class_id)
            return (int)rm_bytes(t, rm_class_bytes[i].bytes);
    return -ENOENT;
}

/* Bytes of the parameters of a command of nvidia-uvm, 0: not looked at. -ENOENT: not a command of the table. */
static inline int rm_uvm_params(const struct rm_table *t, uint32_t cmd)
{
    for (size_t i = 0; i < sizeof(rm_uvm_bytes) / sizeof(*rm_uvm_bytes); i++)
        if (rm_uvm_bytes[i].cmd == cmd)
            return (int)rm_bytes(t, rm_uvm_bytes[i].bytes);
    return -ENOENT;
}

static inline bool rm_class_is_channel(uint32_t class_id)
{
    for (size_t i = 0; i < sizeof(rm_class_bytes) / sizeof(*rm_class_bytes); i++)
        if (rm_class_bytes[i].class_id == class_id)
            return rm_class_bytes[i].bytes == RM_BYTES_NV_CHANNEL_ALLOC_PARAMS;
    return false;
}

static inline int rm_control_params(const struct rm_table *t, uint32_t cmd)
{
    for (size_t i = 0; i < sizeof(rm_control_bytes) / sizeof(*rm_control_bytes); i++)
        if (rm_control_bytes[i].cmd == cmd)
            return rm_control_bytes[i].bytes == RM_BYTES_CALLERS
                       ? (int)RM_BYTES_CALLERS
                       : (int)rm_bytes(t, rm_control_bytes[i].bytes);
    return -ENOENT;
}

/* Controls whose parameters point to lists: how many, and of what. */
static const struct rm_control_lists {
    uint32_t cmd, lists, element_bytes;
} rm_control_lists[] __attribute__((unused)) = {
#define LISTS(name, number, bytes, lists, element_bytes) {number, lists, element_bytes},
#include "interface.def"
};
#endif
