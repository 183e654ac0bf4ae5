/* What the card did, and for whom, from the driver's ring of samples. A sample period of NVML's is the newest
 * one. */
#include "../../native_sched/nvidia/rm/perfmon.h"
#include "nvml.h"

enum { HUNDREDTHS = 100, NS_PER_US = 1000 };

struct sample {
    uint64_t at_ns; /* 0: none */
    struct rm_perfmon_use use[RM_PERFMON_KNOWN];
};

struct ring {
    struct rm_perfmon_head head;
    uint8_t samples[55888 - sizeof(struct rm_perfmon_head)]; /* of the newest driver */
};

/* Under the library's lock: too large for a caller's stack. */
static struct ring ring;

static uint32_t read_ring(const struct entry *entry, struct rm_perfmon_layout *layout)
{
    *layout = rm_perfmon_layout(&entry->rm->table);
    ring.head = (struct rm_perfmon_head){
        .type = RM_PERFMON_UTIL,
        .buffer_bytes = layout->sample_bytes * RM_PERFMON_SAMPLES,
    };
    return rmc_control(entry->rm, entry->card->subdevice,
                       NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, &ring, sizeof ring);
}

static struct sample sample_at(const struct rm_perfmon_layout *layout, uint32_t i)
{
    struct sample sample;

    sample.at_ns = rm_perfmon_read(layout, ring.samples + (size_t)i * layout->sample_bytes, sample.use);
    return sample;
}

static struct sample newest(const struct rm_perfmon_layout *layout)
{
    struct sample found = {.at_ns = 0};

    for (uint32_t i = 0; i < RM_PERFMON_SAMPLES; i++) {
        struct sample sample = sample_at(layout, i);

        if (sample.at_ns > found.at_ns)
            found = sample;
    }
    return found;
}

static unsigned int percent(struct rm_perfmon_use use)
{
    return (use.hundredths + HUNDREDTHS / 2) / HUNDREDTHS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    struct rm_perfmon_layout layout;
    struct sample sample;
    uint32_t status;
    ENTER(entry, enter_device(device));

    if (!utilization)
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((status = read_ring(&entry, &layout)))
        return from_rm(status);
    sample = newest(&layout);
    if (!sample.at_ns)
        return NVML_ERROR_NO_DATA;
    *utilization = (nvmlUtilization_t){
        .gpu = percent(sample.use[RM_PERFMON_GR]),
        .memory = percent(sample.use[RM_PERFMON_FB]),
    };
    return NVML_SUCCESS;
}

/* Adds what the sample says of a process to its row, or makes one. */
static void tell(nvmlProcessUtilizationSample_t *rows, unsigned int *count, const struct sample *sample)
{
    unsigned int i = 0;
    uint32_t pid = sample->use[RM_PERFMON_GR].pid;

    while (i < *count && rows[i].pid != pid)
        i++;
    *count += i == *count;
    rows[i] = (nvmlProcessUtilizationSample_t){
        .pid = pid,
        .timeStamp = sample->at_ns / NS_PER_US,
        .smUtil = percent(sample->use[RM_PERFMON_GR]),
        .memUtil = sample->use[RM_PERFMON_FB].pid == pid ? percent(sample->use[RM_PERFMON_FB]) : 0,
    };
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long last_seen_us)
{
    nvmlProcessUtilizationSample_t rows[RM_PERFMON_SAMPLES];
    struct rm_perfmon_layout layout;
    unsigned int found = 0, room;
    uint32_t status;
    ENTER(entry, enter_device(device));

    if (!count || (*count && !samples))
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((status = read_ring(&entry, &layout)))
        return from_rm(status);
    for (uint32_t i = 0; i < RM_PERFMON_SAMPLES; i++) {
        struct sample sample = sample_at(&layout, (ring.head.tracker + i) % RM_PERFMON_SAMPLES);

        if (sample.at_ns / NS_PER_US > last_seen_us && sample.use[RM_PERFMON_GR].pid != RM_PERFMON_NO_PID)
            tell(rows, &found, &sample);
    }
    room = *count;
    *count = found;
    if (!found)
        return NVML_ERROR_NOT_FOUND;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (uint32_t i = 0; i < found; i++)
        samples[i] = rows[i];
    return NVML_SUCCESS;
}
