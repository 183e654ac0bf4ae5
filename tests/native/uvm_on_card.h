/* nvidia-uvm over the simulated card, as far as the arbiter makes its calls. nvidia_on_card.c has the
 * lock. */
#ifndef MGPU_TESTS_UVM_ON_CARD_H
#define MGPU_TESTS_UVM_ON_CARD_H
#include <stdbool.h>
#include <stdint.h>

/* What INITIALIZE leaves in the open file, as far as any file can be made to keep something: F_SETSIG, with
 * the flags. */
enum { UVM_ON_CARD_INITIALIZED = 40, UVM_ON_CARD_FLAGS = 3 };
/* ... and the address space that is registered there, by its number among these. */
enum { UVM_ON_CARD_SPACES = 5, UVM_ON_CARD_SPACE = UVM_ON_CARD_FLAGS + 1 };

void uvm_on_card_begin(void);
/* Any caller may duplicate the object, or no longer. */
void uvm_on_card_share(uint32_t client, uint32_t handle, bool shared);
int uvm_on_card_serve(int fd, uint32_t cmd, void *arg);
#endif
