/* The driver looks at an ioctl's number and size alone. Makes memory under every type byte, every direction
 * and with every bit of the command's upper half, none of which may be a way past who counts. Prints "made N
 * refused N other N", and stands still. */
#include "../rm.h"
#include <sys/syscall.h>

static uint32_t client, handle = FIRST_MEMORY;
static unsigned int made, refused, other;

/* By system call: a libc may cut the command to 32 bits. */
static void attempt(int fd, unsigned long cmd)
{
    struct rm_memory m = {.owner = OWNER, .size = MIB};
    struct rm_alloc a = {
        .root = client,
        .parent = DEVICE,
        .handle = handle++,
        .class_id = NV01_MEMORY_LOCAL_USER,
        .params = (uintptr_t)&m,
        .params_size = sizeof(m),
    };

    if (syscall(SYS_ioctl, fd, cmd, &a))
        other++;
    else if (a.status == NV_OK)
        made++;
    else if (a.status == NV_ERR_NO_MEMORY)
        refused++;
    else
        other++;
}

int main(void)
{
    static const unsigned long plain = RM_CMD(NV_ESC_RM_ALLOC, sizeof(struct rm_alloc));
    int fd = open_client(&client);

    for (unsigned long type = 0; type < 256; type++)
        for (unsigned long direction = 0; direction < 4; direction++)
            attempt(fd, (plain & 0x3fff00ff) | type << 8 | direction << 30);
    for (int bit = 32; bit < 64; bit++)
        attempt(fd, plain | 1ul << bit);
    say("made %u refused %u other %u", made, refused, other);
    hold();
}
