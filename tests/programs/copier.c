/* One long copy on a copy engine that shares graphics' runlist, in a ring that has been fetched as a whole.
 * Usage: copier BYTES. Prints "copies" when it is submitted; ends at the end of its input. */
#include "gpu.h"

int main(int argc, char **argv)
{
    struct work w;
    struct gpu g;

    if (argc < 2)
        return 2;
    gpu_open(&g);
    must(work_make_on(&g, &w, 0x100, RM_ENGINE_COPY0) == NV_OK, "group of a copy engine");
    submit_command(&g, &w, SIM_CMD_COPY, strtoull(argv[1], NULL, 10));
    say("copies");
    while (getchar() != EOF)
        ;
    return 0;
}
