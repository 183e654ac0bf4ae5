#include "rm.h"

static struct sim_file **bucket(struct rm *rm, uint64_t id)
{
    return &rm->files[id % RM_FILE_BUCKETS];
}

struct sim_file *file_find(struct rm *rm, uint64_t id)
{
    struct sim_file *file = *bucket(rm, id);

    while (file && file->id != id)
        file = file->hash_next;
    return file;
}

const struct sim_file *file_of_clients(struct rm *rm, const struct sim_file *file)
{
    return file->control_id ? file_find(rm, file->control_id) : file;
}

void file_add(struct rm *rm, struct sim_file *file)
{
    file->hash_next = *bucket(rm, file->id);
    *bucket(rm, file->id) = file;
}

void file_forget(struct rm *rm, const struct sim_file *file)
{
    struct sim_file **at = bucket(rm, file->id);

    while (*at != file)
        at = &(*at)->hash_next;
    *at = file->hash_next;
}
