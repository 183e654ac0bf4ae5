/* The optical flow engine by libnvidia-opticalflow, with the interface's version 1.0, which later ones keep:
 * two grey frames of 256x256 of which the second is the first moved by 4 pixels, and the mean flow. The
 * structs are those of NVIDIA's nvOpticalFlowCommon.h and nvOpticalFlowCuda.h. */
#include "report.h"
#include <stdint.h>

struct init {
    uint32_t width, height, out_grid, hint_grid, mode, level, hints, cost;
    void *private;
    uint32_t later[16]; /* what later versions add */
};

struct buffer {
    uint32_t width, height, usage, format;
};

struct in {
    void *input, *reference, *hints;
    uint32_t no_temporal_hints, padding;
    void *private;
    uint64_t later[16];
};

struct out {
    void *output, *cost, *private;
    uint64_t later[16];
};

struct stride {
    struct {
        uint32_t x, y;
    } stride[3];
    uint32_t planes, later[16];
};

struct flow {
    int (*create)(void *, void **);
    int (*init)(void *, const struct init *);
    int (*buffer)(void *, const struct buffer *, int, void **);
    void *(*array)(void *);
    unsigned long long (*pointer)(void *);
    int (*stride)(void *, struct stride *);
    int (*streams)(void *, void *, void *);
    int (*execute)(void *, const struct in *, struct out *);
    int (*destroy_buffer)(void *);
    int (*destroy)(void *);
    int (*last_error)(void *, char *, uint32_t *);
    int (*caps)(void *, int, uint32_t *, uint32_t *);
    void *later[32];
};

enum { VERSION_1_0 = 0x10, SIDE = 256, GRID = 4, MODE_FLOW = 1, LEVEL_FAST = 20, DEVICE_POINTER = 2 };
enum { USE_INPUT = 1, USE_OUTPUT = 2, GREY = 1, SHORT2 = 5 };

typedef int (*instance_fn)(uint32_t, struct flow *);
typedef int (*to_fn)(unsigned long long, const void *, size_t);
typedef int (*synchronize_fn)(void);

static struct flow flow;
static void *handle;

static int check(const char *name, int code)
{
    char text[256] = "";
    uint32_t size = sizeof(text) - 1;

    if (code) {
        if (handle && flow.last_error)
            flow.last_error(handle, text, &size);
        text[sizeof(text) - 1] = 0;
        fail("%s: %d %.200s", name, code, text);
    }
    return code;
}

static void work(void)
{
    static unsigned char rows[SIDE][SIDE];
    static int16_t vectors[(SIDE / GRID) * 1024];
    static const struct buffer input = {SIDE, SIDE, USE_INPUT, GREY},
                               output = {SIDE / GRID, SIDE / GRID, USE_OUTPUT, SHORT2};
    struct init init = {
        .width = SIDE, .height = SIDE, .out_grid = GRID, .mode = MODE_FLOW, .level = LEVEL_FAST};
    void *buffers[3] = {0};
    struct stride strides[3] = {0};
    struct in in = {0};
    struct out out = {0};
    uint32_t grids[16] = {0}, number = 0;
    synchronize_fn synchronize;
    double sum = 0;
    copy_fn from;
    to_fn to;

    take(&to, cuda_library, "cuMemcpyHtoD_v2");
    take(&from, cuda_library, "cuMemcpyDtoH_v2");
    take(&synchronize, cuda_library, "cuCtxSynchronize");
    if (first_error[0])
        return;
    step = "nvCreateOpticalFlowCuda";
    if (check("nvCreateOpticalFlowCuda", flow.create(cuda_context, &handle)))
        return;
    step = "nvOFGetCaps";
    if (!check("nvOFGetCaps", flow.caps(handle, 0, NULL, &number)) && number <= 16)
        check("nvOFGetCaps", flow.caps(handle, 0, grids, &number));
    fact("\"grids\": [%u, %u, %u], \"grid_number\": %u", grids[0], grids[1], grids[2], number);
    step = "nvOFInit";
    if (check("nvOFInit", flow.init(handle, &init)))
        return;
    fact("\"init\": 0");
    step = "nvOFCreateGPUBufferCuda";
    for (int i = 0; i < 3; i++) {
        if (check("nvOFCreateGPUBufferCuda",
                  flow.buffer(handle, i < 2 ? &input : &output, DEVICE_POINTER, &buffers[i])) ||
            check("nvOFGPUBufferGetStrideInfo", flow.stride(buffers[i], &strides[i])))
            goto out;
    }
    /* In the header strideYInBytes is the vertical stride; which one is the row's pitch is taken by its size.
     */
    fact("\"strides\": [%u, %u, %u, %u]", strides[0].stride[0].x, strides[0].stride[0].y,
         strides[2].stride[0].x, strides[2].stride[0].y);
    for (int i = 0; i < 2; i++) {
        uint32_t pitch = strides[i].stride[0].x >= SIDE ? strides[i].stride[0].x : strides[i].stride[0].y;

        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                uint32_t at = (uint32_t)((x + 4 * i) / 8 * 7919 + y / 8 * 104729);

                rows[y][x] = (unsigned char)((at * 2654435761u) >> 24);
            }
        for (int y = 0; y < SIDE; y++)
            if (cuda("cuMemcpyHtoD_v2",
                     to(flow.pointer(buffers[i]) + (unsigned long long)y * pitch, rows[y], SIDE)))
                goto out;
    }
    in.input = buffers[0];
    in.reference = buffers[1];
    in.no_temporal_hints = 1;
    out.output = buffers[2];
    step = "nvOFExecute";
    if (check("nvOFExecute", flow.execute(handle, &in, &out)))
        goto out;
    step = "cuCtxSynchronize";
    if (cuda("cuCtxSynchronize", synchronize()))
        goto out;
    {
        uint32_t pitch = strides[2].stride[0].x >= SIDE / GRID * 4 ? strides[2].stride[0].x
                                                                   : strides[2].stride[0].y;

        for (int y = 0; y < SIDE / GRID; y++)
            if (cuda("cuMemcpyDtoH_v2",
                     from(vectors + y * (SIDE / GRID) * 2,
                          flow.pointer(buffers[2]) + (unsigned long long)y * pitch, SIDE / GRID * 4)))
                goto out;
    }
    for (int i = 0; i < (SIDE / GRID) * (SIDE / GRID); i++)
        sum += vectors[2 * i] / 32.0;
    fact("\"executed\": true, \"mean_flow_x\": %.2f", sum / ((SIDE / GRID) * (SIDE / GRID)));
out:
    step = "nvOFDestroyGPUBufferCuda";
    for (int i = 0; i < 3; i++)
        if (buffers[i])
            flow.destroy_buffer(buffers[i]);
}

int main(void)
{
    instance_fn instance;
    void *library_of;

    begin("ofa");
    if (cuda_start())
        return finish();
    step = "libnvidia-opticalflow";
    library_of = library("libnvidia-opticalflow.so.1");
    if (library_of) {
        take(&instance, library_of, "NvOFAPICreateInstanceCuda");
        step = "NvOFAPICreateInstanceCuda";
        if (!first_error[0] && !check("NvOFAPICreateInstanceCuda", instance(VERSION_1_0, &flow)))
            work();
        step = "nvOFDestroy";
        if (handle)
            check("nvOFDestroy", flow.destroy(handle));
    }
    cuda_stop();
    return finish();
}
