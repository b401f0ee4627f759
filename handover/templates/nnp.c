#include "nnp.h"

#include <string.h>

/* Most messages that may be under way at a reset. */
enum { RESETS = 4 };

static uint32_t read_register(struct nnp *nnp, uint32_t address) {
    return nnp->port.read(nnp->port.context, address);
}

static void command(struct nnp *nnp, uint32_t bits) {
    nnp->port.write(nnp->port.context, NNP_REGISTER_CONTROL, bits);
}

/* CRC-32 (IEEE 802.3), four bits at a time. */
static uint32_t crc32(const uint8_t *data, size_t bytes) {
    static const uint32_t table[16] = {
        0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
        0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    uint32_t crc = 0xFFFFFFFF;
    while (bytes--) {
        crc ^= *data++;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

static void put32(uint8_t *bytes, uint32_t value) {
    for (int k = 0; k < 4; k++) bytes[k] = (uint8_t)(value >> 8 * k);
}

static uint32_t get32(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Bytes of one item of a message; 0 for an unknown kind. */
static size_t item_bytes(uint8_t kind, uint8_t memory) {
    if (memory == NNP_MEMORY_VECTOR_RF && (kind == NNP_MESSAGE_WRITE || kind == NNP_MESSAGE_READ))
        return NNP_ENTRY_BYTES;
    switch (kind) {
#define ITEM(name, bytes) \
    case NNP_MESSAGE_##name: return bytes;
        NNP_ITEMS(ITEM)
#undef ITEM
    }
    return 0;
}

/* What became of a program: the registers, and the result that they mean. */
static int outcome(struct nnp *nnp) {
    nnp->status = read_register(nnp, NNP_REGISTER_STATUS);
    nnp->error = read_register(nnp, NNP_REGISTER_ERROR);
    nnp->error_address = read_register(nnp, NNP_REGISTER_ERROR_ADDRESS);
    if (nnp->error == NNP_ERROR_MESSAGE) return NNP_REFUSED;
    return nnp->error == NNP_ERROR_NONE ? NNP_OK : NNP_STOPPED;
}

/* A failure, or what the machine says about its cause. */
static int failed(struct nnp *nnp, int result) {
    int found = outcome(nnp);
    return found == NNP_OK ? result : found;
}

int nnp_open(struct nnp *nnp, const struct nnp_port *port, uint32_t polls) {
    memset(nnp, 0, sizeof *nnp);
    nnp->port = *port;
    nnp->polls = polls;
    if (read_register(nnp, NNP_REGISTER_DIGEST) != NNP_DIGEST) return NNP_OTHER_MACHINE;
    nnp_clear(nnp);
    return nnp_reset(nnp);
}

int nnp_reset(struct nnp *nnp) {
    /* A reset drops one message that the machine is inside, and those after it come afterwards. */
    int result = NNP_TIMEOUT;
    for (int k = 0; k < RESETS && result != NNP_OK; k++) {
        command(nnp, NNP_CONTROL_RESET);
        result = nnp_settle(nnp);
    }
    command(nnp, NNP_CONTROL_RESET);
    return result;
}

int nnp_pack(uint8_t *buffer, size_t capacity, const struct nnp_message *message, size_t *bytes) {
    size_t whole = NNP_MESSAGE_BYTES(message->payload_bytes), body = whole - NNP_BEAT_BYTES;
    size_t end = NNP_HEADER_BYTES + message->payload_bytes;
    if (whole > capacity) return NNP_SPACE;
    if (message->payload_bytes) memmove(buffer + NNP_HEADER_BYTES, message->payload, message->payload_bytes);
    buffer[NNP_HEADER_KIND] = message->kind;
    buffer[NNP_HEADER_MEMORY] = message->memory;
    buffer[NNP_HEADER_FLAGS] = message->flags;
    buffer[NNP_HEADER_ZERO] = 0;
    put32(buffer + NNP_HEADER_ADDRESS, message->address);
    put32(buffer + NNP_HEADER_COUNT, message->count);
    put32(buffer + NNP_HEADER_DIGEST, NNP_DIGEST);
    memset(buffer + end, 0, whole - end);
    put32(buffer + body, crc32(buffer, body));
    *bytes = whole;
    return NNP_OK;
}

int nnp_unpack(const uint8_t *data, size_t available, struct nnp_message *message, size_t *bytes) {
    if (available < NNP_MESSAGE_BYTES(0)) return NNP_DAMAGED;
    message->kind = data[NNP_HEADER_KIND];
    message->memory = data[NNP_HEADER_MEMORY];
    message->flags = data[NNP_HEADER_FLAGS];
    message->address = get32(data + NNP_HEADER_ADDRESS);
    message->count = get32(data + NNP_HEADER_COUNT);
    message->payload = data + NNP_HEADER_BYTES;
    size_t item = item_bytes(message->kind, message->memory);
    if (!item || data[NNP_HEADER_ZERO]) return NNP_DAMAGED;
    if (get32(data + NNP_HEADER_DIGEST) != NNP_DIGEST) return NNP_OTHER_FIRMWARE;
    if (message->count > available / item) return NNP_DAMAGED;
    message->payload_bytes = message->count * item;
    *bytes = NNP_MESSAGE_BYTES(message->payload_bytes);
    if (*bytes > available) return NNP_DAMAGED;
    size_t body = *bytes - NNP_BEAT_BYTES;
    return crc32(data, body) == get32(data + body) ? NNP_OK : NNP_DAMAGED;
}

int nnp_send(struct nnp *nnp, const uint8_t *message, size_t bytes) {
    /* An INPUT larger than the machine's queue holds up all after it until a program runs, even a READ. */
    int input = bytes && message[NNP_HEADER_KIND] == NNP_MESSAGE_INPUT;
    int result = input && nnp->unsettled ? nnp_settle(nnp) : NNP_OK;
    if (result != NNP_OK) return result;
    nnp->unsettled |= !input;
    return nnp->port.send(nnp->port.context, message, bytes) ? failed(nnp, NNP_TRANSFER) : NNP_OK;
}

int nnp_load(struct nnp *nnp, const uint8_t *messages, size_t bytes) {
    struct nnp_message message;
    size_t length = 0;
    int result = NNP_OK;
    for (size_t at = 0; at < bytes && result == NNP_OK; at += length)
        result = nnp_unpack(messages + at, bytes - at, &message, &length);
    if (result != NNP_OK) return result;
    nnp->steps = 0;
    result = nnp_reset(nnp);
    for (size_t at = 0; at < bytes && result == NNP_OK; at += length) {
        result = nnp_unpack(messages + at, bytes - at, &message, &length);
        if (result == NNP_OK) result = nnp_send(nnp, messages + at, length);
    }
    return result == NNP_OK ? nnp_settle(nnp) : result;
}

/* Waits for words that the machine still carries to its memory outside the chip: a reset would drop them. */
static int landed(struct nnp *nnp) {
    for (uint32_t k = 0; k < nnp->polls; k++) {
        int result = outcome(nnp);
        if (result != NNP_OK || !(nnp->status & NNP_STATUS_DRAM_BUSY)) return result;
    }
    return failed(nnp, NNP_TIMEOUT);
}

int nnp_settle(struct nnp *nnp) {
    /* The machine carries out messages in order, so the answer to a READ comes after all before it. */
    nnp->asked = (nnp->asked + 1) % NNP_INITIAL_VRF;
    struct nnp_message message = {.kind = NNP_MESSAGE_READ, .memory = NNP_MEMORY_INITIAL_VRF, .address = nnp->asked,
                                  .count = 1};
    size_t bytes;
    int result = nnp_pack(nnp->scratch, sizeof nnp->scratch, &message, &bytes);
    if (result == NNP_OK) result = nnp_send(nnp, nnp->scratch, bytes);
    if (result != NNP_OK) return result;
    do {
        result = nnp_receive(nnp, nnp->scratch, sizeof nnp->scratch, &message);
        if (result == NNP_OK && message.kind == NNP_MESSAGE_READ && message.address == nnp->asked) {
            nnp->unsettled = 0;
            return landed(nnp);
        }
    } while (result == NNP_OK || result == NNP_DAMAGED || result == NNP_SPACE);
    return result;
}

int nnp_start(struct nnp *nnp) {
    int result = nnp->unsettled ? nnp_settle(nnp) : NNP_OK;
    if (result != NNP_OK) return result;
    command(nnp, NNP_CONTROL_START);
    return NNP_OK;
}

int nnp_wait(struct nnp *nnp) {
    for (uint32_t k = 0; k < nnp->polls; k++)
        if (!(read_register(nnp, NNP_REGISTER_STATUS) & NNP_STATUS_RUNNING)) return outcome(nnp);
    return failed(nnp, NNP_TIMEOUT);
}

int nnp_receive(struct nnp *nnp, uint8_t *buffer, size_t capacity, struct nnp_message *message) {
    for (uint32_t k = 0; k < nnp->polls; k++) {
        size_t bytes = 0, length;
        if (nnp->port.receive(nnp->port.context, buffer, capacity, &bytes)) return failed(nnp, NNP_TRANSFER);
        if (bytes > capacity) return NNP_SPACE;
        if (bytes) {
            int result = nnp_unpack(buffer, bytes, message, &length);
            return result == NNP_OK && length != bytes ? NNP_DAMAGED : result;
        }
        int result = outcome(nnp);
        if (result != NNP_OK) return result;
    }
    return NNP_TIMEOUT;
}

uint32_t nnp_counter(struct nnp *nnp, uint32_t counter) {
    return read_register(nnp, NNP_REGISTER_COUNTERS + 4 * counter);
}

void nnp_clear(struct nnp *nnp) {
    command(nnp, NNP_CONTROL_CLEAR);
}

const char *nnp_text(int result) {
    switch (result) {
        case NNP_OK: return "The call succeeded.";
        case NNP_STOPPED: return "The program stopped with an error.";
        case NNP_REFUSED: return "The machine refused a message, and starts no program before a reset.";
        case NNP_TIMEOUT: return "The program did not end, or a message did not come, in time.";
        case NNP_OTHER_MACHINE: return "The machine has another configuration than the headers.";
        case NNP_OTHER_FIRMWARE: return "The message or the firmware was made for another machine.";
        case NNP_DAMAGED: return "The message or the firmware is damaged or cut off.";
        case NNP_TRANSFER: return "A transfer over a stream failed.";
        case NNP_SPACE: return "The buffer is too small.";
        case NNP_ARGUMENT: return "A number of time steps, elements or words is out of range.";
        case NNP_UNEXPECTED: return "A message came that nothing asked for.";
        case NNP_LIST: return "A command of the accelerator has an error.";
    }
    return "The driver has no such result.";
}

const char *nnp_error_text(uint32_t error) {
    switch (error) {
#define ERROR(code, name, text) \
    case code: return #name ": " text;
        NNP_ERRORS(ERROR)
#undef ERROR
    }
    return "The machine has no such error.";
}
