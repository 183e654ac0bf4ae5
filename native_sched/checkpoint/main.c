/* mgpu-checkpoint --libcuda PATH: CUDA's process checkpointing, for mgpud. One command a line on stdin, one
 * JSON object a line on stdout, in turn:
 *   lock PID TIMEOUT_MS    checkpoint PID    restore PID [OLD=NEW ...]    unlock PID    state PID
 *   {"state": "running"}   {"error": "CUDA_ERROR_ILLEGAL_STATE", "message": "..."}
 * OLD and NEW are UUIDs of GPUs. A process of its own, so that mgpud has no libcuda and can give up on a call
 * that does not return. What it was doing when it ended, `state` tells the next one. */
#define _GNU_SOURCE
#include "confine.h"
#include "libcuda.h"
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { WORDS_MAX = 36, PAIRS_MAX = 32, COMMAND_WORDS = 2 };

static struct libcuda libcuda;

struct command {
    char *word[WORDS_MAX];
    int words, pid;
};

/* Without control characters, quotes and backslashes, which no message of CUDA's has. */
static void say_text(const char *text)
{
    for (; *text; text++)
        putchar(*text < ' ' || *text == '"' || *text == '\\' ? ' ' : *text);
}

static void say_error(const char *name, const char *message)
{
    printf("{\"error\": \"");
    say_text(name);
    printf("\", \"message\": \"");
    say_text(message);
    printf("\"}\n");
}

static void say_result(int result)
{
    const char *name = NULL, *text = NULL;
    char number[32];

    snprintf(number, sizeof number, "CUDA_ERROR_%d", result);
    libcuda.error_name(result, &name);
    libcuda.error_text(result, &text);
    say_error(name ? name : number, text ? text : "an error that this libcuda does not name");
}

static void say_state(int pid)
{
    static const char *const names[] = {"running", "locked",        "checkpointed",
                                        "failed",  "checkpointing", "restoring"};
    int state = -1, result = libcuda.state(pid, &state);

    if (result)
        say_result(result);
    else
        printf("{\"state\": \"%s\"}\n",
               state >= 0 && state < (int)(sizeof names / sizeof names[0]) ? names[state] : "unknown");
}

static bool number(const char *word, long least, long most, long *value)
{
    char *end;

    errno = 0;
    *value = strtol(word, &end, 10);
    return !errno && end != word && !*end && *value >= least && *value <= most;
}

/* GPU-01234567-89ab-cdef-0123-456789abcdef */
static bool uuid(const char *word, size_t length, CUuuid *out)
{
    static const char pattern[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    int digits = 0;

    if (length != sizeof pattern - 1)
        return false;
    for (size_t i = 0; i < length; i++) {
        static const char hex[] = "0123456789abcdef";
        const char *digit = strchr(hex, word[i] | 0x20);

        if (pattern[i] != 'x') {
            if (word[i] != pattern[i])
                return false;
            continue;
        }
        if (!digit || !*digit)
            return false;
        out->bytes[digits / 2] = (uint8_t)(out->bytes[digits / 2] << 4 | (digit - hex));
        digits++;
    }
    return true;
}

static bool pair(const char *word, CUcheckpointGpuPair *out)
{
    const char *middle = strchr(word, '=');

    return middle && uuid(word, (size_t)(middle - word), &out->oldUuid) &&
           uuid(middle + 1, strlen(middle + 1), &out->newUuid);
}

static const char *lock(const struct command *command, int *result)
{
    CUcheckpointLockArgs args = {0};
    long timeout_ms;

    if (command->words != COMMAND_WORDS + 1 || !number(command->word[COMMAND_WORDS], 1, INT_MAX, &timeout_ms))
        return "lock takes a pid and the milliseconds to wait at most";
    args.timeoutMs = (unsigned int)timeout_ms;
    *result = libcuda.lock(command->pid, &args);
    return NULL;
}

static const char *restore(const struct command *command, int *result)
{
    CUcheckpointGpuPair pairs[PAIRS_MAX] = {0};
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs};

    for (int i = COMMAND_WORDS; i < command->words; i++)
        if (args.gpuPairsCount == PAIRS_MAX || !pair(command->word[i], &pairs[args.gpuPairsCount++]))
            return "restore takes a pid and pairs of GPUs' UUIDs, as GPU-...=GPU-...";
    *result = libcuda.restore(command->pid, args.gpuPairsCount ? &args : NULL);
    return NULL;
}

static const char *plain(const struct command *command, int (*call)(int pid, void *args), int *result)
{
    if (command->words != COMMAND_WORDS)
        return "this command takes a pid alone";
    *result = call ? call(command->pid, NULL) : 0;
    return NULL;
}

/* Why the command is none, or NULL. */
static const char *run(const struct command *command, int *result)
{
    const char *verb = command->word[0];

    if (!strcmp(verb, "lock"))
        return lock(command, result);
    if (!strcmp(verb, "checkpoint"))
        return plain(command, libcuda.checkpoint, result);
    if (!strcmp(verb, "restore"))
        return restore(command, result);
    if (!strcmp(verb, "unlock"))
        return plain(command, libcuda.unlock, result);
    if (!strcmp(verb, "state"))
        return plain(command, NULL, result);
    return "the commands are lock, checkpoint, restore, unlock and state";
}

static void answer(char *line)
{
    struct command command = {0};
    const char *wrong = NULL;
    char *rest = NULL;
    int result = 0;
    long pid;

    for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        if (command.words == WORDS_MAX)
            wrong = "too many words";
        else
            command.word[command.words++] = word;
    }
    if (!wrong && (command.words < COMMAND_WORDS || !number(command.word[1], 1, INT_MAX, &pid)))
        wrong = "a command and a pid are needed";
    if (!wrong) {
        command.pid = (int)pid;
        wrong = run(&command, &result);
    }
    if (wrong)
        say_error("INVALID_COMMAND", wrong);
    else if (result)
        say_result(result);
    else
        say_state(command.pid);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"libcuda", required_argument, NULL, 'l'}, {0}};
    const char *path = NULL, *why;
    char *line = NULL;
    size_t room = 0;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) == 'l')
        path = optarg;
    if (option != -1 || !path || optind != argc) {
        fprintf(stderr, "usage: mgpu-checkpoint --libcuda PATH\n");
        return 2;
    }
    why = confine();
    if (!why)
        why = libcuda_open(path, &libcuda);
    if (why) {
        fprintf(stderr, "mgpu-checkpoint: %s\n", why);
        return 1;
    }
    /* The next mgpud asks for states once nothing is under way any more. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getline(&line, &room, stdin) > 0)
        answer(line);
    free(line);
    return 0;
}
