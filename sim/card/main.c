#include "../../base/mutex.h"
#include "serve.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    DEFAULT_CALL_US = 30,
    DEFAULT_SWITCH_US = 100,
    MAX_US = 1000000,
    MAX_START_US = 60000000,
    MAX_COPY_MIB_PER_MS = 1000000,
    BACKLOG = 512,
    EXIT_USAGE = 2,
    VERSION_MAX = 64,
};

static const char usage[] =
    "usage: mgpu-simcard --dir DIR --cards PROFILE[:COUNT],... [OPTION N]...\n"
    "  A simulated GPU and its driver, served on DIR/card.sock and DIR/admin.sock until SIGTERM.\n"
    "  --driver-version V     play the driver of that version (default " SIM_DRIVER_VERSION ")\n"
    "  --data on|off          whether the cards' memory holds what is written to it (default on)\n"
    "  --machine N            cards with other UUIDs than those of another N (default 0)\n"
    "  --rm-call-us N         microseconds that a call to the card holds the driver's lock (default 30)\n"
    "  --rm-tail-us N         how much longer some calls take (default 0)\n"
    "  --rm-tail-per-mille N  how many of a thousand calls that are (default 0)\n"
    "  --reread-us N          how long a call that must run in its caller waits before its arguments are read\n"
    "                         again (default 0)\n"
    "  --close-us N           how long what a file held stays held after its last close (default 0)\n"
    "  --init-us N            what cuInit takes besides its calls, in the allocation of each device (default 0)\n"
    "  --context-us N         what a context takes besides its calls, in the construction of its graphics channel\n"
    "                         group (default 0)\n"
    "  --switch-us N          microseconds to change the channel group on an engine (default 100)\n"
    "  --disable-channels 0   as a driver that does not support DISABLE_CHANNELS (default 1)\n"
    "  --engine-status 0      as a card whose registers cannot be mapped (default 1)\n"
    "  --copy-mib-per-ms N    what a copy moves in a millisecond (default: as the card's PCIe bus does)\n";

struct options {
    const char *dir, *cards, *version;
    bool data;
    uint32_t reread_us, close_us, call_us, tail_us, tail_per_mille;
    uint32_t init_us, context_us, switch_us, copy_mib_per_ms, disable_channels, engine_status, machine;
};

/* Options that take a number, by what getopt_long() returns for them. */
static const struct number_option {
    const char *name;
    size_t at;
    uint32_t least, most;
} numbers[] = {
    {"rm-call-us", offsetof(struct options, call_us), 0, MAX_US},
    {"rm-tail-us", offsetof(struct options, tail_us), 0, MAX_US},
    {"rm-tail-per-mille", offsetof(struct options, tail_per_mille), 0, 1000},
    {"reread-us", offsetof(struct options, reread_us), 0, MAX_US},
    {"close-us", offsetof(struct options, close_us), 0, MAX_US},
    {"init-us", offsetof(struct options, init_us), 0, MAX_START_US},
    {"context-us", offsetof(struct options, context_us), 0, MAX_START_US},
    {"switch-us", offsetof(struct options, switch_us), 0, MAX_US},
    {"disable-channels", offsetof(struct options, disable_channels), 0, 1},
    {"engine-status", offsetof(struct options, engine_status), 0, 1},
    {"machine", offsetof(struct options, machine), 0, UINT16_MAX},
    {"copy-mib-per-ms", offsetof(struct options, copy_mib_per_ms), 1, MAX_COPY_MIB_PER_MS},
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static int parse_number(const struct number_option *known, const char *text, struct options *options)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || number < known->least || number > known->most) {
        fprintf(stderr, "mgpu-simcard: --%s: \"%s\" is not a number from %u to %u\n", known->name, text,
                known->least, known->most);
        return -EINVAL;
    }
    *(uint32_t *)(void *)((char *)options + known->at) = (uint32_t)number;
    return 0;
}

static int parse_options(int argc, char **argv, struct options *options)
{
    struct option known[NUMBERS + 6] = {
        [NUMBERS] = {"dir", required_argument, NULL, 'd'},
        [NUMBERS + 1] = {"cards", required_argument, NULL, 'c'},
        [NUMBERS + 2] = {"help", no_argument, NULL, 'h'},
        [NUMBERS + 3] = {"driver-version", required_argument, NULL, 'v'},
        [NUMBERS + 4] = {"data", required_argument, NULL, 'm'},
    };
    int option;

    for (int i = 0; i < NUMBERS; i++)
        known[i] = (struct option){numbers[i].name, required_argument, NULL, i};
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'd':
            options->dir = optarg;
            break;
        case 'c':
            options->cards = optarg;
            break;
        case 'v':
            options->version = optarg;
            break;
        case 'm':
            options->data = !strcmp(optarg, "on");
            if (options->data || !strcmp(optarg, "off"))
                break;
            fprintf(stderr, "mgpu-simcard: --data: \"%s\" is not on or off\n", optarg);
            return -EINVAL;
        case 'h':
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        default:
            if (option < NUMBERS) {
                if (parse_number(&numbers[option], optarg, options))
                    return -EINVAL;
                break;
            }
            return -EINVAL; /* getopt_long() has said which one */
        }
    }
    if (!options->dir || !options->cards || optind < argc) {
        fputs(usage, stderr);
        return -EINVAL;
    }
    return 0;
}

/* Whether a card answers there: a socket left behind by a killed card is removed, a live one is not. */
static bool served(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool live = fd >= 0 && !connect(fd, (const struct sockaddr *)address, sizeof *address);

    if (fd >= 0)
        close(fd);
    return live;
}

static int listen_at(const char *dir, const char *name, struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int error = 0;

    if (fd < 0)
        return -errno;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (snprintf(address->sun_path, sizeof address->sun_path, "%s/%s", dir, name) >=
        (int)sizeof address->sun_path)
        error = ENAMETOOLONG;
    else if (served(address))
        error = EADDRINUSE;
    else if (unlink(address->sun_path) && errno != ENOENT)
        error = errno;
    else if (bind(fd, (const struct sockaddr *)address, sizeof *address) || listen(fd, BACKLOG))
        error = errno;
    if (!error)
        return fd;
    fprintf(stderr, "mgpu-simcard: %s/%s: %s\n", dir, name, strerror(error));
    close(fd);
    return -error;
}

/* Each open file costs a descriptor here. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit = {.rlim_cur = 1 << 18, .rlim_max = 1 << 18};

    if (!setrlimit(RLIMIT_NOFILE, &limit) || getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void *files_run(void *rm)
{
    files_watch(rm);
    return NULL;
}

static int start(struct rm *rm, struct listener *listeners, size_t count)
{
    pthread_t thread;

    rm->hangup_epoll = epoll_create1(EPOLL_CLOEXEC);
    if (rm->hangup_epoll < 0)
        return -errno;
    if (pthread_create(&thread, NULL, files_run, rm))
        return -EAGAIN;
    for (size_t i = 0; i < count; i++)
        if (pthread_create(&thread, NULL, listener_run, &listeners[i]))
            return -EAGAIN;
    return 0;
}

int main(int argc, char **argv)
{
    static struct rm rm;
    static struct listener listeners[2] = {{&rm, serve_card, -1}, {&rm, serve_admin, -1}};
    static const char *const names[2] = {"card.sock", "admin.sock"};
    struct sockaddr_un addresses[2];
    struct options options = {
        .version = SIM_DRIVER_VERSION,
        .data = true,
        .call_us = DEFAULT_CALL_US,
        .switch_us = DEFAULT_SWITCH_US,
        .disable_channels = 1,
        .engine_status = 1,
    };
    int signal_number, error = 0, bound = 0;
    sigset_t ends;

    reload_keep(argv);
    if (parse_options(argc, argv, &options))
        return EXIT_USAGE;
    rm.machine = options.machine;
    if (cards_parse(&rm, options.cards))
        return EXIT_USAGE;
    rm.version = options.version;
    if (rm_table_pick(rm.version, &rm.table) || strlen(rm.version) >= VERSION_MAX) {
        fprintf(stderr, "mgpu-simcard: --driver-version: \"%s\" is none of the known drivers: %s\n",
                rm.version, rm_table_known());
        return EXIT_USAGE;
    }
    rm.minor = UINT32_MAX;
    sscanf(rm.version, "%u.%u", &rm.major, &rm.minor);
    if (cards_are_known(&rm))
        return EXIT_USAGE;
    mutex_init_inheriting(&rm.lock);
    rm.data = options.data;
    rm.call_us = options.call_us;
    rm.reread_us = options.reread_us;
    rm.close_us = options.close_us;
    rm.tail_us = options.tail_us;
    rm.tail_per_mille = options.tail_per_mille;
    rm.init_us = options.init_us;
    rm.context_us = options.context_us;
    rm.switch_us = options.switch_us;
    rm.copy_mib_per_ms = options.copy_mib_per_ms;
    rm.disables_channels = options.disable_channels;
    rm.shows_engines = options.engine_status;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    raise_descriptor_limit();
    umask(0177);
    for (; bound < 2 && !error; bound += !error) {
        listeners[bound].fd = listen_at(options.dir, names[bound], &addresses[bound]);
        error = listeners[bound].fd < 0 ? listeners[bound].fd : 0;
    }
    if (!error) {
        error = cards_start(&rm);
        error = error ? error : start(&rm, listeners, 2);
        if (error)
            fprintf(stderr, "mgpu-simcard: %s\n", strerror(-error));
    }
    if (!error) {
        puts("ready");
        fflush(stdout);
        uevent_of_driver("add");
        sigwait(&ends, &signal_number);
    }
    while (bound--)
        unlink(addresses[bound].sun_path);
    return error ? EXIT_FAILURE : EXIT_SUCCESS;
}
