/*
 * Driver of the Concord neural network processor: C99, without dynamic memory and without an operating system.
 *
 * The machine is reached through four functions of the application, `struct nnp_port`: two for its registers over
 * AXI4-Lite, and two for whole messages over its two AXI4-Streams. Every function of the driver returns a code of
 * `enum nnp_result`. After another code than NNP_OK from nnp_wait, nnp_receive or nnp_infer, call nnp_reset.
 */
#ifndef NNP_H
#define NNP_H

#include <stddef.h>
#include <stdint.h>

#include "nnp_machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Results of the driver's functions; nnp_text says each of them in a sentence. */
enum nnp_result {
    NNP_OK,
    NNP_STOPPED,        /* The program stopped with an error; `error` and `error_address` say which and where. */
    NNP_REFUSED,        /* The machine refused a message; it starts no program before a reset. */
    NNP_TIMEOUT,        /* The program did not end, or a message did not come, within `polls` attempts. */
    NNP_OTHER_MACHINE,  /* The digest register is not that of the headers. */
    NNP_OTHER_FIRMWARE, /* A message carries the digest of another machine. */
    NNP_DAMAGED,        /* A message is cut off, its CRC is wrong, or its header is none. */
    NNP_TRANSFER,       /* A function of the port failed. */
    NNP_SPACE,          /* A buffer is too small. */
    NNP_ARGUMENT,       /* A number of time steps, elements or words is out of range. */
    NNP_UNEXPECTED,     /* A message came that nothing asked for. */
    NNP_LIST            /* A command of an accelerator has an error, which struct nnp_accelerator names. */
};

/* The application's functions, and a pointer that each of them gets. */
struct nnp_port {
    void *context;

    /* Read or write the register at a byte address. */
    uint32_t (*read)(void *context, uint32_t address);
    void (*write)(void *context, uint32_t address, uint32_t value);

    /* Send one message of whole beats, TLAST with its last beat. Return 0 when the memory of the message may be used
     * again, and anything else when the machine does not take it in time. */
    int (*send)(void *context, const uint8_t *message, size_t bytes);

    /* Take one whole message. Return 0 and its number of bytes in *bytes, which is 0 while no message is complete; the
     * driver then asks again with the same buffer. A message that is larger than the buffer is dropped, and *bytes is
     * more than the capacity. Return anything else when the transfer fails. */
    int (*receive)(void *context, uint8_t *buffer, size_t capacity, size_t *bytes);
};

/* One message, as docs/host.md of Concord describes it. */
struct nnp_message {
    uint8_t kind;           /* NNP_MESSAGE_... */
    uint8_t memory;         /* NNP_MEMORY_... of WRITE and READ, otherwise 0 */
    uint8_t flags;          /* 1: tiles in integer mode */
    uint32_t address;       /* first word, entry, tile or instruction */
    uint32_t count;         /* number of items */
    const uint8_t *payload; /* the items, little-endian */
    size_t payload_bytes;
};

/* Bytes of a message with so many bytes of payload. */
#define NNP_MESSAGE_BYTES(payload) \
    (((size_t)NNP_HEADER_BYTES + (payload) + 2 * NNP_BEAT_BYTES - 1) / NNP_BEAT_BYTES * NNP_BEAT_BYTES)

/* One machine. Only the comments "read" mark what an application reads; nnp_open fills everything. */
struct nnp {
    struct nnp_port port;
    uint32_t polls;         /* attempts to see the end of a program or a message */
    uint32_t status;        /* read: STATUS after nnp_wait or nnp_infer, bits NNP_STATUS_... */
    uint32_t error;         /* read: why a program stopped, NNP_ERROR_... */
    uint32_t error_address; /* read: address of the instruction at which it stopped */
    uint32_t steps;         /* time steps of the program in the machine; 0 if unknown */
    uint32_t asked;         /* address of the last request, which its answer repeats */
    uint32_t unsettled;     /* whether messages other than INPUT may be under way to the machine */
    uint8_t scratch[NNP_MESSAGE_BYTES(2 * NNP_MFU_LANES > 8 ? 2 * NNP_MFU_LANES : 8)];
};

/* Check the machine's digest register, reset the machine and clear its counters. */
int nnp_open(struct nnp *nnp, const struct nnp_port *port, uint32_t polls);

/* Reset everything but memories, and drop all messages that are under way. */
int nnp_reset(struct nnp *nnp);

/* Send messages that follow each other, such as load.bin, and wait until the machine has taken them.
 * All of them are checked before the first one is sent. The machine is reset. */
int nnp_load(struct nnp *nnp, const uint8_t *messages, size_t bytes);

/* Send one message. An INPUT waits until the machine has carried out the messages before it. */
int nnp_send(struct nnp *nnp, const uint8_t *message, size_t bytes);

/* Wait until the machine has carried out every message that was sent, and drop what it sends meanwhile. No program may
 * run. */
int nnp_settle(struct nnp *nnp);

/* Start the program at instruction 0, after the machine has carried out all messages but INPUT. */
int nnp_start(struct nnp *nnp);

/* Wait until no program runs. */
int nnp_wait(struct nnp *nnp);

/* Wait for one message from the machine; `message` then points into `buffer`. */
int nnp_receive(struct nnp *nnp, uint8_t *buffer, size_t capacity, struct nnp_message *message);

/* Make a message from its fields; `payload` may already lie at buffer + NNP_HEADER_BYTES. */
int nnp_pack(uint8_t *buffer, size_t capacity, const struct nnp_message *message, size_t *bytes);

/* Read the message that begins at `data`; *bytes is its length, which may be less than `available`. A READ is read as
 * the answer to a request, with its items. */
int nnp_unpack(const uint8_t *data, size_t available, struct nnp_message *message, size_t *bytes);

/* Value of a counter, NNP_COUNTER_..., and a new beginning for all of them. */
uint32_t nnp_counter(struct nnp *nnp, uint32_t counter);
void nnp_clear(struct nnp *nnp);

/* A result of the driver, and an error of the machine, as a sentence. */
const char *nnp_text(int result);
const char *nnp_error_text(uint32_t error);

#ifdef __cplusplus
}
#endif

#endif
