#include "../../base/clock.h"
#include "engines.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_NS = 20 * 1000,
    SPINS_PER_LOOK = 32,
    SLICE_MS = 100, /* of a wait; a context that ends is noticed after one */
    NS_PER_MS = 1000 * 1000,
    SLICES_PER_PROBE = 5,
};

void engines_ring(const struct engines *engines)
{
    static const uint64_t once = 1;

    if (engines->doorbell_fd >= 0 && write(engines->doorbell_fd, &once, sizeof once) < 0)
        return; /* a lost card shows where its work is waited for */
}

bool semaphore_reached(const struct sim_semaphore *semaphore, uint32_t value)
{
    return (int32_t)(__atomic_load_n(&semaphore->value, __ATOMIC_ACQUIRE) - value) >= 0;
}

void semaphore_set(struct sim_semaphore *semaphore, uint32_t value)
{
    semaphore->timestamp_ns = monotonic_ns();
    __atomic_store_n(&semaphore->value, value, __ATOMIC_RELEASE);
    syscall(SYS_futex, &semaphore->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool spin(const struct sim_semaphore *semaphore, uint32_t value)
{
    uint64_t end = monotonic_ns() + SPIN_NS;

    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (semaphore_reached(semaphore, value))
                return true;
            __builtin_ia32_pause();
        }
    } while (monotonic_ns() < end);
    return false;
}

/* Memory stays mapped when the card is lost, and work just never ends: the driver is asked now and then. */
static void probe(struct engines *engines)
{
    struct rm_tsg_info info = {0};
    uint32_t status = rmc_control(engines->rm, engines->group[SIM_ENGINE_GRAPHICS], NVA06C_CTRL_CMD_GET_INFO,
                                  &info, sizeof info);
    CUresult none = CUDA_SUCCESS;

    if (status && status != NV_ERR_NOT_SUPPORTED)
        __atomic_compare_exchange_n(&engines->error, &none, CUDA_ERROR_LAUNCH_FAILED, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
}

CUresult semaphore_wait(struct engines *engines, const struct sim_semaphore *semaphore, uint32_t value)
{
    static const struct timespec slice = {.tv_nsec = SLICE_MS * NS_PER_MS};
    unsigned int slices = 0;
    CUresult error;

    if (spin(semaphore, value))
        return CUDA_SUCCESS;
    for (;;) {
        uint32_t seen = __atomic_load_n(&semaphore->value, __ATOMIC_ACQUIRE);

        if ((int32_t)(seen - value) >= 0)
            return CUDA_SUCCESS;
        error = engines_error(engines);
        if (error)
            return error;
        if (!syscall(SYS_futex, &semaphore->value, FUTEX_WAIT, seen, &slice, NULL, 0) || errno != ETIMEDOUT)
            continue;
        engines_ring(engines); /* a semaphore that was set shows to another card only so */
        if (++slices % SLICES_PER_PROBE == 0)
            probe(engines);
    }
}
