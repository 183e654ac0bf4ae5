#include "report.h"
#include <math.h>
#include <stdio.h>

void report_begin(struct report *report, bool json)
{
    *report = (struct report){.json = json, .first = true};
    if (json)
        putchar('{');
}

void report_end(struct report *report)
{
    if (report->json)
        putchar('}');
    putchar('\n');
    fflush(stdout);
}

/* Top-level facts for people are a line each; what belongs together shares one. */
static void key(struct report *report, const char *name)
{
    if (report->json) {
        fputs(report->first ? "" : ", ", stdout);
        if (name)
            printf("\"%s\": ", name);
    } else if (!name) {
        fputs("\n  ", stdout);
    } else if (report->depth) {
        printf("%s%s ", report->first ? "" : ", ", name);
    } else {
        printf("%s%s: ", report->first ? "" : "\n", name);
    }
    report->first = false;
}

void report_whole(struct report *report, const char *name, uint64_t value)
{
    key(report, name);
    printf("%llu", (unsigned long long)value);
}

void report_real(struct report *report, const char *name, double value)
{
    key(report, name);
    if (isfinite(value))
        printf("%.3f", value);
    else
        fputs(report->json ? "null" : "unknown", stdout);
}

void report_text(struct report *report, const char *name, const char *value)
{
    key(report, name);
    if (!report->json) {
        fputs(value, stdout);
        return;
    }
    putchar('"');
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            printf("\\%c", *value);
        else if ((unsigned char)*value < ' ')
            printf("\\u%04x", (unsigned char)*value);
        else
            putchar(*value);
    }
    putchar('"');
}

static void open_with(struct report *report, const char *name, char bracket)
{
    key(report, name);
    if (report->json)
        putchar(bracket);
    report->first = true;
    report->depth++;
}

static void close_with(struct report *report, char bracket)
{
    if (report->json)
        putchar(bracket);
    report->first = false;
    report->depth--;
}

void report_open(struct report *report, const char *name)
{
    open_with(report, name, '{');
}

void report_close(struct report *report)
{
    close_with(report, '}');
}

void report_open_list(struct report *report, const char *name)
{
    open_with(report, name, '[');
}

void report_close_list(struct report *report)
{
    close_with(report, ']');
}
