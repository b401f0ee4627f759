/*
 * Linux as a platform: registers through a UIO device, and the memory of the accelerator through a device that maps
 * memory which caches do not hold, such as a second UIO device or u-dma-buf.
 *
 * LOCATION is "UIO,MEMORY", such as /dev/uio0,/dev/udmabuf0. Byte 0 of this memory is byte 0 at m_axi.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform_cores.h"

enum { REGISTER_BYTES = 65536 };
static const size_t MEMORY_BYTES = (size_t)NNP_MEMORY_LAST + 1;

static struct {
    volatile uint32_t *registers;
    volatile uint8_t *memory;
    int uio, device;
} board;

static uint32_t read_register(void *context, uint32_t address) {
    (void)context;
    return board.registers[address / 4];
}

static void write_register(void *context, uint32_t address, uint32_t value) {
    (void)context;
    board.registers[address / 4] = value;
}

static void write_memory(void *context, uint32_t address, const uint8_t *bytes, size_t count) {
    (void)context;
    for (size_t k = 0; k < count; k++) board.memory[address + k] = bytes[k];
}

static void read_memory(void *context, uint32_t address, uint8_t *bytes, size_t count) {
    (void)context;
    for (size_t k = 0; k < count; k++) bytes[k] = board.memory[address + k];
}

static void *mapped(int file, size_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

int platform_open(struct nnp_accelerator_port *port, const char *location) {
    char uio[256];
    const char *comma = strchr(location, ',');
    if (!comma || (size_t)(comma - location) >= sizeof uio) return 1;
    memcpy(uio, location, (size_t)(comma - location));
    uio[comma - location] = 0;
    board.uio = open(uio, O_RDWR | O_SYNC);
    board.device = open(comma + 1, O_RDWR | O_SYNC);
    if (board.uio < 0 || board.device < 0) return 1;
    void *registers = mapped(board.uio, REGISTER_BYTES), *memory = mapped(board.device, MEMORY_BYTES);
    if (registers == MAP_FAILED || memory == MAP_FAILED) return 1;
    board.registers = registers;
    board.memory = memory;
    *port = (struct nnp_accelerator_port){NULL, read_register, write_register, write_memory, read_memory};
    return 0;
}

void platform_close(struct nnp_accelerator_port *port) {
    (void)port;
    munmap((void *)board.registers, REGISTER_BYTES);
    munmap((void *)board.memory, MEMORY_BYTES);
    close(board.uio);
    close(board.device);
}
