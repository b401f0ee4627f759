/* Whole inferences: one sample in, its result out, for any network that Concord compiles. */
#ifndef NNP_INFER_H
#define NNP_INFER_H

#include "nnp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the elements of an image lie in words. A sample holds them by channel, row and column; the machine takes or gives
 * position after position, at each the pixels of a window, row by row, and all channels of each pixel. Zeros fill each
 * position up to a multiple of `align` elements. */
struct nnp_layout {
    uint32_t channels, rows, columns;
    uint32_t align;
    uint32_t window[2], stride[2], dilation[2]; /* down and across */
    uint32_t padding[4];                        /* rows and columns of zeros above, below, left and right */
    uint32_t lanes;                             /* elements of a position, without the zeros behind them */
    uint32_t runs;                              /* of channels, where these do not follow each other; otherwise 0 */
    const uint32_t (*places)[3];                /* of each run: place of its first channel, distance, number */
};

/* A compiled network. network.c defines one. */
struct nnp_network {
    const char *name;
    uint32_t inputs, outputs;        /* elements of one input vector, and of the result */
    uint32_t input_words;            /* words of one input vector; 0 with a layout */
    uint32_t output_words;           /* words of the result */
    int32_t loop;                    /* address of the loop over time steps; -1: one vector, or fixed time steps */
    uint32_t steps;                  /* time steps of every sample if they are fixed, otherwise 0 */
    uint32_t directions;             /* vectors that each time step takes */
    const uint8_t *backward;         /* whether each of them comes from the end of the sequence */
    const struct nnp_layout *input;  /* NULL for the order of the sample */
    const struct nnp_layout *output; /* NULL for the order of the result */
};

/* Bytes of the buffer that nnp_infer needs for a sample of so many time steps; 1 where a sample is one vector. */
size_t nnp_buffer_bytes(const struct nnp_network *network, uint32_t steps);

/* Make the INPUT message of a sample: binary16 patterns [inputs], or [steps][inputs] of a recurrent network. */
int nnp_input(const struct nnp_network *network, const uint16_t *sample, uint32_t steps, uint8_t *buffer,
              size_t capacity, size_t *bytes);

/* Make the message that lets the program make as many time steps: its loop is one instruction. */
int nnp_steps_message(const struct nnp_network *network, uint32_t steps, uint8_t *buffer, size_t capacity,
                      size_t *bytes);

/* Take the elements of an OUTPUT message of a result; *taken counts those of all messages of it. */
int nnp_take(const struct nnp_network *network, const struct nnp_message *message, uint32_t *taken, uint16_t *result);

/* Run the network, which nnp_load has put into the machine, on one sample.
 * `result` takes `outputs` binary16 patterns; `buffer` holds the messages meanwhile. */
int nnp_infer(struct nnp *nnp, const struct nnp_network *network, const uint16_t *sample, uint32_t steps,
              uint16_t *result, uint8_t *buffer, size_t capacity);

/* Conversion to and from binary16; to the nearest, ties to even. */
uint16_t nnp_from_float(float value);
float nnp_to_float(uint16_t bits);

#ifdef __cplusplus
}
#endif

#endif
