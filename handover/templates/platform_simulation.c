/*
 * The Verilated machine as a platform. LOCATION is the path of nnp.so, which `nnp handover --simulation` writes.
 *
 * The functions of that library have names of their own beginning with nnp_, so they are looked up one by one.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "platform.h"

static struct {
    void *library, *machine;
    void *(*create)(void);
    void (*destroy)(void *);
    uint32_t (*read)(void *, uint32_t);
    void (*write)(void *, uint32_t, uint32_t);
    void (*send)(void *, const uint8_t *, uint64_t);
    uint64_t (*pending)(void *);
    void (*receive)(void *, uint8_t *);
    void (*step)(void *, uint64_t);
} simulation;

static uint32_t read_register(void *machine, uint32_t address) { return simulation.read(machine, address); }

static void write_register(void *machine, uint32_t address, uint32_t value) {
    simulation.write(machine, address, value);
}

static int send_message(void *machine, const uint8_t *message, size_t bytes) {
    simulation.send(machine, message, bytes);
    return 0;
}

static int receive_message(void *machine, uint8_t *buffer, size_t capacity, size_t *bytes) {
    simulation.step(machine, 16);
    *bytes = (size_t)simulation.pending(machine);
    if (!*bytes) return 0;
    uint8_t *large = *bytes > capacity ? malloc(*bytes) : NULL;
    if (*bytes > capacity && !large) return 1;
    simulation.receive(machine, large ? large : buffer);
    free(large);
    return 0;
}

/* ISO C has no conversion from the pointer that dlsym returns to one to a function. */
static int find(const char *name, void *function) {
    void *found = dlsym(simulation.library, name);
    memcpy(function, &found, sizeof found);
    return !found;
}

int platform_open(struct nnp_port *port, const char *location) {
    simulation.library = dlopen(location, RTLD_NOW | RTLD_LOCAL);
    if (!simulation.library) return 1;
    if (find("nnp_create", &simulation.create) || find("nnp_destroy", &simulation.destroy)
        || find("nnp_read", &simulation.read) || find("nnp_write", &simulation.write)
        || find("nnp_send", &simulation.send) || find("nnp_pending", &simulation.pending)
        || find("nnp_receive", &simulation.receive) || find("nnp_step", &simulation.step))
        return 1;
    simulation.machine = simulation.create();
    *port = (struct nnp_port){simulation.machine, read_register, write_register, send_message, receive_message};
    return 0;
}

void platform_close(struct nnp_port *port) {
    simulation.destroy(port->context);
    dlclose(simulation.library);
}
