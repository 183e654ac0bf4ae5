/* Messages as udev sends them after its rules: to the multicast group of its clients, with the header of
 * libudev (struct monitor_netlink_header in systemd's sd-device). udev itself listens to the kernel alone. */
#include "rm.h"
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { GROUP_UDEV = 2, MAGIC = 0xfeedcafe, PROPERTIES_MAX = 512 };

/* The hashes are for filters of clients; none looks for these. */
struct udev_header {
    char prefix[8];
    uint32_t magic; /* big endian */
    uint32_t header_bytes, properties_at, properties_bytes;
    uint32_t subsystem_hash, devtype_hash, tags_high, tags_low;
};
_Static_assert(sizeof(struct udev_header) == 40, "as libudev has it");

/* Without the right to send, or a client that listens, there is none to tell. */
static void tell(const char *properties, uint32_t bytes)
{
    struct udev_header header = {
        .prefix = "libudev",
        .magic = htonl(MAGIC),
        .header_bytes = sizeof header,
        .properties_at = sizeof header,
        .properties_bytes = bytes,
    };
    struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_groups = GROUP_UDEV};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)(uintptr_t)properties, bytes}};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = parts, .msg_iovlen = 2};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);

    if (fd < 0)
        return;
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
    close(fd);
}

/* Each property ends with a zero: '\n' stands for it in the format. */
__attribute__((format(printf, 1, 2))) static void send_properties(const char *format, ...)
{
    static atomic_uint sent;
    char text[PROPERTIES_MAX];
    va_list arguments;
    int bytes;

    va_start(arguments, format);
    bytes = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "SEQNUM=%u\n", ++sent);
    for (char *end = text; (end = strchr(end, '\n'));)
        *end++ = 0;
    tell(text, (uint32_t)bytes);
}

void uevent_of_card(const struct sim_card *card, const char *action)
{
    send_properties("ACTION=%s\nDEVPATH=/devices/pci0000:00/0000:%02x:%02x.0\nSUBSYSTEM=pci\nDRIVER=nvidia\n"
                    "PCI_CLASS=30200\nPCI_ID=10DE:%04X\nPCI_SLOT_NAME=0000:%02x:%02x.0\n",
                    action, card->gpu_id >> 8, card->pci_slot, card->profile->pci_device, card->gpu_id >> 8,
                    card->pci_slot);
}

void uevent_of_driver(const char *action)
{
    send_properties("ACTION=%s\nDEVPATH=/module/nvidia\nSUBSYSTEM=module\n", action);
}
