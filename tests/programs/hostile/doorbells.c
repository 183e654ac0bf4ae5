/* Asks for SECONDS for what the driver has no more of, though memory is there: doorbells.
 * Usage: doorbells SECONDS Prints "refused STATUS" once, and "asked" in the end. */
#include "../rm.h"
#include <time.h>

int main(int argc, char **argv)
{
    static const uint32_t classes[] = {VOLTA_USERMODE_A, TURING_USERMODE_A, AMPERE_USERMODE_A,
                                       HOPPER_USERMODE_A, BLACKWELL_USERMODE_A};
    struct rm_subdevice subdevice = {.id = 0};
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
    int64_t status = NV_ERR_INVALID_CLASS;
    uint32_t client = 0, handle = FIRST_MEMORY;
    size_t chip = 0;
    int fd = open_client(&client);

    must(!rm_alloc(fd, client, DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &subdevice, sizeof(subdevice)),
         "subdevice");
    while (status == NV_ERR_INVALID_CLASS && chip < sizeof(classes) / sizeof(*classes))
        status = rm_alloc(fd, client, SUBDEVICE, handle, classes[chip++], NULL, 0);
    must(status == NV_OK, "a doorbell");
    while (status == NV_OK)
        status = rm_alloc(fd, client, SUBDEVICE, ++handle, classes[chip - 1], NULL, 0);
    say("refused %#llx", (unsigned long long)status);
    while (time(NULL) < end)
        rm_alloc(fd, client, SUBDEVICE, handle, classes[chip - 1], NULL, 0);
    say("asked");
    hold();
}
