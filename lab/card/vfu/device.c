#include "device.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    VERSION = 1,
    DMA_MAP,
    DMA_UNMAP,
    GET_INFO,
    GET_REGION,
    GET_REGION_IO_FDS,
    GET_IRQ,
    SET_IRQS,
    REGION_READ,
    REGION_WRITE,
    DMA_READ,
    DMA_WRITE,
    RESET,
    DIRTY_PAGES,
    REGION_WRITE_MULTI,
};
enum { INFO_RESET = 1, INFO_PCI = 2, REGION_IS_READ = 1, REGION_IS_WRITE = 2, UNMAP_ALL = 2 };
enum { IRQ_EVENTFD = 1, IRQ_MASKABLE = 2, IRQ_AUTOMASKED = 4, IRQ_NORESIZE = 8 };
enum { SET_DATA_NONE = 1, SET_DATA_EVENTFD = 4 };

/* Bodies as the protocol has them: VFIO's structures. */
struct map_body {
    uint32_t argsz, flags;
    uint64_t offset, address, bytes;
};
struct unmap_body {
    uint32_t argsz, flags;
    uint64_t address, bytes;
};
struct info_body {
    uint32_t argsz, flags, regions, irqs;
};
struct region_body {
    uint32_t argsz, flags, index, capabilities;
    uint64_t bytes, offset;
};
struct irq_body {
    uint32_t argsz, flags, index, count;
};
struct set_irqs_body {
    uint32_t argsz, flags, index, start, count;
};
struct access_body {
    uint64_t offset;
    uint32_t region, count;
};
struct one_write {
    uint64_t offset;
    uint32_t region, count;
    uint8_t data[8];
};

static const char capabilities[] = "{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":1048576,"
                                   "\"pgsizes\":4096,\"max_dma_maps\":65535,\"write_multiple\":true}}";

static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;

void device_start(struct device *device)
{
    for (uint32_t i = 0; i < DEVICE_IRQS; i++)
        for (uint32_t k = 0; k < DEVICE_VECTORS; k++)
            device->event[i][k] = -1;
}

bool device_interrupt(struct device *device)
{
    static const uint64_t one = 1;
    int fd;

    pthread_mutex_lock(&event_lock);
    fd = device->event[DEVICE_MSI][0] >= 0 ? device->event[DEVICE_MSI][0] : device->event[0][0];
    if (fd >= 0)
        (void)!write(fd, &one, sizeof one);
    pthread_mutex_unlock(&event_lock);
    return fd >= 0;
}

/* False: it is shorter than that. */
static bool body_of(const struct frame *frame, void *body, uint32_t bytes)
{
    if (frame->bytes < bytes)
        return false;
    memcpy(body, frame->body, bytes);
    return true;
}

static int answer(uint8_t *reply, uint32_t *reply_bytes, const void *body, uint32_t bytes)
{
    memcpy(reply, body, bytes);
    *reply_bytes = bytes;
    return 0;
}

static int version(const struct frame *frame, uint8_t *reply, uint32_t *reply_bytes)
{
    if (frame->bytes < 4)
        return EINVAL;
    memcpy(reply, frame->body, 4);
    memcpy(reply + 4, capabilities, sizeof capabilities);
    *reply_bytes = 4 + sizeof capabilities;
    return 0;
}

static int dma_map(struct device *device, struct frame *frame)
{
    struct map_body body;

    if (!body_of(frame, &body, sizeof body))
        return EINVAL;
    return device->calls->map(device->card, body.address, body.bytes, frame->fds ? frame->fd[0] : -1,
                              body.offset)
               ? 0
               : ENOMEM;
}

static int dma_unmap(struct device *device, const struct frame *frame, uint8_t *reply, uint32_t *reply_bytes)
{
    struct unmap_body body;

    if (!body_of(frame, &body, sizeof body))
        return EINVAL;
    device->calls->unmap(device->card, body.address, body.bytes, body.flags & UNMAP_ALL);
    return answer(reply, reply_bytes, &body, sizeof body);
}

static int get_region(const struct device *device, const struct frame *frame, uint8_t *reply,
                      uint32_t *reply_bytes)
{
    struct region_body body;
    uint64_t bytes;

    if (!body_of(frame, &body, sizeof body))
        return EINVAL;
    bytes = body.index < DEVICE_REGIONS ? device->region_bytes[body.index] : 0;
    body = (struct region_body){.argsz = sizeof body, .index = body.index, .bytes = bytes};
    body.flags = bytes ? REGION_IS_READ | REGION_IS_WRITE : 0;
    return answer(reply, reply_bytes, &body, sizeof body);
}

static int get_irq(const struct device *device, const struct frame *frame, uint8_t *reply,
                   uint32_t *reply_bytes)
{
    struct irq_body body;
    uint32_t count;

    if (!body_of(frame, &body, sizeof body))
        return EINVAL;
    count = body.index < DEVICE_IRQS ? device->irqs[body.index] : 0;
    body = (struct irq_body){.argsz = sizeof body, .index = body.index, .count = count};
    if (count)
        body.flags = IRQ_EVENTFD | (body.index ? IRQ_NORESIZE : IRQ_MASKABLE | IRQ_AUTOMASKED);
    return answer(reply, reply_bytes, &body, sizeof body);
}

static void set_event(struct device *device, uint32_t index, uint32_t vector, int fd)
{
    int old;

    pthread_mutex_lock(&event_lock);
    old = device->event[index][vector];
    device->event[index][vector] = fd;
    pthread_mutex_unlock(&event_lock);
    if (old >= 0)
        close(old);
}

static int set_irqs(struct device *device, struct frame *frame)
{
    struct set_irqs_body body;

    if (!body_of(frame, &body, sizeof body) || body.index >= DEVICE_IRQS || body.start >= DEVICE_VECTORS ||
        body.count > DEVICE_VECTORS - body.start)
        return EINVAL;
    if (body.flags & SET_DATA_EVENTFD)
        for (uint32_t i = 0; i < body.count; i++)
            set_event(device, body.index, body.start + i, frame_take_fd(frame, i));
    else if (body.flags & SET_DATA_NONE && !body.count)
        for (uint32_t i = 0; i < DEVICE_VECTORS; i++)
            set_event(device, body.index, i, -1);
    return 0;
}

static bool lies_in(const struct device *device, uint32_t region, uint64_t offset, uint32_t bytes)
{
    return region < DEVICE_REGIONS && bytes <= device->region_bytes[region] &&
           offset <= device->region_bytes[region] - bytes;
}

static int region_read(struct device *device, const struct frame *frame, uint8_t *reply,
                       uint32_t *reply_bytes)
{
    struct access_body body;

    if (!body_of(frame, &body, sizeof body) || body.count > FRAME_BODY_MAX - sizeof body ||
        !lies_in(device, body.region, body.offset, body.count))
        return EINVAL;
    device->calls->read(device->card, body.region, body.offset, reply + sizeof body, body.count);
    memcpy(reply, &body, sizeof body);
    *reply_bytes = (uint32_t)sizeof body + body.count;
    return 0;
}

static int region_write(struct device *device, const struct frame *frame, uint8_t *reply,
                        uint32_t *reply_bytes)
{
    struct access_body body;

    if (!body_of(frame, &body, sizeof body) || body.count > frame->bytes - sizeof body ||
        !lies_in(device, body.region, body.offset, body.count))
        return EINVAL;
    device->calls->write(device->card, body.region, body.offset, frame->body + sizeof body, body.count);
    return answer(reply, reply_bytes, &body, sizeof body);
}

static int region_writes(struct device *device, const struct frame *frame, uint8_t *reply,
                         uint32_t *reply_bytes)
{
    struct one_write one;
    uint64_t count;

    if (!body_of(frame, &count, sizeof count) || count > (frame->bytes - sizeof count) / sizeof one)
        return EINVAL;
    for (uint64_t i = 0; i < count; i++) {
        memcpy(&one, frame->body + sizeof count + i * sizeof one, sizeof one);
        if (one.count > sizeof one.data || !lies_in(device, one.region, one.offset, one.count))
            return EINVAL;
        device->calls->write(device->card, one.region, one.offset, one.data, one.count);
    }
    return answer(reply, reply_bytes, &count, sizeof count);
}

/* One message's answer into `reply`, of FRAME_BODY_MAX bytes: a positive errno, or 0. */
static int device_handle(struct device *device, struct frame *frame, uint8_t *reply, uint32_t *reply_bytes)
{
    const struct info_body info = {sizeof info, INFO_RESET | INFO_PCI, DEVICE_REGIONS, DEVICE_IRQS};

    *reply_bytes = 0;
    switch (frame->command) {
    case VERSION:
        return version(frame, reply, reply_bytes);
    case DMA_MAP:
        return dma_map(device, frame);
    case DMA_UNMAP:
        return dma_unmap(device, frame, reply, reply_bytes);
    case GET_INFO:
        return answer(reply, reply_bytes, &info, sizeof info);
    case GET_REGION:
        return get_region(device, frame, reply, reply_bytes);
    case GET_IRQ:
        return get_irq(device, frame, reply, reply_bytes);
    case SET_IRQS:
        return set_irqs(device, frame);
    case REGION_READ:
        return region_read(device, frame, reply, reply_bytes);
    case REGION_WRITE:
        return region_write(device, frame, reply, reply_bytes);
    case REGION_WRITE_MULTI:
        return region_writes(device, frame, reply, reply_bytes);
    case RESET:
        device->calls->reset(device->card);
        return 0;
    default:
        return EINVAL;
    }
}

int device_serve(struct device *device, int socket)
{
    struct frame frame = {.body = malloc(FRAME_BODY_MAX)};
    uint8_t *reply = malloc(FRAME_BODY_MAX);
    int got = frame.body && reply ? 1 : -ENOMEM;

    while (got > 0 && (got = frame_read(socket, &frame)) > 0) {
        uint32_t bytes;
        int error = device_handle(device, &frame, reply, &bytes), sent;

        frame_close_fds(&frame);
        sent = frame_reply(socket, &frame, error, reply, bytes);
        got = sent ? sent : got;
    }
    free(reply);
    free(frame.body);
    return got;
}
