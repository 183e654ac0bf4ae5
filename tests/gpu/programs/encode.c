/* NVENC by libnvidia-encode. An H100 has none, so opening a session is refused there: with a code of 1 or 2
 * that is what was expected, and no error. The structs are those of NVIDIA's nvEncodeAPI.h. */
#include "report.h"
#include <stdint.h>

struct session {
    uint32_t version, device_type;
    void *device, *reserved;
    uint32_t api_version, reserved1[253];
    void *reserved2[64];
};

struct functions {
    uint32_t version, reserved;
    void *call[512];
};

enum { GUID_COUNT = 1, DESTROY = 27, OPEN_EX = 29 };
enum { DEVICE_CUDA = 1, NO_ENCODE_DEVICE = 1, UNSUPPORTED_DEVICE = 2 };

typedef int (*version_fn)(uint32_t *);
typedef int (*instance_fn)(struct functions *);
typedef int (*open_fn)(struct session *, void **);
typedef int (*count_fn)(void *, uint32_t *);

static uint32_t structure(uint32_t api, uint32_t version)
{
    return api | version << 16 | 7u << 28;
}

int main(void)
{
    static struct functions functions;
    static struct session session;
    uint32_t newest = 0, api, count = 0;
    void *encode, *encoder = NULL;
    instance_fn instance;
    version_fn ask;
    int code;

    begin("encode");
    if (cuda_start())
        return finish();
    step = "libnvidia-encode";
    encode = library("libnvidia-encode.so.1");
    if (!encode) {
        cuda_stop();
        return finish();
    }
    take(&ask, encode, "NvEncodeAPIGetMaxSupportedVersion");
    take(&instance, encode, "NvEncodeAPICreateInstance");
    if (first_error[0])
        return finish();
    step = "NvEncodeAPIGetMaxSupportedVersion";
    code = ask(&newest);
    fact("\"version_code\": %d, \"version\": \"%u.%u\"", code, newest >> 4, newest & 15);
    if (code)
        fail("NvEncodeAPIGetMaxSupportedVersion: %d", code);
    /* The layouts here are those of 13.0; an older library gets its own number. */
    if (newest > (13 << 4))
        newest = 13 << 4;
    api = (newest >> 4) | (newest & 15) << 24;
    functions.version = structure(api, 2);
    step = "NvEncodeAPICreateInstance";
    code = instance(&functions);
    fact("\"instance\": %d", code);
    if (code || !functions.call[OPEN_EX]) {
        fail("NvEncodeAPICreateInstance: %d", code);
    } else {
        session.version = structure(api, 1);
        session.device_type = DEVICE_CUDA;
        session.device = cuda_context;
        session.api_version = api;
        step = "nvEncOpenEncodeSessionEx";
        code = ((open_fn)functions.call[OPEN_EX])(&session, &encoder);
        fact("\"open\": %d, \"expected\": %s", code,
             code == NO_ENCODE_DEVICE || code == UNSUPPORTED_DEVICE ? "true" : "false");
        if (!code) {
            step = "nvEncGetEncodeGUIDCount";
            code = ((count_fn)functions.call[GUID_COUNT])(encoder, &count);
            fact("\"guids\": %u, \"guids_code\": %d", count, code);
        } else if (code != NO_ENCODE_DEVICE && code != UNSUPPORTED_DEVICE) {
            fail("nvEncOpenEncodeSessionEx: %d", code);
        }
        step = "nvEncDestroyEncoder";
        if (encoder)
            fact("\"destroy\": %d", ((destroy_fn)functions.call[DESTROY])(encoder));
    }
    cuda_stop();
    return finish();
}
