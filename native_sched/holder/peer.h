#ifndef MGPU_HOLDER_PEER_H
#define MGPU_HOLDER_PEER_H
#include <stdbool.h>
#include <sys/types.h>

enum { ACCEPT_PAUSE_US = 100000 };

/* The next connection, nonblocking; -1 when there is none that is accepted. The other end has to be root of
 * this node: uid 0 in our own pid and user namespaces, which a container's root with the socket is not.
 * may_be_gone: accept a root peer that has already exited, too. Runtimes do not wait, a refused listener is
 * lost, and the nonce authenticates the message. */
int peer_accept(int listening, bool may_be_gone);

/* A pidfd of the process that connected, and its pid; -1 when it has exited. */
int peer_process(int fd, pid_t *pid);

/* 0 or a negative errno. */
int process_signal(int pidfd, int signal);

/* Whether the last thread of that process has ended, and with it every call that one of them was in. */
bool process_ended(int pidfd);
#endif
