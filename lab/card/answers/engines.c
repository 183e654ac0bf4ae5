/* Which engines the card says it has, and by which vectors they interrupt. */
#include "table.h"
#include <string.h>

enum { NONE = -1, CE_TYPE = 0x13, RUNLIST_BYTES = 0x2000, RUNLISTS_AT = 0x400000, CHANNELS_AT = 0x80000 };
enum { VECTOR_NON_REPLAYABLE = VECTOR_REPLAYABLE + 1, VECTOR_ACCESS_COUNTER, VECTOR_INFO_FAULT };
enum { VECTOR_GSP = 160, VECTOR_TIMER = 161, PBDMA_FAULT_FIRST = 0x16, CHANNELS = 2048 };

static const struct engine {
    const char *name;
    bool copies;
    uint32_t instance, runlist, on_runlist, fault, vector;
} engines[] = {
    {"GRAPHICS0", false, 0, 0, 0, 64, 0},
    {"CE0", true, 0, 0, 1, 32, 1},
    {"CE1", true, 1, 0, 2, 33, 2},
    {"CE2", true, 2, 1, 0, 34, 3},
};
enum { ENGINES = sizeof engines / sizeof engines[0], COPY_ENGINES = ENGINES - 1 };

static uint32_t runlist_base(const struct engine *engine)
{
    return RUNLISTS_AT + engine->runlist * RUNLIST_BYTES;
}

static uint32_t type_of(const struct layout *layout, const struct engine *engine)
{
    return engine->copies ? layout->value[AT_type_ce] + engine->instance : layout->value[AT_type_gr];
}

uint64_t engine_caps(const struct layout *layout)
{
    uint64_t caps = 0;

    for (uint32_t i = 0; i < ENGINES; i++)
        caps |= UINT64_C(1) << type_of(layout, &engines[i]);
    return caps;
}

uint32_t answer_devices(struct asked *asked)
{
    const uint32_t *at = asked->card->layout->value;

    answer_zero(asked);
    answer_put(asked, 0, ENGINES, 4);
    for (uint32_t i = 0; i < ENGINES; i++) {
        const struct engine *e = &engines[i];
        const uint32_t words[] = {e->fault, e->instance, e->copies ? CE_TYPE : 0, (uint32_t)NONE,
                                  0,        1,           e->on_runlist,           runlist_base(e),
                                  0};

        for (uint32_t k = 0; k < sizeof words / sizeof words[0]; k++)
            answer_put(asked, at[AT_device_first] + (uint64_t)i * at[AT_device_bytes] + 4 * k, words[k], 4);
    }
    return 0;
}

static void put_name(struct asked *asked, uint64_t at, const char *name)
{
    for (; *name; name++, at++)
        answer_put(asked, at, (uint8_t)*name, 1);
}

static void put_fifo_device(struct asked *asked, uint64_t to, uint32_t tag, const struct engine *e)
{
    const uint32_t *at = asked->card->layout->value;
    const struct {
        enum layout_name name;
        uint32_t value;
    } data[] = {
        {AT_data_eng_desc, e->copies ? at[AT_eng_ce] + e->instance : at[AT_eng_gr]},
        {AT_data_fifo_tag, tag},
        {AT_data_rm_engine, type_of(asked->card->layout, e)},
        {AT_data_runlist, e->runlist},
        {AT_data_fault, e->fault},
        {AT_data_intr, e->vector},
        {AT_data_mc, e->copies ? at[AT_idx_ce] + e->instance : at[AT_idx_gr]},
        {AT_data_type, e->copies ? CE_TYPE : 0},
        {AT_data_instance, e->instance},
        {AT_data_runlist_base, runlist_base(e)},
        {AT_data_is_host, 1},
        {AT_data_runlist_engine, e->on_runlist},
        {AT_data_ram_base, CHANNELS_AT + e->runlist * 0x4000},
        {AT_data_reset, (uint32_t)NONE},
    };

    for (uint32_t k = 0; k < sizeof data / sizeof data[0]; k++)
        answer_put(asked, to + at[data[k].name] * 4, data[k].value, 4);
    answer_put(asked, to + at[AT_fifo_pbdma], e->runlist, 4);
    answer_put(asked, to + at[AT_fifo_pbdma_fault], PBDMA_FAULT_FIRST + e->runlist, 4);
    answer_put(asked, to + at[AT_fifo_pbdmas], 1, 4);
    put_name(asked, to + at[AT_fifo_name], e->name);
}

/* What RM itself makes of methods that no engine executes. */
static void put_software(struct asked *asked, uint64_t to, uint32_t tag)
{
    const uint32_t *at = asked->card->layout->value;
    static const enum layout_name none[] = {AT_data_runlist, AT_data_fault, AT_data_reset, AT_data_type};

    answer_put(asked, to + at[AT_data_eng_desc] * 4, at[AT_eng_sw], 4);
    answer_put(asked, to + at[AT_data_fifo_tag] * 4, tag, 4);
    answer_put(asked, to + at[AT_data_rm_engine] * 4, at[AT_type_sw], 4);
    for (uint32_t k = 0; k < sizeof none / sizeof none[0]; k++)
        answer_put(asked, to + at[none[k]] * 4, UINT32_MAX, 4);
    put_name(asked, to + at[AT_fifo_name], "SOFTWARE");
}

uint32_t answer_fifo_devices(struct asked *asked)
{
    const uint32_t *at = asked->card->layout->value;
    uint32_t base = answer_word(asked, 0);
    uint64_t to = at[AT_fifo_first];

    answer_zero(asked);
    answer_put(asked, 0, base, 4);
    if (base)
        return 0;
    answer_put(asked, 4, ENGINES + 1, 4);
    for (uint32_t i = 0; i < ENGINES; i++, to += at[AT_fifo_bytes])
        put_fifo_device(asked, to, i, &engines[i]);
    put_software(asked, to, ENGINES);
    return 0;
}

static void put_vector(struct asked *asked, uint32_t row, uint32_t engine, uint32_t stall, uint32_t non_stall)
{
    const uint32_t *at = asked->card->layout->value;
    uint64_t to = at[AT_intr_first] + (uint64_t)row * at[AT_intr_bytes];

    answer_put(asked, to, engine, 2);
    answer_put(asked, to + at[AT_intr_stall], stall, 4);
    answer_put(asked, to + at[AT_intr_non_stall], non_stall, 4);
}

/* Of a category: the first and the last, a byte each, or from 580 on a mask of them. */
static void put_subtree(struct asked *asked, uint32_t category, uint32_t subtree)
{
    const uint32_t *at = asked->card->layout->value;
    uint32_t bytes = at[AT_intr_subtree_bytes];

    answer_put(asked, at[AT_intr_subtrees] + (uint64_t)category * bytes,
               bytes == sizeof(uint64_t) ? 1u << subtree : subtree * 0x101, bytes);
}

/* The halves of the tree: notifications in the first, what RM handles in the second, UVM's in the third. */
static void put_subtrees(struct asked *asked)
{
    const uint32_t *at = asked->card->layout->value;
    static const struct {
        enum layout_name category;
        uint8_t subtree;
    } subtrees[] = {
        {AT_category_engine_notification, 0}, {AT_category_engine, 1},  {AT_category_uvm_owned, 2},
        {AT_category_uvm_shared, 2},          {AT_category_runlist, 1}, {AT_category_runlist_notification, 0},
    };

    for (uint32_t i = 0; i < sizeof subtrees / sizeof subtrees[0]; i++)
        put_subtree(asked, at[subtrees[i].category], subtrees[i].subtree);
}

uint32_t answer_interrupts(struct asked *asked)
{
    const uint32_t *at = asked->card->layout->value;
    static const struct {
        enum layout_name engine;
        uint32_t stall;
    } own[] = {
        {AT_idx_gsp, VECTOR_GSP},
        {AT_idx_tmr, VECTOR_TIMER},
        {AT_idx_replayable, VECTOR_REPLAYABLE},
        {AT_idx_non_replayable, VECTOR_NON_REPLAYABLE},
        {AT_idx_access_counter, VECTOR_ACCESS_COUNTER},
        {AT_idx_info_fault, VECTOR_INFO_FAULT},
    };
    uint32_t rows = 0;

    answer_zero(asked);
    for (uint32_t i = 0; i < sizeof own / sizeof own[0]; i++)
        put_vector(asked, rows++, at[own[i].engine], own[i].stall, (uint32_t)NONE);
    for (uint32_t i = 0; i < ENGINES; i++)
        put_vector(asked, rows++, engines[i].copies ? at[AT_idx_ce] + engines[i].instance : at[AT_idx_gr],
                   (uint32_t)NONE, engines[i].vector);
    answer_put(asked, 0, rows, 4);
    put_subtrees(asked);
    return 0;
}

uint32_t answer_channels(struct asked *asked)
{
    answer_put(asked, 4, CHANNELS, 4);
    return 0;
}

/* Instance of a copy engine by its type, NV2080_ENGINE_TYPE_COPY0 and up. */
static uint32_t copy_instance(const struct asked *asked)
{
    return answer_word(asked, 0) - asked->card->layout->value[AT_type_ce];
}

/* It reads and writes host memory and peers; the first two share the graphics engine's runlist. */
uint32_t answer_ce_caps(struct asked *asked)
{
    enum { ALL = 0x7c, WITH_GRAPHICS = 1 };

    answer_put(asked, 4, ALL | (copy_instance(asked) < 2 ? WITH_GRAPHICS : 0), 1);
    return 0;
}

uint32_t answer_ce_mask(struct asked *asked)
{
    uint32_t instance = copy_instance(asked);

    answer_put(asked, 4, instance < COPY_ENGINES ? 1u << instance : 0, 4);
    return 0;
}

uint32_t answer_hub_mask(struct asked *asked)
{
    answer_zero(asked);
    answer_put(asked, asked->card->layout->value[AT_hub_fbhub_mask], (1u << COPY_ENGINES) - 1, 4);
    return 0;
}

uint32_t answer_method_buffer(struct asked *asked)
{
    answer_put(asked, 0, 0x4000, 4);
    return 0;
}
