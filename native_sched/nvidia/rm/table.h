/* The sizes of one driver version, chosen once at start from interface.def; and its rows, which table.c has,
 * sorted. Functions return 0 or a positive value, or a negative errno. */
#ifndef MGPU_RM_TABLE_H
#define MGPU_RM_TABLE_H
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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
    RM_KIND_PROFILER,
    RM_KIND_VIDEO_SESSION,
    RM_KIND_GRAPHICS,
    RM_KIND_MAPPER,
    RM_KIND_SHARED_DATA,
    RM_KIND_P2P,
    RM_KIND_GROUP,
    RM_KIND_CHANNEL,
    RM_KIND_GPU_INSTANCE,
    RM_KIND_COMPUTE_INSTANCE,
    RM_KIND_REFUSED,
};
#define RM_KIND_REFUSED(answer) RM_KIND_REFUSED, .status = RM_ANSWER_##answer

#define RM_IS_DISPOSED(name, ...)               \
    _Static_assert(sizeof("" #__VA_ARGS__) > 1, \
                   "interface.def: " #name " has no disposition: PASSED, MEDIATED, ANSWERED or REFUSED");
#define ESCAPE(name, number, bytes, status_at, ...) RM_IS_DISPOSED(name, __VA_ARGS__)
#define UVM(name, number, bytes, ...)               RM_IS_DISPOSED(name, __VA_ARGS__)
#define CONTROL(name, number, bytes, ...)           RM_IS_DISPOSED(name, __VA_ARGS__)
#define CLASS(name, number, bytes, ...) \
    _Static_assert(sizeof("" #__VA_ARGS__) > 1, "interface.def: " #name " has no kind: OTHER, if nothing");
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
int rm_table_pick(const char *version, struct rm_table *out);
/* The known branches, for people to read. */
const char *rm_table_known(void);

/* RM_SIZE_*, RM_STATUS_*: of an escape's outer struct. */
enum rm_escape_layout {
#define ESCAPE(name, number, bytes, status_at, ...) RM_SIZE_##name = bytes, RM_STATUS_##name = status_at,
#include "interface.def"
};

/* Driver capabilities of containers' that rows ask for, a bit each. */
enum rm_capability { RM_VIDEO = 1, RM_GRAPHICS = 2 };

enum rm_row_of { RM_ESCAPE, RM_UVM, RM_CLASS, RM_CONTROL };

/* since, until: the drivers that have it, before `until` where that is not 0. status: what a refused class or
 * control is answered with. whole, capabilities: it is, unless the container holds its cards alone, has one
 * of these. lists: how many a control's parameters point to. *_at: 0: none. */
struct rm_row {
    enum rm_row_of of;
    uint32_t number, bytes, since, until;
    enum rm_kind kind;
    enum rm_disposition disposition;
    enum rm_answer status;
    uint32_t status_at, status_from_end;
    uint32_t params_at, params_size_at, pointer_at, class_at, control_at;
    uint32_t lists, element_bytes, capabilities;
    bool changes, executed, continued, names_file, sizeless, in_place, unlisted, whole;
};

/* In the order of interface.def, commands first: handlers are a column of theirs. */
extern const struct rm_row rm_rows[];
enum {
    RM_CONTROLS_AT = 0
#define ESCAPE(...) +1
#define UVM(...)    +1
#define CLASS(...)  +1
#include "interface.def"
};

/* The row of a command of ioctl(): an escape by its number and size, or a command of nvidia-uvm. NULL: there
 * is none that is for tenants. Here and below, t NULL: of any driver. */
const struct rm_row *rm_command_row(const struct rm_table *t, uint32_t cmd);
/* The row of the class or control that the outer struct of such a command names; NULL: none. */
const struct rm_row *rm_params_row(const struct rm_table *t, const struct rm_row *command, const void *outer);
const struct rm_row *rm_class_row(const struct rm_table *t, uint32_t class_id);
const struct rm_row *rm_control_row(const struct rm_table *t, uint32_t cmd);

/* Where the RM status lies in an outer struct of so many bytes; RM_NO_STATUS: it has none. */
static inline uint32_t rm_status_at(const struct rm_row *row, uint32_t outer_bytes)
{
    if (row->of == RM_ESCAPE)
        return row->status_at;
    return outer_bytes && row->status_from_end ? outer_bytes - row->status_from_end : (uint32_t)RM_NO_STATUS;
}

/* Bytes of a row's parameters, 0: none, or of nvidia-uvm's unread. -ENOENT: not for tenants of this driver.
 */
int rm_row_params(const struct rm_table *t, const struct rm_row *row);
static inline int rm_class_params(const struct rm_table *t, uint32_t class_id)
{
    return rm_row_params(t, rm_class_row(t, class_id));
}
static inline int rm_control_params(const struct rm_table *t, uint32_t cmd)
{
    return rm_row_params(t, rm_control_row(t, cmd));
}
static inline int rm_uvm_params(const struct rm_table *t, uint32_t cmd)
{
    return rm_row_params(t, rm_command_row(t, cmd));
}

/* True if the mediator decides on that command of ioctl(): a driver has a row for it that is not passed, or
 * it lies in a block of nvidia-uvm's bare numbers, where Linux has no command. The filter notifies others
 * beside these. */
bool rm_is_watched(uint32_t cmd);

/* Of objects one after the other: compilers make a few comparisons of it. */
static inline enum rm_kind rm_kind_of(uint32_t class_id)
{
    switch (class_id) {
#define SINCE       RM_SINCE
#define UNTIL       RM_UNTIL
#define CONTINUED   .continued = true
#define UNLISTED    .unlisted = true
#define WHOLE(_)    .whole = true
#define VIDEO(_)    .capabilities = RM_VIDEO
#define GRAPHICS(_) .capabilities = RM_GRAPHICS
#define MEDIA(_)    .capabilities = RM_VIDEO | RM_GRAPHICS
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
#endif
