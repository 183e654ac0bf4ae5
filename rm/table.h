/* The sizes of one driver version, chosen once at start from interface.def; and what the interface is made
 * of. Functions return 0 or a positive value, or a negative errno. */
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

/* RM's answers, for the rows alone: elsewhere they have NVIDIA's names (rm_abi.h). */
enum rm_answer {
#define STATUS(name, number) RM_ANSWER_##name = number,
#include "interface.def"
};

/* What becomes of an escape, a command of nvidia-uvm or a control: said in interface.def. */
enum rm_disposition { RM_, RM_PASSED, RM_MEDIATED, RM_ANSWERED, RM_REFUSED };
#define RM_MEDIATED(...)   RM_MEDIATED
#define RM_ANSWERED(...)   RM_ANSWERED
#define RM_REFUSED(answer) RM_REFUSED, .status = RM_ANSWER_##answer
/* What objects of a class are to mgpu: said there too. */
enum rm_kind {
    RM_KIND_,
    RM_KIND_OTHER,
    RM_KIND_ROOT,
    RM_KIND_DEVICE,
    RM_KIND_SUBDEVICE,
    RM_KIND_VASPACE,
    RM_KIND_VIDEO_MEMORY,
    RM_KIND_HOST_MEMORY,
    RM_KIND_VIRTUAL_MEMORY,
    RM_KIND_EVENT,
    RM_KIND_DEBUGGER,
    RM_KIND_GROUP,
    RM_KIND_CHANNEL,
    RM_KIND_GPU_INSTANCE,
    RM_KIND_COMPUTE_INSTANCE,
    RM_KIND_REFUSED,
};
#define RM_KIND_REFUSED(answer) RM_KIND_REFUSED, .status = RM_ANSWER_##answer

#define RM_IS_DISPOSED(name, ...)               \
    _Static_assert(sizeof("" #__VA_ARGS__) > 1, \
                   "rm/interface.def: " #name " has no disposition: PASSED, MEDIATED, ANSWERED or REFUSED");
#define ESCAPE(name, number, bytes, status_at, ...) RM_IS_DISPOSED(name, __VA_ARGS__)
#define UVM(name, number, bytes, ...)               RM_IS_DISPOSED(name, __VA_ARGS__)
#define CONTROL(name, number, bytes, ...)           RM_IS_DISPOSED(name, __VA_ARGS__)
#define CLASS(name, number, bytes, ...) \
    _Static_assert(sizeof("" #__VA_ARGS__) > 1, "rm/interface.def: " #name " has no kind: OTHER, if nothing");
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

/* From that version on. */
static const struct {
    uint32_t key, major, minor, bytes;
} rm_changes[] __attribute__((unused)) = {
#define BYTES(name, major, minor, bytes) {RM_BYTES_##name, major, minor, bytes},
#include "interface.def"
};
enum { RM_CHANGES = sizeof(rm_changes) / sizeof(*rm_changes) };

/* version: "580.95.05", "580.95", or "580" for the newest of a branch. -ENOENT: not a known one. */
static inline int rm_table_pick(const char *version, struct rm_table *out)
{
    static const struct {
        uint32_t major, first_minor;
    } branches[] = {
#define BRANCH(major, first_minor) {major, first_minor},
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
    for (size_t i = 0; i < RM_CHANGES; i++) {
        uint32_t at = rm_changes[i].major, point = rm_changes[i].minor;

        if (at > major || (at == major && point > minor))
            continue;
        out->bytes[rm_changes[i].key - RM_BYTES_UNKNOWN] = rm_changes[i].bytes;
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
    uint32_t params_at, params_size_at, pointer_at; /* 0: none */
    bool changes, executed, continued, names_file, sizeless;
} rm_escapes[] __attribute__((unused)) = {
#define SINCE                  RM_SINCE
#define UNTIL                  RM_UNTIL
#define CHANGES                .changes = true
#define EXECUTED               .executed = true
#define CONTINUED              .continued = true
#define NAMES_FILE             .names_file = true
#define SIZELESS               .sizeless = true
#define PARAMS_AT(at, size_at) .params_at = at, .params_size_at = size_at
#define POINTER_AT(at)         .pointer_at = at
#define ESCAPE(name, nr, size, at, ...) \
    {.number = nr, .bytes = size, .status_at = at, .disposition = RM_##__VA_ARGS__},
#include "interface.def"
};

static const struct rm_uvm_row {
    uint32_t number, bytes, since, until;
    enum rm_disposition disposition;
    bool changes, executed;
} rm_uvm[] __attribute__((unused)) = {
#define SINCE                     RM_SINCE
#define UNTIL                     RM_UNTIL
#define CHANGES                   .changes = true
#define EXECUTED                  .executed = true
#define UVM(name, cmd, size, ...) {.number = cmd, .bytes = size, .disposition = RM_##__VA_ARGS__},
#include "interface.def"
};

/* A class or a control. status: of one that is refused. lists: how many its parameters point to. */
struct rm_row {
    uint32_t number, bytes, since, until;
    enum rm_kind kind;
    enum rm_disposition disposition;
    enum rm_answer status;
    uint32_t lists, element_bytes;
    bool changes, continued, names_file, in_place, unlisted;
};

static const struct rm_row rm_classes[] __attribute__((unused)) = {
#define SINCE     RM_SINCE
#define UNTIL     RM_UNTIL
#define CONTINUED .continued = true
#define UNLISTED  .unlisted = true
#define CLASS(name, class_id, params, ...) \
    {.number = class_id, .bytes = params, .kind = RM_KIND_##__VA_ARGS__},
#include "interface.def"
};

static const struct rm_row rm_controls[] __attribute__((unused)) = {
#define SINCE                           RM_SINCE
#define UNTIL                           RM_UNTIL
#define CHANGES                         .changes = true
#define CONTINUED                       .continued = true
#define NAMES_FILE                      .names_file = true
#define IN_PLACE                        .in_place = true
#define LISTS(count, bytes_each)        .lists = count, .element_bytes = bytes_each
#define CONTROL(name, cmd, params, ...) {.number = cmd, .bytes = params, .disposition = RM_##__VA_ARGS__},
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

static inline const struct rm_row *rm_class_row(const struct rm_table *t, uint32_t class_id)
{
    return rm_row(t, rm_classes, sizeof(rm_classes) / sizeof(*rm_classes), class_id);
}

/* Bytes of the parameters, 0: none. -ENOENT: not a class of this driver's for tenants. */
static inline int rm_class_params(const struct rm_table *t, uint32_t class_id)
{
    const struct rm_row *row = rm_class_row(t, class_id);

    return row && row->kind != RM_KIND_REFUSED ? (int)rm_bytes(t, row->bytes) : -ENOENT;
}

/* The row of an escape by number and size, or NULL. Bare numbers are nvidia-uvm's. */
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

/* The same where it does not matter which driver it is: its bytes may be those of any. */
static inline const struct rm_escape_row *rm_escape_of_any(uint32_t number, uint32_t bytes)
{
    for (size_t i = 0; bytes && i < sizeof(rm_escapes) / sizeof(*rm_escapes); i++) {
        const struct rm_escape_row *row = &rm_escapes[i];

        if (row->number == number && (row->bytes >= RM_BYTES_UNKNOWN || row->bytes == bytes))
            return row;
    }
    return NULL;
}

/* Some driver's outer struct has so many bytes; of arrays, from the power of two below one element on. */
static inline bool rm_may_have_bytes(const struct rm_escape_row *row, uint32_t bytes)
{
    const uint32_t element = row->bytes & ~RM_ARRAY;
    bool found = row->bytes == bytes || (row->sizeless && !bytes);

    if (row->bytes & RM_ARRAY)
        return element == 4 ? bytes % 4 == 0 : bytes >= 1u << (31 - __builtin_clz(element));
    for (size_t i = 0; i < RM_CHANGES; i++)
        found |= rm_changes[i].key == row->bytes && rm_changes[i].bytes == bytes;
    return found;
}

/* The mediator decides on that command of ioctl(): it is not passed, in some driver, or one of nvidia-uvm's
 * blocks of bare numbers has it, in which Linux has none. The filter notifies others beside these. */
static inline bool rm_is_watched(uint32_t cmd)
{
    if ((cmd >= 0x10 && cmd < 0x80) || (cmd & ~3u) == 0x30000000)
        return true;
    for (size_t i = 0; i < sizeof(rm_escapes) / sizeof(*rm_escapes); i++)
        if (rm_escapes[i].number == (cmd & 0xff) && rm_escapes[i].disposition != RM_PASSED &&
            rm_may_have_bytes(&rm_escapes[i], cmd >> 16 & 0x3fff))
            return true;
    return false;
}

/* The row of whatever drivers; NULL: it has none. */
static inline const struct rm_row *rm_class(uint32_t class_id)
{
    for (size_t i = 0; i < sizeof(rm_classes) / sizeof(*rm_classes); i++)
        if (rm_classes[i].number == class_id)
            return &rm_classes[i];
    return NULL;
}

static inline const struct rm_row *rm_control_of_any(uint32_t cmd)
{
    for (size_t i = 0; i < sizeof(rm_controls) / sizeof(*rm_controls); i++)
        if (rm_controls[i].number == cmd)
            return &rm_controls[i];
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

/* The same where it does not matter which driver it is. */
static inline const struct rm_uvm_row *rm_uvm_of_any(uint32_t cmd)
{
    for (size_t i = 0; i < sizeof(rm_uvm) / sizeof(*rm_uvm); i++)
        if (rm_uvm[i].number == cmd)
            return &rm_uvm[i];
    return NULL;
}

/* The arbiter makes the command: it concerns the file alone, not the process that calls. */
static inline bool rm_uvm_is_executed(uint32_t cmd)
{
    const struct rm_uvm_row *row = rm_uvm_of_any(cmd);

    return row && row->executed;
}

/* Size of the parameters of a command of nvidia-uvm; 0: unread; -ENOENT: unknown command. */
static inline int rm_uvm_params(const struct rm_table *t, uint32_t cmd)
{
    const struct rm_uvm_row *row = rm_uvm_command(t, cmd);

    return row ? (int)rm_bytes(t, row->bytes) : -ENOENT;
}

/* Of objects one after the other: compilers make a few comparisons of it. */
static inline enum rm_kind rm_kind_of(uint32_t class_id)
{
    switch (class_id) {
#define SINCE     RM_SINCE
#define UNTIL     RM_UNTIL
#define CONTINUED .continued = true
#define UNLISTED  .unlisted = true
#define CLASS(name, number, bytes, ...) \
    case number:                        \
        return (struct rm_row){.kind = RM_KIND_##__VA_ARGS__}.kind;
#include "interface.def"
    default:
        return RM_KIND_OTHER;
    }
}

/* May have other names, be exported and be mapped. */
static inline bool rm_class_has_names(uint32_t class_id)
{
    enum rm_kind kind = rm_kind_of(class_id);

    return kind == RM_KIND_VIDEO_MEMORY || kind == RM_KIND_HOST_MEMORY;
}

/* The row of this driver's; NULL: it has none. */
static inline const struct rm_row *rm_control_row(const struct rm_table *t, uint32_t cmd)
{
    return rm_row(t, rm_controls, sizeof(rm_controls) / sizeof(*rm_controls), cmd);
}

/* -ENOENT: not a control of this driver's for tenants. */
static inline int rm_control_params(const struct rm_table *t, uint32_t cmd)
{
    const struct rm_row *row = rm_control_row(t, cmd);

    if (!row)
        return -ENOENT;
    return row->bytes == RM_BYTES_CALLERS ? (int)RM_BYTES_CALLERS : (int)rm_bytes(t, row->bytes);
}
#endif
