/* What the kernel runs when a process is about to receive an open file (the LSM hook file_receive:
 * SCM_RIGHTS, pidfd_getfd, a listener's ADDFD): of NVIDIA's nodes it gets none, unless it is in the initial
 * pid namespace, or in a known one or below. */
#ifndef MGPU_NVIDIA_PROGRAM_H
#define MGPU_NVIDIA_PROGRAM_H
#include "btf.h"
#include <linux/bpf.h>

#define GUARD_HOOK "bpf_lsm_file_receive"
enum { GUARD_PROGRAM_MAX = 64 };

/* Bytes from the begins of the kernel's structs. */
struct guard_places {
    int16_t file_inode, inode_mode, inode_rdev;
    int16_t task_pid, pid_level, task_nsproxy, nsproxy_space;
    int16_t ns_number, ns_parent;
};

/* -ENOENT: this kernel has no such member. */
int guard_places_read(const struct btf *b, struct guard_places *out);
/* How many instructions. map: a descriptor; its keys are majors and inodes of pid namespaces, of 4 bytes.
 * These begin at 0xf0000000, majors end at 4095. */
uint32_t guard_program(const struct guard_places *at, int map, struct bpf_insn *out);
#endif
