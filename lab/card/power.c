#include "../../base/clock.h"
#include "gsp/gsp.h"
#include "parts.h"
#include "state/faults.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { SWITCH_US = 50, COPY_MIB_PER_MS = 4, LAUNCH_US = 20 };

static void set_bars(struct card *card)
{
    uint64_t memory = physical_video_bytes(card->physical);

    tables_set(card->bar1, (struct where){VIDEO, memory - (uint64_t)BAR1_DIRECTORY_MIB * MIB});
    tables_set(card->bar2, (struct where){VIDEO, memory - (uint64_t)BAR2_DIRECTORY_MIB * MIB});
}

static void card_power_cycle(struct card *card)
{
    gsp_power_off(card->gsp);
    falcons_start(card);
    memset(&card->interrupts, 0, sizeof card->interrupts);
    faults_unregister(card);
    registers_start(card);
    physical_clear(card->physical);
}

/* Where in the registers an access to BAR1 ends: Hopper's driver has doorbells mapped there. */
static bool is_register(const struct card *card, uint32_t region, uint64_t offset, uint64_t *at)
{
    enum { VIRTUAL = 0xb80000, VIRTUAL_BYTES = 0x40000 };
    uint64_t message;

    if (region != bar_region(card->chip, BAR_MEMORY) || !tables_message(card->bar1, offset, &message) ||
        message >= VIRTUAL_BYTES)
        return false;
    *at = VIRTUAL + message;
    return true;
}

/* Nobody answers on its bus from now on, and what ran has ended. */
static void fall_off(struct card *card)
{
    card_log(card, "off the bus");
    gsp_power_off(card->gsp);
    card->off_bus = true;
}

/* One bus access at a time; what it says is little-endian, as we are. */
static void read_region(void *of, uint32_t region, uint64_t offset, void *to, uint32_t bytes)
{
    struct card *card = of;

    if (card->off_bus)
        memset(to, 0xff, bytes);
    else if (region == bar_region(card->chip, BAR_REGISTERS) || is_register(card, region, offset, &offset))
        registers_read(card, offset, to, bytes);
    else if (region == bar_region(card->chip, BAR_MEMORY))
        window_read(card->bar1, offset, to, bytes);
    else if (region == bar_region(card->chip, BAR_OF_RM))
        window_read(card->bar2, offset, to, bytes);
    else
        memcpy(to, &card->config[offset], bytes);
}

static void write_region(void *of, uint32_t region, uint64_t offset, const void *from, uint32_t bytes)
{
    struct card *card = of;

    if (card->off_bus)
        return;
    if (region == bar_region(card->chip, BAR_REGISTERS) || is_register(card, region, offset, &offset))
        registers_write(card, offset, from, bytes);
    else if (region == bar_region(card->chip, BAR_MEMORY))
        window_write(card->bar1, offset, from, bytes);
    else if (region == bar_region(card->chip, BAR_OF_RM))
        window_write(card->bar2, offset, from, bytes);
    else if (offset == CONFIG_FALL_OFF)
        fall_off(card);
    else
        config_write(card, offset, from, bytes);
}

static bool map_guest(void *of, uint64_t address, uint64_t bytes, int fd, uint64_t offset)
{
    struct card *card = of;

    return physical_map(card->physical, address, bytes, fd, offset);
}

static void unmap_guest(void *of, uint64_t address, uint64_t bytes, bool all)
{
    struct card *card = of;

    if (all)
        physical_unmap_all(card->physical);
    else
        physical_unmap(card->physical, address, bytes);
}

static void reset(void *of)
{
    card_power_cycle(of);
}

static int engines_start(struct card *card)
{
    const struct gpu_costs costs = {
        .switch_us = SWITCH_US,
        .copy_mib_per_ms = COPY_MIB_PER_MS,
        .launch_us = LAUNCH_US,
        .faults = {faults_tell, card},
    };
    int error;

    sysmem_start();
    error = gpu_create(&card->gpu, &costs);
    error = error ? error : gpu_start(card->gpu);
    if (error)
        return error;
    card->doorbell = gpu_doorbell_create(card->gpu, ENGINE_CLIENT);
    card->ring_fd = card->doorbell ? gpu_doorbell_fd(card->doorbell) : -ENOMEM;
    /* The guest may write to semaphores without a ring: with a page to look at, the engines look at both. */
    return card->ring_fd < 0 ? card->ring_fd : gpu_doorbell_page(card->doorbell) < 0 ? -ENOMEM : 0;
}

int card_start(struct card *card)
{
    static const uint64_t bar_bytes[] = {BAR0_BYTES, BAR1_BYTES, BAR3_BYTES};
    static const struct device_calls calls = {read_region, write_region, map_guest, unmap_guest, reset};
    void *registers = mmap(NULL, BAR0_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int error = engines_start(card);

    if (error || registers == MAP_FAILED)
        return error ? error : -ENOMEM;
    card->reg = registers;
    card->bar1 = tables_create(card->physical, card->chip->format);
    card->bar2 = tables_create(card->physical, card->chip->format);
    card->gsp = gsp_create(card);
    if (!card->bar1 || !card->bar2 || !card->gsp)
        return -ENOMEM;
    set_bars(card);
    card->device = (struct device){
        .calls = &calls,
        .card = card,
        .region_bytes = {[DEVICE_CONFIG] = CONFIG_BYTES},
        .irqs = {[0] = 1, [DEVICE_MSI] = 1, [4] = 1},
    };
    for (uint32_t bar = 0; bar < BAR_KINDS; bar++)
        card->device.region_bytes[bar_region(card->chip, bar)] = bar_bytes[bar];
    device_start(&card->device);
    config_start(card);
    vbios_make(card->rom, card->chip->device, card->chip->falcons_by_dma);
    card_power_cycle(card);
    return 0;
}
