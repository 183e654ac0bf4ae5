#include "page_tables.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

/* What a table covers, from the leaves on, in the formats of Pascal to Blackwell (uvm_hopper_mmu.c, uvm_turing_mmu.c). A leaf is
 * there only for pages that are smaller than what it covers. The root is not counted: there is one for each address space. */
enum { LEVELS = 5, LEAF_SHIFT = 21, TABLE_BYTES = 4096, BIG_PAGE_SHIFT = 16, BIG_LEAF_BYTES = 256 };
static const uint32_t covers_shift[LEVELS] = {LEAF_SHIFT, 29, 38, 47, 56};
enum { BIG_LEAF = LEVELS }; /* ... is another table than the one of small pages beside it */

enum { NODES_PER_MAPPING = 2 * LEVELS, BUCKETS = 131072, BUCKET_BYTES = BUCKETS * sizeof(uint32_t) };

struct page_table_node {
    uint64_t table;
    uint32_t mappings, next;
};

uint64_t page_tables_most(uint64_t length)
{
    uint64_t bytes = 0;

    for (int i = 0; i < LEVELS - 1; i++)
        bytes += ((length >> covers_shift[i]) + 2) * TABLE_BYTES;
    return bytes;
}

uint32_t page_shift_of(uint64_t base, uint64_t length, uint64_t offset, uint32_t page_shift)
{
    uint64_t alignment = base | length | offset | 1ull << (page_shift ? page_shift : 12);
    uint32_t shift = (uint32_t)__builtin_ctzll(alignment);

    return shift >= LEAF_SHIFT ? LEAF_SHIFT : shift >= BIG_PAGE_SHIFT ? BIG_PAGE_SHIFT : 12;
}

/* Lazily backed: a tenant with few mappings touches few pages. */
static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static size_t node_bytes(const struct page_tables *p)
{
    return ((size_t)p->max + 1) * sizeof(*p->node);
}

int page_tables_open(struct page_tables *p, uint32_t mappings)
{
    *p = (struct page_tables){.max = mappings * NODES_PER_MAPPING};
    p->node = reserve(node_bytes(p));
    p->bucket = reserve(BUCKET_BYTES);
    if (!p->node || !p->bucket || getrandom(&p->secret, sizeof(p->secret), 0) < 0) {
        page_tables_close(p);
        return -ENOMEM;
    }
    return 0;
}

void page_tables_close(struct page_tables *p)
{
    if (p->node)
        munmap(p->node, node_bytes(p));
    if (p->bucket)
        munmap(p->bucket, BUCKET_BYTES);
    *p = (struct page_tables){0};
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

uint64_t page_tables_space(const struct page_tables *p, uint64_t file, const uint8_t gpu[16])
{
    uint64_t half[2];

    memcpy(half, gpu, sizeof(half));
    return mixed(mixed(mixed(p->secret ^ file) ^ half[0]) ^ half[1]);
}

static uint32_t *find(const struct page_tables *p, uint64_t table)
{
    uint32_t *at = &p->bucket[table % BUCKETS];

    while (*at && p->node[*at].table != table)
        at = &p->node[*at].next;
    return at;
}

/* There are as many nodes as all mappings can need. */
static bool first_in(struct page_tables *p, uint64_t table)
{
    uint32_t *at = find(p, table), slot = *at;

    if (!slot) {
        if ((slot = p->free_head))
            p->free_head = p->node[slot].next;
        else if (p->high < p->max)
            slot = ++p->high;
        else
            abort();
        p->node[slot] = (struct page_table_node){.table = table};
        *at = slot;
    }
    return p->node[slot].mappings++ == 0;
}

static bool last_out(struct page_tables *p, uint64_t table)
{
    uint32_t *at = find(p, table), slot = *at;

    if (!slot || --p->node[slot].mappings)
        return false;
    *at = p->node[slot].next;
    p->node[slot].next = p->free_head;
    p->free_head = slot;
    return true;
}

static uint64_t walk(struct page_tables *p, const struct mapped_range *r,
                     bool (*one)(struct page_tables *p, uint64_t table))
{
    uint64_t sum = 0;

    for (uint32_t level = r->page_shift < LEAF_SHIFT ? 0 : 1; level < LEVELS; level++) {
        bool big = level == 0 && r->page_shift == BIG_PAGE_SHIFT;
        uint64_t bytes = big ? BIG_LEAF_BYTES : TABLE_BYTES;
        uint64_t kind = mixed(r->space ^ mixed(p->secret + (big ? BIG_LEAF : level)));
        uint64_t first = r->base >> covers_shift[level], last = (r->end - 1) >> covers_shift[level];

        sum += one(p, mixed(kind ^ first)) ? bytes : 0;
        if (last == first)
            continue;
        sum += one(p, mixed(kind ^ last)) ? bytes : 0;
        sum += (last - first - 1) * bytes;
    }
    return sum;
}

uint64_t page_tables_add(struct page_tables *p, const struct mapped_range *r)
{
    return walk(p, r, first_in);
}

uint64_t page_tables_drop(struct page_tables *p, const struct mapped_range *r)
{
    return walk(p, r, last_out);
}
