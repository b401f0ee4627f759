#include "nnp_commands.h"

#include <string.h>

static uint32_t read_register(struct nnp_accelerator *one, uint32_t address) {
    return one->port.read(one->port.context, address);
}

static void write_register(struct nnp_accelerator *one, uint32_t address, uint32_t value) {
    one->port.write(one->port.context, address, value);
}

/* The bytes of a command, in which numbers are little-endian. */
static void packed(uint8_t *bytes, const struct nnp_command *command) {
    const uint32_t fields[] = {command->first, command->count, command->second, command->room, command->value};
    memset(bytes, 0, NNP_COMMAND_BYTES);
    bytes[0] = command->kind;
    bytes[1] = command->core;
    for (int k = 0; k < 20; k++) bytes[4 + k] = (uint8_t)(fields[k / 4] >> 8 * (k % 4));
}

int nnp_accelerator_open(struct nnp_accelerator *one, const struct nnp_accelerator_port *port, uint32_t ring,
                         uint32_t size, uint32_t polls) {
    memset(one, 0, sizeof *one);
    if (ring % 64 || size < 1 || size > 16) return NNP_LIST_ARGUMENT;
    one->port = *port;
    one->polls = polls;
    one->ring = ring;
    one->commands = UINT32_C(1) << size;
    if (read_register(one, NNP_ACCELERATOR_REGISTER_DIGEST) != NNP_ACCELERATOR_DIGEST) return NNP_LIST_OTHER;
    nnp_accelerator_reset(one);
    write_register(one, NNP_ACCELERATOR_REGISTER_RING, ring);
    write_register(one, NNP_ACCELERATOR_REGISTER_RING_SIZE, size);
    return NNP_LIST_OK;
}

void nnp_accelerator_reset(struct nnp_accelerator *one) {
    write_register(one, NNP_ACCELERATOR_REGISTER_CONTROL, NNP_ACCELERATOR_CONTROL_RESET);
}

/* Wait until the ring has room for the command at `tail`. */
static int has_room(struct nnp_accelerator *one, uint32_t tail) {
    for (uint32_t k = 0; k < one->polls; k++) {
        if (tail - read_register(one, NNP_ACCELERATOR_REGISTER_HEAD) < one->commands) return NNP_LIST_OK;
        if (read_register(one, NNP_ACCELERATOR_REGISTER_STATUS) & NNP_ACCELERATOR_STATUS_FAILED)
            return nnp_list_wait(one);
    }
    return NNP_LIST_TIMEOUT;
}

int nnp_list_submit(struct nnp_accelerator *one, const struct nnp_command *commands, size_t count) {
    uint32_t tail = read_register(one, NNP_ACCELERATOR_REGISTER_TAIL);
    for (size_t k = 0; k < count; k++) {
        uint8_t bytes[NNP_COMMAND_BYTES];
        int result = has_room(one, tail);
        if (result != NNP_LIST_OK) return result;
        packed(bytes, &commands[k]);
        one->port.write_memory(one->port.context, one->ring + tail % one->commands * NNP_COMMAND_BYTES, bytes,
                               sizeof bytes);
        write_register(one, NNP_ACCELERATOR_REGISTER_TAIL, ++tail);
    }
    return NNP_LIST_OK;
}

int nnp_list_wait(struct nnp_accelerator *one) {
    const uint32_t busy = NNP_ACCELERATOR_STATUS_BUSY | NNP_ACCELERATOR_STATUS_MEMORY_BUSY;
    for (uint32_t k = 0; k < one->polls; k++) {
        one->status = read_register(one, NNP_ACCELERATOR_REGISTER_STATUS);
        if (one->status & busy || read_register(one, NNP_ACCELERATOR_REGISTER_BUSY_CORES)) continue;
        one->error = read_register(one, NNP_ACCELERATOR_REGISTER_ERROR);
        one->error_index = read_register(one, NNP_ACCELERATOR_REGISTER_ERROR_INDEX);
        one->error_origin = read_register(one, NNP_ACCELERATOR_REGISTER_ERROR_ORIGIN);
        one->core_error = read_register(one, NNP_ACCELERATOR_REGISTER_CORE_ERROR);
        one->error_address = read_register(one, NNP_ACCELERATOR_REGISTER_ERROR_ADDRESS);
        return one->status & NNP_ACCELERATOR_STATUS_FAILED ? NNP_LIST_FAILED : NNP_LIST_OK;
    }
    return NNP_LIST_TIMEOUT;
}

int nnp_list_run(struct nnp_accelerator *one, const struct nnp_command *commands, size_t count) {
    int result = nnp_list_submit(one, commands, count);
    return result == NNP_LIST_OK ? nnp_list_wait(one) : result;
}

const char *nnp_command_error_text(uint32_t error) {
    switch (error) {
#define ERROR(code, name, text) \
    case code: return #name ": " text;
        NNP_COMMAND_ERRORS(ERROR)
#undef ERROR
    }
    return "The command processor has no such error.";
}
