#include "control_names.h"
#include <stddef.h>

static const struct {
    uint32_t number;
    const char *name;
} names[] = {
#include "control_names.inc"
};

const char *control_name(uint32_t number)
{
    size_t low = 0, high = sizeof names / sizeof names[0];

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (names[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof names / sizeof names[0] && names[low].number == number ? names[low].name : "";
}
