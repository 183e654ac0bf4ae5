/* An allocation of 64 KiB and its free, two calls of the simulated driver's. Usage: card_direct SOCKET N
 * Prints one JSON object of the pair's times: "direct": asked of the card's process by the program that wants
 * them, which is what the driver takes by itself; "notified": asked by a supervisor of notified ioctls that
 * makes the system calls no mediator can do without. What that adds is the least that mediation can add. */
#define _GNU_SOURCE
#include "card_line.h"
#include "notified.h"

enum { DEVICE = 0xd0, MEMORY = 0xd2 };

static struct card_line line;
static uint64_t file;
static uint32_t client;

static void alloc(uint32_t parent, uint32_t handle, uint32_t class_id, void *params, uint32_t bytes)
{
    struct rm_alloc a = {
        .root = client, .parent = parent, .handle = handle, .class_id = class_id, .params_size = bytes};

    if (card_call(&line, file, 0, RM_CMD(NV_ESC_RM_ALLOC, sizeof(a)), &a, params, bytes, NULL) || a.status)
        exit(2);
    if (class_id == NV01_ROOT_CLIENT)
        client = a.handle;
}

static void alloc_memory(void)
{
    struct rm_memory memory = {.owner = 1, .size = 65536, .alignment = 65536};

    alloc(DEVICE, MEMORY, NV01_MEMORY_LOCAL_USER, &memory, sizeof(memory));
}

static void free_memory(void)
{
    struct rm_free f = {.root = client, .parent = DEVICE, .handle = MEMORY};

    if (card_call(&line, file, 0, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f, NULL, 0, NULL) || f.status)
        exit(2);
}

static void direct(int n)
{
    uint64_t *took = malloc((size_t)n * sizeof(*took)), start;

    for (int i = 0; i < n; i++) {
        start = monotonic_ns();
        alloc_memory();
        free_memory();
        took[i] = monotonic_ns() - start;
    }
    print_quantiles("direct", took, n);
    free(took);
}

/* A free changes nothing in its caller's memory. */
static void notified(int n)
{
    struct notified c = notified_start("notified", n, 2);
    struct seccomp_notif q;
    char buffer[BYTES];

    for (int i = 0; i < 2 * n && notified_next(&c, &q); i++) {
        bool allocates = i % 2 == 0;

        notified_read(&c, &q, buffer);
        notified_valid(&c, &q);
        if (allocates)
            alloc_memory();
        else
            free_memory();
        notified_valid(&c, &q);
        if (allocates)
            notified_write(&q, buffer);
        notified_answer(&c, &q);
    }
    notified_end(&c);
}

int main(int argc, char **argv)
{
    struct rm_device device = {.id = 0};
    int n = argc > 2 ? atoi(argv[2]) : 0;

    if (n <= 0)
        return 2;
    card_connect(&line, argv[1]);
    if (card_open(&line, SIM_NODE_CTL, 0, &file) < 0)
        return 1;
    alloc(0, 0, NV01_ROOT_CLIENT, NULL, 0);
    alloc(client, DEVICE, NV01_DEVICE_0, &device, sizeof(device));
    printf("{");
    direct(n);
    printf(", ");
    fflush(stdout);
    notified(n);
    printf("}\n");
    return 0;
}
