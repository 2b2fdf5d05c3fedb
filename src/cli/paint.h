/* Text of a guest on the caller's terminal. */
#ifndef CLI_PAINT_H
#define CLI_PAINT_H

#include <stdbool.h>

#include "base/buf.h"

/* A patch for people, in colours if so wanted. What a guest wrote cannot steer the terminal:
 * control characters, also those of two bytes, marks that turn the direction of text and bytes that
 * are no text become '?'. */
void paint_diff(const char *text, bool color, struct buf *out);

#endif
