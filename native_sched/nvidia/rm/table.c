#include "table.h"
#include "rm_abi.h"
#include <stdio.h>

const struct rm_row rm_rows[] = {
#define SINCE                  RM_SINCE
#define UNTIL                  RM_UNTIL
#define CHANGES                .changes = true
#define EXECUTED               .executed = true
#define CONTINUED              .continued = true
#define NAMES_FILE             .names_file = true
#define SIZELESS               .sizeless = true
#define IN_PLACE               .in_place = true
#define UNLISTED               .unlisted = true
#define WHOLE(answer)          .whole = true, .status = RM_ANSWER_##answer
#define VIDEO(answer)          .capabilities = RM_VIDEO, .status = RM_ANSWER_##answer
#define GRAPHICS(answer)       .capabilities = RM_GRAPHICS, .status = RM_ANSWER_##answer
#define MEDIA(answer)          .capabilities = RM_VIDEO | RM_GRAPHICS, .status = RM_ANSWER_##answer
#define PARAMS_AT(at, size_at) .params_at = at, .params_size_at = size_at
#define POINTER_AT(at)         .pointer_at = at
#define CLASS_AT(at)           .class_at = at
#define CONTROL_AT(at)         .control_at = at
#define STATUS_FROM_END(at)    .status_from_end = at
#define LISTS(count, each)     .lists = count, .element_bytes = each
#define ESCAPE(name, nr, size, at, ...) \
    {.of = RM_ESCAPE, .number = nr, .bytes = size, .status_at = at, .disposition = RM_##__VA_ARGS__},
#define UVM(name, nr, size, ...) {.of = RM_UVM, .number = nr, .bytes = size, .disposition = RM_##__VA_ARGS__},
#define CLASS(name, nr, size, ...) \
    {.of = RM_CLASS, .number = nr, .bytes = size, .kind = RM_KIND_##__VA_ARGS__},
#define CONTROL(name, nr, size, ...) \
    {.of = RM_CONTROL, .number = nr, .bytes = size, .disposition = RM_##__VA_ARGS__},
#include "interface.def"
};
enum { ROWS = sizeof(rm_rows) / sizeof(*rm_rows) };

static const struct {
    uint32_t key, major, minor, bytes;
} changes[] = {
#define BYTES(name, major, minor, bytes) {RM_BYTES_##name, major, minor, bytes},
#include "interface.def"
};
enum { ALL_CHANGES = sizeof(changes) / sizeof(*changes) };

/* By what they are of and by number; of equal ones in the order of interface.def. */
static const struct rm_row *sorted[ROWS];

static uint64_t key_of(enum rm_row_of of, uint32_t number)
{
    return (uint64_t)of << 32 | number;
}

/* Before any thread looks for a row. Rows come nearly sorted. */
__attribute__((constructor)) static void sort(void)
{
    for (uint32_t i = 0, at; i < ROWS; i++) {
        const uint64_t key = key_of(rm_rows[i].of, rm_rows[i].number);

        for (at = i; at && key_of(sorted[at - 1]->of, sorted[at - 1]->number) > key; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = &rm_rows[i];
    }
}

/* Where the rows of that number begin. */
static uint32_t first(enum rm_row_of of, uint32_t number)
{
    const uint64_t key = key_of(of, number);
    uint32_t low = 0, high = ROWS;

    while (low < high) {
        const uint32_t middle = (low + high) / 2;

        if (key_of(sorted[middle]->of, sorted[middle]->number) < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool lives(const struct rm_table *t, const struct rm_row *row)
{
    return !t || (row->since <= t->version && (!row->until || t->version < row->until));
}

/* Some driver's outer struct has so many bytes; of arrays, from the power of two below one element on. */
static bool may_have_bytes(const struct rm_row *row, uint32_t bytes)
{
    const uint32_t element = row->bytes & ~RM_ARRAY;
    bool found = row->bytes == bytes || (row->sizeless && !bytes);

    if (row->bytes & RM_ARRAY)
        return element == 4 ? bytes % 4 == 0 : bytes >= 1u << (31 - __builtin_clz(element));
    for (size_t i = 0; i < ALL_CHANGES; i++)
        found |= changes[i].key == row->bytes && changes[i].bytes == bytes;
    return found;
}

static bool has_bytes(const struct rm_table *t, const struct rm_row *row, uint32_t bytes)
{
    if (row->of != RM_ESCAPE)
        return true;
    if (!t)
        return row->bytes == bytes || row->bytes >= RM_BYTES_UNKNOWN;
    if (row->bytes & RM_ARRAY)
        return bytes >= (row->bytes & ~RM_ARRAY) && may_have_bytes(row, bytes);
    return rm_bytes(t, row->bytes) == bytes;
}

static const struct rm_row *find(const struct rm_table *t, enum rm_row_of of, uint32_t number, uint32_t bytes)
{
    for (uint32_t i = first(of, number); i < ROWS && sorted[i]->of == of && sorted[i]->number == number; i++)
        if (lives(t, sorted[i]) && has_bytes(t, sorted[i], bytes))
            return sorted[i];
    return NULL;
}

/* nvidia-uvm's numbers have no size in them, but for those of a file's first and last call. */
static bool is_bare(uint32_t cmd)
{
    return !RM_SIZE(cmd) || (cmd & ~3u) == 0x30000000;
}

const struct rm_row *rm_command_row(const struct rm_table *t, uint32_t cmd)
{
    return is_bare(cmd) ? find(t, RM_UVM, cmd, 0) : find(t, RM_ESCAPE, RM_NR(cmd), RM_SIZE(cmd));
}

const struct rm_row *rm_params_row(const struct rm_table *t, const struct rm_row *command, const void *outer)
{
    const uint32_t at = command ? command->class_at | command->control_at : 0;
    uint32_t number;

    if (!at)
        return NULL;
    memcpy(&number, (const uint8_t *)outer + at, sizeof(number));
    return find(t, command->class_at ? RM_CLASS : RM_CONTROL, number, 0);
}

const struct rm_row *rm_class_row(const struct rm_table *t, uint32_t class_id)
{
    return find(t, RM_CLASS, class_id, 0);
}

const struct rm_row *rm_control_row(const struct rm_table *t, uint32_t cmd)
{
    return find(t, RM_CONTROL, cmd, 0);
}

int rm_row_params(const struct rm_table *t, const struct rm_row *row)
{
    if (!row || row->kind == RM_KIND_REFUSED)
        return -ENOENT;
    return row->bytes == RM_BYTES_CALLERS ? (int)RM_BYTES_CALLERS : (int)rm_bytes(t, row->bytes);
}

bool rm_is_watched(uint32_t cmd)
{
    const uint32_t number = RM_NR(cmd);

    if ((cmd >= 0x10 && cmd < 0x80) || (cmd & ~3u) == 0x30000000)
        return true;
    for (uint32_t i = first(RM_ESCAPE, number); sorted[i]->of == RM_ESCAPE && sorted[i]->number == number;
         i++)
        if (sorted[i]->disposition != RM_PASSED && may_have_bytes(sorted[i], RM_SIZE(cmd)))
            return true;
    return false;
}

int rm_table_pick(const char *version, struct rm_table *out)
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
    for (size_t i = 0; i < ALL_CHANGES; i++) {
        uint32_t at = changes[i].major, point = changes[i].minor;

        if (at > major || (at == major && point > minor))
            continue;
        out->bytes[changes[i].key - RM_BYTES_UNKNOWN] = changes[i].bytes;
        if (at > out->major || (at == out->major && point > out->minor)) {
            out->major = at;
            out->minor = point;
        }
    }
    return 0;
}

const char *rm_table_known(void)
{
#define BRANCH(major, first_minor) ", " #major "." #first_minor
    static const char known[] =
#include "interface.def"
        ;

    return known + sizeof(", ") - 1;
}
