#define _GNU_SOURCE
#include "confine.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SYS_PTRACE: to take a descriptor of the program's and to read its /proc. KILL, DAC_OVERRIDE: programs of
 * other users are signalled, and their sockets opened. */
static const int kept[] = {CAP_SYS_PTRACE, CAP_KILL, CAP_DAC_OVERRIDE};

/* What would make of this program a root of the node: other programs, files that it makes or changes, other
 * namespaces and users, code in the kernel, devices. Whatever a driver's libcuda does to move memory is none
 * of these; which calls it does make is the driver's to change. */
static const uint16_t refused[] = {
    SYS_execve,
    SYS_execveat,
    SYS_fork,
    SYS_vfork,
    SYS_creat,
    SYS_mkdir,
    SYS_mkdirat,
    SYS_rmdir,
    SYS_mknod,
    SYS_mknodat,
    SYS_link,
    SYS_linkat,
    SYS_symlink,
    SYS_symlinkat,
    SYS_unlink,
    SYS_unlinkat,
    SYS_rename,
    SYS_renameat,
    SYS_renameat2,
    SYS_chmod,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_chown,
    SYS_fchown,
    SYS_lchown,
    SYS_fchownat,
    SYS_truncate,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_openat2,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_unshare,
    SYS_setns,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_bpf,
    SYS_iopl,
    SYS_ioperm,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_io_uring_setup,
    SYS_userfaultfd,
    SYS_perf_event_open,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_syslog,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_fanotify_init,
    SYS_personality,
};

enum {
    REFUSED = sizeof(refused) / sizeof(*refused),
    X32 = 0x40000000, /* __X32_SYSCALL_BIT, which some headers cast */
    TMPFILE = O_TMPFILE & ~O_DIRECTORY,
    OPEN_REFUSED = O_CREAT | O_TRUNC | TMPFILE,
    ROOM = 2 * REFUSED + 40,
};

struct program {
    struct sock_filter at[ROOM];
    unsigned short count;
};

static void put(struct program *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    p->at[p->count++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct program *p, size_t at)
{
    put(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)at, 0, 0);
}

static void answer(struct program *p, uint32_t action)
{
    put(p, BPF_RET | BPF_K, action, 0, 0);
}

static void answer_to(struct program *p, uint32_t call, int error)
{
    put(p, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
    answer(p, SECCOMP_RET_ERRNO | (uint32_t)error);
}

/* Refuses the call where its argument has any of these bits, or, if `wanted`, none of them. The call's number
 * is loaded before and after. */
static void refuse_by_bits(struct program *p, uint32_t call, int argument, uint32_t bits, bool wanted)
{
    put(p, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    load(p, offsetof(struct seccomp_data, args) + (size_t)argument * sizeof(uint64_t));
    put(p, BPF_JMP | BPF_JSET | BPF_K, bits, wanted ? 1 : 0, wanted ? 0 : 1);
    answer(p, SECCOMP_RET_ERRNO | EPERM);
    load(p, offsetof(struct seccomp_data, nr));
}

static void build(struct program *p)
{
    load(p, offsetof(struct seccomp_data, arch));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    answer(p, SECCOMP_RET_KILL_PROCESS);
    load(p, offsetof(struct seccomp_data, nr));
    put(p, BPF_JMP | BPF_JSET | BPF_K, X32, 0, 1);
    answer(p, SECCOMP_RET_ERRNO | EPERM);
    for (int i = 0; i < REFUSED; i++)
        answer_to(p, refused[i], EPERM);
    /* glibc makes its threads by clone then, whose flags are no pointer. */
    answer_to(p, SYS_clone3, ENOSYS);
    refuse_by_bits(p, SYS_clone, 0, CLONE_THREAD, true);
    refuse_by_bits(p, SYS_open, 1, OPEN_REFUSED, false);
    refuse_by_bits(p, SYS_openat, 2, OPEN_REFUSED, false);
    refuse_by_bits(p, SYS_socket, 0, ~(uint32_t)AF_UNIX, false);
    answer(p, SECCOMP_RET_ALLOW);
}

static bool drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2], left[2] = {0};

    if (syscall(SYS_capget, &head, data) < 0)
        return false;
    for (unsigned int i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
        uint32_t bit = data[kept[i] / 32].permitted & 1u << kept[i] % 32;

        left[kept[i] / 32].permitted |= bit;
        left[kept[i] / 32].effective |= bit;
    }
    return syscall(SYS_capset, &head, left) == 0;
}

const char *confine(void)
{
    struct program p = {0};
    struct sock_fprog filter = {.filter = p.at};

    build(&p);
    filter.len = p.count;
    if (!drop_capabilities())
        return "the capabilities cannot be dropped";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return "the kernel takes no seccomp filter";
    return NULL;
}
