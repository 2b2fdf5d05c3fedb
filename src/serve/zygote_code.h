/* The grader's runner as byte code, made by tools/embed-code when Cordon is built. */
#ifndef SERVE_ZYGOTE_CODE_H
#define SERVE_ZYGOTE_CODE_H

#include <stddef.h>

/* of the interpreter that made it: another one compiles the text */
extern const int zygote_code_magic;
/* marshal: a dictionary of the modules' names, each with its own marshalled code */
extern const unsigned char zygote_code[];
extern const size_t zygote_code_len;

#endif
