#include "../../../base/clock.h"
#include "card.h"
#include <stdarg.h>
#include <unistd.h>

void card_log(struct card *card, const char *format, ...)
{
    va_list arguments;

    if (!card->log)
        return;
    fprintf(card->log, "%9.3f ", (double)(monotonic_ns() % UINT64_C(100000000000)) / 1e9);
    va_start(arguments, format);
    vfprintf(card->log, format, arguments);
    va_end(arguments);
    fputc('\n', card->log);
}

void card_report(struct card *card, const char *answer, bool made_up, const char *source)
{
    char line[512];
    int bytes;

    if (card->report < 0)
        return;
    bytes = snprintf(line, sizeof line, "{\"answer\":\"%s\",\"made_up\":%s,\"source\":\"%s\",\"at\":%llu}\n",
                     answer, made_up ? "true" : "false", source, (unsigned long long)++card->reported);
    if (bytes > 0 && (size_t)bytes < sizeof line)
        (void)!write(card->report, line, (size_t)bytes);
}
