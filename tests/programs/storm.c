/* Random RM calls on open files and handles that all processes of a container share, so that allocations,
 * frees of ancestors, wrong files and reused handles meet in every order.
 *
 * Usage: storm SECONDS SEED PROCESSES         opens the files as fds 10 to 13 and prints "ready"
 *        storm SECONDS SEED PROCESSES join    takes those of process 1, to be run by an exec into the
 * container Prints "done" when all processes stand still, and exits when its standard input ends. */
#include "rm.h"
#include <time.h>

enum { FILES = 4, FIRST_FD = 10, CLIENTS = 3, DEVICES = 3, MEMORIES = 6 };

static uint64_t state;

static uint32_t pick(uint32_t n)
{
    return below(&state, n);
}

static int random_file(void)
{
    return FIRST_FD + (int)pick(FILES);
}

static uint32_t random_client(void)
{
    return 0xc0000001 + pick(CLIENTS);
}

static uint32_t random_device(void)
{
    return 0xd0 + pick(DEVICES);
}

static void allocate(uint32_t client, uint32_t parent, uint32_t handle, uint32_t class_id, void *params,
                     uint32_t bytes)
{
    rm_alloc(random_file(), client, parent, handle, class_id, params, bytes);
}

static void one_call(void)
{
    uint32_t client = random_client();
    struct rm_device device = {.id = pick(2)};
    struct rm_memory memory = {.owner = OWNER, .size = (uint64_t)(pick(64) + 1) << 20};
    struct rm_channel_group group = {.engine_type = 1};
    uint32_t freed = 0;

    switch (pick(10)) {
    case 0:
        allocate(client, 0, client, NV01_ROOT_CLIENT, NULL, 0);
        break;
    case 1:
    case 2:
        allocate(client, client, random_device(), NV01_DEVICE_0, &device, sizeof(device));
        break;
    case 3:
        allocate(client, random_device(), 0xe8, KEPLER_CHANNEL_GROUP_A, &group, sizeof(group));
        break;
    case 4:
    case 5:
    case 6:
        allocate(client, random_device(), 0xe0 + pick(MEMORIES), NV01_MEMORY_LOCAL_USER, &memory,
                 sizeof(memory));
        break;
    case 7:
        freed = client;
        break;
    case 8:
        freed = random_device();
        break;
    default:
        freed = 0xe0 + pick(MEMORIES + 3);
        break;
    }
    if (freed)
        rm_free(random_file(), client, freed);
}

static void take_files(bool join)
{
    char path[32];

    for (int i = 0; i < FILES; i++) {
        struct rm_sys_params first = {0};
        int fd;

        snprintf(path, sizeof(path), "/proc/1/fd/%d", FIRST_FD + i);
        fd = open(join ? path : "/dev/nvidiactl", O_RDONLY);
        if (fd < 0 || dup2(fd, FIRST_FD + i) < 0) {
            perror("storm: open");
            exit(1);
        }
        /* The first call on a node gives it its file, which others can open by its descriptor from then
         * on. */
        if (ioctl(FIRST_FD + i, RM_CMD(NV_ESC_SYS_PARAMS, sizeof(first)), &first)) {
            perror("storm: first call");
            exit(1);
        }
        close(fd);
    }
}

int main(int argc, char **argv)
{
    int done[2], processes = argc > 3 ? atoi(argv[3]) : 1;
    time_t end;
    char byte;

    if (argc < 4 || pipe(done) < 0)
        return 2;
    take_files(argc > 4);
    puts("ready");
    fflush(stdout);
    end = time(NULL) + atoi(argv[1]);
    for (int i = 0; i < processes; i++) {
        if (fork())
            continue;
        state = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull + (uint64_t)i + 1;
        while (time(NULL) < end)
            one_call();
        (void)!write(done[1], "", 1);
        pause();
    }
    for (int i = 0; i < processes; i++)
        (void)!read(done[0], &byte, 1);
    puts("done");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
