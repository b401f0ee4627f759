#include "nnp_cores.h"

#include <string.h>

enum { RING_SIZE = 6, MOST_COMMANDS = 1 << RING_SIZE };

static uint32_t lines(size_t bytes) {
    return (uint32_t)((bytes + NNP_LINE_BYTES - 1) / NNP_LINE_BYTES * NNP_LINE_BYTES);
}

/* Bytes that a result takes at most, in whole lines: its line in front, and messages of a word each. */
static uint32_t room(const struct nnp_network *network) {
    return lines(NNP_LINE_BYTES + (size_t)network->output_words * (NNP_LINE_BYTES + 2 * NNP_MFU_LANES));
}

static int trains(uint32_t core) { return NNP_TRAINERS >> core & 1; }

static void write_memory(struct nnp_cores *cores, uint32_t address, const uint8_t *bytes, size_t count) {
    const struct nnp_accelerator_port *port = &cores->accelerator.port;
    port->write_memory(port->context, address, bytes, count);
}

static void read_memory(struct nnp_cores *cores, uint32_t address, uint8_t *bytes, size_t count) {
    const struct nnp_accelerator_port *port = &cores->accelerator.port;
    port->read_memory(port->context, address, bytes, count);
}

/* Run a list of commands; what the driver of lists says, as a result of nnp.h. */
static int executed(struct nnp_cores *cores, const struct nnp_command *commands, size_t count) {
    switch (nnp_list_run(&cores->accelerator, commands, count)) {
        case NNP_LIST_OK: return NNP_OK;
        case NNP_LIST_TIMEOUT: return NNP_TIMEOUT;
        default: return NNP_LIST;
    }
}

int nnp_cores_open(struct nnp_cores *cores, const struct nnp_accelerator_port *port, const struct nnp_network *network,
                   const uint8_t *messages, size_t bytes, uint32_t polls) {
    struct nnp_command commands[2 * NNP_CORES];
    size_t count = 0;
    uint32_t dram = 0;
    memset(cores, 0, sizeof *cores);
    cores->network = network;
    for (uint32_t core = 0; core < NNP_CORES; core++) {
        if (trains(core) || !NNP_DRAM_BYTES) continue;
        commands[count++] = (struct nnp_command){.kind = NNP_COMMAND_SET, .core = (uint8_t)core,
                                                 .first = NNP_CORE_REGISTER_DRAM_BASE, .value = dram};
        dram += NNP_DRAM_BYTES;
    }
    uint32_t firmware = dram + (NNP_COMMAND_BYTES << RING_SIZE);
    if (bytes > NNP_MEMORY_LAST - firmware) return NNP_SPACE;
    for (uint32_t core = 0; core < NNP_CORES; core++) {
        if (trains(core) || !bytes) continue;
        commands[count++] = (struct nnp_command){.kind = NNP_COMMAND_LOAD, .core = (uint8_t)core, .first = firmware,
                                                 .count = (uint32_t)bytes};
    }
    int result = nnp_accelerator_open(&cores->accelerator, port, dram, RING_SIZE, polls);
    if (result != NNP_LIST_OK) return result == NNP_LIST_OTHER ? NNP_OTHER_MACHINE : NNP_ARGUMENT;
    write_memory(cores, firmware, messages, bytes);
    cores->samples = firmware + lines(bytes);
    return executed(cores, commands, count);
}

size_t nnp_cores_buffer_bytes(const struct nnp_network *network, uint32_t steps) {
    size_t input = nnp_buffer_bytes(network, steps), result = room(network);
    return input > result ? input : result;
}

/* Write a message to the memory at *at, and go on behind it; the command gets its address. */
static void put(struct nnp_cores *cores, const uint8_t *message, size_t bytes, uint32_t *at,
                struct nnp_command *command) {
    write_memory(cores, *at, message, bytes);
    command->first = *at;
    command->count = (uint32_t)bytes;
    *at += lines(bytes);
}

/* Write a sample to the memory, and its commands: a program of other steps where the core has one, and a run. */
static int prepared(struct nnp_cores *cores, uint8_t core, const uint16_t *sample, uint32_t steps, uint32_t *at,
                    struct nnp_command *commands, size_t *count, uint8_t *buffer, size_t capacity) {
    const struct nnp_network *network = cores->network;
    size_t bytes = 0;
    if (network->loop >= 0 && cores->steps[core] != steps) {
        int result = nnp_steps_message(network, steps, buffer, capacity, &bytes);
        if (result != NNP_OK) return result;
        commands[*count] = (struct nnp_command){.kind = NNP_COMMAND_LOAD, .core = core};
        put(cores, buffer, bytes, at, &commands[(*count)++]);
        cores->steps[core] = steps;
    }
    commands[*count] = (struct nnp_command){.kind = NNP_COMMAND_RUN, .core = core, .room = room(network)};
    if (network->inputs) {
        int result = nnp_input(network, sample, steps, buffer, capacity, &bytes);
        if (result != NNP_OK) return result;
        put(cores, buffer, bytes, at, &commands[*count]);
    }
    commands[*count].second = *at;
    *at += room(network);
    ++*count;
    return NNP_OK;
}

/* Read the messages of a result. */
static int taken(struct nnp_cores *cores, uint32_t address, uint16_t *result, uint8_t *buffer) {
    uint32_t all = room(cores->network), elements = 0;
    read_memory(cores, address, buffer, all);
    size_t end = buffer[0] | (size_t)buffer[1] << 8 | (size_t)buffer[2] << 16 | (size_t)buffer[3] << 24, bytes = 0;
    if (end > all - NNP_LINE_BYTES) return NNP_SPACE;
    for (size_t at = NNP_LINE_BYTES; at < NNP_LINE_BYTES + end; at += bytes) {
        struct nnp_message message;
        int code = nnp_unpack(buffer + at, NNP_LINE_BYTES + end - at, &message, &bytes);
        if (code == NNP_OK) code = nnp_take(cores->network, &message, &elements, result);
        if (code != NNP_OK) return code;
    }
    return elements == cores->network->output_words * NNP_MFU_LANES ? NNP_OK : NNP_UNEXPECTED;
}

int nnp_cores_infer(struct nnp_cores *cores, uint32_t count, const uint16_t *const *samples, const uint32_t *steps,
                    uint16_t *const *results, uint8_t *buffer, size_t capacity) {
    struct nnp_command commands[MOST_COMMANDS];
    uint32_t addresses[MOST_COMMANDS], core = NNP_CORES - 1;
    for (uint32_t first = 0, next = 0; first < count; first = next) {
        size_t listed = 0;
        uint32_t at = cores->samples;
        int code = NNP_OK;
        for (; code == NNP_OK && next < count && listed + 2 <= MOST_COMMANDS; next++) {
            uint32_t length = steps ? steps[next] : 1;
            size_t bytes = nnp_cores_buffer_bytes(cores->network, length);
            /* A program, an input and a result: none takes more lines than the buffer. */
            if (3 * (size_t)lines(bytes) > NNP_MEMORY_LAST - at) break;
            do core = (core + 1) % NNP_CORES;
            while (trains(core));
            code = capacity < bytes ? NNP_SPACE : prepared(cores, (uint8_t)core, samples[next], length, &at, commands,
                                                           &listed, buffer, capacity);
            addresses[next - first] = at - room(cores->network);
        }
        if (next == first) return NNP_SPACE;
        if (code == NNP_OK) code = executed(cores, commands, listed);
        for (uint32_t k = first; code == NNP_OK && k < next; k++)
            code = taken(cores, addresses[k - first], results[k], buffer);
        if (code == NNP_OK) continue;
        memset(cores->steps, 0, sizeof cores->steps);
        return code;
    }
    return NNP_OK;
}
