/* What is left to mgpu-checkpoint once the host's libcuda is loaded: it speaks to a tenant's libcuda. */
#ifndef MGPU_CHECKPOINT_CONFINE_H
#define MGPU_CHECKPOINT_CONFINE_H

/* Drops all capabilities but those that the calls need, for good, and refuses system calls that nothing here
 * has a use for. NULL, or what could not be done. */
const char *confine(void);
#endif
