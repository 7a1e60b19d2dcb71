# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""Single events, with all that is written by hand. `core/units.py` says whose kernels are here."""

include "_head.pxi"

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport Py_EQ, Py_NE, PyObject, PyObject_RichCompare, PyTypeObject, newfunc

cdef extern from "Python.h":
    ctypedef struct PyFloatObject:
        double ob_fval


include "kernels.pxi"
include "_checksum.pxi"
include "_lists.pxi"
include "_groups.pxi"
include "_ledger.pxi"
include "_stream.pxi"
