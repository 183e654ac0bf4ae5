#include "json.h"

#include <ctype.h>
#include <string.h>

/* Go and Python both go far deeper, but an OCI state and a reply do not. */
enum { MAX_DEPTH = 64 };

struct reader {
    const char *at, *end;
};

static bool read_value(struct reader *r, unsigned int depth);

static char peek(const struct reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static bool take(struct reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool read_hex4(struct reader *r, unsigned int *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        unsigned char c = (unsigned char)peek(r);

        if (!isxdigit(c))
            return false;
        *unit = *unit * 16 + (unsigned int)(isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return true;
}

static bool read_string(struct reader *r)
{
    unsigned int unit;

    if (!take(r, '"'))
        return false;
    while (r->at < r->end) {
        unsigned char c = (unsigned char)*r->at++;

        if (c == '"')
            return true;
        if (c < 0x20)
            return false;
        if (c != '\\')
            continue;
        if (r->at == r->end)
            return false;
        c = (unsigned char)*r->at++;
        if (c == 'u' ? !read_hex4(r, &unit) : !c || !strchr("\"\\/bfnrt", c))
            return false;
    }
    return false;
}

static bool read_digits(struct reader *r)
{
    const char *start = r->at;

    while (isdigit((unsigned char)peek(r)))
        r->at++;
    return r->at > start;
}

static bool read_number(struct reader *r)
{
    take(r, '-');
    if (!take(r, '0') && !read_digits(r))
        return false;
    if (take(r, '.') && !read_digits(r))
        return false;
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+'))
            take(r, '-');
        return read_digits(r);
    }
    return true;
}

static bool read_word(struct reader *r, const char *word)
{
    size_t bytes = strlen(word);

    if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0)
        return false;
    r->at += bytes;
    return true;
}

/* After the opening bracket: members up to and including the closing one. */
static bool read_members(struct reader *r, char close, unsigned int depth)
{
    skip_blanks(r);
    if (take(r, close))
        return true;
    do {
        skip_blanks(r);
        if (close == '}') {
            if (!read_string(r))
                return false;
            skip_blanks(r);
            if (!take(r, ':'))
                return false;
        }
        if (!read_value(r, depth))
            return false;
        skip_blanks(r);
    } while (take(r, ','));
    return take(r, close);
}

static bool read_value(struct reader *r, unsigned int depth)
{
    skip_blanks(r);
    if (depth == MAX_DEPTH)
        return false;
    switch (peek(r)) {
    case '{':
        r->at++;
        return read_members(r, '}', depth + 1);
    case '[':
        r->at++;
        return read_members(r, ']', depth + 1);
    case '"':
        return read_string(r);
    case 't':
        return read_word(r, "true");
    case 'f':
        return read_word(r, "false");
    case 'n':
        return read_word(r, "null");
    default:
        return read_number(r);
    }
}

bool json_is_object(struct slice text)
{
    struct reader r = {text.text, text.text + text.bytes};

    skip_blanks(&r);
    if (peek(&r) != '{' || !read_value(&r, 0))
        return false;
    skip_blanks(&r);
    return r.at == r.end;
}

struct slice json_member(struct slice object, const char *name)
{
    struct reader r = {object.text, object.text + object.bytes};
    struct slice found = {NULL, 0};
    size_t name_bytes = strlen(name);

    skip_blanks(&r);
    if (!take(&r, '{'))
        return found;
    do {
        const char *key, *value;
        bool same;

        skip_blanks(&r);
        key = r.at;
        if (!read_string(&r))
            break;
        same = (size_t)(r.at - key) == name_bytes + 2 && memcmp(key + 1, name, name_bytes) == 0;
        skip_blanks(&r);
        if (!take(&r, ':'))
            break;
        skip_blanks(&r);
        value = r.at;
        if (!read_value(&r, 1))
            break;
        if (same)
            found = (struct slice){value, (size_t)(r.at - value)};
        skip_blanks(&r);
    } while (take(&r, ','));
    return found;
}

struct slice json_item(struct slice array, struct slice last)
{
    const char *end = array.text ? array.text + array.bytes : NULL;
    struct reader r = {last.text ? last.text + last.bytes : array.text, end};
    struct slice none = {NULL, 0};
    const char *start;

    skip_blanks(&r);
    if (!take(&r, last.text ? ',' : '['))
        return none;
    skip_blanks(&r);
    start = r.at;
    if (!read_value(&r, 1))
        return none;
    return (struct slice){start, (size_t)(r.at - start)};
}

static size_t encode_utf8(unsigned int c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* The character of an escape, after its "\u". */
static unsigned int read_unicode(struct reader *r)
{
    unsigned int high = 0, low = 0;
    struct reader ahead;

    read_hex4(r, &high);
    ahead = *r;
    if (high >= 0xd800 && high < 0xdc00 && take(&ahead, '\\') && take(&ahead, 'u') &&
        read_hex4(&ahead, &low) && low >= 0xdc00 && low < 0xe000) {
        *r = ahead;
        return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    return high == 0 || (high >= 0xd800 && high < 0xe000) ? '?' : high;
}

static unsigned int read_escape(struct reader *r)
{
    char c = *r->at++;

    switch (c) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'u':
        return read_unicode(r);
    default:
        return (unsigned char)c;
    }
}

void json_string(struct slice value, char *text, size_t capacity)
{
    struct reader r = {value.text, value.text + value.bytes};
    size_t bytes = 0;

    text[0] = '\0';
    if (!value.text || !read_string(&r) || r.at != r.end)
        return;
    r = (struct reader){value.text + 1, value.text + value.bytes - 1};
    while (r.at < r.end) {
        char piece[4] = {*r.at++};
        size_t n = 1;

        if (piece[0] == '\\')
            n = encode_utf8(read_escape(&r), piece);
        if (bytes + n >= capacity)
            break;
        memcpy(text + bytes, piece, n);
        bytes += n;
    }
    text[bytes] = '\0';
}
