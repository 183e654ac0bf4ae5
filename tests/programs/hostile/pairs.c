/* Makes peers of cards by RM itself, as libcuda does, and asks for those of others. Of the cards that it is
 * given it has a device and a subdevice each. Usage: pairs. Prints a line after each line of input:
 *
 *   reach     what its first two cards are to each other and one to itself, how many answers name a card of
 *             others, its first card's links to cards and those to nothing, whether peers are listed
 *
 *   made      peers, then by the caller's numbers, and how many of these were kept
 *
 *   strange   the same with another client's subdevice, a device, no object, and below a device
 *
 *   again     under the name of before, once that was freed, too, after the one and the other subdevice was
 *             freed and made anew, with an event below them
 *
 *   mapped    64 MiB of its second card at an address of its first */
#include "../../../native_sched/nvidia/rm/peers_abi.h"
#include "../rm.h"

enum { CARDS = 8, IDS = 0x400, SUBDEVICES = 0x200, PEERS = 0x500, BELOW = 0x580, CLASSES = 200 };
enum { CAPS_BYTES = 8348, MATRIX_BYTES = 1352, LINKS_BYTES = 13344, LINK_BYTES = 208, PEERS_BYTES = 72 };

static struct {
    int fd;
    uint32_t client, gpu_id[CARDS], cards, number[CARDS];
} own;

static int64_t make_card(uint32_t client, uint32_t number)
{
    struct rm_device device = {.id = number};
    uint32_t instance = 0;
    int64_t status = rm_alloc(own.fd, client, client, DEVICE + number, NV01_DEVICE_0, &device,
                              sizeof(device));

    return status ? status
                  : rm_alloc(own.fd, client, DEVICE + number, SUBDEVICES + number, NV20_SUBDEVICE_0,
                             &instance, sizeof(instance));
}

static void begin(void)
{
    static struct rm_card_info cards[RM_MAX_CARDS];
    uint32_t found = 0;

    own.fd = open_node("/dev/nvidiactl");
    make_client(own.fd, &own.client);
    must(!ioctl(own.fd, RM_CMD(NV_ESC_CARD_INFO, sizeof(cards)), cards), "cards");
    for (uint32_t i = 0; i < RM_MAX_CARDS; i++)
        if (cards[i].valid)
            own.gpu_id[found++] = cards[i].gpu_id;
    for (uint32_t number = 0; number < CARDS; number++)
        if (make_card(own.client, number) == NV_OK)
            own.number[own.cards++] = number;
    must(own.cards == found, "a device of each card");
}

static int64_t caps_of(uint32_t one, uint32_t other, uint32_t *caps)
{
    static union {
        struct rm_p2p_caps head;
        uint8_t bytes[CAPS_BYTES];
    } asked;
    int64_t status;

    asked.head = (struct rm_p2p_caps){.gpu_id = {one, other}, .count = 2};
    status = rm_control(own.fd, own.client, own.client, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2, &asked,
                        sizeof(asked));
    *caps = asked.head.caps;
    return status;
}

/* The older way, whose lists lie elsewhere. */
static int64_t old_caps_of(uint32_t one, uint32_t other, uint32_t *caps)
{
    static uint32_t numbers[4], egm_numbers[4];
    struct {
        struct rm_p2p_caps head;
        uint64_t numbers, egm_numbers;
    } asked = {{.gpu_id = {one, other}, .count = 2}, (uintptr_t)numbers, (uintptr_t)egm_numbers};
    int64_t status = rm_control(own.fd, own.client, own.client, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, &asked,
                                sizeof(asked));

    must(status || (numbers[3] == ~0u && egm_numbers[3] == ~0u && asked.numbers == (uintptr_t)numbers),
         "lists");
    *caps = asked.head.caps;
    return status;
}

static int64_t matrix_of(uint32_t one, uint32_t other, uint32_t *caps)
{
    static union {
        struct rm_p2p_matrix head;
        uint8_t bytes[MATRIX_BYTES];
    } asked;
    int64_t status;

    asked.head = (struct rm_p2p_matrix){.a = 1, .b = 1, .gpu_id_a = {one}, .gpu_id_b = {other}};
    status = rm_control(own.fd, own.client, own.client, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX, &asked,
                        sizeof(asked));
    memcpy(caps, asked.bytes + sizeof(asked.head), sizeof(*caps));
    return status;
}

static uint32_t agreed(uint32_t one, uint32_t other)
{
    uint32_t caps, old, matrix;

    must(caps_of(one, other, &caps) == NV_OK && old_caps_of(one, other, &old) == NV_OK &&
             matrix_of(one, other, &matrix) == NV_OK && caps == old && caps == matrix,
         "three answers of a kind");
    return caps;
}

static bool is_own(uint32_t id)
{
    for (uint32_t i = 0; i < own.cards; i++)
        if (own.gpu_id[i] == id)
            return true;
    return false;
}

static unsigned int of_others(void)
{
    unsigned int good = 0;
    uint32_t caps;

    for (uint32_t id = 0; id < IDS; id++)
        if (!is_own(id)) {
            good += caps_of(own.gpu_id[0], id, &caps) == NV_OK;
            good += caps_of(id, own.gpu_id[0], &caps) == NV_OK;
            good += old_caps_of(own.gpu_id[0], id, &caps) == NV_OK;
            good += matrix_of(own.gpu_id[0], id, &caps) == NV_OK;
            good += matrix_of(id, id, &caps) == NV_OK;
        }
    return good;
}

static void count_links(unsigned int *shown, unsigned int *masked)
{
    static uint8_t asked[LINKS_BYTES];
    const struct rm_links *links = (const void *)asked;
    const struct rm_link *link;

    must(rm_control(own.fd, own.client, SUBDEVICES + own.number[0], NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS,
                    asked, sizeof(asked)) == NV_OK,
         "links");
    for (uint32_t i = 0; i < 32; i++) {
        link = (const void *)(asked + offsetof(struct rm_links, link) + i * LINK_BYTES);
        if (link->connected && link->remote.type == RM_LINK_TO_GPU)
            ++*shown;
        else if (links->enabled & 1u << i)
            ++*masked;
    }
}

static bool lists_peers(void)
{
    static struct {
        uint32_t count, list[CLASSES];
    } asked;

    must(rm_control(own.fd, own.client, DEVICE + own.number[0], NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, &asked,
                    sizeof(asked)) == NV_OK,
         "classes");
    for (uint32_t i = 0; i < asked.count; i++)
        if (asked.list[i] == NV50_P2P)
            return true;
    return false;
}

static int64_t make_peers(uint32_t handle, uint32_t parent, uint32_t one, uint32_t other, uint32_t numbers,
                          unsigned int *kept)
{
    uint8_t params[PEERS_BYTES] = {0};
    struct rm_p2p *p = (void *)params;
    int64_t status;

    *p = (struct rm_p2p){one, other, numbers, numbers, numbers << 20, numbers << 10, 0, 0, 0};
    status = rm_alloc(own.fd, own.client, parent, handle, NV50_P2P, params, sizeof(params));
    *kept += numbers && status == NV_OK ? !!p->peer_ids + !!p->peers_ids + !!p->mailbox + !!p->mailbox_bytes
                                        : 0;
    return status;
}

static int64_t again(uint32_t ends)
{
    uint32_t one = SUBDEVICES + own.number[0], other = SUBDEVICES + own.number[1], instance = 0;
    struct rm_os_event told = {
        .client = own.client, .device = DEVICE + own.number[0], .fd = (uint32_t)own.fd};
    struct rm_event event = {.client = own.client, .source = one, .data = (uint32_t)own.fd};
    unsigned int kept = 0;

    (void)ioctl(own.fd, RM_CMD(NV_ESC_ALLOC_OS_EVENT, sizeof(told)), &told); /* once is enough */
    must(rm_alloc(own.fd, own.client, PEERS, BELOW, NV01_EVENT_OS_EVENT, &event, sizeof(event)) == NV_OK,
         "an event below peers");
    must(rm_free(own.fd, own.client, SUBDEVICES + ends) == NV_OK &&
             rm_alloc(own.fd, own.client, DEVICE + ends, SUBDEVICES + ends, NV20_SUBDEVICE_0, &instance,
                      sizeof(instance)) == NV_OK,
         "a subdevice anew");
    must(rm_alloc(own.fd, own.client, one, BELOW, NV01_EVENT_OS_EVENT, &event, sizeof(event)) == NV_OK &&
             rm_free(own.fd, own.client, BELOW) == NV_OK,
         "the name of what was below them");
    must(make_peers(PEERS, own.client, one, other, 0, &kept) == NV_ERR_INSERT_DUPLICATE_NAME, "a taken name");
    must(rm_free(own.fd, own.client, PEERS) == NV_OK, "a name of nothing");
    return make_peers(PEERS, own.client, one, other, 0, &kept);
}

static int64_t map_of_second(void)
{
    enum { VIRTUAL = 0x600, MEMORY, MAPPED_BYTES = 64 * MIB };
    uint32_t first = DEVICE + own.number[0], second = DEVICE + own.number[1];
    struct rm_memory virtual = {.owner = OWNER, .size = MAPPED_BYTES, .flags = RM_MEMORY_FLAG_VIRTUAL};
    struct rm_memory memory = {.owner = OWNER, .size = MAPPED_BYTES};
    struct { /* NVOS46 of 580.65 and later, and before */
        struct rm_map_dma begin;
        uint64_t rest;
        struct rm_map_dma_end end;
    } map = {.begin = {own.client, first, VIRTUAL, MEMORY, 0, MAPPED_BYTES, 0}};
    struct {
        struct rm_map_dma begin;
        struct rm_map_dma_end end;
    } older = {.begin = map.begin};

    _Static_assert(sizeof(map) == 64 && sizeof(older) == 56, "NVOS46");
    must(!rm_alloc(own.fd, own.client, first, VIRTUAL, NV50_MEMORY_VIRTUAL, &virtual, sizeof(virtual)) &&
             !rm_alloc(own.fd, own.client, second, MEMORY, NV01_MEMORY_LOCAL_USER, &memory, sizeof(memory)),
         "memory of both");
    if (!ioctl(own.fd, RM_CMD(NV_ESC_RM_MAP_MEMORY_DMA, sizeof(older)), &older))
        return older.end.status;
    return ioctl(own.fd, RM_CMD(NV_ESC_RM_MAP_MEMORY_DMA, sizeof(map)), &map) ? -errno
                                                                              : (int64_t)map.end.status;
}

int main(void)
{
    uint32_t one, other, stranger = 0;
    unsigned int shown = 0, masked = 0, kept = 0;
    int64_t made, numbered;

    begin();
    one = SUBDEVICES + own.number[0];
    other = SUBDEVICES + own.number[own.cards > 1];
    make_client(own.fd, &stranger);
    must(make_card(stranger, own.number[0]) == NV_OK, "a second client's card");
    must(rm_free(own.fd, stranger, SUBDEVICES + own.number[0]) == NV_OK, "its subdevice");
    must(!rm_alloc(own.fd, stranger, DEVICE + own.number[0], 0x777, NV20_SUBDEVICE_0, &(uint32_t){0}, 4),
         "another");
    say("ready");
    must(told(), "step");
    count_links(&shown, &masked);
    say("reach %#x %#x, others %u, links %u hidden %u listed %d",
        own.cards > 1 ? agreed(own.gpu_id[0], own.gpu_id[1]) : 0, agreed(own.gpu_id[0], own.gpu_id[0]),
        of_others(), shown, masked, lists_peers());
    must(told(), "step");
    made = make_peers(PEERS, own.client, one, other, 0, &kept);
    numbered = make_peers(PEERS + 1, own.client, one, other, 4, &kept);
    say("made %#llx numbered %#llx unlike %u", (long long)made, (long long)numbered, kept);
    must(told(), "step");
    say("strange %#llx %#llx %#llx %#llx", (long long)make_peers(PEERS + 2, own.client, one, 0x777, 0, &kept),
        (long long)make_peers(PEERS + 3, own.client, one, DEVICE + own.number[0], 0, &kept),
        (long long)make_peers(PEERS + 4, own.client, 0, other, 0, &kept),
        (long long)make_peers(PEERS + 5, DEVICE + own.number[0], one, other, 0, &kept));
    must(told(), "step");
    say("again %#llx %#llx", own.cards > 1 ? (long long)again(own.number[0]) : 0,
        own.cards > 1 ? (long long)again(own.number[1]) : 0);
    must(told(), "step");
    say("mapped %#llx", (long long)map_of_second());
    hold();
}
