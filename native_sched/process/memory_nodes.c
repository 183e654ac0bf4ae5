#define _GNU_SOURCE
#include "memory_nodes.h"
#include "base/scoped.h"
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define NODES "/sys/devices/system/node/"
enum { TEXT_BYTES = 4096, PROCESSOR_FIELD = 39 }; /* of /proc/TID/stat: proc(5) */

/* Reads the file; of a long one the last part. */
static void text_of(const char *format, int number, char text[TEXT_BYTES])
{
    char path[80];
    size_t have = 0;
    ssize_t n;

    snprintf(path, sizeof(path), format, number);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (n = read(fd, text + have, TEXT_BYTES - 1 - have)) > 0) {
        have += (size_t)n;
        if (have > TEXT_BYTES / 2) {
            memmove(text, text + have - TEXT_BYTES / 2, TEXT_BYTES / 2);
            have = TEXT_BYTES / 2;
        }
    }
    text[have] = '\0';
}

/* "0-1,4" */
static cpu_set_t set_of(const char *list)
{
    cpu_set_t set;
    char *end;

    CPU_ZERO(&set);
    while (*list >= '0' && *list <= '9') {
        unsigned long first = strtoul(list, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (; first <= last && first < CPU_SETSIZE; first++)
            CPU_SET(first, &set);
        list = *end == ',' ? end + 1 : "";
    }
    return set;
}

static cpu_set_t processors_of(int node)
{
    char text[TEXT_BYTES];

    text_of(NODES "node%d/cpulist", node, text);
    return set_of(text);
}

static cpu_set_t online(void)
{
    char text[TEXT_BYTES];

    text_of(NODES "online", 0, text);
    return set_of(text);
}

/* What can be added to a machine while it runs is not looked for: each call would pay for that. */
static bool are_several(void)
{
    static atomic_int nodes;
    int known = atomic_load(&nodes);

    if (!known) {
        cpu_set_t set = online();

        known = CPU_COUNT(&set) > 1 ? CPU_COUNT(&set) : 1;
        atomic_store(&nodes, known);
    }
    return known > 1;
}

/* -1: not known. */
static int node_of_thread(pid_t tid)
{
    char text[TEXT_BYTES], *at;
    cpu_set_t nodes = online(), processors;
    int processor;

    text_of("/proc/%d/stat", (int)tid, text);
    at = strrchr(text, ')'); /* of the second field, which may have anything in it */
    for (int field = 2; at && field < PROCESSOR_FIELD; field++)
        at = strchr(at + 1, ' ');
    processor = at ? (int)strtol(at, NULL, 10) : -1;
    for (int node = 0; processor >= 0 && node < CPU_SETSIZE; node++) {
        if (!CPU_ISSET(node, &nodes))
            continue;
        processors = processors_of(node);
        if (CPU_ISSET(processor, &processors))
            return node;
    }
    return -1;
}

static cpu_set_t nodes_allowed(pid_t tid)
{
    static const char name[] = "\nMems_allowed_list:\t";
    char text[TEXT_BYTES], *at;

    text_of("/proc/%d/status", (int)tid, text);
    at = strstr(text, name);
    return set_of(at ? at + sizeof(name) - 1 : "");
}

/* A line of the first mapping that has no policy of its own names the thread's. Few bytes are asked for, so
 * that the kernel looks at few mappings. */
static void policy_of(pid_t tid, char *line, size_t bytes)
{
    char path[32];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/numa_maps", (int)tid);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, line, bytes - 1);
    line[n > 0 ? n : 0] = '\0';
}

static int first_of(const cpu_set_t *set)
{
    int i = 0;

    while (i < CPU_SETSIZE && !CPU_ISSET(i, set))
        i++;
    return i < CPU_SETSIZE ? i : -1;
}

struct memory_nodes memory_nodes_choose(const char *line, const cpu_set_t *allowed, int own)
{
    const char *policy = strchr(line, ' '), *named = policy ? strchr(policy, ':') : NULL;
    struct memory_nodes to = {.mode = MPOL_PREFERRED, .nodes = *allowed};

    /* Others name a file after it, and no nodes. */
    if (named && strncmp(policy, " default", 8) && strncmp(policy, " local", 6)) {
        cpu_set_t nodes = set_of(named + 1);

        CPU_AND(&nodes, &nodes, allowed);
        if (CPU_COUNT(&nodes))
            to.nodes = nodes;
        if (!strncmp(policy, " interleave", 11) || !strncmp(policy, " weighted interleave", 20))
            to.mode = MPOL_INTERLEAVE;
    }
    to.home = own >= 0 && CPU_ISSET(own, &to.nodes) ? own : first_of(&to.nodes);
    if (to.mode == MPOL_PREFERRED && to.home >= 0) {
        CPU_ZERO(&to.nodes);
        CPU_SET(to.home, &to.nodes);
    }
    return to;
}

struct borrowed_nodes memory_nodes_borrow(pid_t tid)
{
    struct borrowed_nodes was = {0};
    struct memory_nodes to;
    cpu_set_t allowed, processors;
    char line[128];

    if (!are_several())
        return was;
    policy_of(tid, line, sizeof(line));
    allowed = nodes_allowed(tid);
    to = memory_nodes_choose(line, &allowed, node_of_thread(tid));
    if (to.home < 0 || sched_getaffinity(0, sizeof(was.processors), &was.processors) < 0)
        return was;
    was.borrowed = true;
    (void)syscall(SYS_set_mempolicy, to.mode, &to.nodes, CPU_SETSIZE + 1ul);
    processors = processors_of(to.home);
    if (CPU_COUNT(&processors))
        (void)sched_setaffinity(0, sizeof(processors), &processors);
    return was;
}

void memory_nodes_give_back(const struct borrowed_nodes *was)
{
    if (!was->borrowed)
        return;
    (void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul);
    (void)sched_setaffinity(0, sizeof(was->processors), &was->processors);
}
