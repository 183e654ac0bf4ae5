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
/* Elements of so many bytes, of any number: not a size. */
#define RM_ARRAY                 0x40000000u
#define RM_ARRAY_OF(bytes)       (RM_ARRAY | (bytes))
#define RM_VERSION(major, minor) ((uint32_t)(major) << 16 | (minor))
#define RM_SINCE(major, minor)   .since = RM_VERSION(major, minor)
#define RM_UNTIL(major, minor)   .until = RM_VERSION(major, minor)

/* What becomes of an escape, or of a command of nvidia-uvm: said in interface.def. */
enum rm_disposition { RM_, RM_PASSED, RM_MEDIATED, RM_ANSWERED, RM_REFUSED };
#define RM_IS_DISPOSED(name, ...)               \
    _Static_assert(sizeof("" #__VA_ARGS__) > 1, \
                   "rm/interface.def: " #name " has no disposition: PASSED, MEDIATED, ANSWERED or REFUSED");
#define ESCAPE(name, number, bytes, status_at, ...) RM_IS_DISPOSED(name, __VA_ARGS__)
#define UVM(name, number, bytes, ...)               RM_IS_DISPOSED(name, __VA_ARGS__)
#include "interface.def"

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
    uint32_t version;      /* RM_VERSION() of the driver itself */
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
    *out = (struct rm_table){.version = RM_VERSION(major, minor > 0xffff ? 0xffff : minor)};
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
#define ESCAPE(name, number, bytes, status_at, ...) RM_SIZE_##name = bytes, RM_STATUS_##name = status_at,
#include "interface.def"
};

/* since, until: the drivers that have it, before `until` where that is not 0. */
static const struct rm_escape_row {
    uint32_t number, bytes, status_at, since, until;
    enum rm_disposition disposition;
} rm_escapes[] __attribute__((unused)) = {
#define SINCE RM_SINCE
#define UNTIL RM_UNTIL
#define ESCAPE(name, nr, size, at, ...) \
    {.number = nr, .bytes = size, .status_at = at, .disposition = RM_##__VA_ARGS__},
#include "interface.def"
};

static const struct rm_uvm_row {
    uint32_t number, bytes, since, until;
    enum rm_disposition disposition;
} rm_uvm[] __attribute__((unused)) = {
#define SINCE                     RM_SINCE
#define UNTIL                     RM_UNTIL
#define UVM(name, cmd, size, ...) {.number = cmd, .bytes = size, .disposition = RM_##__VA_ARGS__},
#include "interface.def"
};

/* A class or a control. */
struct rm_row {
    uint32_t number, bytes, since, until;
};

static const struct rm_row rm_classes[] __attribute__((unused)) = {
#define SINCE                              RM_SINCE
#define UNTIL                              RM_UNTIL
#define CLASS(name, class_id, params, ...) {.number = class_id, .bytes = params, __VA_ARGS__},
#include "interface.def"
};

static const struct rm_row rm_controls[] __attribute__((unused)) = {
#define SINCE                                               RM_SINCE
#define UNTIL                                               RM_UNTIL
#define CONTROL(name, cmd, params, ...)                     {.number = cmd, .bytes = params, __VA_ARGS__},
#define PASSED(name, cmd, ...)                              {.number = cmd, .bytes = RM_BYTES_CALLERS, __VA_ARGS__},
#define LISTS(name, cmd, params, lists, element_bytes, ...) {.number = cmd, .bytes = params, __VA_ARGS__},
#include "interface.def"
};

static inline bool rm_lives(const struct rm_table *t, uint32_t since, uint32_t until)
{
    return since <= t->version && (!until || t->version < until);
}

/* The row of this driver's; NULL: it has none that is for tenants. */
static inline const struct rm_row *rm_row(const struct rm_table *t, const struct rm_row *rows, size_t count,
                                          uint32_t number)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].number == number && rm_lives(t, rows[i].since, rows[i].until))
            return &rows[i];
    return NULL;
}

/* Bytes of the parameters, 0: none. -ENOENT: not a class of this driver's for tenants. */
static inline int rm_class_params(const struct rm_table *t, uint32_t class_id)
{
    const struct rm_row *row = rm_row(t, rm_classes, sizeof(rm_classes) / sizeof(*rm_classes), class_id);

    return row ? (int)rm_bytes(t, row->bytes) : -ENOENT;
}

/* The row of an escape, by the command's number and size; NULL: it has none. Bare numbers are nvidia-uvm's. */
static inline const struct rm_escape_row *rm_escape(const struct rm_table *t, uint32_t number, uint32_t bytes)
{
    for (size_t i = 0; bytes && i < sizeof(rm_escapes) / sizeof(*rm_escapes); i++) {
        const struct rm_escape_row *row = &rm_escapes[i];

        if (row->number == number && rm_lives(t, row->since, row->until) &&
            (row->bytes & RM_ARRAY ? bytes >= (row->bytes & ~RM_ARRAY) : rm_bytes(t, row->bytes) == bytes))
            return row;
    }
    return NULL;
}

/* The row of a command of nvidia-uvm; NULL: it has none. */
static inline const struct rm_uvm_row *rm_uvm_command(const struct rm_table *t, uint32_t cmd)
{
    for (size_t i = 0; i < sizeof(rm_uvm) / sizeof(*rm_uvm); i++)
        if (rm_uvm[i].number == cmd && rm_lives(t, rm_uvm[i].since, rm_uvm[i].until))
            return &rm_uvm[i];
    return NULL;
}

/* Bytes of the parameters of a command of nvidia-uvm, 0: not looked at. -ENOENT: not a command of the table. */
static inline int rm_uvm_params(const struct rm_table *t, uint32_t cmd)
{
    const struct rm_uvm_row *row = rm_uvm_command(t, cmd);

    return row ? (int)rm_bytes(t, row->bytes) : -ENOENT;
}

static inline bool rm_class_is_channel(uint32_t class_id)
{
    for (size_t i = 0; i < sizeof(rm_classes) / sizeof(*rm_classes); i++)
        if (rm_classes[i].number == class_id)
            return rm_classes[i].bytes == RM_BYTES_NV_CHANNEL_ALLOC_PARAMS;
    return false;
}

/* -ENOENT: not a control of this driver's for tenants. */
static inline int rm_control_params(const struct rm_table *t, uint32_t cmd)
{
    const struct rm_row *row = rm_row(t, rm_controls, sizeof(rm_controls) / sizeof(*rm_controls), cmd);

    if (!row)
        return -ENOENT;
    return row->bytes == RM_BYTES_CALLERS ? (int)RM_BYTES_CALLERS : (int)rm_bytes(t, row->bytes);
}

/* Controls whose parameters point to lists: how many, and of what. */
static const struct rm_control_lists {
    uint32_t cmd, lists, element_bytes;
} rm_control_lists[] __attribute__((unused)) = {
#define LISTS(name, number, bytes, lists, element_bytes, ...) {number, lists, element_bytes},
#include "interface.def"
};
#endif
