#include "process_map.h"
#include <stdio.h>
#include <string.h>

bool process_map_find(int32_t tgid, uint64_t address, struct place *place)
{
    char path[40], line[512], flags[5];
    bool found = false;
    FILE *maps;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)tgid);
    maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long long start, end, offset, inode;

        if (sscanf(line, "%llx-%llx %4s %llx %*x:%*x %llu", &start, &end, flags, &offset, &inode) != 5)
            continue;
        *place = (struct place){
            .start = start,
            .end = end,
            .offset = offset,
            .inode = inode,
            .shared = flags[3] == 's',
            .writable = flags[1] == 'w',
            .anonymous = flags[3] == 's' && strstr(line, "/dev/zero (deleted)"),
        };
        found = address >= start && address < end;
    }
    if (maps)
        fclose(maps);
    return found;
}
