#ifndef MGPU_PACKET_H
#define MGPU_PACKET_H
#include <stdbool.h>
#include <stddef.h>

/* A JSON text that is put together. What does not fit, or no text of ours has, spoils it. */
struct packet {
    char *text;
    size_t bytes, capacity;
    bool overflow;
};

/* Puts JSON as it is. */
void packet_put(struct packet *packet, const char *json);

/* Puts a JSON string of printable ASCII; other characters spoil it. */
void packet_put_string(struct packet *packet, const char *text);
#endif
