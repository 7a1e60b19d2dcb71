# A checksum that finds damage as fast as memory can be read. It is no signature: who wants to forge one, can.

cdef inline uint64_t stirred(uint64_t lane, uint64_t word) noexcept nogil:
    # The multipliers are odd, so that every step can be undone: another word, or another lane, gives another result.
    lane += word * <uint64_t>0xBF58476D1CE4E5B9
    return (lane << 31 | lane >> 33) * <uint64_t>0x94D049BB133111EB


cdef uint64_t checksum_from(const uint8_t* content, Py_ssize_t size, uint64_t before) noexcept nogil:
    # Eight lanes, which do not wait for each other. A change within one word always changes the result, any other one with
    # a probability of 1 - 2^-64.
    cdef uint64_t[8] lanes
    cdef uint64_t[8] words
    cdef uint64_t total = stirred(before, <uint64_t>size)
    cdef Py_ssize_t at, whole = size - size % 64
    cdef int i
    for i in range(8):
        lanes[i] = <uint64_t>(i + 1)
    for at in range(0, whole, 64):
        for i in range(8):
            memcpy(words, content + at + 8 * i, 8)
            lanes[i] = stirred(lanes[i], words[0])
    memset(words, 0, 64)
    if whole < size:
        memcpy(words, content + whole, size - whole)
    for i in range(8):
        total = <uint64_t>mix_word(<Index>(total ^ stirred(lanes[i], words[i])))
    return total


def checksum(content, uint64_t before):
    """64 bits of some bytes, of how many they are, and of `before`, the checksum of what comes before them."""
    cdef Py_buffer buffer
    cdef uint64_t total
    PyObject_GetBuffer(content, &buffer, PyBUF_C_CONTIGUOUS)
    with nogil:
        total = checksum_from(<const uint8_t*>buffer.buf, buffer.len, before)
    PyBuffer_Release(&buffer)
    return total
