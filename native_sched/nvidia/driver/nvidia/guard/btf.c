#define _GNU_SOURCE
#include "btf.h"
#include <errno.h>
#include <linux/btf.h>
#include <stdbool.h>
#include <string.h>

/* Of kinds that older headers lack. */
enum { KIND_FLOAT = 16, KIND_DECL_TAG = 17, KIND_TYPE_TAG = 18, KIND_ENUM64 = 19, ENUM64_BYTES = 12 };
enum { DEPTH_MAX = 8 };

/* A type, and where what follows it begins. */
struct cursor {
    struct btf_type type;
    uint32_t id, tail, end;
};

static uint32_t kind_of(const struct cursor *c)
{
    return BTF_INFO_KIND(c->type.info);
}

/* What follows a type of that kind; -1: the kind is unknown. */
static int64_t tail_bytes(const struct cursor *c)
{
    int64_t n = BTF_INFO_VLEN(c->type.info);

    switch (kind_of(c)) {
    case BTF_KIND_INT:
    case BTF_KIND_VAR:
    case KIND_DECL_TAG:
        return sizeof(uint32_t);
    case BTF_KIND_ARRAY:
        return sizeof(struct btf_array);
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION:
        return n * (int64_t)sizeof(struct btf_member);
    case BTF_KIND_ENUM:
        return n * (int64_t)sizeof(struct btf_enum);
    case BTF_KIND_FUNC_PROTO:
        return n * (int64_t)sizeof(struct btf_param);
    case BTF_KIND_DATASEC:
        return n * (int64_t)sizeof(struct btf_var_secinfo);
    case KIND_ENUM64:
        return n * ENUM64_BYTES;
    case BTF_KIND_PTR:
    case BTF_KIND_FWD:
    case BTF_KIND_TYPEDEF:
    case BTF_KIND_VOLATILE:
    case BTF_KIND_CONST:
    case BTF_KIND_RESTRICT:
    case BTF_KIND_FUNC:
    case KIND_FLOAT:
    case KIND_TYPE_TAG:
        return 0;
    default:
        return -1;
    }
}

/* Types are numbered from 1 on, in their order. */
static bool next(const struct btf *b, struct cursor *c)
{
    uint32_t rest = b->types_bytes - c->end;
    int64_t tail;

    if (rest < sizeof(c->type))
        return false;
    memcpy(&c->type, b->types + c->end, sizeof(c->type));
    rest -= (uint32_t)sizeof(c->type);
    if ((tail = tail_bytes(c)) < 0 || tail > rest)
        return false;
    c->tail = c->end + (uint32_t)sizeof(c->type);
    c->end = c->tail + (uint32_t)tail;
    c->id++;
    return true;
}

static const char *text_of(const struct btf *b, uint32_t at)
{
    return at < b->strings_bytes ? b->strings + at : "";
}

static int member_in(const struct btf *b, const struct cursor *of, const char *member, int depth);

static int member_of(const struct btf *b, uint32_t id, const char *member, int depth)
{
    struct cursor c = {.id = 0};

    while (next(b, &c))
        if (c.id == id)
            return depth < DEPTH_MAX ? member_in(b, &c, member, depth) : -ENOENT;
    return -ENOENT;
}

static int member_in(const struct btf *b, const struct cursor *of, const char *member, int depth)
{
    struct btf_member m;
    const char *name;
    uint32_t bits;
    int inside;

    if (kind_of(of) != BTF_KIND_STRUCT && kind_of(of) != BTF_KIND_UNION)
        return -ENOENT;
    for (uint32_t at = of->tail; at < of->end; at += (uint32_t)sizeof(m)) {
        memcpy(&m, b->types + at, sizeof(m));
        name = text_of(b, m.name_off);
        bits = BTF_INFO_KFLAG(of->type.info) ? BTF_MEMBER_BIT_OFFSET(m.offset) : m.offset;
        if (!strcmp(name, member))
            return bits % 8 || (BTF_INFO_KFLAG(of->type.info) && BTF_MEMBER_BITFIELD_SIZE(m.offset))
                       ? -ENOENT
                       : (int)(bits / 8);
        if (!*name && (inside = member_of(b, m.type, member, depth + 1)) >= 0)
            return (int)(bits / 8) + inside;
    }
    return -ENOENT;
}

int btf_open(struct btf *b, const void *bytes, size_t size)
{
    struct btf_header h;
    const uint8_t *at = bytes;

    if (size < sizeof(h))
        return -EPROTO;
    memcpy(&h, bytes, sizeof(h));
    if (h.magic != BTF_MAGIC || h.version != BTF_VERSION || h.hdr_len < sizeof(h) || h.hdr_len > size)
        return -EPROTO;
    size -= h.hdr_len;
    at += h.hdr_len;
    if (h.type_off > size || h.type_len > size - h.type_off || h.str_off > size ||
        h.str_len > size - h.str_off || !h.str_len || at[h.str_off + h.str_len - 1])
        return -EPROTO;
    *b = (struct btf){at + h.type_off, (const char *)at + h.str_off, h.type_len, h.str_len};
    return 0;
}

int btf_function(const struct btf *b, const char *name)
{
    struct cursor c = {.id = 0};

    while (next(b, &c))
        if (kind_of(&c) == BTF_KIND_FUNC && !strcmp(text_of(b, c.type.name_off), name))
            return (int)c.id;
    return -ENOENT;
}

int btf_member(const struct btf *b, const char *name, const char *member)
{
    struct cursor c = {.id = 0};
    int found;

    while (next(b, &c))
        if (kind_of(&c) == BTF_KIND_STRUCT && !strcmp(text_of(b, c.type.name_off), name) &&
            (found = member_in(b, &c, member, 0)) >= 0)
            return found;
    return -ENOENT;
}
