#define _GNU_SOURCE
#include "prepare.h"

#include "base/scoped.h"
#include "runtime_hook/common/connection.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { PACKET_MAX_BYTES = 128 * 1024, PATHS_MAX = 64 };
/* Holds the original, then what the mount sources are. */
enum { QUESTIONS_MAX = 2 };
/* The limit of each step. Python would not help with a busy mgpud: it would ask once more. */
enum { TIMEOUT_S = 10 };
enum { AGAIN_US = 50 * 1000, TRIES = 40 };

static char spec[PREPARE_SPEC_MAX_BYTES];

static bool is_bundle(const char *word, size_t bytes)
{
    return (bytes == 6 && memcmp(word, "bundle", 6) == 0) || (bytes == 1 && *word == 'b');
}

bool prepare_config(char *const *words, const char *folder, char config[PATH_MAX])
{
    const char *bundle = "";
    int n;

    for (; *words && strcmp(*words, "--") != 0; words++) {
        const char *name = *words + strspn(*words, "-");
        size_t bytes = strcspn(name, "=");

        if (name == *words || !is_bundle(name, bytes))
            continue;
        if (name[bytes])
            bundle = name + bytes + 1;
        else if (words[1])
            bundle = *++words;
    }
    n = snprintf(config, PATH_MAX, "%s%s%s/config.json", *bundle == '/' ? "" : folder,
                 *bundle && *bundle != '/' ? "/" : "", bundle);
    return n < PATH_MAX;
}

static bool is_true(struct slice value)
{
    return value.bytes == 4 && memcmp(value.text, "true", 4) == 0;
}

static bool is_word(struct slice value, const char *word)
{
    return value.bytes == strlen(word) + 2 && memcmp(value.text + 1, word, value.bytes - 2) == 0 &&
           *value.text == '"';
}

/* Whole, or not at all: a refusal is not to be cut. */
static bool take_text(struct slice value, char *text, size_t capacity)
{
    if (value.bytes < 2 || value.bytes > capacity)
        return false;
    json_string(value, text, capacity);
    return *text;
}

static size_t read_length(struct slice value)
{
    char digits[8] = "";

    if (value.bytes == 0 || value.bytes >= sizeof(digits))
        return 0;
    memcpy(digits, value.text, value.bytes);
    if (strspn(digits, "0123456789") != value.bytes)
        return 0;
    return strtoul(digits, NULL, 10);
}

struct prepare_reply prepare_read(struct slice text, struct error *why)
{
    struct prepare_reply reply = {.answer = PREPARE_FALLBACK};
    struct slice version, ok, action, error;

    if (!json_is_object(text))
        return reply;
    version = json_member(text, "version");
    ok = json_member(text, "ok");
    action = json_member(text, "action");
    if (version.bytes != 1 || *version.text != '1' || !is_true(ok))
        return reply;
    if (is_word(action, "pass")) {
        reply.answer = PREPARE_PASS;
    } else if (is_word(action, "original")) {
        reply.wants_kept = true;
    } else if (is_word(action, "look")) {
        reply.paths = json_member(text, "paths");
    } else if (is_word(action, "write")) {
        reply.bytes = read_length(json_member(text, "bytes"));
        if (reply.bytes > 0 && reply.bytes <= PREPARE_TEXT_MAX_BYTES)
            reply.answer = PREPARE_WRITE;
    } else if (is_word(action, "refuse")) {
        error = json_member(text, "error");
        if (error.text && *error.text == '{' &&
            take_text(json_member(error, "message"), why->message, sizeof(why->message)) &&
            take_text(json_member(error, "hint"), why->hint, sizeof(why->hint)))
            reply.answer = PREPARE_REFUSE;
        reply.again = is_true(json_member(text, "again"));
    }
    return reply;
}

/* The major of the character device at path, -1 for anything else. */
static long major_of(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISCHR(status.st_mode) ? (long)major(status.st_rdev) : -1;
}

void prepare_look(struct slice paths, struct packet *found)
{
    char path[PATH_MAX], real[PATH_MAX], major[32];
    int n = 0;

    packet_put(found, "{\"found\":[");
    for (struct slice at = json_item(paths, (struct slice){NULL, 0}); at.text && !found->overflow;
         at = json_item(paths, at)) {
        /* A missing file has no real path: Python reports it. */
        if (n == PATHS_MAX || !take_text(at, path, sizeof(path)) || *path != '/' || !realpath(path, real)) {
            found->overflow = true;
            break;
        }
        packet_put(found, n++ ? ",[" : "[");
        packet_put_string(found, real);
        snprintf(major, sizeof(major), ",%ld]", major_of(real));
        packet_put(found, major);
    }
    packet_put(found, "]}");
}

static bool tell(int fd, const char *text, size_t bytes)
{
    return send(fd, text, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* One packet that fits; its length, or 0. */
static size_t receive(int fd, char *text, size_t capacity)
{
    ssize_t n = recv(fd, text, capacity, MSG_TRUNC);

    return n > 0 && (size_t)n <= capacity ? (size_t)n : 0;
}

static void put_request(struct packet *request, char *const *words, const char *folder, const char *config,
                        const char *hook, pid_t runtime_pid)
{
    char number[32];

    packet_put(request, "{\"version\":1,\"verb\":\"prepare\",\"words\":[");
    for (char *const *word = words; *word; word++) {
        if (word != words)
            packet_put(request, ",");
        packet_put_string(request, *word);
    }
    packet_put(request, "],\"folder\":");
    packet_put_string(request, folder);
    packet_put(request, ",\"config\":");
    packet_put_string(request, config);
    packet_put(request, ",\"hook\":");
    packet_put_string(request, hook);
    snprintf(number, sizeof(number), ",\"runtime_pid\":%d", runtime_pid);
    packet_put(request, runtime_pid ? number : "");
    packet_put(request, "}");
}

/* True if the answer was sent and another reply follows. */
static bool send_answer(int fd, const struct prepare_reply *reply, struct packet *packet,
                        struct preparation *made)
{
    if (reply->wants_kept && !made->file.rewritten) {
        made->original.bytes = spec_file_read_kept(&made->file, spec, sizeof(spec));
        return made->original.bytes && tell(fd, spec, made->original.bytes);
    }
    if (!reply->paths.text)
        return false;
    packet->bytes = 0;
    prepare_look(reply->paths, packet);
    return !packet->overflow && tell(fd, packet->text, packet->bytes);
}

static enum prepared converse(int fd, struct packet *packet, struct preparation *made, struct error *why)
{
    static char received[PACKET_MAX_BYTES], text[PREPARE_TEXT_MAX_BYTES];
    struct prepare_reply reply;
    int n = 0;

    if (!tell(fd, packet->text, packet->bytes) || !tell(fd, made->original.text, made->original.bytes))
        return PREPARE_FALLBACK;
    do
        reply = prepare_read((struct slice){received, receive(fd, received, sizeof(received))}, why);
    while (n++ < QUESTIONS_MAX && send_answer(fd, &reply, packet, made));
    made->again = reply.again;
    if (reply.answer != PREPARE_WRITE)
        return reply.answer;
    made->text = (struct slice){text, receive(fd, text, sizeof(text))};
    return made->text.bytes == reply.bytes ? PREPARE_WRITE : PREPARE_FALLBACK;
}

static enum prepared ask_once(char *const *words, const char *folder, const struct conf *conf,
                              pid_t runtime_pid, struct preparation *made, struct error *why)
{
    static char text[PACKET_MAX_BYTES];
    struct packet packet = {.text = text, .capacity = sizeof(text)};
    scoped_fd int fd = -1;

    put_request(&packet, words, folder, made->file.path, conf->hook, runtime_pid);
    if (packet.overflow || !made->original.bytes)
        return PREPARE_FALLBACK;
    fd = connection_to(conf->socket, TIMEOUT_S);
    return fd < 0 ? PREPARE_FALLBACK : converse(fd, &packet, made, why);
}

/* The driver closes the files of a container that has ended some time after. The wait for that ends with the
 * engine's process that started this one: a container made later would have no owner. */
static enum prepared ask(char *const *words, const char *folder, const struct conf *conf, pid_t runtime_pid,
                         struct preparation *made, struct error *why)
{
    pid_t engine = getppid();

    for (int tries = 1;; tries++) {
        enum prepared got = ask_once(words, folder, conf, runtime_pid, made, why);

        if (got != PREPARE_REFUSE || !made->again || tries == TRIES || getppid() != engine)
            return got;
        usleep(AGAIN_US);
    }
}

enum prepared prepare(char *const *words, const struct conf *conf, struct preparation *made,
                      struct error *why)
{
    char folder[PATH_MAX];

    if (!getcwd(folder, sizeof(folder)) || !prepare_config(words, folder, made->file.path))
        return PREPARE_FALLBACK;
    made->original = (struct slice){spec, spec_file_read(&made->file, spec, sizeof(spec))};
    return ask(words, folder, conf, 0, made, why);
}

enum prepared prepare_given(char *const *words, const struct conf *conf, pid_t runtime_pid,
                            struct preparation *made, struct error *why)
{
    strcpy(made->file.path, "/");
    return ask(words, "/", conf, runtime_pid, made, why);
}
