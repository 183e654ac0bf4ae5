#include "stream.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the simulated card knows of a kernel is how long it takes. */
enum {
    DEFAULT_KERNEL_NS = 10 * 1000,
    NS_PER_US = 1000,
};
static const char SPIN_PREFIX[] = "mgpu_spin"; /* takes as many ns as its first parameter says */
static const uint32_t FATBIN_MAGIC = 0xba55ed50, FATBIN_WRAPPER_MAGIC = 0x466243b1;
static const char ELF_MAGIC[] = "\x7f"
                                "ELF";

struct CUmod_st {
    struct object object;
    char *ptx; /* NULL: compiled code, which has whatever function is asked for */
    struct CUfunc_st *functions;
};

struct CUfunc_st {
    struct object object;
    struct CUfunc_st *next;
    struct CUmod_st *module;
    struct function_settings settings;
    bool spins;
    char name[];
};

static void function_free(struct object *object)
{
    free(object);
}

static void module_free(struct object *object)
{
    struct CUmod_st *module = (struct CUmod_st *)object;

    free(module->ptx);
    free(module);
}

static bool is_compiled(const void *image)
{
    uint32_t magic;

    memcpy(&magic, image, sizeof magic);
    return magic == FATBIN_MAGIC || magic == FATBIN_WRAPPER_MAGIC || !memcmp(image, ELF_MAGIC, sizeof magic);
}

CUresult module_make(CUmodule *out, const void *image, CUcontext context)
{
    struct CUmod_st *module;

    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_compiled(image) && !strstr(image, ".version"))
        return CUDA_ERROR_INVALID_IMAGE;
    module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!is_compiled(image)) {
        module->ptx = strdup(image);
        if (!module->ptx) {
            free(module);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    object_add(&module->object, OBJECT_MODULE, context, module_free);
    *out = module;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int options, int *names,
                            void **values)
{
    CUcontext context;
    ENTRY entry = enter_context(&context);

    (void)options;
    (void)names;
    (void)values;
    return entry.error ? entry.error : module_make(module, image, context);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

/* As a string of its own: what is in it is text, or compiled code that is not looked into. */
static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t bytes = 0;

    if (!file)
        return NULL;
    if (getdelim(&text, &bytes, '\0', file) < (ssize_t)sizeof(uint32_t)) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    char *image = path ? read_whole(path) : NULL;
    CUresult error;

    if (!image)
        return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    error = cuModuleLoadDataEx(module, image, 0, NULL, NULL);
    free(image);
    return error;
}

CUresult cuModuleUnload(CUmodule handle)
{
    struct CUmod_st *module;
    ENTER(entry, enter());

    module = (struct CUmod_st *)object_find(handle, OBJECT_MODULE);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    while (module->functions) {
        struct CUfunc_st *function = module->functions;

        module->functions = function->next;
        object_remove(&function->object);
    }
    object_remove(&module->object);
    return CUDA_SUCCESS;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static bool has_entry(const char *ptx, const char *name)
{
    static const char directive[] = ".entry";
    size_t length = strlen(name);

    while ((ptx = strstr(ptx, directive))) {
        ptx += strlen(directive);
        ptx += strspn(ptx, " \t\r\n");
        if (!strncmp(ptx, name, length) && !is_name(ptx[length]))
            return true;
    }
    return false;
}

static struct CUfunc_st *function_add(struct CUmod_st *module, const char *name)
{
    size_t length = strlen(name) + 1;
    struct CUfunc_st *function = calloc(1, sizeof *function + length);

    if (!function)
        return NULL;
    object_add(&function->object, OBJECT_FUNCTION, module->object.context, function_free);
    function->module = module;
    function->spins = !strncmp(name, SPIN_PREFIX, strlen(SPIN_PREFIX));
    memcpy(function->name, name, length);
    function->next = module->functions;
    module->functions = function;
    return function;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    struct CUfunc_st *function;
    struct CUmod_st *module;
    ENTER(entry, enter());

    if (!out || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    module = (struct CUmod_st *)object_find(handle, OBJECT_MODULE);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (module->ptx && !has_entry(module->ptx, name))
        return CUDA_ERROR_NOT_FOUND;
    for (function = module->functions; function; function = function->next)
        if (!strcmp(function->name, name))
            break;
    *out = function ? function : function_add(module, name);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Kernels have no variables. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule handle, const char *name)
{
    ENTRY entry = enter();

    (void)pointer;
    (void)bytes;
    if (entry.error)
        return entry.error;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    return object_find(handle, OBJECT_MODULE) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
    ENTER(entry, enter());

    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function_find(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *name = handle->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle)
{
    ENTER(entry, enter());

    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function_find(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *module = handle->module;
    return CUDA_SUCCESS;
}

struct function_settings *function_settings(CUfunction handle)
{
    return &handle->settings;
}

const struct CUfunc_st *function_find(CUfunction handle)
{
    return (const struct CUfunc_st *)object_find(handle, OBJECT_FUNCTION);
}

static const void *first_of_extra(void **extra)
{
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            return extra[1];
    return NULL;
}

static uint64_t default_duration_ns(void)
{
    const char *us = getenv("MGPU_SIM_KERNEL_US");

    return us ? strtoull(us, NULL, 10) * NS_PER_US : DEFAULT_KERNEL_NS;
}

static bool is_shape(const unsigned int size[3])
{
    return size[0] && size[1] && size[2];
}

CUresult function_command(const struct CUfunc_st *function, const struct launch *launch,
                          struct sim_command *command)
{
    const void *first;

    if (!is_shape(launch->grid) || !is_shape(launch->block) ||
        (uint64_t)launch->block[0] * launch->block[1] * launch->block[2] > MAX_THREADS_PER_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    *command = (struct sim_command){.op = SIM_CMD_KERNEL};
    if (!function->spins) {
        command->a = default_duration_ns();
        return CUDA_SUCCESS;
    }
    first = launch->params ? launch->params[0] : launch->extra ? first_of_extra(launch->extra) : NULL;
    if (!first)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&command->a, first, sizeof command->a);
    return CUDA_SUCCESS;
}
