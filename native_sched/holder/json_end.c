#include "json_end.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool json_end_feed(struct json_end *j, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && !j->broken; i++) {
        char c = text[i];

        if (j->in_string) {
            if (j->escaped)
                j->escaped = false;
            else if (c == '\\')
                j->escaped = true;
            else if (c == '"')
                j->in_string = false;
        } else if (c == '{' || c == '[') {
            j->broken = (j->depth == 0 && c == '[') || j->depth == JSON_DEPTH_MAX;
            j->depth++;
        } else if (j->depth == 0) {
            j->broken = !is_space(c);
        } else if (c == '"') {
            j->in_string = true;
        } else if ((c == '}' || c == ']') && --j->depth == 0) {
            return true;
        }
    }
    return false;
}
