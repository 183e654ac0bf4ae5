/* A process that runs mgpud's command. */
#ifndef MGPU_HOLDER_SPAWN_H
#define MGPU_HOLDER_SPAWN_H
#include <sys/types.h>

struct mgpud_command {
    char **argv;     /* NULL: others start mgpud */
    const char *log; /* its stdout and stderr; NULL: the holder's own */
};

extern struct mgpud_command mgpud_command;

/* last_word: an argument more, or NULL. input: its standard input, -1: the holder's. Returns a pidfd, or a
 * negative errno. */
int spawn(const char *last_word, int input, pid_t *pid);
/* The same of what fork() has returned. */
int spawn_pidfd(pid_t pid);
#endif
