#include "nnp_infer.h"

#include <string.h>

enum { WORD_BYTES = 2 * NNP_MFU_LANES, MOST_STEPS = 65535 };

/* Positions of a layout along one axis: 0 is down, 1 is across. */
static uint32_t positions(const struct nnp_layout *layout, int axis) {
    uint32_t size = axis ? layout->columns : layout->rows;
    size += layout->padding[2 * axis] + layout->padding[2 * axis + 1];
    return (size - layout->dilation[axis] * (layout->window[axis] - 1) - 1) / layout->stride[axis] + 1;
}

/* Elements of one position, with the zeros after them. */
static uint32_t position_elements(const struct nnp_layout *layout) {
    return (layout->lanes + layout->align - 1) / layout->align * layout->align;
}

/* Where an element of a position lies among those whose channels follow each other; `lanes` for a zero. */
static uint32_t packed(const struct nnp_layout *layout, uint32_t inside) {
    uint32_t channel = 0;
    if (!layout->runs || inside >= layout->lanes) return inside;
    for (uint32_t k = 0; k < layout->runs; k++) {
        const uint32_t *run = layout->places[k], from = inside - run[0];
        if (inside >= run[0] && from % run[1] == 0 && from / run[1] < run[2]) return channel + from / run[1];
        channel += run[2];
    }
    return layout->lanes;
}

/* Index in the sample of element `at` on the wire; -1 for a zero. */
static int64_t element(const struct nnp_layout *layout, uint32_t at) {
    uint32_t each = position_elements(layout), across = positions(layout, 1);
    uint32_t position = at / each, inside = packed(layout, at % each);
    if (inside >= layout->lanes) return -1;
    uint32_t pixel = inside / layout->channels, channel = inside % layout->channels;
    int64_t row = (int64_t)(position / across) * layout->stride[0] + pixel / layout->window[1] * layout->dilation[0];
    int64_t column = (int64_t)(position % across) * layout->stride[1] + pixel % layout->window[1] * layout->dilation[1];
    row -= layout->padding[0];
    column -= layout->padding[2];
    if (row < 0 || row >= layout->rows || column < 0 || column >= layout->columns) return -1;
    return (channel * layout->rows + row) * layout->columns + column;
}

/* Words of one vector on its way to the machine. */
static uint32_t vector_words(const struct nnp_network *network) {
    if (!network->input) return network->input_words;
    return positions(network->input, 0) * positions(network->input, 1) * position_elements(network->input) / NNP_MFU_LANES;
}

/* Vectors of a sample. All steps of a fixed number lie in one vector: an image whose columns are the time steps. */
static uint32_t vectors(const struct nnp_network *network, uint32_t steps) {
    return network->steps ? 1 : steps * network->directions;
}

static size_t input_bytes(const struct nnp_network *network, uint32_t steps) {
    return (size_t)vectors(network, steps) * vector_words(network) * WORD_BYTES;
}

size_t nnp_buffer_bytes(const struct nnp_network *network, uint32_t steps) {
    size_t input = input_bytes(network, steps), output = (size_t)network->output_words * WORD_BYTES;
    return NNP_MESSAGE_BYTES(input > output ? input : output);
}

/* Write one vector as it is sent. */
static void put_vector(const struct nnp_network *network, const uint16_t *vector, uint8_t *bytes) {
    uint32_t elements = vector_words(network) * NNP_MFU_LANES;
    for (uint32_t k = 0; k < elements; k++) {
        int64_t from = network->input ? element(network->input, k) : k < network->inputs ? (int64_t)k : -1;
        if (from >= 0 && network->steps) from = from % network->steps * network->inputs + from / network->steps;
        uint16_t value = from < 0 ? 0 : vector[from];
        bytes[2 * k] = (uint8_t)value;
        bytes[2 * k + 1] = (uint8_t)(value >> 8);
    }
}

int nnp_input(const struct nnp_network *network, const uint16_t *sample, uint32_t steps, uint8_t *buffer,
              size_t capacity, size_t *bytes) {
    uint32_t words = vector_words(network), fixed = network->steps ? network->steps : network->loop < 0;
    if (steps < 1 || steps > MOST_STEPS || (fixed && steps != fixed) || !network->inputs) return NNP_ARGUMENT;
    if (capacity < NNP_MESSAGE_BYTES(input_bytes(network, steps))) return NNP_SPACE;
    uint8_t *at = buffer + NNP_HEADER_BYTES;
    for (uint32_t step = 0; step < (network->steps ? 1 : steps); step++)
        for (uint32_t k = 0; k < network->directions; k++) {
            uint32_t from = network->backward[k] ? steps - 1 - step : step;
            put_vector(network, sample + (size_t)from * network->inputs, at);
            at += (size_t)words * WORD_BYTES;
        }
    struct nnp_message message = {.kind = NNP_MESSAGE_INPUT, .count = vectors(network, steps) * words,
                                  .payload = buffer + NNP_HEADER_BYTES, .payload_bytes = input_bytes(network, steps)};
    return nnp_pack(buffer, capacity, &message, bytes);
}

int nnp_steps_message(const struct nnp_network *network, uint32_t steps, uint8_t *buffer, size_t capacity,
                      size_t *bytes) {
    uint64_t word = NNP_OPCODE_LOOP | (uint64_t)steps << NNP_LOOP_COUNT_BIT;
    uint8_t payload[8];
    for (int k = 0; k < 8; k++) payload[k] = (uint8_t)(word >> 8 * k);
    struct nnp_message message = {.kind = NNP_MESSAGE_PROGRAM, .address = (uint32_t)network->loop, .count = 1,
                                  .payload = payload, .payload_bytes = sizeof payload};
    return nnp_pack(buffer, capacity, &message, bytes);
}

/* Let the program in the machine make as many time steps. */
static int set_steps(struct nnp *nnp, const struct nnp_network *network, uint32_t steps) {
    if (network->loop < 0 || nnp->steps == steps) return NNP_OK;
    size_t bytes;
    int result = nnp_steps_message(network, steps, nnp->scratch, sizeof nnp->scratch, &bytes);
    if (result == NNP_OK) result = nnp_send(nnp, nnp->scratch, bytes);
    if (result == NNP_OK) result = nnp_settle(nnp);
    nnp->steps = result == NNP_OK ? steps : 0;
    return result;
}

int nnp_take(const struct nnp_network *network, const struct nnp_message *message, uint32_t *taken, uint16_t *result) {
    uint32_t elements = message->count * NNP_MFU_LANES;
    if (message->kind != NNP_MESSAGE_OUTPUT) return NNP_UNEXPECTED;
    if (elements > network->output_words * NNP_MFU_LANES - *taken) return NNP_UNEXPECTED;
    for (uint32_t k = 0; k < elements; k++, ++*taken) {
        int64_t to = network->output ? element(network->output, *taken) : (int64_t)*taken;
        if (to >= 0 && to < network->outputs)
            result[to] = (uint16_t)(message->payload[2 * k] | message->payload[2 * k + 1] << 8);
    }
    return NNP_OK;
}

int nnp_infer(struct nnp *nnp, const struct nnp_network *network, const uint16_t *sample, uint32_t steps,
              uint16_t *result, uint8_t *buffer, size_t capacity) {
    size_t bytes = 0;
    if (capacity < nnp_buffer_bytes(network, steps)) return NNP_SPACE;
    int code = network->inputs ? nnp_input(network, sample, steps, buffer, capacity, &bytes) : NNP_OK;
    if (code == NNP_OK) code = set_steps(nnp, network, steps);
    /* The input may be larger than the machine's queue, so that the program has to run while it comes. */
    if (code == NNP_OK) code = nnp_start(nnp);
    if (code == NNP_OK && bytes) code = nnp_send(nnp, buffer, bytes);
    for (uint32_t taken = 0; code == NNP_OK && taken < network->output_words * NNP_MFU_LANES;) {
        struct nnp_message message;
        code = nnp_receive(nnp, buffer, capacity, &message);
        if (code == NNP_OK) code = nnp_take(network, &message, &taken, result);
    }
    return code == NNP_OK ? nnp_wait(nnp) : code;
}

uint16_t nnp_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
    if (size > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (size >> 13 & 0x3FF));
    if (size >= 0x47800000) return (uint16_t)(sign | 0x7C00);
    /* Below 2**-14, a unit of the result is 2**-24: the significand moves right until it counts such units. */
    uint32_t exponent = size >> 23, shift = 13, low, kept;
    if (exponent < 113) {
        if (exponent < 102) return (uint16_t)sign;
        shift = 126 - exponent;
        size = (size & 0x7FFFFF) | 0x800000;
    } else {
        size -= (uint32_t)112 << 23;
    }
    kept = size >> shift;
    low = size & (((uint32_t)1 << shift) - 1);
    uint32_t half = (uint32_t)1 << (shift - 1);
    return (uint16_t)(sign | (kept + (low > half || (low == half && (kept & 1)))));
}

float nnp_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, rest = bits & 0x3FF, whole;
    float value;
    if (exponent == 0) {
        value = (float)rest * (1.0f / 16777216.0f);
        return sign ? -value : value;
    }
    whole = sign | (exponent == 31 ? 0xFF : exponent + 112) << 23 | rest << 13;
    memcpy(&value, &whole, sizeof value);
    return value;
}
