/* Where the lists lie that a control's parameters point to, once they are fetched: behind the
 * parameters, one after the other. So they are in mgpud's copy, and so they travel to the simulated card. */
#ifndef MGPU_RM_LISTS_H
#define MGPU_RM_LISTS_H
#include "table.h"

enum { RM_LISTS_MAX = 3, RM_LISTS_POINTERS_AT = 8, RM_LISTS_ALIGNMENT = 16, RM_LISTS_ELEMENTS_MAX = 1 << 14 };

/* NULL: its parameters hold no lists. */
static inline const struct rm_row *rm_control_lists_of(uint32_t cmd)
{
    const struct rm_row *row = rm_control_row(NULL, cmd);

    return row && row->lists ? row : NULL;
}

/* Where the i-th list of so many bytes begins, and with i the number of lists, where they end. */
static inline size_t rm_list_at(uint32_t params_bytes, uint32_t list_bytes, uint32_t i)
{
    const size_t mask = RM_LISTS_ALIGNMENT - 1;

    return ((params_bytes + mask) & ~mask) + i * ((list_bytes + mask) & ~mask);
}

/* The size of parameters with the lists that lie behind them. SIZE_MAX: no lists are as long. */
static inline size_t rm_bytes_with_lists(uint32_t cmd, const void *params, uint32_t params_bytes)
{
    const struct rm_row *row = rm_control_lists_of(cmd);
    uint32_t count;

    if (!row || params_bytes < RM_LISTS_POINTERS_AT)
        return params_bytes;
    memcpy(&count, params, sizeof(count));
    if (count > RM_LISTS_ELEMENTS_MAX)
        return SIZE_MAX;
    return count ? rm_list_at(params_bytes, count * row->element_bytes, row->lists) : params_bytes;
}
#endif
