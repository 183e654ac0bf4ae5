#define _GNU_SOURCE
#include "guard.h"
#include "base/scoped.h"
#include "program.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* Linux: PROC_PID_INIT_INO. */
static const uint32_t initial_space = 0xeffffffc;
enum { PATH_BYTES = 96, MAJORS_MAX = 16, KEYS_MAX = MAJORS_MAX + MAX_TENANTS, BTF_BYTES_MAX = 64 << 20 };

struct keys {
    uint32_t n, key[KEYS_MAX];
};

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
    long done = syscall(SYS_bpf, cmd, attr, sizeof(*attr));

    return done < 0 ? -errno : (int)done;
}

static uint64_t address(const void *of)
{
    return (uint64_t)(uintptr_t)of;
}

static const char *kept_path(const struct nvidia_host *host, const char *name, char *path)
{
    snprintf(path, PATH_BYTES, "%s/mgpu/%s", host->bpf_dir, name);
    return path;
}

static int keep_object(const struct nvidia_host *host, int fd, const char *name)
{
    char path[PATH_BYTES];
    union bpf_attr attr = {.pathname = address(kept_path(host, name, path)), .bpf_fd = (uint32_t)fd};

    return bpf(BPF_OBJ_PIN, &attr);
}

static void unpin(const struct nvidia_host *host, const char *name)
{
    char path[PATH_BYTES];

    (void)unlink(kept_path(host, name, path)); /* there may be none */
}

/* The one that the previous mgpud has pinned, or a new one. */
static int open_map(const struct nvidia_host *host)
{
    char path[PATH_BYTES];
    union bpf_attr attr = {.pathname = address(kept_path(host, "spaces", path))};
    int fd = bpf(BPF_OBJ_GET, &attr), e;

    if (fd >= 0)
        return fd;
    attr = (union bpf_attr){.map_type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 4};
    attr.max_entries = KEYS_MAX;
    if ((fd = bpf(BPF_MAP_CREATE, &attr)) < 0)
        return fd;
    if ((e = keep_object(host, fd, "spaces")) < 0)
        close(fd);
    return e < 0 ? e : fd;
}

static int add_majors(const struct nvidia_host *host, struct keys *k)
{
    FILE *f = fopen(host->majors_path, "re");
    char line[128], name[96];
    uint32_t major;

    if (!f)
        return -errno;
    while (k->n < MAJORS_MAX && fgets(line, sizeof(line), f) && strncmp(line, "Block", 5) != 0)
        if (sscanf(line, "%u %95s", &major, name) == 2 && !strncmp(name, "nvidia", 6))
            k->key[k->n++] = major;
    fclose(f);
    return 0;
}

static bool is_in(const struct keys *k, uint32_t key)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (k->key[i] == key)
            return true;
    return false;
}

/* Takes what is in the map alone out of it. */
static void delete_others(int map, const struct keys *k)
{
    uint32_t at = 0, following = 0;
    union bpf_attr attr = {.map_fd = (uint32_t)map, .next_key = address(&following)};
    bool more = bpf(BPF_MAP_GET_NEXT_KEY, &attr) == 0;

    while (more) {
        at = following;
        attr = (union bpf_attr){
            .map_fd = (uint32_t)map, .key = address(&at), .next_key = address(&following)};
        more = bpf(BPF_MAP_GET_NEXT_KEY, &attr) == 0;
        attr = (union bpf_attr){.map_fd = (uint32_t)map, .key = address(&at)};
        if (!is_in(k, at))
            (void)bpf(BPF_MAP_DELETE_ELEM, &attr); /* it was there */
    }
}

static int fill(int map, const struct nvidia_host *host, const uint32_t *pid_ns, uint32_t tenants)
{
    struct keys k = {.n = 0};
    uint32_t value = 1;
    int e = add_majors(host, &k);

    if (e < 0)
        return e;
    for (uint32_t i = 0; i < tenants; i++)
        if (pid_ns[i] && k.n < KEYS_MAX)
            k.key[k.n++] = pid_ns[i];
    delete_others(map, &k);
    for (uint32_t i = 0; i < k.n && e == 0; i++) {
        union bpf_attr attr = {.map_fd = (uint32_t)map, .key = address(&k.key[i]), .value = address(&value)};

        e = bpf(BPF_MAP_UPDATE_ELEM, &attr);
    }
    return e;
}

static ssize_t read_all(int fd, char *to, size_t room)
{
    size_t have = 0;
    ssize_t n;

    while (have < room && (n = read(fd, to + have, room - have)) != 0) {
        if (n < 0)
            return -errno;
        have += (size_t)n;
    }
    return (ssize_t)have;
}

/* The hook's number. */
static int read_places(const struct nvidia_host *host, struct guard_places *out)
{
    scoped_fd int fd = open(host->btf_path, O_RDONLY | O_CLOEXEC);
    char *bytes = fd >= 0 ? malloc(BTF_BYTES_MAX) : NULL;
    ssize_t n = bytes ? read_all(fd, bytes, BTF_BYTES_MAX) : -ENOSYS;
    struct btf b;
    int e = n < 0 ? (int)n : btf_open(&b, bytes, (size_t)n);

    if (e == 0 && (e = guard_places_read(&b, out)) == 0)
        e = btf_function(&b, GUARD_HOOK);
    free(bytes);
    return e;
}

/* A descriptor of the link. */
static int attach(const struct guard_places *at, int hook, int map)
{
    struct bpf_insn program[GUARD_PROGRAM_MAX];
    union bpf_attr attr = {
        .prog_type = BPF_PROG_TYPE_LSM,
        .insn_cnt = guard_program(at, map, program),
        .insns = address(program),
        .license = address("Dual MIT/GPL"), /* the kernel takes no other here; it is of the program alone */
        .prog_name = "mgpu_receive",
        .expected_attach_type = BPF_LSM_MAC,
        .attach_btf_id = (uint32_t)hook,
    };
    scoped_fd int fd = bpf(BPF_PROG_LOAD, &attr);

    if (fd < 0)
        return fd;
    attr = (union bpf_attr){.raw_tracepoint.prog_fd = (uint32_t)fd};
    return bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
}

/* In place of the one that the previous mgpud has pinned, which goes only then. */
static int replace_link(const struct nvidia_host *host, int link)
{
    char new[PATH_BYTES], path[PATH_BYTES];
    int e;

    unpin(host, "receive-next");
    if ((e = keep_object(host, link, "receive-next")) < 0)
        return e;
    return rename(kept_path(host, "receive-next", new), kept_path(host, "receive", path)) < 0 ? -errno : 0;
}

/* Namespaces are told apart from the initial one on, so that has to be ours. */
static bool kernel_has_it(const struct nvidia_host *host)
{
    char modules[256] = ",", *word, *rest = NULL;
    FILE *f = host->bpf_dir ? fopen(host->lsm_path, "re") : NULL;
    struct stat st;
    bool has = false;

    if (!f)
        return false;
    if (fgets(modules, sizeof(modules), f))
        for (word = strtok_r(modules, ",\n", &rest); word; word = strtok_r(NULL, ",\n", &rest))
            has = has || !strcmp(word, "bpf");
    fclose(f);
    return has && stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == initial_space;
}

/* Another writer could take the program off. */
static int make_folder(const struct nvidia_host *host)
{
    char path[PATH_BYTES];
    struct stat st;

    snprintf(path, sizeof(path), "%s/mgpu", host->bpf_dir);
    if ((mkdir(path, 0700) < 0 && errno != EEXIST) || lstat(path, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) && st.st_uid == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH)) ? 0 : -EPERM;
}

static void let_go(const struct nvidia_host *host)
{
    char path[PATH_BYTES];

    unpin(host, "receive-next");
    unpin(host, "receive");
    unpin(host, "spaces");
    snprintf(path, sizeof(path), "%s/mgpu", host->bpf_dir);
    (void)rmdir(path); /* others may have put something there */
}

static int begin(struct guard *g, const struct nvidia_host *host, const uint32_t *pid_ns, uint32_t tenants)
{
    struct guard_places at;
    int hook, e;

    if (!kernel_has_it(host))
        return 0;
    if ((hook = read_places(host, &at)) < 0)
        return hook;
    if ((e = make_folder(host)) < 0)
        return e;
    if ((g->map = open_map(host)) < 0)
        return g->map;
    if ((e = fill(g->map, host, pid_ns, tenants)) == 0) {
        scoped_fd int link = attach(&at, hook, g->map);

        e = link < 0 ? link : replace_link(host, link);
    }
    if (e < 0)
        close(g->map);
    return e < 0 ? e : 1;
}

int guard_keep(struct guard *g, const struct nvidia_host *host, const uint32_t *pid_ns, uint32_t tenants)
{
    int e = g->begun && g->state > 0 ? fill(g->map, host, pid_ns, tenants) : 0;

    g->kept = tenants;
    /* A program of the previous mgpud would refuse by what that one knew. */
    if (!g->begun && (g->state = begin(g, host, pid_ns, tenants)) < 0)
        let_go(host);
    g->begun = true;
    return e < 0 ? e : g->state;
}

void guard_close(struct guard *g, const struct nvidia_host *host)
{
    if (g->state <= 0)
        return;
    close(g->map);
    if (!g->kept)
        let_go(host);
}
