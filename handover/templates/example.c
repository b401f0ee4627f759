/*
 * Loads the network into the machine, runs the examples, and compares every bit with the golden model.
 *
 *     example LOCATION [load.bin]
 *
 * LOCATION tells platform_open where the machine is. The firmware comes from a file, or, without one, from firmware.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "network.h"
#include "platform.h"

enum { POLLS = 1000000 };

static int fail(const struct nnp *nnp, const char *what, int result) {
    fprintf(stderr, "%s: %s\n", what, nnp_text(result));
    if (result == NNP_STOPPED || result == NNP_REFUSED)
        fprintf(stderr, "%s: %s (instruction %u)\n", what, nnp_error_text(nnp->error), (unsigned)nnp->error_address);
    return 1;
}

/* The bytes of a file, or of firmware.c. */
static const uint8_t *firmware(const char *path, size_t *bytes) {
    *bytes = nnp_firmware_bytes;
    if (!path) return nnp_firmware;
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return NULL;
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *content = malloc(*bytes ? *bytes : 1);
    if (content && fread(content, 1, *bytes, file) != *bytes) {
        free(content);
        content = NULL;
    }
    fclose(file);
    return content;
}

static size_t differing(const struct nnp_example *example, const uint16_t *result) {
    size_t count = 0;
    for (uint32_t k = 0; k < nnp_network.outputs; k++) count += result[k] != example->result[k];
    return count;
}

int main(int argc, char **argv) {
    static struct nnp nnp;
    struct nnp_port port;
    if (argc < 2 || platform_open(&port, argv[1])) {
        fprintf(stderr, "%s: no machine is here; call it as: example LOCATION [load.bin]\n", argc < 2 ? "" : argv[1]);
        return 2;
    }
    size_t bytes;
    const uint8_t *messages = firmware(argc > 2 ? argv[2] : NULL, &bytes);
    if (!messages) {
        fprintf(stderr, "%s: the file cannot be read\n", argv[2]);
        return 2;
    }
    int result = nnp_open(&nnp, &port, POLLS);
    if (result != NNP_OK) return fail(&nnp, "open", result);
    result = nnp_load(&nnp, messages, bytes);
    if (messages != nnp_firmware) free((void *)messages);
    if (result != NNP_OK) return fail(&nnp, "load", result);
    size_t wrong = 0;
    for (uint32_t k = 0; k < nnp_example_count; k++) {
        const struct nnp_example *example = &nnp_examples[k];
        size_t capacity = nnp_buffer_bytes(&nnp_network, example->steps);
        uint8_t *buffer = malloc(capacity);
        uint16_t *outputs = calloc(nnp_network.outputs, sizeof *outputs);
        if (!buffer || !outputs) return 2;
        nnp_clear(&nnp);
        result = nnp_infer(&nnp, &nnp_network, example->sample, example->steps, outputs, buffer, capacity);
        if (result != NNP_OK) return fail(&nnp, "infer", result);
        size_t count = differing(example, outputs);
        printf("example %u: %u outputs, %u differ from golden, %u cycles\n", (unsigned)k, (unsigned)nnp_network.outputs,
               (unsigned)count, (unsigned)nnp_counter(&nnp, NNP_COUNTER_CYCLES));
        wrong += count;
        free(buffer);
        free(outputs);
    }
    platform_close(&port);
    return wrong != 0;
}
