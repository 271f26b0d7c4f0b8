/* Makes the shared library a valid extension module, so that setuptools builds and installs it as one. The engine
 * loads it with ctypes, which drops the interpreter lock around each call. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
