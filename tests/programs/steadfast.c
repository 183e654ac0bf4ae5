/* A container's processes that use the card as if nothing ever happened to mgpu, and take any answer that is
 * not the right one for a failure: of memory made and freed, freed twice, made beyond the cap, of clients and
 * files that come and go, of memory exported and imported, of a child that ends with what it has, under
 * signals that interrupt calls.
 *
 * Usage: steadfast SEED PROCESSES CAP_MIB RING CARD RING is a file that the caller made: what every call took
 * is written there (struct ring). On its input a line "stop" has all processes stand still, with what they
 * have: "still MIB"; "go" has them go on; at the end of it they end. A process that was answered wrongly says
 * "wrong ..." and ends. */
#include "../../base/clock.h"
#include "../../native_sched/nvidia/rm/export_abi.h"
#include "rm.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

enum {
    PROCESSES_MAX = 16,
    MEMORIES = 24,
    RING_CALLS = 1 << 15,
    SIGNAL_US = 2000,
    LARGEST_MIB = 16,
    PAUSE_MAX_US = 1500,
};

struct ring { /* read by tests/chaos */
    atomic_uint_least64_t calls;
    struct {
        uint64_t begun_ns, ended_ns;
    } call[RING_CALLS];
};

static struct shared {
    atomic_bool stop, end;
    atomic_uint standing;
    atomic_uint held_mib[PROCESSES_MAX];
} * shared;
static struct ring *ring;
static uint64_t state, begun_ns;
static uint32_t cap_mib, card;

static void nothing(int number)
{
    (void)number;
}

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    char text[256];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    dprintf(STDOUT_FILENO, "wrong: %s\n", text);
    kill(0, SIGKILL);
}

static void begin(void)
{
    begun_ns = monotonic_ns();
}

/* The call since begin() is to have had this result. */
static void ended(int64_t result, int64_t right, const char *what)
{
    uint64_t ended_ns = monotonic_ns(), i = atomic_fetch_add(&ring->calls, 1) % RING_CALLS;

    ring->call[i].begun_ns = begun_ns;
    ring->call[i].ended_ns = ended_ns;
    if (result != right)
        wrong("%s: %lld instead of %lld after %llu us", what, (long long)result, (long long)right,
              (unsigned long long)(ended_ns - begun_ns) / 1000);
}

struct mine {
    int fd;
    uint32_t client, mib[MEMORIES];
    atomic_uint *held_mib;
};

static void make_file(struct mine *m)
{
    struct rm_device device = {.id = card};

    m->fd = open_node("/dev/nvidiactl");
    m->client = 0;
    begin();
    ended(rm_alloc_named(m->fd, 0, 0, &m->client, NV01_ROOT_CLIENT, NULL, 0), NV_OK, "client");
    begin();
    ended(rm_alloc(m->fd, m->client, m->client, DEVICE, NV01_DEVICE_0, &device, sizeof(device)), NV_OK,
          "device");
}

static void free_memory(struct mine *m, uint32_t i)
{
    begin();
    ended(rm_free(m->fd, m->client, FIRST_MEMORY + i), NV_OK, "free");
    *m->held_mib -= m->mib[i];
    m->mib[i] = 0;
}

static void make_memory(struct mine *m, uint32_t i)
{
    /* 1 MiB, or whole pages of 2 MiB, in which the driver gives memory of that size. */
    uint32_t pages = below(&state, LARGEST_MIB / 2 + 1), mib = pages ? 2 * pages : 1;
    int64_t result;

    begin();
    result = rm_memory(m->fd, m->client, FIRST_MEMORY + i, (uint64_t)mib * MIB);
    /* The others of the container may have the rest of its cap. */
    ended(result, result == NV_ERR_NO_MEMORY ? NV_ERR_NO_MEMORY : NV_OK, "memory");
    if (result == NV_OK) {
        m->mib[i] = mib;
        *m->held_mib += mib;
    }
}

/* The kernel may let go of a file some time after close() returned, so what it had is freed first: what the
 * container holds is then known to the byte. */
static void leave_file(struct mine *m)
{
    for (uint32_t i = 0; i < MEMORIES; i++)
        if (m->mib[i])
            free_memory(m, i);
    if (below(&state, 2)) {
        begin();
        ended(rm_free(m->fd, m->client, m->client), NV_OK, "free of the client");
    }
    close(m->fd);
}

/* It has a file, a client and memory of its own, and ends with or without giving them back. */
static void child(void)
{
    struct mine m = {.held_mib = &shared->held_mib[PROCESSES_MAX - 1]};
    pid_t pid = fork();
    int status;

    if (pid < 0)
        wrong("fork: %s", strerror(errno));
    if (pid == 0) {
        signal(SIGALRM, nothing);
        make_file(&m);
        make_memory(&m, 0);
        if (below(&state, 2))
            leave_file(&m);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            wrong("wait: %s", strerror(errno));
    if (status)
        wrong("a child ended with %#x", (unsigned int)status);
}

static int64_t on_client(const struct mine *m, uint32_t cmd, void *params, uint32_t bytes)
{
    return rm_control(m->fd, m->client, m->client, cmd, params, bytes);
}

/* Through a file of its own, which has nothing once it is closed. */
static void hand_around(const struct mine *m, uint32_t i)
{
    struct rm_export_object one = {.type = 1, .device = DEVICE, .object = FIRST_MEMORY + i};
    struct rm_export_objects none = {.count = 1};
    struct rm_import_objects two = {.parent = DEVICE, .object = {FIRST_MEMORY + 2 * MEMORIES}, .count = 1};
    struct rm_import_object chosen = {.type = 1, .parent = DEVICE};
    int fd = open_node("/dev/nvidiactl");

    one.fd = none.fd = two.fd = chosen.fd = fd;
    begin();
    ended(on_client(m, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, &one, sizeof(one)), NV_OK, "export");
    begin();
    ended(on_client(m, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, &two, sizeof(two)), NV_OK, "import");
    begin();
    ended(on_client(m, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, &one, sizeof(one)), NV_ERR_STATE_IN_USE,
          "second export");
    begin();
    ended(on_client(m, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, &chosen, sizeof(chosen)), NV_OK,
          "import of any name");
    begin();
    ended(rm_free(m->fd, m->client, two.object[0]), NV_OK, "free of the import");
    begin();
    ended(rm_free(m->fd, m->client, chosen.object), NV_OK, "free of the other import");
    begin();
    ended(on_client(m, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, &none, sizeof(none)), NV_OK,
          "end of the export");
    close(fd);
}

static void step(struct mine *m)
{
    uint32_t i = below(&state, MEMORIES);

    switch (below(&state, 40)) {
    case 0:
        leave_file(m);
        make_file(m);
        return;
    case 1:
        child();
        return;
    case 2: /* never there */
        begin();
        ended(rm_free(m->fd, m->client, FIRST_MEMORY + MEMORIES + i), NV_OK, "free of nothing");
        return;
    case 3:
        begin();
        ended(rm_memory(m->fd, m->client, FIRST_MEMORY + MEMORIES, (uint64_t)(cap_mib + 1) * MIB),
              NV_ERR_NO_MEMORY, "memory beyond the cap");
        return;
    case 4:
    case 5:
    case 6:
        if (m->mib[i])
            hand_around(m, i);
        return;
    default:
        if (!m->mib[i]) {
            make_memory(m, i);
            return;
        }
        free_memory(m, i);
        if (!below(&state, 4)) {
            begin();
            ended(rm_free(m->fd, m->client, FIRST_MEMORY + i), NV_OK, "second free");
        }
    }
}

static void stand_still(void)
{
    const struct timespec look = {.tv_nsec = 1000000};

    shared->standing++;
    while (shared->stop && !shared->end)
        nanosleep(&look, NULL);
    shared->standing--;
}

static void work(uint32_t number, uint64_t seed)
{
    const struct itimerval every = {.it_interval = {.tv_usec = SIGNAL_US},
                                    .it_value = {.tv_usec = SIGNAL_US}};
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    struct mine m = {.held_mib = &shared->held_mib[number]};

    state = seed * 0x9e3779b97f4a7c15ull + number + 1;
    sigaction(SIGALRM, &action, NULL);
    make_file(&m);
    if (number % 2)
        setitimer(ITIMER_REAL, &every, NULL);
    while (!shared->end) {
        if (shared->stop)
            stand_still();
        step(&m);
        usleep(below(&state, PAUSE_MAX_US));
    }
    leave_file(&m);
    _exit(0);
}

static void say_held(void)
{
    unsigned int mib = 0;

    for (int i = 0; i < PROCESSES_MAX - 1; i++)
        mib += shared->held_mib[i];
    say("still %u", mib);
}

/* The parent's: a process that ends before it is told to is a failure. */
static void look_for_ended(void)
{
    int status;

    if (waitpid(-1, &status, WNOHANG) > 0)
        wrong("a process ended with %#x", (unsigned int)status);
}

static void obey(const char *line, uint32_t processes)
{
    const struct timespec look = {.tv_nsec = 1000000};

    if (strcmp(line, "stop\n") == 0) {
        shared->stop = true;
        while (shared->standing < processes) {
            look_for_ended();
            nanosleep(&look, NULL);
        }
        say_held();
    } else if (strcmp(line, "go\n") == 0) {
        shared->stop = false;
        while (shared->standing)
            nanosleep(&look, NULL);
        say("going");
    }
}

int main(int argc, char **argv)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    uint32_t processes = argc == 6 ? (uint32_t)atoi(argv[2]) : 0;
    int ring_fd = argc == 6 ? open(argv[4], O_RDWR | O_CLOEXEC) : -1, status, failed = 0;
    char line[16];

    if (!processes || processes >= PROCESSES_MAX || ring_fd < 0)
        return 2;
    setvbuf(stdin, NULL, _IONBF, 0);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ring = mmap(NULL, sizeof(*ring), PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, 0);
    must(shared != MAP_FAILED && ring != MAP_FAILED, "mmap");
    cap_mib = (uint32_t)atoi(argv[3]);
    card = (uint32_t)atoi(argv[5]);
    for (uint32_t i = 0; i < processes; i++)
        if (fork() == 0)
            work(i, strtoull(argv[1], NULL, 10));
    say("ready");
    for (;;) {
        if (poll(&input, 1, 50) > 0) {
            if (!fgets(line, sizeof(line), stdin))
                break;
            obey(line, processes);
        }
        look_for_ended();
    }
    shared->end = true;
    while (wait(&status) > 0)
        failed |= status;
    say("end");
    return failed ? 1 : 0;
}
