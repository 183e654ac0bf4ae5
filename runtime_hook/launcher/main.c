/* mgpu-runtime stands where the engine expects runc. Verbs that make no container go to runc at once. For
 * create and run mgpud decides about the spec; where it does not, Python does, edits the spec and becomes
 * runc itself. The process stays the same in both cases. */
#include "argv.h"
#include "filter.h"
#include "prepare.h"
#include "runtime.h"
#include "runtime_hook/common/conf.h"
#include "runtime_hook/common/report.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONF_OPTION "--mgpu-config="
enum { OPTION_BYTES = PATH_MAX + 16, N_OPTIONS = 4 };

static int missing(const char *key, const char *conf_path, struct error *why)
{
    return fail(why, EINVAL, "install mgpu again, or add the line", "\"%s\" is not set in %s", key,
                conf_path);
}

static int exec_runtime(char **argv, char *runtime, struct error *why)
{
    argv[0] = runtime;
    execv(runtime, argv);
    return fail(why, errno, "install the runtime again", "cannot start %s: %s", runtime, strerror(errno));
}

/* main.py gets our own options, "--" and the command line to exec, runtime first. */
static int exec_python(int argc, char **argv, const struct invocation *call, struct conf *conf,
                       const char *conf_path, struct error *why)
{
    static char options[N_OPTIONS][OPTION_BYTES];
    char **words;
    int n = 0, error;

    if (!*conf->python)
        return missing("python", conf_path, why);
    if (!*conf->main)
        return missing("main", conf_path, why);
    if (!*conf->socket)
        return missing("socket", conf_path, why);
    if (!*conf->hook)
        return missing("hook", conf_path, why);
    words = calloc((size_t)argc + N_OPTIONS + 5, sizeof(*words));
    if (!words)
        return fail(why, ENOMEM, "try again", "out of memory");
    snprintf(options[0], OPTION_BYTES, "--socket=%s", conf->socket);
    snprintf(options[1], OPTION_BYTES, "--hook=%s", conf->hook);
    snprintf(options[2], OPTION_BYTES, "--log=%s", call->log ? call->log : "");
    snprintf(options[3], OPTION_BYTES, "--verb=%d", call->verb);
    words[n++] = conf->python;
    words[n++] = (char[]){"-ISs"};
    words[n++] = conf->main;
    for (int i = 0; i < N_OPTIONS; i++)
        words[n++] = options[i];
    words[n++] = (char[]){"--"};
    memcpy(words + n, argv, (size_t)argc * sizeof(*argv));
    execv(conf->python, words);
    error = errno;
    free(words);
    return fail(why, error, "install mgpu again, or set python there",
                "cannot start python %s, set in %s: %s", conf->python, conf_path, strerror(error));
}

/* Becomes the runtime if mgpud prepared the container. -EPERM with why filled if mgpud refuses it. 0 if
 * Python is to try, also when something fails here: the same process gets the same grant again. */
static int try_prepared(char **argv, const struct invocation *call, const struct conf *conf, char *runtime,
                        struct error *why)
{
    static struct preparation made;

    if (!*conf->socket || !*conf->hook || argv_checkpoints(argv, call))
        return 0;
    if (strcmp(argv[call->verb], "precreate") == 0) {
        int status = filter(argv + call->verb, conf, call->log);

        if (status >= 0)
            exit(status);
        return 0;
    }
    switch (prepare(argv + call->verb, conf, &made, why)) {
    case PREPARE_PASS:
        /* An earlier create may have rewritten the bundle under a grant that is gone. */
        if (made.file.rewritten)
            spec_file_restore(&made.file);
        exec_runtime(argv, runtime, why);
        return 0;
    case PREPARE_WRITE:
        if (spec_file_replace(&made.file, made.original, made.text)) {
            exec_runtime(argv, runtime, why);
            spec_file_restore(&made.file);
        }
        return 0;
    case PREPARE_REFUSE:
        return -EPERM;
    default:
        return 0;
    }
}

static int launch(int argc, char **argv, const struct invocation *call, const char *conf_path,
                  struct error *why)
{
    static struct conf conf;
    static char runtime[PATH_MAX];
    int error = conf_read(conf_path, &conf, why);

    if (!error)
        error = runtime_find(conf.runtime, conf_path, runtime, why);
    if (error)
        return error;
    if (!argv_is_ours(argc, argv, call))
        return exec_runtime(argv, runtime, why);
    argv[0] = runtime;
    error = try_prepared(argv, call, &conf, runtime, why);
    if (error)
        return error;
    return exec_python(argc, argv, call, &conf, conf_path, why);
}

int main(int argc, char **argv)
{
    static char name[] = "mgpu-runtime", *bare[] = {name, NULL};
    const char *conf_path = CONF_DEFAULT_PATH;
    struct invocation call;
    struct error why;

    if (argc == 0) {
        argc = 1;
        argv = bare;
    }
    if (argc > 1 && strncmp(argv[1], CONF_OPTION, strlen(CONF_OPTION)) == 0) {
        /* We are the interpreter of a script: the kernel puts the script's option and then its path first. */
        int own = argc > 2 ? 2 : 1;

        conf_path = argv[1] + strlen(CONF_OPTION);
        argc -= own;
        argv += own;
    }
    call = argv_read(argc, argv);
    launch(argc, argv, &call, conf_path, &why);
    report(&why, call.log);
    return 1;
}
