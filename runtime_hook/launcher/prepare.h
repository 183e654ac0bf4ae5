#ifndef MGPU_PREPARE_H
#define MGPU_PREPARE_H
#include "packet.h"
#include "runtime_hook/common/conf.h"
#include "runtime_hook/common/json.h"
#include "runtime_hook/common/report.h"
#include "spec_file.h"
#include <sys/types.h>

/* mgpud's bounds of a packet and of a text (native_sched/daemon/control/server.py, prepare.py). */
enum { PREPARE_SPEC_MAX_BYTES = 128 * 1024, PREPARE_TEXT_MAX_BYTES = 512 * 1024 };

enum prepared {
    PREPARE_FALLBACK, /* mgpud has not done it, for whatever reason: Python is to */
    PREPARE_PASS,     /* the container is none of mgpu's */
    PREPARE_WRITE,    /* the spec has to be replaced */
    PREPARE_REFUSE,
};

/* What mgpud made of the spec in file: the original text and, with PREPARE_WRITE, the new one. again: with
 * PREPARE_REFUSE, a container that has ended still has what it had. */
struct preparation {
    struct spec_file file;
    struct slice original, text;
    bool again;
};

/* Has mgpud decide about the container of a create, run or restore, as runtime_hook/create.py would in this
 * process. words: the command line from its verb on, ended by NULL. why is filled with PREPARE_REFUSE
 * only. Where a container that has ended is in the way, it is waited for, 2 s at the most. */
enum prepared prepare(char *const *words, const struct conf *conf, struct preparation *made,
                      struct error *why);

/* The same for a spec outside a bundle, made->original, and a container of process runtime_pid. */
enum prepared prepare_given(char *const *words, const struct conf *conf, pid_t runtime_pid,
                            struct preparation *made, struct error *why);

/* The pieces of it that read what others wrote. */

/* The file that the words seem to name, as mgpud is told it and checks; false if it does not fit. */
bool prepare_config(char *const *words, const char *folder, char config[PATH_MAX]);

/* A reply of mgpud's. */
struct prepare_reply {
    enum prepared answer;
    size_t bytes;    /* PREPARE_WRITE: of the packet that follows */
    bool wants_kept; /* PREPARE_FALLBACK: before there is another reply, it is to be sent the original … */
    struct slice paths; /* … or to be told what these are */
    bool again;         /* PREPARE_REFUSE: it may not last */
};

struct prepare_reply prepare_read(struct slice text, struct error *why);

/* Looks paths up and puts what mgpud is to be told; an odd one spoils the packet. */
void prepare_look(struct slice paths, struct packet *found);
#endif
