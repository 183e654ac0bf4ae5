/* Tries what only whole cards are for, and to get at another card by it, without any library.
 * Prints RM's answers: "trace T profiler P counters C foreign F cards N", N cards on which it made a device;
 * for each line of input those of the counters again. */
#include "../rm.h"

enum { TRACE = 0x700, PROFILER, FOREIGN, CARDS = 8, REG_OPS_BYTES = 3980 };

int main(void)
{
    static uint8_t ops[REG_OPS_BYTES];
    uint32_t client = 0, cards = 0, first = 0;
    int fd = open_node("/dev/nvidiactl");
    struct rm_subdevice subdevice = {0};
    struct rm_profiler whole = {0}, foreign;
    int64_t trace, made, counters, not_ours;

    make_client(fd, &client);
    for (uint32_t i = 0; i < CARDS; i++) {
        struct rm_device device = {.id = i};

        if (rm_alloc(fd, client, client, DEVICE + 16 * i, NV01_DEVICE_0, &device, sizeof(device)) == NV_OK)
            first = cards++ ? first : DEVICE + 16 * i;
    }
    must(cards, "device");
    must(rm_alloc(fd, client, first, SUBDEVICE, NV20_SUBDEVICE_0, &subdevice, sizeof(subdevice)) == NV_OK,
         "subdevice");
    trace = rm_alloc(fd, client, SUBDEVICE, TRACE, GF100_PROFILER, NULL, 0);
    made = rm_alloc(fd, client, SUBDEVICE, PROFILER, MAXWELL_PROFILER_DEVICE, &whole, sizeof(whole));
    counters = rm_control(fd, client, PROFILER, NVB0CC_CTRL_CMD_EXEC_REG_OPS, ops, sizeof(ops));
    foreign = (struct rm_profiler){client + 1, SUBDEVICE};
    not_ours = rm_alloc(fd, client, SUBDEVICE, FOREIGN, MAXWELL_PROFILER_DEVICE, &foreign, sizeof(foreign));
    say("trace %#llx profiler %#llx counters %#llx foreign %#llx cards %u", (unsigned long long)trace,
        (unsigned long long)made, (unsigned long long)counters, (unsigned long long)not_ours, cards);
    while (told())
        say("counters %#llx", (unsigned long long)rm_control(fd, client, PROFILER,
                                                             NVB0CC_CTRL_CMD_EXEC_REG_OPS, ops, sizeof(ops)));
    hold();
}
