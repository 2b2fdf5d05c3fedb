/* As much of D-Bus as one question to the user's systemd takes. Little-endian, one message at a
 * time, every wait bounded by one deadline, every length of the answer checked. */
#ifndef HOST_BUS_H
#define HOST_BUS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BUS_MESSAGE_MAX 4096

struct bus {
    int fd;
    uint32_t serial;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC */
};

/* Connects to the socket and says who we are. -1: nobody we can talk to. bus_close() in any case
 * but that one. */
int bus_open(const char *path, unsigned timeout_ms, struct bus *ret_bus);
void bus_close(struct bus *bus);
/* Asks the systemd behind the bus for a scope with one process in it, delegated to us. 0: it said
 * that it begins; -1: refused, no answer, or not an answer. */
int bus_start_scope(struct bus *bus, const char *unit, pid_t pid);

#endif
