#ifndef MGPU_JSON_H
#define MGPU_JSON_H
#include <stdbool.h>
#include <stddef.h>

/* As much of JSON (RFC 8259) as the C programs need: checking, and picking members and items out. Nothing is
 * copied: a slice points into the text it came from. */
struct slice {
    const char *text;
    size_t bytes;
};

/* Whether text is exactly one JSON object, with nesting of at most 64 levels. UTF-8 is not checked. */
bool json_is_object(struct slice text);

/* The value of an object's member; the last one if the name is repeated, no text if there is none. The object
 * must have passed json_is_object. Names are compared as written: one spelt with escapes is not found. */
struct slice json_member(struct slice object, const char *name);

/* The item of an array after the item `last`, the first one after no text; no text after the last one, or if
 * it is no array. The array must be of an object that has passed json_is_object. */
struct slice json_item(struct slice array, struct slice last);

/* A JSON string's characters as UTF-8, cut to fit; "" if the value is not a string. NUL and lone surrogates
 * become '?'. */
void json_string(struct slice value, char *text, size_t capacity);
#endif
