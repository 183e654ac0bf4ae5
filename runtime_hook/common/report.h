#ifndef MGPU_REPORT_H
#define MGPU_REPORT_H

/* Why something is refused: what happened, and what to do about it. Both are cut, never overrun. */
struct error {
    char message[4096];
    char hint[2048];
};

/* Fills why and returns -error, so that a caller can `return complain(...)`. */
int fail(struct error *why, int error, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Writes "mgpu: MESSAGE; HINT" as one line to stderr and, unless log is NULL, appends it to the file log as
 * {"level":"error","msg":…,"time":…}: engines show that word for word and drop what is on stderr. */
void report(const struct error *why, const char *log);

/* Writes that line to the end of a file that is there, unless it is stderr. */
void report_line(const struct error *why, const char *path);
#endif
