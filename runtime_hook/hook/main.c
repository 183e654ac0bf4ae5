/* mgpu-hook: tells mgpud that a granted container is there (bind, before its process starts) and that it is
 * gone (release, after it ended). It runs in the host's namespaces as root, even where /proc/<pid>/root looks
 * like the container's, so it writes nothing anywhere. */
#include "runtime_hook/common/control.h"
#include "runtime_hook/common/json.h"
#include "runtime_hook/common/report.h"
#include "state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef HOOK_TIMEOUT_S
#define HOOK_TIMEOUT_S 10
#endif
enum { NONCE_CHARS = 32, ENVELOPE_MAX_BYTES = 128 };

struct call {
    const char *verb, *socket, *nonce;
};

static int read_arguments(int argc, char **argv, struct call *call, struct error *why)
{
    static const char usage[] = "usage: mgpu-hook bind|release --socket PATH --grant NONCE";

    *call = (struct call){.verb = argc > 1 ? argv[1] : ""};
    if (strcmp(call->verb, "bind") != 0 && strcmp(call->verb, "release") != 0)
        return fail(why, EINVAL, usage, "\"%s\" is not a verb of mgpu-hook", call->verb);
    for (int i = 2; i < argc; i += 2) {
        const char **value = strcmp(argv[i], "--socket") == 0  ? &call->socket
                             : strcmp(argv[i], "--grant") == 0 ? &call->nonce
                                                               : NULL;

        if (!value || i + 1 == argc)
            return fail(why, EINVAL, usage, "bad argument \"%s\"", argv[i]);
        *value = argv[i + 1];
    }
    if (!call->socket || !call->nonce)
        return fail(why, EINVAL, usage, "--socket or --grant is missing");
    if (strlen(call->nonce) != NONCE_CHARS || strspn(call->nonce, "0123456789abcdef") != NONCE_CHARS)
        return fail(why, EINVAL, usage, "\"%s\" is not a grant: %d hexadecimal digits", call->nonce,
                    NONCE_CHARS);
    return 0;
}

static int read_reply(struct slice reply, struct error *why)
{
    struct slice ok, error;

    if (!json_is_object(reply))
        return fail(why, EBADMSG, "see what mgpud logs", "mgpud's reply is not a JSON object (%zu bytes)",
                    reply.bytes);
    ok = json_member(reply, "ok");
    if (ok.bytes == 4 && memcmp(ok.text, "true", 4) == 0)
        return 0;
    error = json_member(reply, "error");
    json_string(json_member(error, "message"), why->message, sizeof(why->message));
    json_string(json_member(error, "hint"), why->hint, sizeof(why->hint));
    if (!*why->message)
        return fail(why, EPROTO, "see what mgpud logs", "mgpud refused and did not say why");
    return -EPERM;
}

static int tell(const struct call *call, struct error *why)
{
    static char request[CONTROL_MAX_BYTES], reply[CONTROL_MAX_BYTES];
    static char text[CONTROL_MAX_BYTES - ENVELOPE_MAX_BYTES];
    struct slice state;
    int error = state_read(STDIN_FILENO, text, sizeof(text), HOOK_TIMEOUT_S, &state, why);
    ssize_t n;

    if (error)
        return error;
    n = snprintf(request, sizeof(request), "{\"version\":1,\"verb\":\"%s\",\"nonce\":\"%s\",\"state\":%.*s}",
                 call->verb, call->nonce, (int)state.bytes, state.text);
    n = control_call(call->socket, request, (size_t)n, reply, HOOK_TIMEOUT_S, why);
    if (n < 0)
        return (int)n;
    return read_reply((struct slice){reply, (size_t)n}, why);
}

int main(int argc, char **argv)
{
    struct error why;
    struct call call;
    int error = read_arguments(argc, argv, &call, &why);

    if (error) {
        report(&why, NULL);
        return 1;
    }
    if (!tell(&call, &why))
        return 0;
    report(&why, NULL);
    /* A container that is gone must go: mgpud finds out by itself, and a failing poststop hook would make the
     * engine keep what is left of it. */
    return strcmp(call.verb, "release") == 0 ? 0 : 1;
}
