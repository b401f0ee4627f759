/* Where the machine is: an application brings these two functions; platform_*.c are examples of them. */
#ifndef PLATFORM_H
#define PLATFORM_H

#include "nnp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill the functions of the port. Return 0, or anything else if there is no machine at this location. */
int platform_open(struct nnp_port *port, const char *location);
void platform_close(struct nnp_port *port);

#ifdef __cplusplus
}
#endif

#endif
