#ifndef MGPU_CONNECTION_H
#define MGPU_CONNECTION_H

/* Of packets, to the socket at `path`. Each step on it waits timeout_s at most, the first included. A negative errno. */
int connection_to(const char *path, unsigned int timeout_s);
#endif
