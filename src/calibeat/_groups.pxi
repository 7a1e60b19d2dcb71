# The words of the attributes of single events. What is written here costs a forecast some 50 ns an attribute.

from cpython.dict cimport PyDict_GetItemWithError
from cpython.ref cimport PyObject


cdef class EventWords:
    """The part of a `WordMaker` that serves single events: words of values that have come before.

    `_cached` has a dict for each attribute, from a value to its type and its word: True == 1 in Python, so the type must
    agree. A value that is not there goes to `_make`, and what is no tuple, list or dict to `_in_order`.
    """

    cdef tuple attributes
    cdef bint takes_more
    cdef readonly list _cached
    cdef readonly tuple _numbers  # of each attribute: what is known of its numbers; None where values are names
    cdef readonly bint _gathers  # whether the first numbers of an attribute are not all there yet

    def _serve(self, tuple attributes, bint takes_more):
        """Serve these attributes; `takes_more` says whether a dict may have other names too."""
        self.attributes, self.takes_more = attributes, takes_more
        self._cached = [{} for _ in attributes]

    def _know(self, tuple numbers):
        """Take what is known of numbers now, tuples of those that are gathered; a part of a step: see `all_at_once`."""
        cdef bint gathers = False
        for known in numbers:
            gathers = gathers or type(known) is tuple
        self._numbers, self._gathers = numbers, gathers

    def of_event(self, values):
        """The words of one event, with a sign as kernels have them.

        Raises
        ------
        InvalidInput : a name is missing or unknown, or a value is none that an attribute can have.
        """
        cdef int64_t[MOST_ATTRIBUTES] words
        cdef Index k
        self.read(values, &words[0])
        return [words[k] for k in range(len(self.attributes))]

    cdef int read(self, object values, int64_t* words) except -1:
        """Put the words of one event where `words` begins."""
        cdef Index k, count = len(self.attributes)
        cdef PyObject* found
        cdef object value
        cdef tuple row
        cdef bint by_name = type(values) is dict and (self.takes_more or len(<dict>values) == count)
        if by_name:
            for k in range(count):
                found = PyDict_GetItemWithError(<dict>values, <object>self.attributes[k])
                if found == NULL:
                    by_name = False
                    break
                value = <object>found  # held: hashing it may run code that changes the dict
                words[k] = self.word(k, value)
            if by_name:
                return 0
        if not (type(values) is tuple or type(values) is list) or len(values) != count:
            values = self._in_order(values)
        row = values if type(values) is tuple else tuple(values)  # a list could be changed as well
        if len(row) != count:  # an odd subclass of list
            self._in_order(row)
        for k in range(count):
            words[k] = self.word(k, row[k])
        return 0

    cdef int64_t word(self, Index k, object value) except? -1:
        cdef PyObject* found = NULL
        cdef tuple known
        try:
            found = PyDict_GetItemWithError(<dict>self._cached[k], value)
        except TypeError:  # it cannot be hashed, so it is no value; `_make` says so
            pass
        if found != NULL:
            known = <tuple>found
            if known[0] is type(value):
                return known[1]
        return self._make(k, value)
