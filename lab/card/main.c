#include "parts.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MEMORY_MIB_LEAST = 1024, MEMORY_MIB_MOST = 256 << 10, SLOTS = 16 };

static const char usage[] =
    "usage: mgpu-labcard --socket PATH [--chip ga102] [--memory-mib N] [--driver 550.163.01] [--slot N]\n"
    "                    [--report FILE] [--log FILE [--registers]]\n"
    "An emulated GPU for NVIDIA's own kernel driver: QEMU's vfio-user-pci connects to the socket.\n";

static struct card card = {.report = -1};

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    unlink(path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1))
        return -errno;
    return fd;
}

static int fail(const char *what, int error)
{
    fprintf(stderr, "mgpu-labcard: %s: %s\n", what, strerror(-error));
    return 1;
}

static int refuse(const char *option, const char *value)
{
    fprintf(stderr, "mgpu-labcard: --%s %s: not known; known are:", option, value);
    for (uint32_t i = 0; !strcmp(option, "chip") && chip_known(i); i++)
        fprintf(stderr, " %s", chip_known(i)->key);
    for (uint32_t i = 0; !strcmp(option, "driver") && layout_known(i); i++)
        fprintf(stderr, " %s", layout_known(i)->version);
    fputc('\n', stderr);
    return 2;
}

/* UINT32_MAX: it is no such number. */
static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    return *text && !*end && value >= least && value <= most ? (uint32_t)value : UINT32_MAX;
}

static int serve(const char *path)
{
    int error, listening = listen_at(path), connected;

    if (listening < 0)
        return fail(path, listening);
    printf("listening at %s\n", path);
    fflush(stdout);
    connected = accept(listening, NULL, NULL);
    if (connected < 0)
        return fail(path, -errno);
    error = device_serve(&card.device, connected);
    unlink(path);
    return error < 0 ? fail("QEMU's end of the socket", error) : 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},
        {"chip", required_argument, NULL, 'c'},
        {"memory-mib", required_argument, NULL, 'm'},
        {"driver", required_argument, NULL, 'd'},
        {"slot", required_argument, NULL, 'n'},
        {"report", required_argument, NULL, 'r'},
        {"log", required_argument, NULL, 'l'},
        {"registers", no_argument, NULL, 't'},
        {0},
    };
    const char *path = NULL, *chip = "ga102", *driver = "550.163.01";
    uint32_t memory_mib = 4096;
    int option, error;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            path = optarg;
            break;
        case 'c':
            chip = optarg;
            break;
        case 'm':
            memory_mib = number(optarg, MEMORY_MIB_LEAST, MEMORY_MIB_MOST);
            break;
        case 'd':
            driver = optarg;
            break;
        case 'n':
            card.slot = number(optarg, 0, SLOTS - 1);
            break;
        case 'r':
            card.report = open(optarg, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
            if (card.report < 0)
                return fail(optarg, -errno);
            break;
        case 't':
            card.traced = true;
            break;
        case 'l':
            card.log = fopen(optarg, "we");
            if (!card.log)
                return fail(optarg, -errno);
            setvbuf(card.log, NULL, _IOLBF, 0);
            break;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (!path || memory_mib == UINT32_MAX || card.slot == UINT32_MAX) {
        fputs(usage, stderr);
        return 2;
    }
    card.chip = chip_by_key(chip);
    card.layout = layout_of(driver);
    if (!card.chip || !card.layout)
        return card.chip ? refuse("driver", driver) : refuse("chip", chip);
    signal(SIGPIPE, SIG_IGN);
    card.physical = physical_create((uint64_t)memory_mib * MIB);
    error = card.physical ? card_start(&card) : -ENOMEM;
    return error ? fail("the card", error) : serve(path);
}
