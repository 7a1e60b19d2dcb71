# Lists of plain Python objects into arrays, without NumPy's guesses and in a tenth of its time.


def numbers_of(list values, object numbers, bint booleans):
    """Floats, ints and, if asked for, booleans into an array that is as long; False if there is anything else."""
    cdef F64 to = F64_of(numbers, "numbers")
    cdef Py_ssize_t i
    cdef object value
    for i in range(to.n):
        value = values[i]
        if PyFloat_CheckExact(value):
            to.data[i] = PyFloat_AS_DOUBLE(value)
        elif PyLong_CheckExact(value) or (booleans and (value is True or value is False)):
            try:
                to.data[i] = value
            except OverflowError:
                return False
        else:
            return False
    return True


def bytes_of(list values, Py_ssize_t size, object joined):
    """Bytes of one size into an array that has room for them; False if there is anything else."""
    cdef U8 to = U8_of(joined, "joined")
    cdef Py_ssize_t i
    cdef object value
    for i in range(to.n // size):
        value = values[i]
        if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) != size:
            return False
        memcpy(to.data + i * size, PyBytes_AS_STRING(value), size)
    return True
