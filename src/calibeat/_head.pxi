# What every unit of the compiled core begins with: what kernels call, and arrays. docs/compiled.md tells of units.

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport INFINITY, NAN, fabs, sqrt  # no call of the C library: processors do these
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #if defined(__GNUC__)
      #define CALIBEAT_PREFETCH(at) __builtin_prefetch((at), 1, 3)
      #define CALIBEAT_APART __attribute__((noinline))
    #else
      #define CALIBEAT_PREFETCH(at) ((void)0)
      #define CALIBEAT_APART
    #endif

    // The loops that matter most exist twice: for every x86-64, and for those of the last ten years, where AUTO takes a
    // seventh less time. The bits are the same, because nothing is contracted.
    #if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
      #define CALIBEAT_TWICE __attribute__((target_clones("default", "arch=x86-64-v3")))
    #else
      #define CALIBEAT_TWICE
    #endif
    """
    ctypedef void apart_void "CALIBEAT_APART void"
    ctypedef bint twice_bint "CALIBEAT_TWICE int"
    ctypedef void twice_void "CALIBEAT_TWICE void"
    ctypedef double twice_double "CALIBEAT_TWICE double"
    ctypedef Py_ssize_t twice_Index "CALIBEAT_TWICE Py_ssize_t"
    void prefetch "CALIBEAT_PREFETCH"(const void* at) noexcept nogil

ctypedef Py_ssize_t Index


# ---- what kernels call by the names that Python has for it ----------------------------------------------------------

cdef inline double max_double(double a, double b) noexcept nogil:
    return b if b > a else a

cdef inline double min_double(double a, double b) noexcept nogil:
    return b if b < a else a

cdef inline Index max_Index(Index a, Index b) noexcept nogil:
    return b if b > a else a

cdef inline Index min_Index(Index a, Index b) noexcept nogil:
    return b if b < a else a

cdef inline Index bits_of(double number) noexcept nogil:
    cdef int64_t bits
    memcpy(&bits, &number, 8)
    return bits

cdef inline double float_of(Index bits) noexcept nogil:
    cdef int64_t word = bits
    cdef double number
    memcpy(&number, &word, 8)
    return number

cdef inline Index mix_word(Index word) noexcept nogil:
    cdef uint64_t x = <uint64_t>word
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return <Index>(x ^ (x >> 31))

cdef inline Index cross_words(Index a, Index b) noexcept nogil:
    cdef Index word = mix_word(<Index>(<uint64_t>a * <uint64_t>0x9E3779B97F4A7C15 ^ <uint64_t>b))
    return word if word != 0 else 1


# ---- arrays ---------------------------------------------------------------------------------------------------------

cdef void* look_at(object array, str name, int dimensions, bytes letters, Py_ssize_t size, Index* shape) except NULL:
    """The memory and the shape of an array. The caller holds the array for as long as the kernel runs."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(array, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    cdef bint good = buffer.itemsize == size and buffer.format[0] in letters and 1 <= buffer.ndim <= dimensions
    cdef int i
    if good:
        for i in range(4):
            shape[i] = buffer.shape[i] if i < buffer.ndim else 1
    PyBuffer_Release(&buffer)
    if not good:
        raise TypeError(f"{name} must be a contiguous array of {letters.decode()} of {size} bytes, got {array!r:.60}")
    return buffer.buf if buffer.buf != NULL else <void*>shape  # an empty one may be nowhere


cdef struct F64N:
    double* data
    Index n
    Index d1
    Index d2
    Index d3

cdef F64N F64N_of(object array, str name) except *:
    cdef Index[4] shape
    cdef double* data = <double*>look_at(array, name, 4, b"d", 8, shape)
    return F64N(data, shape[0], shape[1], shape[2], shape[3])
