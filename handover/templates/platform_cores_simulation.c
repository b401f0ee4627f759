/*
 * The Verilated accelerator and its memory as a platform. LOCATION is the path of nnp.so, which
 * `nnp handover --cores N --simulation` writes.
 *
 * The functions of that library have names of their own beginning with nnp_, so they are looked up one by one.
 */
#include <dlfcn.h>
#include <string.h>

#include "platform_cores.h"

enum { READ, WRITE };

static struct {
    void *library, *machine;
    void *(*create)(void);
    void (*destroy)(void *);
    uint32_t (*read)(void *, uint32_t);
    void (*write)(void *, uint32_t, uint32_t);
    void (*move)(void *, uint32_t, uint8_t *, uint64_t, uint32_t);
    void (*step)(void *, uint64_t);
} simulation;

static uint32_t read_register(void *machine, uint32_t address) {
    simulation.step(machine, 16);
    return simulation.read(machine, address);
}

static void write_register(void *machine, uint32_t address, uint32_t value) {
    simulation.write(machine, address, value);
}

static void write_memory(void *machine, uint32_t address, const uint8_t *bytes, size_t count) {
    simulation.move(machine, address, (uint8_t *)bytes, count, WRITE);
}

static void read_memory(void *machine, uint32_t address, uint8_t *bytes, size_t count) {
    simulation.move(machine, address, bytes, count, READ);
}

/* ISO C has no conversion from the pointer that dlsym returns to one to a function. */
static int find(const char *name, void *function) {
    void *found = dlsym(simulation.library, name);
    memcpy(function, &found, sizeof found);
    return !found;
}

int platform_open(struct nnp_accelerator_port *port, const char *location) {
    simulation.library = dlopen(location, RTLD_NOW | RTLD_LOCAL);
    if (!simulation.library) return 1;
    if (find("nnp_create", &simulation.create) || find("nnp_destroy", &simulation.destroy)
        || find("nnp_read", &simulation.read) || find("nnp_write", &simulation.write)
        || find("nnp_dram_move", &simulation.move) || find("nnp_step", &simulation.step))
        return 1;
    simulation.machine = simulation.create();
    *port = (struct nnp_accelerator_port){simulation.machine, read_register, write_register, write_memory, read_memory};
    return 0;
}

void platform_close(struct nnp_accelerator_port *port) {
    simulation.destroy(port->context);
    dlclose(simulation.library);
}
