#include "rm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CARDS_MAX = 1024 };

static char **argv_at_start, **argv_now;
static char cards_now[CARDS_MAX];

void reload_keep(char **argv)
{
    argv_at_start = argv;
}

static void list_cards(const struct rm *rm)
{
    size_t used = 0;

    for (uint32_t i = 0; i < rm->card_count; i++)
        used += (size_t)snprintf(cards_now + used, sizeof cards_now - used, "%s%s", i ? "," : "",
                                 rm->cards[i].profile->key);
}

static int check(const struct rm *rm)
{
    struct rm *anew = calloc(1, sizeof *anew);
    int error = anew ? cards_parse(anew, cards_now) : -ENOMEM;

    if (!error) {
        anew->version = rm->version;
        anew->major = rm->major;
        anew->minor = rm->minor;
        error = cards_are_known(anew);
    }
    free(anew);
    return error;
}

/* Of an option that is given twice the later one counts; a reload before this one has added the last two. */
int reload_prepare(struct rm *rm, const char *cards)
{
    static char option[] = "--cards";
    size_t count = 0;

    if (*cards)
        snprintf(cards_now, sizeof cards_now, "%s", cards);
    else
        list_cards(rm);
    if (check(rm))
        return -EINVAL;
    while (argv_at_start[count])
        count++;
    if (count > 2 && argv_at_start[count - 2][0] == '-' && !strcmp(argv_at_start[count - 2], option))
        count -= 2;
    free(argv_now);
    argv_now = calloc(count + 3, sizeof *argv_now);
    if (!argv_now)
        return -ENOMEM;
    memcpy(argv_now, argv_at_start, count * sizeof *argv_now);
    argv_now[count] = option;
    argv_now[count + 1] = cards_now;
    return 0;
}

/* All descriptors are closed on exec, as a driver that is unloaded ends all files. */
void reload_now(void)
{
    uevent_of_driver("remove");
    execv("/proc/self/exe", argv_now);
    perror("mgpu-simcard: reload");
}
