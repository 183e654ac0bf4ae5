#include "../../base/mutex.h"
#include "serve.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TIMELINE "timeline "
#define LOSE     "lose "
#define ADD      "add "
#define RESET    "reset "
#define RELOAD   "reload"

enum { QUESTION_MAX = 64, ANSWER_QUEUE_BYTES = 16 << 20 };

static void print_cards(struct rm *rm, FILE *out)
{
    fputc('[', out);
    for (uint32_t i = 0; i < rm->card_count; i++) {
        const struct sim_card *card = &rm->cards[i];
        const struct card_profile *profile = card->profile;

        fprintf(
            out,
            "%s{\"index\":%u,\"minor\":%u,\"uuid\":\"%s\",\"name\":\"%s\",\"profile\":\"%s\","
            "\"memory_mib\":%u,"
            "\"context_bytes\":%llu,\"copy_context_bytes\":%llu,\"pci\":\"%s\",\"gpu_id\":%u,\"arch\":%u,\"channel_class\":%u,\"lost\":%s}",
            i ? "," : "", card->index, card->minor, card->uuid, profile->name, profile->key,
            profile->memory_mib, (unsigned long long)profile->context_mib << 20,
            (unsigned long long)COPY_CONTEXT_MIB << 20, card->pci, card->gpu_id, profile->architecture,
            profile->channel_class, card->lost ? "true" : "false");
    }
    fputc(']', out);
}

static uint64_t subtree_bytes(const struct rm_object *object, const struct sim_card *card)
{
    uint64_t bytes = object->card == card ? object->bytes : 0;

    for (const struct rm_object *child = object->child; child; child = child->next)
        bytes += subtree_bytes(child, card);
    return bytes;
}

/* used_bytes is the heap's own count; the bytes of files are added up from the live objects: two ways to the
 * same sum, for tests to compare. */
static void print_card_account(struct rm *rm, const struct sim_card *card, FILE *out)
{
    const char *comma = "";

    fprintf(out, "{\"index\":%u,\"used_bytes\":%llu,\"files\":[", card->index,
            (unsigned long long)card->heap.used_bytes);
    for (const struct rm_client *client = rm->clients; client; client = client->next) {
        uint64_t bytes = subtree_bytes(&client->root, card);

        if (!bytes)
            continue;
        fprintf(out, "%s{\"file\":%llu,\"tgid\":%d,\"bytes\":%llu}", comma,
                (unsigned long long)client->file->id, client->tgid, (unsigned long long)bytes);
        comma = ",";
    }
    fputs("],", out);
    gpu_print_account(card->gpu, out);
    fputc('}', out);
}

static void print_account(struct rm *rm, FILE *out)
{
    fputs("{\"cards\":[", out);
    for (uint32_t i = 0; i < rm->card_count; i++) {
        if (i)
            fputc(',', out);
        print_card_account(rm, &rm->cards[i], out);
    }
    fprintf(out, "],\"rm_calls\":%llu}", (unsigned long long)rm->calls);
}

static void print_files(struct rm *rm, FILE *out)
{
    static const char *const nodes[] = {"ctl", "card", "uvm"};
    const char *comma = "";

    fputc('[', out);
    for (uint32_t i = 0; i < RM_FILE_BUCKETS; i++) {
        for (const struct sim_file *file = rm->files[i]; file; file = file->hash_next) {
            fprintf(out, "%s{\"file\":%llu,\"node\":\"%s\",\"tgid\":%d,\"minor\":", comma,
                    (unsigned long long)file->id, nodes[file->node], file->tgid);
            if (file->card)
                fprintf(out, "%u}", file->card->minor);
            else
                fputs("null}", out);
            comma = ",";
        }
    }
    fputc(']', out);
}

static void print_driver(struct rm *rm, FILE *out)
{
    fprintf(out, "{\"driver_version\":\"%s\",\"cuda_version\":%d,\"cards\":%u,\"call_us\":%u}", rm->version,
            SIM_CUDA_VERSION, rm->card_count, rm->call_us);
}

static const struct question {
    const char *name;
    void (*print)(struct rm *rm, FILE *out);
} questions[] = {
    {"cards", print_cards},   {"account", print_account},           {"files", print_files},
    {"driver", print_driver}, {"third_parties", third_party_print},
};

/* "timeline MINOR SINCE", without the RM lock: a card's engines have their own. */
static void print_timeline(struct rm *rm, const char *arguments, FILE *out)
{
    unsigned long long since;
    unsigned minor;
    char rest;

    if (sscanf(arguments, "%u %llu%c", &minor, &since, &rest) == 2 && minor < rm->card_count)
        gpu_print_timeline(rm->cards[minor].gpu, since, out);
}

static struct sim_card *named_card(struct rm *rm, const char *arguments)
{
    unsigned minor;
    char rest;

    return sscanf(arguments, "%u%c", &minor, &rest) == 1 ? card_by_minor(rm, minor) : NULL;
}

/* "lose MINOR": the card falls off the bus, until it is reset. */
static void lose(struct rm *rm, const char *arguments, FILE *out)
{
    struct sim_card *card;

    LOCKED(&rm->lock);
    card = named_card(rm, arguments);
    if (card && !card->lost) {
        card->lost = true;
        gpu_lose(card->gpu);
    }
    if (card)
        fputs("{\"lost\":true}", out);
}

/* Files of the card's node, and clients that have a device of it, as RM counts who uses a card. */
static uint32_t users_of(struct rm *rm, const struct sim_card *card)
{
    uint32_t users = 0;

    for (uint32_t i = 0; i < RM_FILE_BUCKETS; i++)
        for (const struct sim_file *file = rm->files[i]; file; file = file->hash_next)
            users += file->card == card;
    for (const struct rm_client *client = rm->clients; client; client = client->next)
        users += client_has_class(client, card, NV01_DEVICE_0);
    return users;
}

/* "reset MINOR", which a card in use refuses; one that has fallen off the bus is there again. */
static void reset(struct rm *rm, const char *arguments, FILE *out)
{
    struct sim_card *card;

    LOCKED(&rm->lock);
    card = named_card(rm, arguments);
    if (card) {
        uint32_t users = users_of(rm, card);

        card->lost = card->lost && users;
        fprintf(out, "{\"in_use\":%u}", users);
    }
}

/* "add PROFILE": one more card, which the driver is bound to at once. */
static void add(struct rm *rm, const char *profile, FILE *out)
{
    const struct sim_card *card;

    pthread_mutex_lock(&rm->lock);
    card = cards_plug(rm, profile);
    pthread_mutex_unlock(&rm->lock);
    if (!card)
        return;
    fprintf(out, "{\"minor\":%u}", card->minor);
    uevent_of_card(card, "bind");
}

/* "reload" or "reload CARDS": the answer is sent before all that there was ends. */
static bool reload(struct rm *rm, const char *cards, FILE *out)
{
    bool ready;

    pthread_mutex_lock(&rm->lock);
    ready = reload_prepare(rm, *cards == ' ' ? cards + 1 : cards) == 0;
    pthread_mutex_unlock(&rm->lock);
    if (ready)
        fputs("{\"reloaded\":true}", out);
    return ready;
}

/* The document, to be freed, or NULL. */
static char *answer(struct rm *rm, const char *name, size_t *bytes, bool *reloads)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);

    if (!out)
        return NULL;
    if (!strncmp(name, TIMELINE, sizeof TIMELINE - 1))
        print_timeline(rm, name + sizeof TIMELINE - 1, out);
    if (!strncmp(name, LOSE, sizeof LOSE - 1))
        lose(rm, name + sizeof LOSE - 1, out);
    if (!strncmp(name, RESET, sizeof RESET - 1))
        reset(rm, name + sizeof RESET - 1, out);
    if (!strncmp(name, ADD, sizeof ADD - 1))
        add(rm, name + sizeof ADD - 1, out);
    *reloads = !strncmp(name, RELOAD, sizeof RELOAD - 1) && reload(rm, name + sizeof RELOAD - 1, out);
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        if (strcmp(questions[i].name, name))
            continue;
        pthread_mutex_lock(&rm->lock);
        questions[i].print(rm, out);
        pthread_mutex_unlock(&rm->lock);
    }
    if (!ftell(out))
        fputs(
            "{\"error\":\"the questions are cards, account, files, driver, third_parties, timeline MINOR SINCE; lose MINOR, "
            "reset MINOR, add PROFILE, reload, reload CARDS are done\"}",
            out);
    fclose(out);
    return text;
}

void serve_admin(struct rm *rm, int connection)
{
    int queue = ANSWER_QUEUE_BYTES;
    char question[QUESTION_MAX];
    ssize_t length;

    setsockopt(connection, SOL_SOCKET, SO_SNDBUFFORCE, &queue, sizeof queue);
    while ((length = recv(connection, question, sizeof question - 1, 0)) > 0) {
        size_t bytes = 0;
        char *text;
        bool sent, reloads = false;

        question[length] = 0;
        question[strcspn(question, "\r\n")] = 0;
        text = answer(rm, question, &bytes, &reloads);
        sent = text && send(connection, text, bytes, MSG_NOSIGNAL) >= 0;
        free(text);
        if (reloads)
            reload_now();
        if (!sent)
            break;
    }
}
