/* NVDEC by libnvcuvid: what each codec is said to do, a decoder made and destroyed, and three frames of H.264
 * and a JPEG decoded through the parser, mapped and read. The structs are those of NVIDIA's cuviddec.h and
 * nvcuvid.h. */
#include "report.h"
#include "streams.h"

enum { H264 = 4, JPEG = 5, HEVC = 8, VP9 = 10, AV1 = 11 };
enum { CHROMA_420 = 1, NV12 = 0, WEAVE = 0, PREFER_CUVID = 4 };
enum { END_OF_STREAM = 1, TIMESTAMP = 2, END_OF_PICTURE = 8 };

struct caps {
    int codec, chroma;
    unsigned bit_depth_minus8, reserved1[3];
    unsigned char supported, engines;
    unsigned short output_formats;
    unsigned max_width, max_height, max_macroblocks;
    unsigned short min_width, min_height;
    unsigned char histogram, counter_bits;
    unsigned short max_bins;
    unsigned reserved3[10];
};

struct rectangle {
    short left, top, right, bottom;
};

struct create {
    unsigned long width, height, decode_surfaces;
    int codec, chroma;
    unsigned long flags, bit_depth_minus8, intra_only, max_width, max_height, reserved1;
    struct rectangle display_area;
    int output_format, deinterlace;
    unsigned long target_width, target_height, output_surfaces;
    void *lock;
    struct rectangle target;
    unsigned long histogram, reserved2[4];
};

struct format {
    int codec;
    unsigned rate_numerator, rate_denominator;
    unsigned char progressive, luma_depth_minus8, chroma_depth_minus8, min_surfaces;
    unsigned coded_width, coded_height;
    struct {
        int left, top, right, bottom;
    } display_area;
    int chroma;
    unsigned bit_rate;
    int aspect_x, aspect_y;
    unsigned char signal[4];
    unsigned header_bytes;
};

struct display {
    int picture, progressive, top_field_first, repeat_first_field;
    long long timestamp;
};

struct parser {
    int codec;
    unsigned max_surfaces, clock_rate, error_threshold, max_display_delay, bits, reserved1[4];
    void *user;
    int (*on_sequence)(void *, struct format *);
    int (*on_decode)(void *, void *);
    int (*on_display)(void *, struct display *);
    int (*on_point)(void *, void *);
    int (*on_message)(void *, void *);
    void *reserved2[5];
    void *extended;
};

struct packet {
    unsigned long flags, size;
    const unsigned char *data;
    long long timestamp;
};

struct process {
    int progressive, second_field, top_field_first, unpaired_field;
    unsigned reserved_flags, reserved_zero;
    unsigned long long raw_input;
    unsigned raw_input_pitch, raw_input_format;
    unsigned long long raw_output;
    unsigned raw_output_pitch, reserved1;
    void *stream;
    unsigned reserved[46];
    unsigned long long *histogram;
    void *reserved2[1];
};

typedef int (*caps_fn)(struct caps *);
typedef int (*create_fn)(void **, struct create *);
typedef int (*decode_fn)(void *, void *);
typedef int (*map_fn)(void *, int, unsigned long long *, unsigned *, struct process *);
typedef int (*unmap_fn)(void *, unsigned long long);
typedef int (*parser_fn)(void **, struct parser *);
typedef int (*parse_fn)(void *, struct packet *);

static struct {
    caps_fn caps;
    create_fn create;
    destroy_fn destroy, destroy_parser;
    decode_fn decode;
    map_fn map;
    unmap_fn unmap;
    parser_fn parser;
    parse_fn parse;
    copy_fn copy;
} api;

/* One stream on its way through the parser. */
struct run {
    const char *name;
    void *decoder;
    unsigned width, height, pitch;
    int decoded, shown, error;
    double mean;
};

static int failed(struct run *run, const char *call, int code)
{
    if (code && !run->error) {
        run->error = code;
        fail("%s %s: %d %s", run->name, call, code, cuda_name(code));
    }
    return code;
}

static int make(void **decoder, int codec, int chroma, unsigned width, unsigned height, unsigned surfaces)
{
    struct create info = {.width = width,
                          .height = height,
                          .decode_surfaces = surfaces,
                          .codec = codec,
                          .chroma = chroma,
                          .flags = PREFER_CUVID,
                          .max_width = width,
                          .max_height = height,
                          .display_area = {0, 0, (short)width, (short)height},
                          .output_format = NV12,
                          .deinterlace = WEAVE,
                          .target_width = width,
                          .target_height = height,
                          .output_surfaces = 2};

    return api.create(decoder, &info);
}

static int on_sequence(void *user, struct format *format)
{
    struct run *run = user;
    unsigned surfaces = format->min_surfaces < 4 ? 4 : format->min_surfaces;

    step = "cuvidCreateDecoder in the parser";
    if (run->decoder)
        return (int)surfaces;
    run->width = format->coded_width;
    run->height = format->coded_height;
    if (failed(run, "cuvidCreateDecoder",
               make(&run->decoder, format->codec, format->chroma, run->width, run->height, surfaces)))
        return 0;
    return (int)surfaces;
}

static int on_decode(void *user, void *picture)
{
    struct run *run = user;

    step = "cuvidDecodePicture";
    if (!run->decoder || failed(run, "cuvidDecodePicture", api.decode(run->decoder, picture)))
        return 0;
    run->decoded++;
    return 1;
}

static int on_display(void *user, struct display *display)
{
    struct run *run = user;
    struct process process = {0};
    unsigned long long frame = 0, sum = 0;
    unsigned char *pixels;
    unsigned pitch = 0;

    if (!display || !run->decoder)
        return 1;
    step = "cuvidMapVideoFrame64";
    process.progressive = display->progressive;
    process.top_field_first = display->top_field_first;
    process.unpaired_field = display->repeat_first_field < 0;
    if (failed(run, "cuvidMapVideoFrame64",
               api.map(run->decoder, display->picture, &frame, &pitch, &process)))
        return 0;
    run->pitch = pitch;
    pixels = calloc(run->height, pitch);
    step = "cuMemcpyDtoH";
    if (pixels && !failed(run, "cuMemcpyDtoH_v2", api.copy(pixels, frame, (size_t)pitch * run->height))) {
        for (unsigned y = 0; y < run->height; y++)
            for (unsigned x = 0; x < run->width; x++)
                sum += pixels[(size_t)y * pitch + x];
        run->mean = (double)sum / run->width / run->height;
        run->shown++;
    }
    free(pixels);
    step = "cuvidUnmapVideoFrame64";
    failed(run, "cuvidUnmapVideoFrame64", api.unmap(run->decoder, frame));
    return 1;
}

static void decode(const char *name, int codec, const unsigned char *data, size_t size, unsigned long flags)
{
    struct run run = {.name = name};
    struct parser params = {.codec = codec,
                            .max_surfaces = 4,
                            .error_threshold = 100,
                            .user = &run,
                            .on_sequence = on_sequence,
                            .on_decode = on_decode,
                            .on_display = on_display};
    struct packet packet = {.flags = TIMESTAMP | flags, .size = size, .data = data},
                  end = {.flags = END_OF_STREAM};
    void *parser = NULL;

    step = "cuvidCreateVideoParser";
    if (!failed(&run, "cuvidCreateVideoParser", api.parser(&parser, &params))) {
        step = "cuvidParseVideoData";
        failed(&run, "cuvidParseVideoData", api.parse(parser, &packet));
        failed(&run, "cuvidParseVideoData of the end", api.parse(parser, &end));
        step = "cuvidDestroyVideoParser";
        failed(&run, "cuvidDestroyVideoParser", api.destroy_parser(parser));
    }
    step = "cuvidDestroyDecoder";
    if (run.decoder)
        failed(&run, "cuvidDestroyDecoder", api.destroy(run.decoder));
    fact(
        "\"%s\": {\"code\": %d, \"size\": \"%ux%u\", \"pitch\": %u, \"decoded\": %d, \"shown\": %d, \"mean\": %.2f}",
        name, run.error, run.width, run.height, run.pitch, run.decoded, run.shown, run.mean);
    if (!run.error && !run.shown)
        fail("%s: no frame came", name);
    if (run.shown && (run.mean < 134 || run.mean > 142))
        fail("%s: mean %.2f, not 136 (H.264) or 140 (JPEG)", name, run.mean);
}

static void ask(const char *name, int codec)
{
    struct caps caps = {.codec = codec, .chroma = CHROMA_420};
    int code;

    step = "cuvidGetDecoderCaps";
    code = cuda("cuvidGetDecoderCaps", api.caps(&caps));
    fact(
        "\"caps_%s\": {\"code\": %d, \"supported\": %d, \"engines\": %d, \"max\": \"%ux%u\", \"min\": \"%ux%u\", "
        "\"formats\": %d}",
        name, code, caps.supported, caps.engines, caps.max_width, caps.max_height, caps.min_width,
        caps.min_height, caps.output_formats);
}

int main(void)
{
    void *cuvid, *decoder = NULL;
    int code;

    begin("decode");
    if (cuda_start())
        return finish();
    step = "libnvcuvid";
    cuvid = library("libnvcuvid.so.1");
    if (!cuvid) {
        cuda_stop();
        return finish();
    }
    take(&api.copy, cuda_library, "cuMemcpyDtoH_v2");
    take(&api.caps, cuvid, "cuvidGetDecoderCaps");
    take(&api.create, cuvid, "cuvidCreateDecoder");
    take(&api.destroy, cuvid, "cuvidDestroyDecoder");
    take(&api.decode, cuvid, "cuvidDecodePicture");
    take(&api.map, cuvid, "cuvidMapVideoFrame64");
    take(&api.unmap, cuvid, "cuvidUnmapVideoFrame64");
    take(&api.parser, cuvid, "cuvidCreateVideoParser");
    take(&api.parse, cuvid, "cuvidParseVideoData");
    take(&api.destroy_parser, cuvid, "cuvidDestroyVideoParser");
    if (first_error[0])
        return finish();
    ask("h264", H264);
    ask("hevc", HEVC);
    ask("vp9", VP9);
    ask("av1", AV1);
    ask("jpeg", JPEG);
    step = "cuvidCreateDecoder 640x480";
    code = cuda("cuvidCreateDecoder 640x480", make(&decoder, H264, CHROMA_420, 640, 480, 8));
    fact("\"create_640x480\": %d", code);
    step = "cuvidDestroyDecoder 640x480";
    if (!code)
        cuda("cuvidDestroyDecoder 640x480", api.destroy(decoder));
    decode("h264", H264, h264_data, sizeof(h264_data), 0);
    decode("jpeg", JPEG, jpeg_data, sizeof(jpeg_data), END_OF_PICTURE);
    cuda_stop();
    return finish();
}
