/* What mgpu-hook reads: a container's state from its runtime, a reply of mgpud's. */
#include "../../runtime_hook/common/json.h"
#include "choices.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 64, DEPTH = 4 };

static void use(struct slice object, int depth)
{
    static const char *const names[] = {"ok", "error", "message", "hint", "id", "pid", "a", ""};
    char text[CAPACITY];

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct slice member = json_member(object, names[i]);

        if (!member.text)
            continue;
        must(member.text > object.text && member.text + member.bytes < object.text + object.bytes,
             "a member lies outside of its object");
        /* A copy of exactly its size: reading on would be seen. */
        char *copy = malloc(member.bytes + 1);
        must(copy, "memory");
        memcpy(copy, member.text, member.bytes);
        memset(text, 'x', sizeof(text));
        json_string((struct slice){copy, member.bytes}, text, 1 + depth * 7 % CAPACITY);
        must(memchr(text, '\0', sizeof(text)), "no end");
        if (depth < DEPTH && json_is_object((struct slice){copy, member.bytes}))
            use((struct slice){copy, member.bytes}, depth + 1);
        free(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct slice text = {(const char *)data, bytes};

    if (json_is_object(text))
        use(text, 0);
    return 0;
}
