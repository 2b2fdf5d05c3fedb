/* What extension modules of ours know of Python: its stable ABI, so that no headers of it are
 * needed to build them, and one build serves every version. */
#ifndef BASE_PYTHON_H
#define BASE_PYTHON_H

#include <stddef.h>

#define PY_API 3     /* the stable one */
#define PY_VARARGS 1 /* a function of (self, tuple of arguments) */

typedef struct py_object {
    ptrdiff_t refs;
    void *type;
} PyObject;
struct py_method {
    const char *name;
    PyObject *(*call)(PyObject *self, PyObject *args);
    int flags;
    const char *doc;
};
struct py_module {
    ptrdiff_t refs;
    void *type;
    void *init;
    ptrdiff_t index;
    void *copy;
    const char *name, *doc;
    ptrdiff_t size;
    struct py_method *methods;
    void *rest[4];
};

#endif
