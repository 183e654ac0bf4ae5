/* A program's report, a line of JSON, at its end or when its alarm rings (PROGRAM_LIMIT seconds, 8 without
 * it); and libcuda with a context. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char line[8192], first_error[512];
static const char *step = "start";

static __attribute__((format(printf, 1, 2))) void fact(const char *format, ...)
{
    size_t used = strlen(line);
    va_list list;

    va_start(list, format);
    used += (size_t)snprintf(line + used, sizeof(line) - used, ", ");
    if (used < sizeof(line))
        vsnprintf(line + used, sizeof(line) - used, format, list);
    va_end(list);
}

static __attribute__((format(printf, 1, 2))) void fail(const char *format, ...)
{
    va_list list;

    if (first_error[0])
        return;
    va_start(list, format);
    vsnprintf(first_error, sizeof(first_error), format, list);
    va_end(list);
    for (char *c = first_error; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            *c = '\'';
}

static void say(const char *name)
{
    char out[9216];
    int size = snprintf(out, sizeof(out), "{\"program\": \"%s\", \"ok\": %s, \"error\": \"%s\"%s}\n", name,
                        first_error[0] ? "false" : "true", first_error, line);

    if (size >= (int)sizeof(out))
        size = sizeof(out) - 1;
    if (write(1, out, (size_t)size) < 0)
        _exit(1);
}

static const char *program = "?";

static void ring(int number)
{
    (void)number;
    fail("hung in %s", step);
    say(program);
    _exit(1);
}

static void begin(const char *name)
{
    const char *limit = getenv("PROGRAM_LIMIT");
    int seconds = limit ? atoi(limit) : 8;

    program = name;
    signal(SIGALRM, ring);
    alarm(seconds > 0 ? (unsigned)seconds : 8);
}

static int finish(void)
{
    say(program);
    return first_error[0] ? 1 : 0;
}

/* The library under one of its names, or NULL and the error. */
static void *library(const char *name)
{
    static const char *const folders[] = {"", "/usr/local/nvidia/lib64/", "/usr/local/nvidia/lib/",
                                          "/usr/lib/x86_64-linux-gnu/"};
    char path[512], why[256] = "";
    void *found;

    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        snprintf(path, sizeof(path), "%s%s", folders[i], name);
        found = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (found)
            return found;
        if (!i)
            snprintf(why, sizeof(why), "%s", dlerror());
    }
    fail("dlopen %s", why);
    return NULL;
}

/* Into a pointer to a function; NULL and the error if the library has it not. */
static void take(void *function, void *library, const char *name)
{
    void *found = dlsym(library, name);

    memcpy(function, &found, sizeof(found));
    if (!found)
        fail("no %s", name);
}

typedef int (*int_fn)(int);
typedef int (*context_fn)(void **, unsigned, int);
typedef int (*destroy_fn)(void *);
typedef int (*copy_fn)(void *, unsigned long long, size_t);
typedef int (*name_fn)(int, const char **);

static name_fn error_name;

static const char *cuda_name(int code)
{
    const char *text = NULL;

    if (!error_name || error_name(code, &text) || !text)
        return "?";
    return text;
}

/* 0, or CUDA's code after the first error was noted. */
static int cuda(const char *name, int code)
{
    if (code)
        fail("%s: %d %s", name, code, cuda_name(code));
    return code;
}

static void *cuda_library, *cuda_context;
static destroy_fn cuda_destroy;

/* 0 with a context on card 0. */
static int cuda_start(void)
{
    context_fn create;
    int_fn init;

    step = "libcuda";
    cuda_library = library("libcuda.so.1");
    if (!cuda_library)
        return -1;
    take(&error_name, cuda_library, "cuGetErrorName");
    take(&cuda_destroy, cuda_library, "cuCtxDestroy_v2");
    take(&init, cuda_library, "cuInit");
    take(&create, cuda_library, "cuCtxCreate_v2");
    if (first_error[0])
        return -1;
    step = "cuInit";
    if (cuda("cuInit", init(0)))
        return -1;
    step = "cuCtxCreate";
    return cuda("cuCtxCreate_v2", create(&cuda_context, 0, 0)) ? -1 : 0;
}

static void cuda_stop(void)
{
    step = "cuCtxDestroy";
    if (cuda_context)
        cuda("cuCtxDestroy_v2", cuda_destroy(cuda_context));
}
