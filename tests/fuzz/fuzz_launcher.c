#define _GNU_SOURCE
/* What mgpu-runtime reads: its config, the command line that an engine gives it, and what mgpud answers. A
 * command line that makes a container is never taken for one that does not, wherever its verb stands. */
#include "../../runtime_hook/common/conf.h"
#include "../../runtime_hook/launcher/argv.h"
#include "../../runtime_hook/launcher/prepare.h"
#include "choices.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS_MAX = 32, TEXT_MAX_BYTES = 4096 };

static bool absolute_or_empty(const char *path)
{
    return !*path || *path == '/';
}

static void read_conf(const uint8_t *data, size_t bytes)
{
    static struct conf conf;
    struct error why;
    char path[32];
    int fd = memfd_create("conf", 0);

    must(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes, "the test's own file");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    memset(&why, 'x', sizeof(why));
    if (conf_read(path, &conf, &why) == 0) {
        must(*conf.runtime && (*conf.runtime == '/' || !strchr(conf.runtime, '/')), "the runtime's path");
        must(absolute_or_empty(conf.socket) && absolute_or_empty(conf.hook) &&
                 absolute_or_empty(conf.python) && absolute_or_empty(conf.main) &&
                 absolute_or_empty(conf.seccomp_socket),
             "a relative path");
    } else {
        must(memchr(why.message, '\0', sizeof(why.message)) && memchr(why.hint, '\0', sizeof(why.hint)),
             "a complaint without an end");
    }
    close(fd);
}

static bool makes(const char *word)
{
    return !strcmp(word, "create") || !strcmp(word, "precreate") || !strcmp(word, "run") ||
           !strcmp(word, "restore") || !strcmp(word, "checkpoint");
}

static void check_config(char *const *words)
{
    char config[PATH_MAX];

    memset(config, 'x', sizeof(config));
    if (!prepare_config(words, "/folder", config))
        return;
    must(memchr(config, '\0', sizeof(config)) && *config == '/', "a spec at no absolute path");
    must(strlen(config) >= 12 && !strcmp(config + strlen(config) - 12, "/config.json"),
         "another file than the spec");
}

/* A text in memory of exactly its size: reading on would be seen. */
static void read_reply(const uint8_t *data, size_t bytes)
{
    char answer[256], *copy = malloc(bytes + 1);
    struct error why;
    struct prepare_reply reply;

    must(copy, "memory");
    memcpy(copy, data, bytes);
    memset(&why, 'x', sizeof(why));
    reply = prepare_read((struct slice){copy, bytes}, &why);
    must((reply.answer == PREPARE_WRITE) == (reply.bytes > 0),
         "a new text without a length, or the other way round");
    must(reply.bytes <= PREPARE_TEXT_MAX_BYTES, "a text that there is no room for");
    must(reply.answer == PREPARE_FALLBACK || (!reply.paths.text && !reply.wants_kept), "an answer that asks");
    if (reply.answer == PREPARE_REFUSE)
        must(*why.message && *why.hint && memchr(why.message, '\0', sizeof(why.message)) &&
                 memchr(why.hint, '\0', sizeof(why.hint)),
             "a refusal that says nothing");
    if (reply.paths.text) {
        struct packet found = {.text = answer, .capacity = sizeof(answer)};

        prepare_look(reply.paths, &found);
        must(found.bytes <= sizeof(answer), "more than there is room for");
        must(found.overflow || json_is_object((struct slice){answer, found.bytes}),
             "an answer that is not JSON");
    }
    free(copy);
}

static void read_argv(struct choices *c)
{
    static const char *const known[] = {"--root",
                                        "-root",
                                        "--log",
                                        "--log=x",
                                        "--debug",
                                        "--systemd-cgroup",
                                        "--",
                                        "create",
                                        "run",
                                        "state",
                                        "--criu",
                                        "--new=x",
                                        "--new",
                                        "--",
                                        "-",
                                        "restore",
                                        "x",
                                        "--help",
                                        "kill",
                                        "--rootless",
                                        "--root=/",
                                        "-h",
                                        "-v",
                                        "--version",
                                        "delete",
                                        "--log",
                                        "--bundle",
                                        "start",
                                        "--cgroup-manager=x"};
    char text[WORDS_MAX][16], *words[WORDS_MAX + 1] = {NULL};
    int n = 1 + (int)below(c, WORDS_MAX - 1);
    struct invocation call;

    for (int i = 0; i < n; i++) {
        if (one_in(c, 4)) {
            fill(c, text[i], sizeof(text[i]) - 1);
            text[i][15] = '\0';
        } else {
            snprintf(text[i], sizeof(text[i]), "%.15s", known[below(c, sizeof(known) / sizeof(*known))]);
        }
        words[i] = text[i];
    }
    check_config(words);
    call = argv_read(n, words);
    must(call.verb >= 1 && call.verb <= n, "a verb outside of the command line");
    /* A plain verb in the first place is the verb. */
    if (n > 1 && makes(words[1]))
        must(call.verb == 1, "another verb than the first word");
    if (call.verb == n)
        must(!argv_is_ours(n, words, &call), "it creates without a verb");
    else
        must(!argv_is_ours(n, words, &call) || makes(words[call.verb]), "it creates by another verb");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct choices c = {data, data + bytes};

    if (bytes > TEXT_MAX_BYTES)
        return 0;
    switch (below(&c, 3)) {
    case 0:
        read_argv(&c);
        break;
    case 1:
        read_conf(c.at, (size_t)(c.end - c.at));
        break;
    default:
        read_reply(c.at, (size_t)(c.end - c.at));
    }
    return 0;
}
