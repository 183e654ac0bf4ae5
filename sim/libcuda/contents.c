/* What memory of the card holds: pages that the driver lends to all that map the object, so that all who have
 * it see the same. Memory that nothing was ever copied to is never mapped. */
#include "ranges.h"
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096 };

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
}

/* MAP_FAILED when the driver lends none: a card without contents. */
static void *map_object(const struct rmc *rm, const struct range *range, void *address, int protection)
{
    struct rmc_mapping mapping = {.bytes = whole_pages(range->bytes), .host = !range_is_on_card(range)};
    int flags = MAP_SHARED | MAP_NORESERVE | (address ? MAP_FIXED : 0);
    void *at;

    if (rmc_map(rm, range->card, range->card->device, range->handle, &mapping))
        return MAP_FAILED;
    at = mmap(address, mapping.bytes, protection, flags, mapping.fd, (off_t)(mapping.offset + range->from));
    close(mapping.fd);
    return at;
}

uint8_t *contents_of(const struct rmc *rm, struct range *range)
{
    void *at;

    if (range->at || range->empty)
        return range->at;
    at = map_object(rm, range, NULL, PROT_READ | PROT_WRITE);
    if (at == MAP_FAILED)
        range->empty = true;
    else
        range->at = at;
    return range->at;
}

bool contents_map_at(const struct rmc *rm, struct range *range, int protection)
{
    void *address = (void *)(uintptr_t)range->base;
    int anonymous = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    void *at = mmap(address, whole_pages(range->bytes), protection, anonymous, -1, 0);

    if (at == MAP_FAILED)
        return false;
    range->at = at;
    if (at == address && map_object(rm, range, address, protection) != MAP_FAILED)
        return true;
    if (at == address && range_is_on_card(range))
        return true; /* of a card without contents: the host's pages stand for them */
    contents_unmap(range);
    range->at = NULL;
    return false;
}

/* A child has no copy, as with NVIDIA's (uvm_vm_open_managed()). */
bool contents_map_managed(struct range *range, int uvm)
{
    void *address = (void *)(uintptr_t)range->base;
    size_t bytes = whole_pages(range->bytes);
    void *at = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, uvm,
                    (off_t)range->base);

    if (at == MAP_FAILED)
        return false;
    range->at = at;
    madvise(at, bytes, MADV_DONTFORK);
    return true;
}

void contents_reserve(const struct range *range)
{
    mmap(range->at, whole_pages(range->bytes), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* The bytes of a managed range are its file's, which goes on. */
void contents_unmap(const struct range *range)
{
    size_t bytes = whole_pages(range->bytes);

    if (!range->at || range->kind == RANGE_REGISTERED)
        return;
    if (range->kind == RANGE_MANAGED)
        madvise(range->at, bytes, MADV_REMOVE);
    munmap(range->at, bytes);
}
