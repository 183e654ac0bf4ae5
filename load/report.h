/* What a run says at its end: one JSON object, or lines for people. One after the other, in the order of the
 * calls. */
#ifndef MGPU_LOAD_REPORT_H
#define MGPU_LOAD_REPORT_H
#include <stdbool.h>
#include <stdint.h>

struct report {
    bool json;
    unsigned int depth;
    bool first; /* of its object */
};

void report_begin(struct report *report, bool json);
void report_end(struct report *report);
void report_whole(struct report *report, const char *name, uint64_t value);
void report_real(struct report *report, const char *name, double value); /* NAN: null */
void report_text(struct report *report, const char *name, const char *value);
/* What is reported until the close belongs together. A list's objects have no name. */
void report_open(struct report *report, const char *name);
void report_close(struct report *report);
void report_open_list(struct report *report, const char *name);
void report_close_list(struct report *report);
#endif
