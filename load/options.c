#include "options.h"
#include "cuda.h"
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LONGEST_S = 1e6;
static const uint64_t MOST = 1000 * 1000 * 1000;

enum letter {
    PERIOD = 'p',
    KERNELS = 'k',
    KERNEL_US = 'u',
    REQUESTS = 'n',
    SECONDS = 's',
    DEVICE = 'd',
    SAVE = 'S',
    AGAINST = 'A',
    STAMPS = 'T',
    OUTPUT = 'o',
    QUEUE = 'q',
    STREAMS = 't',
    LINKED = 'l',
    MIB = 'm',
    HOLD = 'H',
    HELP = 'h',
};

static const struct option names[] = {
    {"period-ms", required_argument, NULL, PERIOD},
    {"kernels", required_argument, NULL, KERNELS},
    {"kernel-us", required_argument, NULL, KERNEL_US},
    {"requests", required_argument, NULL, REQUESTS},
    {"seconds", required_argument, NULL, SECONDS},
    {"device", required_argument, NULL, DEVICE},
    {"save", required_argument, NULL, SAVE},
    {"against", required_argument, NULL, AGAINST},
    {"stamps", required_argument, NULL, STAMPS},
    {"output", required_argument, NULL, OUTPUT},
    {"queue", required_argument, NULL, QUEUE},
    {"streams", required_argument, NULL, STREAMS},
    {"linked", no_argument, NULL, LINKED},
    {"mib", required_argument, NULL, MIB},
    {"hold-ms", required_argument, NULL, HOLD},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static const char *name_of(int letter)
{
    const struct option *option = names;

    while (option->val != letter)
        option++;
    return option->name;
}

__attribute__((noreturn, format(printf, 2, 3))) static void mistake(const struct mode *mode,
                                                                    const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "mgpu-load %s: ", mode->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, " (mgpu-load %s --help)\n", mode->name);
    exit(STATUS_USAGE);
}

static double real(const struct mode *mode, int letter, double least, double most)
{
    char *end;
    double value = strtod(optarg, &end);

    if (end == optarg || *end || !(value >= least && value <= most))
        mistake(mode, "--%s is a number from %g to %g, not \"%s\"", name_of(letter), least, most, optarg);
    return value;
}

static uint64_t whole(const struct mode *mode, int letter, uint64_t least, uint64_t most)
{
    char *end;
    uint64_t value = strtoull(optarg, &end, 10);

    if (*optarg < '0' || *optarg > '9' || *end || value < least || value > most)
        mistake(mode, "--%s is a whole number from %llu to %llu, not \"%s\"", name_of(letter),
                (unsigned long long)least, (unsigned long long)most, optarg);
    return value;
}

static void read_devices(const struct mode *mode, struct options *options)
{
    const char *at = optarg;

    options->device_count = 0;
    do {
        char *end;
        long number = strtol(at, &end, 10);

        if (*at < '0' || *at > '9' || number >= DEVICES_MAX || options->device_count == DEVICES_MAX)
            mistake(mode, "--device is a number, or several with commas between, not \"%s\"", optarg);
        options->devices[options->device_count++] = (int)number;
        at = end;
    } while (*at++ == ',');
    if (at[-1])
        mistake(mode, "--device is a number, or several with commas between, not \"%s\"", optarg);
}

static void take(const struct mode *mode, struct options *options, int letter)
{
    switch (letter) {
    case PERIOD:
        options->period_ms = real(mode, letter, 0, LONGEST_S * 1e3);
        break;
    case KERNELS:
        options->kernels = whole(mode, letter, 1, MOST);
        break;
    case KERNEL_US:
        options->kernel_us = real(mode, letter, 0.001, LONGEST_S * 1e6);
        break;
    case REQUESTS:
        options->requests = whole(mode, letter, 1, MOST);
        break;
    case SECONDS:
        options->seconds = real(mode, letter, 0.001, LONGEST_S);
        break;
    case DEVICE:
        read_devices(mode, options);
        break;
    case SAVE:
        options->save = optarg;
        break;
    case AGAINST:
        options->against = optarg;
        break;
    case STAMPS:
        options->stamps = optarg;
        break;
    case OUTPUT:
        if (strcmp(optarg, "json"))
            mistake(mode, "-o is \"json\", not \"%s\"", optarg);
        options->json = true;
        break;
    case QUEUE:
        options->queue = whole(mode, letter, 1, 1024);
        break;
    case STREAMS:
        options->streams = whole(mode, letter, 1, STREAMS_MAX);
        break;
    case LINKED:
        options->linked = true;
        break;
    case MIB:
        options->mib = whole(mode, letter, 1, MOST);
        break;
    case HOLD:
        options->hold_ms = real(mode, letter, 0, LONGEST_S * 1e3);
        break;
    case HELP:
        fputs(mode->help, stdout);
        exit(0);
    }
}

struct options options_parse(const struct mode *mode, int argc, char **argv)
{
    struct options options = {.queue = 4, .streams = 1, .device_count = 1};
    char given[128] = "";
    int letter;

    opterr = 0;
    while ((letter = getopt_long(argc, argv, ":o:", names, NULL)) != -1) {
        if (letter == ':')
            mistake(mode, "%s needs a value", argv[optind - 1]);
        if (letter == '?' || (letter != HELP && letter != OUTPUT && !strchr(mode->letters, letter)))
            mistake(mode, "unknown option %s", letter == '?' ? argv[optind - 1] : name_of(letter));
        take(mode, &options, letter);
        given[letter] = 1;
    }
    if (optind < argc)
        mistake(mode, "what is \"%s\"?", argv[optind]);
    for (const char *need = mode->needs; *need; need++)
        if (!given[(int)*need])
            mistake(mode, "--%s is missing", name_of(*need));
    if (options.device_count > 1 && !strchr(mode->letters, LINKED))
        mistake(mode, "takes one device");
    if (options.linked && options.device_count < 2)
        mistake(mode, "--linked needs several devices");
    return options;
}
