#include "layout.h"
#include <stddef.h>
#include <string.h>

#define VALUE(name, is) [AT_##name] = is,
static const struct layout layouts[] = {
    {"535.261.03",
     {
#include "535.261.03.def"
     }},
    {"550.163.01",
     {
#include "550.163.01.def"
     }},
    {"570.211.01",
     {
#include "570.211.01.def"
     }},
    {"580.142",
     {
#include "580.142.def"
     }},
    {"590.48.01",
     {
#include "590.48.01.def"
     }},
    {"595.45.04",
     {
#include "595.45.04.def"
     }},
};

const struct layout *layout_known(uint32_t i)
{
    return i < sizeof layouts / sizeof layouts[0] ? &layouts[i] : NULL;
}

const struct layout *layout_of(const char *version)
{
    const struct layout *layout;

    for (uint32_t i = 0; (layout = layout_known(i)); i++)
        if (!strcmp(layout->version, version))
            return layout;
    return NULL;
}
