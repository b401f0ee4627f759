/*
 * Loads the network into all cores, runs the examples on them, and compares every bit with the golden model.
 *
 *     example_cores LOCATION
 *
 * LOCATION tells platform_open where the accelerator is.
 */
#include <stdio.h>
#include <stdlib.h>

#include "network.h"
#include "nnp_cores.h"
#include "platform_cores.h"

enum { POLLS = 100000000 };

static int fail(const struct nnp_cores *cores, const char *what, int result) {
    const struct nnp_accelerator *one = &cores->accelerator;
    fprintf(stderr, "%s: %s\n", what, nnp_text(result));
    if (result != NNP_LIST) return 1;
    fprintf(stderr, "%s: command %u, core %u: %s\n", what, (unsigned)one->error_index, (unsigned)one->error_origin,
            nnp_command_error_text(one->error));
    if (one->error == NNP_COMMAND_ERROR_PROGRAM)
        fprintf(stderr, "%s: %s (instruction %u)\n", what, nnp_error_text(one->core_error),
                (unsigned)one->error_address);
    return 1;
}

int main(int argc, char **argv) {
    static struct nnp_cores cores;
    struct nnp_accelerator_port port;
    if (argc < 2 || platform_open(&port, argv[1])) {
        fprintf(stderr, "%s: no accelerator is here; call it as: example_cores LOCATION\n", argc < 2 ? "" : argv[1]);
        return 2;
    }
    int result = nnp_cores_open(&cores, &port, &nnp_network, nnp_firmware, nnp_firmware_bytes, POLLS);
    if (result != NNP_OK) return fail(&cores, "open", result);
    uint32_t count = nnp_example_count, longest = 1;
    const uint16_t **samples = calloc(count, sizeof *samples);
    uint16_t **results = calloc(count, sizeof *results), *outputs = calloc(count, 2 * NETWORK_OUTPUTS);
    uint32_t *steps = calloc(count, sizeof *steps);
    if (!samples || !results || !outputs || !steps) return 2;
    for (uint32_t k = 0; k < count; k++) {
        samples[k] = nnp_examples[k].sample;
        steps[k] = nnp_examples[k].steps;
        results[k] = outputs + (size_t)k * NETWORK_OUTPUTS;
        if (steps[k] > longest) longest = steps[k];
    }
    size_t capacity = nnp_cores_buffer_bytes(&nnp_network, longest), wrong = 0;
    uint8_t *buffer = malloc(capacity);
    if (!buffer) return 2;
    result = nnp_cores_infer(&cores, count, samples, steps, results, buffer, capacity);
    if (result != NNP_OK) return fail(&cores, "infer", result);
    for (uint32_t k = 0; k < count; k++) {
        size_t differ = 0;
        for (uint32_t j = 0; j < NETWORK_OUTPUTS; j++) differ += results[k][j] != nnp_examples[k].result[j];
        printf("example %u: %u outputs, %u differ from golden\n", (unsigned)k, (unsigned)NETWORK_OUTPUTS,
               (unsigned)differ);
        wrong += differ;
    }
    free(samples);
    free(results);
    free(outputs);
    free(steps);
    free(buffer);
    platform_close(&port);
    return wrong != 0;
}
