#include "moves.h"
#include "../../base/mutex.h"
#include <stdlib.h>
#include <string.h>

enum { MANY = 256 }; /* a thread that submits so much without looking at it moves some itself */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct move *first, *last; /* in the order of submitting, which is one that all dependencies follow */
static size_t waiting;            /* atomic */
static uint64_t last_number;

struct move *move_make(CUcontext context, size_t kept)
{
    struct move *move = calloc(1, sizeof *move + kept);

    if (move)
        move->context = context_hold(context);
    return move;
}

void move_drop(struct move *move)
{
    context_release(move->context);
    free(move);
}

static void take_out(struct move *move)
{
    *(move->before ? &move->before->next : &first) = move->next;
    *(move->next ? &move->next->before : &last) = move->before;
    __atomic_fetch_sub(&waiting, 1, __ATOMIC_RELEASE); /* a thread that finds none left sees what was moved */
}

void move_add(struct move *move, mark_t mark)
{
    size_t ahead;

    move->mark = mark;
    pthread_mutex_lock(&lock);
    if (engines_error(move->context->engines)) {
        pthread_mutex_unlock(&lock);
        move_drop(move);
        return;
    }
    move->number = ++last_number;
    move->before = last;
    *(last ? &last->next : &first) = move;
    last = move;
    ahead = __atomic_fetch_add(&waiting, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    if (ahead >= MANY)
        moves_settle();
}

static void fill(uint8_t *to, const struct move *move)
{
    const uint8_t *pattern = move->pattern;

    if (move->unit == 1) {
        memset(to, *pattern, move->box.width);
        return;
    }
    for (size_t i = 0; i < move->box.width; i += move->unit)
        memcpy(to + i, pattern, move->unit);
}

static void do_move(const struct move *move)
{
    for (size_t z = 0; z < move->box.depth; z++) {
        for (size_t y = 0; y < move->box.height; y++) {
            uint8_t *to = move->to.at + z * move->to.slice + y * move->to.pitch;

            if (move->pattern)
                fill(to, move);
            else
                memmove(to, move->from.at + z * move->from.slice + y * move->from.pitch, move->box.width);
        }
    }
}

/* From the last to the first: what a move that the card is done with depends on is then seen to be done
 * too. */
static void look(void)
{
    for (struct move *move = last; move; move = move->before)
        move->reached = mark_reached(move->context->engines, move->mark);
}

void moves_settle(void)
{
    struct move *done = NULL;

    if (!__atomic_load_n(&waiting, __ATOMIC_ACQUIRE))
        return;
    pthread_mutex_lock(&lock);
    look();
    for (struct move *move = first, *next; move; move = next) {
        next = move->next;
        if (!move->reached)
            continue;
        do_move(move);
        take_out(move);
        move->next = done;
        done = move;
    }
    pthread_mutex_unlock(&lock);
    while (done) {
        struct move *gone = done;

        done = gone->next;
        move_drop(gone);
    }
}

/* The newest that is under way up to that number: a mark of its context, held. */
static bool newest(uint64_t up_to, CUcontext *context, mark_t *mark)
{
    struct move *move;

    pthread_mutex_lock(&lock);
    move = last;
    while (move && move->number > up_to)
        move = move->before;
    if (move) {
        *context = context_hold(move->context);
        *mark = move->mark;
    }
    pthread_mutex_unlock(&lock);
    return move != NULL;
}

static uint64_t number_of_last(void)
{
    LOCKED(&lock);
    return last_number;
}

void moves_finish(void)
{
    CUcontext context;
    uint64_t up_to;
    mark_t mark;

    if (!__atomic_load_n(&waiting, __ATOMIC_ACQUIRE))
        return;
    up_to = number_of_last();
    while (newest(up_to, &context, &mark)) {
        if (mark_wait(context->engines, mark))
            moves_end_context(context);
        context_release(context);
        moves_settle();
    }
}

void moves_end_context(const struct CUctx_st *context)
{
    struct move *gone = NULL;

    pthread_mutex_lock(&lock);
    for (struct move *move = first, *next; move; move = next) {
        next = move->next;
        if (move->context != context)
            continue;
        take_out(move);
        move->next = gone;
        gone = move;
    }
    pthread_mutex_unlock(&lock);
    while (gone) {
        struct move *move = gone;

        gone = move->next;
        move_drop(move);
    }
}

void moves_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    first = last = NULL;
    waiting = 0;
}
