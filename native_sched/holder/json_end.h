#ifndef MGPU_JSON_END_H
#define MGPU_JSON_END_H
#include <stdbool.h>
#include <stddef.h>

enum { JSON_DEPTH_MAX = 64 }; /* a runtime's message has 4 levels; parsers end at a thousand or so */

/* Scans a byte stream for the end of one JSON object without understanding it: the runtime keeps its
 * connection open after the message, so that reading on would wait for ever. */
struct json_end {
    unsigned int depth;
    bool in_string, escaped, broken;
};

/* Feeds bytes; true once the object is complete. broken is set when it cannot be one. */
bool json_end_feed(struct json_end *j, const char *text, size_t bytes);
#endif
