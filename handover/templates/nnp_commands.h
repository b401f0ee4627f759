/*
 * Driver of an accelerator of Concord: C99, without dynamic memory and without an operating system. It gives lists of
 * commands to the command processor and waits for their end. Messages and programs lie in the memory before that.
 */
#ifndef NNP_COMMANDS_H
#define NNP_COMMANDS_H

#include <stddef.h>
#include <stdint.h>

#include "nnp_accelerator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Results of the driver's functions. */
enum nnp_list_result {
    NNP_LIST_OK,
    NNP_LIST_FAILED,   /* A command has an error, which struct nnp_accelerator names; reset before the next list. */
    NNP_LIST_TIMEOUT,  /* Commands have not ended within `polls` attempts. */
    NNP_LIST_OTHER,    /* The digest register is not that of nnp_accelerator.h. */
    NNP_LIST_ARGUMENT  /* The address or the size of the ring is none. */
};

/* The application's functions, and a pointer that each of them gets. */
struct nnp_accelerator_port {
    void *context;

    /* Read or write the register at a byte address of s_axil. */
    uint32_t (*read)(void *context, uint32_t address);
    void (*write)(void *context, uint32_t address, uint32_t value);

    /* Write bytes of the memory at m_axi. The accelerator must read them from now on: flush caches. */
    void (*write_memory)(void *context, uint32_t address, const uint8_t *bytes, size_t count);

    /* Read bytes of the memory, as the accelerator has written them: drop what caches hold of them. Only nnp_cores_infer
     * calls it. */
    void (*read_memory)(void *context, uint32_t address, uint8_t *bytes, size_t count);
};

/* One command, as docs/accelerator.md of Concord describes it; fields that its kind does not use are 0. */
struct nnp_command {
    uint8_t kind; /* NNP_COMMAND_... */
    uint8_t core;
    uint32_t first, count, second, room, value;
};

/* One accelerator. Only the comments "read" mark what an application reads; nnp_accelerator_open fills everything. */
struct nnp_accelerator {
    struct nnp_accelerator_port port;
    uint32_t polls;         /* attempts to see a free slot of the ring, or the end of all commands */
    uint32_t ring;          /* byte address of the ring */
    uint32_t commands;      /* number of commands that it holds */
    uint32_t status;        /* read: STATUS after nnp_list_wait, bits NNP_ACCELERATOR_STATUS_... */
    uint32_t error;         /* read: error of the first command with one, NNP_COMMAND_ERROR_... */
    uint32_t error_index;   /* read: its number since the reset */
    uint32_t error_origin;  /* read: core with the error; 255 is the command processor */
    uint32_t core_error;    /* read: error of the program of this core */
    uint32_t error_address; /* read: address of the instruction at which it stopped */
};

/* Check the digest register, reset the accelerator, and let a ring of 2^size commands begin at a multiple of 64. */
int nnp_accelerator_open(struct nnp_accelerator *one, const struct nnp_accelerator_port *port, uint32_t ring,
                         uint32_t size, uint32_t polls);

/* Forget all commands, and reset all cores; memories stay. */
void nnp_accelerator_reset(struct nnp_accelerator *one);

/* Give commands to the command processor, behind those that it has, as the ring has room. */
int nnp_list_submit(struct nnp_accelerator *one, const struct nnp_command *commands, size_t count);

/* Wait until all commands have ended, or one has failed, and the memory has answered all. */
int nnp_list_wait(struct nnp_accelerator *one);

/* Submit a list and wait for its end. */
int nnp_list_run(struct nnp_accelerator *one, const struct nnp_command *commands, size_t count);

/* An error of a command as a sentence. */
const char *nnp_command_error_text(uint32_t error);

#ifdef __cplusplus
}
#endif

#endif
