/* Where the accelerator is: an application brings these two functions; platform_cores_*.c are examples of them. */
#ifndef PLATFORM_CORES_H
#define PLATFORM_CORES_H

#include "nnp_commands.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill the functions of the port. Return 0, or anything else if there is no accelerator at this location. */
int platform_open(struct nnp_accelerator_port *port, const char *location);
void platform_close(struct nnp_accelerator_port *port);

#ifdef __cplusplus
}
#endif

#endif
