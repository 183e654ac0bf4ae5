#define _GNU_SOURCE
#include "program.h"
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

/* MAX_PID_NS_LEVEL; of a dev_t; the key's place on the stack. */
enum { LEVELS_MAX = 32, MAJOR_SHIFT = 20, KEY = -4 };
/* bpf_get_current_task_btf(), which older headers lack: a task whose members can be read as they are. */
enum { CURRENT_TASK = 158 };

static const struct {
    const char *of, *member;
    size_t at;
} places[] = {
    {"file", "f_inode", offsetof(struct guard_places, file_inode)},
    {"inode", "i_mode", offsetof(struct guard_places, inode_mode)},
    {"inode", "i_rdev", offsetof(struct guard_places, inode_rdev)},
    {"task_struct", "thread_pid", offsetof(struct guard_places, task_pid)},
    {"pid", "level", offsetof(struct guard_places, pid_level)},
    {"task_struct", "nsproxy", offsetof(struct guard_places, task_nsproxy)},
    {"nsproxy", "pid_ns_for_children", offsetof(struct guard_places, nsproxy_space)},
    {"pid_namespace", "parent", offsetof(struct guard_places, ns_parent)},
    {"pid_namespace", "ns", offsetof(struct guard_places, ns_number)},
    {"ns_common", "inum", offsetof(struct guard_places, ns_number)},
};

int guard_places_read(const struct btf *b, struct guard_places *out)
{
    int16_t *place;
    int found;

    *out = (struct guard_places){0};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        found = btf_member(b, places[i].of, places[i].member);
        place = (int16_t *)(void *)((char *)out + places[i].at);
        if (found < 0 || found > INT16_MAX - *place)
            return -ENOENT;
        *place = (int16_t)(*place + found);
    }
    return 0;
}

#define INSN(op, to, from, place, number) \
    ((struct bpf_insn){.code = (op), .dst_reg = (to), .src_reg = (from), .off = (place), .imm = (number)})
#define LOAD(size, to, from, place) INSN(BPF_LDX | BPF_MEM | (size), to, from, place, 0)
#define STORE(from, place)          INSN(BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, from, place, 0)
#define SET(to, number)             INSN(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, number)
#define COPY(to, from)              INSN(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
#define DO(op, to, number)          INSN(BPF_ALU64 | (op) | BPF_K, to, 0, 0, number)
#define CALL(function)              INSN(BPF_JMP | BPF_CALL, 0, 0, 0, function)
#define MAP(to, fd)                 INSN(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)
#define IF(op, reg, number, label)  INSN(BPF_JMP | (op) | BPF_K, reg, 0, label, number)
#define EXIT()                      INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define LABEL(label)                INSN(NO_CODE, 0, 0, label, 0)
/* Whether the number in r1 is a key: r0. */
#define IS_KEY(fd)                                                                                       \
    STORE(BPF_REG_1, KEY), MAP(BPF_REG_1, fd), COPY(BPF_REG_2, BPF_REG_10), DO(BPF_ADD, BPF_REG_2, KEY), \
        CALL(BPF_FUNC_map_lookup_elem)

enum { NO_CODE = 0xff };
enum label { UP, ALLOW, LABELS };

static bool jumps(const struct bpf_insn *i)
{
    uint8_t op = BPF_OP(i->code);

    return BPF_CLASS(i->code) == BPF_JMP && op != BPF_CALL && op != BPF_EXIT;
}

/* Takes the labels out. */
static uint32_t linked(const struct bpf_insn *from, size_t count, struct bpf_insn *out)
{
    int32_t label[LABELS] = {0}, n = 0;

    for (size_t i = 0; i < count; i++) {
        if (from[i].code == NO_CODE)
            label[from[i].off] = n;
        else
            out[n++] = from[i];
    }
    for (int32_t i = 0; i < n; i++)
        if (jumps(&out[i]))
            out[i].off = (int16_t)(label[out[i].off] - i - 1);
    return (uint32_t)n;
}

uint32_t guard_program(const struct guard_places *at, int map, struct bpf_insn *out)
{
    enum { R0, R1, R2, SPACE = BPF_REG_6, LEFT };
    const struct bpf_insn program[] = {
        /* A character device of one of the majors? */
        LOAD(BPF_DW, R1, R1, 0),
        LOAD(BPF_DW, R1, R1, at->file_inode),
        LOAD(BPF_H, R2, R1, at->inode_mode),
        DO(BPF_AND, R2, S_IFMT),
        IF(BPF_JNE, R2, S_IFCHR, ALLOW),
        LOAD(BPF_W, R1, R1, at->inode_rdev),
        DO(BPF_RSH, R1, MAJOR_SHIFT),
        IS_KEY(map),
        IF(BPF_JEQ, R0, 0, ALLOW),
        /* A process of the initial namespace? */
        CALL(CURRENT_TASK),
        LOAD(BPF_DW, R1, R0, at->task_pid),
        LOAD(BPF_W, R1, R1, at->pid_level),
        IF(BPF_JEQ, R1, 0, ALLOW),
        /* Its own namespace or one below that, and from there up to the initial one. */
        LOAD(BPF_DW, R1, R0, at->task_nsproxy),
        LOAD(BPF_DW, SPACE, R1, at->nsproxy_space),
        SET(LEFT, LEVELS_MAX),
        LABEL(UP),
        LOAD(BPF_W, R1, SPACE, at->ns_number),
        IS_KEY(map),
        IF(BPF_JNE, R0, 0, ALLOW),
        LOAD(BPF_DW, SPACE, SPACE, at->ns_parent),
        DO(BPF_SUB, LEFT, 1),
        IF(BPF_JNE, LEFT, 0, UP),
        SET(R0, -EPERM),
        EXIT(),
        LABEL(ALLOW),
        SET(R0, 0),
        EXIT(),
    };

    _Static_assert(sizeof(program) / sizeof(*program) <= GUARD_PROGRAM_MAX, "room");
    return linked(program, sizeof(program) / sizeof(*program), out);
}
