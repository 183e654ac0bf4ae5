/* Reads where the running kernel has a function or a struct's member, from its own description of its types
 * (BTF, /sys/kernel/btf/vmlinux). */
#ifndef MGPU_NVIDIA_BTF_H
#define MGPU_NVIDIA_BTF_H
#include <stddef.h>
#include <stdint.h>

struct btf {
    const uint8_t *types;
    const char *strings;
    uint32_t types_bytes, strings_bytes;
};

/* The bytes stay the caller's. -EPROTO: they are no BTF. */
int btf_open(struct btf *b, const void *bytes, size_t size);
/* The number by which a program is attached to it. -ENOENT: there is none. */
int btf_function(const struct btf *b, const char *name);
/* Bytes from the begin of `struct name` to its member, which may be in an anonymous one inside. -ENOENT:
 * there is none, or it is no whole bytes. */
int btf_member(const struct btf *b, const char *name, const char *member);
#endif
