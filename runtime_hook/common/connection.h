#ifndef MGPU_CONNECTION_H
#define MGPU_CONNECTION_H

/* Connects to a packet socket at `path`; each step waits timeout_s at most. A negative errno on failure. */
int connection_to(const char *path, unsigned int timeout_s);
#endif
