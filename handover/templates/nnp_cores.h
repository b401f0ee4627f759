/* Whole inferences on the cores of an accelerator: samples in, results out, for any network that Concord compiles. */
#ifndef NNP_CORES_H
#define NNP_CORES_H

#include "nnp_commands.h"
#include "nnp_infer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An accelerator of which all cores that do not train run one network. nnp_cores_open fills everything. */
struct nnp_cores {
    struct nnp_accelerator accelerator; /* read: after NNP_LIST, which command failed and why */
    const struct nnp_network *network;
    uint32_t samples;                   /* byte of the memory at which samples and results begin */
    uint32_t steps[NNP_CORES];          /* time steps of the program in each core; 0 if unknown */
};

/* Check the digest register, reset the accelerator, and bring messages such as load.bin into each core.
 * The memory holds, from byte 0 on, Dram of the cores, the ring of commands, these messages, samples and results. */
int nnp_cores_open(struct nnp_cores *cores, const struct nnp_accelerator_port *port, const struct nnp_network *network,
                   const uint8_t *messages, size_t bytes, uint32_t polls);

/* Bytes of the buffer that nnp_cores_infer needs for samples of at most so many time steps. */
size_t nnp_cores_buffer_bytes(const struct nnp_network *network, uint32_t steps);

/* Run the network on samples, which the cores take in turns. Sample k has steps[k] time steps, 1 where `steps` is NULL,
 * and its result of `outputs` binary16 patterns goes to results[k]; `buffer` holds one message at a time. */
int nnp_cores_infer(struct nnp_cores *cores, uint32_t count, const uint16_t *const *samples, const uint32_t *steps,
                    uint16_t *const *results, uint8_t *buffer, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
