/* Escapes that the driver has beside those that programs use: to the driver ALLOC_CONTEXT_DMA2 (0x54)
 * allocates any class under any object, with 32 bytes of chosen parameters, here none of these;
 * BIND_CONTEXT_DMA (0x59), I2C_ACCESS (0x39) and ACCESS_REGISTRY (0x4d), which writes the driver's own
 * settings. Each under every type byte and direction, all of which are one call to the driver. Prints
 * "refused N other N first ERRNO", ERRNO being that of the first that was not refused, and stands still. */
#include "../rm.h"
#include <sys/syscall.h>

struct context_dma { /* NVOS39 */
    uint32_t parent, subdevice, handle, class_id, flags, selector, memory, pad;
    uint64_t offset, limit;
    uint32_t status, pad1;
};
_Static_assert(sizeof(struct context_dma) == 56, "NVOS39_PARAMETERS");

static unsigned int refused, other;
static int first;

static void attempt(int fd, unsigned long cmd, uint32_t client)
{
    static const uint32_t classes[] = {FERMI_VASPACE_A, KEPLER_CHANNEL_GROUP_A, AMPERE_CHANNEL_GPFIFO_A,
                                       NV01_MEMORY_LOCAL_USER};
    struct context_dma wanted[2] = {{
        .parent = client,
        .handle = FIRST_MEMORY,
        .class_id = classes[cmd >> 8 & 3],
        .memory = DEVICE,
        .limit = MIB,
    }};

    if (syscall(SYS_ioctl, fd, cmd, wanted) ? errno == EPERM : wanted->status != NV_OK) {
        refused++;
        return;
    }
    if (!other++)
        first = errno;
}

int main(void)
{
    static const unsigned int way[][2] = {{0x54, 56}, {0x59, 16}, {0x39, 32}, {0x4d, 72}};
    uint32_t client = 0;
    int fd = open_client(&client);

    for (size_t i = 0; i < sizeof(way) / sizeof(*way); i++)
        for (unsigned long type = 0; type < 256; type++)
            for (unsigned long direction = 0; direction < 4; direction++)
                attempt(fd, _IOC(direction, type, way[i][0], way[i][1]), client);
    say("refused %u other %u first %d", refused, other, first);
    hold();
}
