/* How the parts of the library work together. */
#ifndef MGPU_SIM_NVML_H
#define MGPU_SIM_NVML_H
#include "../rmclient/rmclient.h"
#include "nvml_api.h"

/* Every call on a session runs inside an entry: the lock is held, the session is open, the handle is good. */
struct entry {
    nvmlReturn_t error;
    struct rmc *rm; /* NULL on error */
    const struct rmc_card *card;
};
void leave(struct entry *entry);
#define ENTRY __attribute__((cleanup(leave))) struct entry
/* Its function returns the error where there is one. */
#define ENTER(entry, how) \
    ENTRY entry = (how);  \
    if ((entry).error)    \
    return (entry).error

struct entry enter(void);
struct entry enter_device(nvmlDevice_t device);
/* Lock held. NULL: it is no device. */
const struct rmc_card *card_of(const struct rmc *rm, nvmlDevice_t device);

nvmlDevice_t handle_of(const struct entry *entry, uint32_t index);
uint32_t index_of(const struct entry *entry);

nvmlReturn_t from_rm(uint32_t status);
/* NVML_ERROR_INSUFFICIENT_SIZE when text and its end do not fit into `bytes`. */
nvmlReturn_t copy_text(char *out, unsigned int bytes, const char *text);
#endif
