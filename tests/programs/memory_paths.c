/* Every way by which a tenant can come to video memory or to another name for it, and what it is told of the
 * rest. Usage: memory_paths all|hold|steal CLIENT OBJECT. Prints "ok", or what was not as it should be. hold
 * allocates, prints "CLIENT OBJECT", duplicates on a second file, closes the first: "duplicated"; after a
 * line of input frees the duplicate: "freed" steal  tries to get another container's object: prints the
 * status */
#define _GNU_SOURCE
#include "../../native_sched/nvidia/rm/export_abi.h"
#include "rm.h"
#include <sys/wait.h>

struct side { /* a file with a client, and its device on the first card */
    int fd;
    uint32_t client, device;
};

static uint32_t alloc(const struct side *s, uint32_t parent, uint32_t class_id, void *params, uint32_t bytes,
                      uint32_t *handle)
{
    int64_t status;

    *handle = 0;
    status = rm_alloc_named(s->fd, s->client, parent, handle, class_id, params, bytes);
    must(status >= 0, "alloc");
    return (uint32_t)status;
}

static uint32_t attach(const struct side *s, uint32_t instance)
{
    struct rm_device device = {.id = instance};
    uint32_t handle;

    must(!alloc(s, s->client, NV01_DEVICE_0, &device, sizeof(device), &handle), "device");
    return handle;
}

static struct side open_side(void)
{
    struct side s = {.fd = open_node("/dev/nvidiactl")};

    make_client(s.fd, &s.client);
    s.device = attach(&s, 0);
    return s;
}

static uint32_t free_object(const struct side *s, uint32_t handle)
{
    int64_t status = rm_free(s->fd, s->client, handle);

    must(status >= 0, "free");
    return (uint32_t)status;
}

static uint32_t memory(const struct side *s, uint64_t bytes, uint32_t *handle)
{
    struct rm_memory m = {.owner = OWNER, .size = bytes};

    return alloc(s, s->device, NV01_MEMORY_LOCAL_USER, &m, sizeof(m), handle);
}

static void heap(const struct side *s, struct rm_heap *h)
{
    h->root = s->client;
    h->parent = s->device;
    must(!ioctl(s->fd, RM_CMD(NV_ESC_RM_VID_HEAP_CONTROL, sizeof(*h)), h), "heap");
}

static uint64_t free_bytes(const struct side *s)
{
    struct rm_heap h = {.function = RM_HEAP_INFO};

    heap(s, &h);
    must(!h.status, "heap info");
    return h.free;
}

static void heap_allocations(const struct side *s)
{
    static const uint32_t functions[] = {RM_HEAP_ALLOC_SIZE, RM_HEAP_ALLOC_PITCH_HEIGHT,
                                         RM_HEAP_ALLOC_SIZE_RANGE};
    uint64_t before = free_bytes(s);

    for (int i = 0; i < 3; i++) {
        struct rm_heap h = {.function = functions[i]}, over = h, freeing = {.function = RM_HEAP_FREE};
        uint64_t *sizes[] = {&h.by_size.size, &h.by_pitch.size, &h.by_range.size};
        uint64_t *overs[] = {&over.by_size.size, &over.by_pitch.size, &over.by_range.size};

        h.any.owner = over.any.owner = OWNER;
        *sizes[i] = MIB - 5;
        heap(s, &h);
        must(!h.status && h.any.handle && *sizes[i] == MIB, "heap allocation");
        must(h.free == before - MIB && free_bytes(s) == h.free, "heap allocation is charged");
        *overs[i] = before;
        heap(s, &over);
        must(over.status == NV_ERR_NO_MEMORY, "heap allocation over the cap");
        freeing.any.handle = h.any.handle;
        heap(s, &freeing);
        must(!freeing.status && free_bytes(s) == before, "heap free");
    }
}

static void heap_others(const struct side *s)
{
    struct rm_heap host = {.function = RM_HEAP_ALLOC_SIZE, .any.owner = OWNER}, virtual = host,
                   pages = {.function = 27}, named = host;
    uint64_t before = free_bytes(s);

    host.by_size.size = MIB;
    host.by_size.attr = IN_HOST;
    heap(s, &host);
    must(!host.status && free_bytes(s) == before, "host memory costs nothing on the card");
    virtual.by_size.size = MIB;
    virtual.by_size.flags = RM_MEMORY_FLAG_VIRTUAL;
    heap(s, &virtual);
    must(!virtual.status && free_bytes(s) == before, "virtual memory takes none");
    heap(s, &pages);
    must(pages.status == NV_ERR_NOT_SUPPORTED, "the caller's own pages");
    named.by_size.size = MIB;
    named.by_size.flags = RM_HEAP_HANDLE_PROVIDED;
    named.by_size.handle = 0x77;
    heap(s, &named);
    must(!named.status && named.by_size.handle == 0x77 && !free_object(s, 0x77),
         "a handle of its own choice");
    must(free_bytes(s) == before, "all is given back");
}

static uint32_t alloc_memory(int fd, const struct side *s, uint32_t class_id, uint32_t flags, uint64_t bytes,
                             uint32_t handle)
{
    struct rm_alloc_memory m = {
        .root = s->client,
        .parent = s->device,
        .handle = handle,
        .class_id = class_id,
        .flags = flags,
        .limit = bytes - 1,
        .fd = -1,
    };

    must(!ioctl(fd, RM_CMD(NV_ESC_RM_ALLOC_MEMORY, sizeof(m)), &m), "alloc memory");
    return m.status;
}

static void through_the_card(const struct side *s)
{
    int card = open("/dev/nvidia0", O_RDWR);
    struct rm_register_fd reg = {.ctl_fd = s->fd};
    uint64_t before = free_bytes(s);

    must(card >= 0, "open card");
    must(alloc_memory(card, s, NV01_MEMORY_LOCAL_USER, 0, MIB, 0x71) == NV_ERR_INVALID_CLIENT,
         "a card's file that is registered with none");
    must(!ioctl(card, RM_CMD(NV_ESC_REGISTER_FD, sizeof(reg)), &reg), "register");
    must(!alloc_memory(card, s, NV01_MEMORY_LOCAL_USER, 0, MIB, 0x71), "a name of nothing");
    must(free_bytes(s) == before, "it takes no memory");
    must(alloc_memory(card, s, NV01_MEMORY_LOCAL_USER, 0, 0, 0x72) == NV_ERR_INVALID_ARGUMENT, "no size");
    must(!alloc_memory(card, s, NV01_MEMORY_SYSTEM, 1u << RM_ALLOC_MEMORY_MAPPING_SHIFT, MIB, 0x73),
         "host memory");
    must(alloc_memory(card, s, NV01_MEMORY_SYSTEM, 0, MIB, 0x74) == NV_ERR_NOT_SUPPORTED,
         "mapped host memory");
    must(alloc_memory(card, s, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, 0, MIB, 0x74) == NV_ERR_INVALID_ADDRESS,
         "pages that the caller does not have");
    must(!free_object(s, 0x71) && !free_object(s, 0x73) && free_bytes(s) == before, "all is given back");
    close(card);
}

static uint32_t alloc_object(const struct side *s, uint32_t parent, uint32_t class_id)
{
    struct rm_alloc_object o = {.root = s->client, .parent = parent, .handle = 0x81, .class_id = class_id};

    must(!ioctl(s->fd, RM_CMD(NV_ESC_RM_ALLOC_OBJECT, sizeof(o)), &o), "alloc object");
    return o.status;
}

static void without_parameters(const struct side *s)
{
    struct rm_subdevice params = {0};
    uint32_t subdevice;

    must(!alloc(s, s->device, NV20_SUBDEVICE_0, &params, sizeof(params), &subdevice), "subdevice");
    must(!alloc_object(s, subdevice, VOLTA_USERMODE_A), "an object without parameters");
    must(alloc_object(s, s->device, NV01_MEMORY_LOCAL_USER) == NV_ERR_INVALID_CLASS, "memory without");
    must(alloc_object(s, 0, NV01_ROOT_CLIENT) == NV_ERR_INVALID_CLASS, "a client");
    must(!free_object(s, subdevice), "free");
}

static uint32_t dup_at(const struct side *to, uint32_t parent, uint32_t client, uint32_t object,
                       uint32_t *handle)
{
    struct rm_dup d = {
        .client = to->client, .parent = parent, .source_client = client, .source_handle = object};

    must(!ioctl(to->fd, RM_CMD(NV_ESC_RM_DUP_OBJECT, sizeof(d)), &d), "dup");
    *handle = d.handle;
    return d.status;
}

static uint32_t dup_to(const struct side *to, const struct side *from, uint32_t object, uint32_t *handle)
{
    return dup_at(to, to->device, from->client, object, handle);
}

/* The memory exported by one side, and imported by the other below that device; the import is freed. */
static uint32_t import_at(const struct side *to, uint32_t parent, const struct side *from, uint32_t object)
{
    int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    struct rm_export_object out = {.type = 1, .device = from->device, .object = object, .fd = fd};
    struct rm_import_object in = {.fd = fd, .type = 1, .parent = parent};
    uint32_t status;

    must(!rm_control(from->fd, from->client, from->client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, &out,
                     sizeof(out)),
         "export");
    status = (uint32_t)rm_control(to->fd, to->client, to->client,
                                  NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, &in, sizeof(in));
    must(status || !free_object(to, in.object), "free of the import");
    must(!close(fd), "close");
    return status;
}

static uint32_t share(const struct side *s, uint32_t object, uint32_t type, uint32_t target)
{
    struct rm_share share = {
        .client = s->client,
        .handle = object,
        .policy = {.target = target, .access_mask = RM_SHARE_ACCESS_DUP, .type = (uint16_t)type},
    };

    must(!ioctl(s->fd, RM_CMD(NV_ESC_RM_SHARE, sizeof(share)), &share), "share");
    return share.status;
}

static void duplicates(const struct side *s)
{
    struct side other = open_side();
    uint64_t before = free_bytes(s);
    uint32_t object, second, third, none, far;

    must(!memory(s, MIB, &object) && !dup_to(&other, s, object, &second) &&
             !dup_to(s, &other, second, &third),
         "dup");
    must(free_bytes(s) == before - MIB, "three names cost what one costs");
    must(!free_object(s, object) && free_bytes(s) == before - MIB, "the memory is there while a name is");
    must(!free_object(&other, second) && free_bytes(s) == before - MIB, "... the last one");
    must(!free_object(s, third) && free_bytes(s) == before, "the last name ends the charge");
    must(!memory(s, MIB, &object), "memory");
    must(dup_to(&other, s, object + 1000, &none) == NV_ERR_INSUFFICIENT_PERMISSIONS, "dup of nothing");
    must(dup_to(&other, s, s->device, &none) == NV_ERR_NOT_SUPPORTED, "dup of a device");
    far = attach(&other, 1);
    must(dup_at(&other, far, s->client, object, &none) == NV_ERR_INVALID_OBJECT_PARENT,
         "dup on another card");
    must(import_at(&other, far, s, object) == NV_ERR_INVALID_OBJECT_PARENT, "import on another card");
    must(import_at(&other, other.device, s, object) == NV_OK, "import on the same card");
    must(dup_at(&other, 0x5eed, s->client, object, &none) == NV_ERR_INVALID_OBJECT_PARENT, "no such parent");
    /* Everything below a device ends with it, and the charge is the other name's. */
    must(!dup_to(&other, s, object, &second) && !free_object(&other, other.device), "free the device");
    must(free_bytes(s) == before - MIB && !free_object(s, object) && free_bytes(s) == before,
         "the first name is left");
    close(other.fd);
}

static void shares(const struct side *s)
{
    uint64_t before = free_bytes(s);
    uint32_t object, theirs, words[2];
    int up[2], down[2], status;
    pid_t child;

    must(!memory(s, MIB, &object) && pipe(up) == 0 && pipe(down) == 0, "memory");
    if ((child = fork()) == 0) {
        struct side mine = open_side();

        must(dup_to(&mine, s, object, &theirs) == NV_ERR_INSUFFICIENT_PERMISSIONS, "another process's");
        must(write(up[1], &mine.client, 4) == 4 && read(down[0], words, 4) == 4, "pipe");
        must(!dup_to(&mine, s, object, &theirs), "shared with us");
        must(write(up[1], &theirs, 4) == 4 && read(down[0], words, 4) == 4, "pipe");
        must(!free_object(&mine, theirs), "free");
        _exit(0);
    }
    must(read(up[0], words, 4) == 4, "pipe");
    must(!share(s, object, RM_SHARE_TYPE_ALL, 0), "share with all");
    must(share(s, object, RM_SHARE_TYPE_CLIENT, 0xc1d12345) == NV_ERR_INSUFFICIENT_PERMISSIONS,
         "share with a stranger");
    must(!share(s, object, RM_SHARE_TYPE_CLIENT, words[0]) && write(down[1], words, 4) == 4, "share");
    must(read(up[0], words, 4) == 4 && !free_object(s, object), "free ours");
    must(free_bytes(s) == before - MIB, "theirs is left");
    must(write(down[1], words, 4) == 4 && waitpid(child, &status, 0) == child && !status, "child");
    must(free_bytes(s) == before, "all is given back");
}

static int refused(int fd, uint32_t cmd, void *outer)
{
    return ioctl(fd, cmd, outer) < 0 ? errno : 0;
}

static void others(const struct side *s)
{
    static const uint32_t exports[] = {0x3d02, 0x3d04, 0xfd0101, 0xe00101};
    static const uint32_t uvm[] = {UVM_POPULATE_PAGEABLE, UVM_MAP_EXTERNAL_SPARSE, UVM_ALLOC_DEVICE_P2P};
    uint8_t bytes[4096] = {0};
    int fd = open("/dev/nvidia-uvm", O_RDWR);

    for (size_t i = 0; i < sizeof(exports) / sizeof(*exports); i++) {
        must(rm_control(s->fd, s->client, s->client, exports[i], bytes, 16) == NV_ERR_NOT_SUPPORTED,
             "export");
    }
    /* A client that does not exist, and our own: it is a control of a subdevice. */
    for (int i = 0; i < 2; i++) {
        struct rm_disable_channels disable = {
            .disable = 1, .count = 1, .client = {i ? s->client : 0xc1d12345}};

        must(rm_control(s->fd, s->client, s->device, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, &disable,
                        sizeof(disable)) == NV_ERR_INVALID_OBJECT_HANDLE,
             "disable channels");
    }
    must(refused(s->fd, RM_CMD(NV_ESC_EXPORT_TO_DMABUF_FD, 2608), bytes) == EPERM, "dmabuf");
    must(refused(s->fd, RM_CMD(NV_ESC_IOCTL_XFER_CMD, 16), bytes) == EPERM, "transfer");
    for (size_t i = 0; i < sizeof(uvm) / sizeof(*uvm); i++)
        must(fd >= 0 && refused(fd, uvm[i], bytes) == EPERM, "uvm");
    close(fd);
}

static void all(void)
{
    struct side s = open_side();

    heap_allocations(&s);
    heap_others(&s);
    through_the_card(&s);
    without_parameters(&s);
    duplicates(&s);
    shares(&s);
    others(&s);
}

static void hold_a_duplicate(void)
{
    struct side first = open_side(), second = open_side();
    uint32_t object, duplicate;

    must(!memory(&first, MIB, &object), "memory");
    say("%u %u", first.client, object);
    must(!dup_to(&second, &first, object, &duplicate), "dup");
    close(first.fd);
    say("duplicated");
    getchar();
    must(!free_object(&second, duplicate), "free");
    say("freed");
    getchar();
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        struct side s = open_side();
        uint32_t handle;

        printf("%u\n", dup_at(&s, s.device, (uint32_t)strtoul(argv[2], NULL, 0),
                              (uint32_t)strtoul(argv[3], NULL, 0), &handle));
        return 0;
    }
    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "hold"))
        all();
    else
        hold_a_duplicate();
    printf("ok\n");
    return 0;
}
