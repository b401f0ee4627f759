/*
 * Linux as a platform: registers through a UIO device, streams through a character device for which each write() is one
 * message and each read() returns one, as those of Linux's driver axis-fifo for the AXI4-Stream FIFO of AMD are.
 *
 * LOCATION is "UIO,STREAM", such as /dev/uio0,/dev/axis_fifo_0x43c10000. With a DMA engine, replace the last two functions.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform.h"

enum { REGISTER_BYTES = 4096, TIMEOUT_MS = 1000 };

static struct {
    volatile uint32_t *registers;
    int uio, stream;
} board;

static uint32_t read_register(void *context, uint32_t address) {
    (void)context;
    return board.registers[address / 4];
}

static void write_register(void *context, uint32_t address, uint32_t value) {
    (void)context;
    board.registers[address / 4] = value;
}

static int send_message(void *context, const uint8_t *message, size_t bytes) {
    (void)context;
    struct pollfd space = {.fd = board.stream, .events = POLLOUT};
    for (;;) {
        ssize_t done = write(board.stream, message, bytes);
        if (done == (ssize_t)bytes) return 0;
        if (done >= 0 || (errno != EAGAIN && errno != EINTR)) return 1;
        if (poll(&space, 1, TIMEOUT_MS) == 0) return 1;
    }
}

static int receive_message(void *context, uint8_t *buffer, size_t capacity, size_t *bytes) {
    (void)context;
    ssize_t done = read(board.stream, buffer, capacity);
    *bytes = done > 0 ? (size_t)done : 0;
    if (done >= 0 || errno == EAGAIN || errno == EINTR) return 0;
    /* axis-fifo drops a message that is larger than the buffer. */
    *bytes = capacity + 1;
    return errno != EINVAL;
}

int platform_open(struct nnp_port *port, const char *location) {
    char uio[256];
    const char *comma = strchr(location, ',');
    if (!comma || (size_t)(comma - location) >= sizeof uio) return 1;
    memcpy(uio, location, (size_t)(comma - location));
    uio[comma - location] = 0;
    board.uio = open(uio, O_RDWR | O_SYNC);
    board.stream = open(comma + 1, O_RDWR | O_NONBLOCK);
    if (board.uio < 0 || board.stream < 0) return 1;
    void *mapped = mmap(NULL, REGISTER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, board.uio, 0);
    if (mapped == MAP_FAILED) return 1;
    board.registers = mapped;
    *port = (struct nnp_port){NULL, read_register, write_register, send_message, receive_message};
    return 0;
}

void platform_close(struct nnp_port *port) {
    (void)port;
    munmap((void *)board.registers, REGISTER_BYTES);
    close(board.uio);
    close(board.stream);
}
