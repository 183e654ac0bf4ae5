#include "packet.h"

#include <string.h>

static void put_bytes(struct packet *packet, const char *text, size_t bytes)
{
    if (packet->overflow || packet->capacity - packet->bytes < bytes) {
        packet->overflow = true;
        return;
    }
    memcpy(packet->text + packet->bytes, text, bytes);
    packet->bytes += bytes;
}

void packet_put(struct packet *packet, const char *json)
{
    put_bytes(packet, json, strlen(json));
}

void packet_put_string(struct packet *packet, const char *text)
{
    packet_put(packet, "\"");
    for (; *text; text++) {
        if (*text < 0x20 || *text > 0x7e)
            packet->overflow = true;
        if (*text == '"' || *text == '\\')
            packet_put(packet, "\\");
        put_bytes(packet, text, 1);
    }
    packet_put(packet, "\"");
}
