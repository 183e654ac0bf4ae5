#ifndef MGPU_SPEC_FILE_H
#define MGPU_SPEC_FILE_H
#include "runtime_hook/common/json.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* A bundle's spec, as runtime_hook/bundle.py reads, replaces and restores it. */
struct spec_file {
    char path[PATH_MAX];
    struct stat status;
    bool rewritten; /* by an earlier create: its original is kept beside it */
};

/* Reads the plain file file->path whole into text; its length, or 0 if unreadable, empty or too large. */
size_t spec_file_read(struct spec_file *file, char *text, size_t capacity);

/* The same of the original that is kept beside a file that was rewritten, which the file is marked as. */
size_t spec_file_read_kept(struct spec_file *file, char *text, size_t capacity);

/* Puts a new text in the file's place, in one step and with its mode and owner, and keeps the original beside
 * it. On false nothing is changed. */
bool spec_file_replace(const struct spec_file *file, struct slice original, struct slice text);

/* Puts the original back in its place. */
void spec_file_restore(const struct spec_file *file);
#endif
