/* What fuzzers have in common; their bytes as choices. When they are used up every choice is 0. */
#ifndef FUZZ_CHOICES_H
#define FUZZ_CHOICES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static inline void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

struct choices {
    const uint8_t *at, *end;
};

static inline uint8_t one_byte(struct choices *c)
{
    return c->at < c->end ? *c->at++ : 0;
}

static inline uint32_t below(struct choices *c, uint32_t n)
{
    return one_byte(c) % n;
}

static inline bool one_in(struct choices *c, uint32_t n)
{
    return one_byte(c) % n == n - 1;
}

static inline void fill(struct choices *c, void *to, size_t bytes)
{
    size_t left = (size_t)(c->end - c->at), n = bytes < left ? bytes : left;

    memcpy(to, c->at, n);
    memset((uint8_t *)to + n, 0, bytes - n);
    c->at += n;
}

static inline uint64_t any_number(struct choices *c)
{
    uint64_t number;

    fill(c, &number, sizeof(number));
    return number;
}
#endif
