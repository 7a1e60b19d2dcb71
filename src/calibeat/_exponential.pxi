# Several exponentials at once: `exps` of core/subset.py.
#
# The C library takes them one by one, some 5 ns each. Where the processor has AVX2 and FMA, glibc's own method is written
# here so that the compiler makes vectors of it: x = (k + i/128) log 2 + r, e^x = 2^k 2^(i/128) (1 + p(r)), with glibc's
# polynomial p (by Szabolcs Nagy, Arm). It gives the same bits, with a fifth of the time. That is checked when the module is
# loaded. If one bit differs, or elsewhere, the C library does it.

cdef extern from *:
    """
    #include <math.h>
    #include <string.h>

    static void calibeat_exps_by_library(double* x, Py_ssize_t count) {
        for (Py_ssize_t k = 0; k < count; k++) x[k] = exp(x[k]);
    }

    static void (*calibeat_exps)(double*, Py_ssize_t) = calibeat_exps_by_library;

    #if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
    #include <immintrin.h>

    __attribute__((target("avx2,fma")))
    static void calibeat_exps_by_vectors(double* numbers, Py_ssize_t count) {
        const __m256d shift = _mm256_set1_pd(0x1.8p52);  // added, it leaves a whole number in the low bits
        const double* table = (const double*)CALIBEAT_POWERS_OF_TWO;
        for (Py_ssize_t k = 0; k < count; k += 4) {
            // One by one: a vector of numbers that were just written one by one would have to wait for the memory.
            const volatile double* at = numbers + k;
            __m256d x = _mm256_setr_pd(at[0], at[1], at[2], at[3]);
            __m256d whole = _mm256_fmadd_pd(_mm256_set1_pd(0x1.71547652b82fep7), x, shift);
            __m256i ki = _mm256_castpd_si256(whole);
            __m256i i = _mm256_slli_epi64(_mm256_and_si256(ki, _mm256_set1_epi64x(127)), 1);
            // Two numbers of four places each: quicker than a gather.
            __m128d a = _mm_loadu_pd(table + _mm256_extract_epi64(i, 0)), b = _mm_loadu_pd(table + _mm256_extract_epi64(i, 1));
            __m128d c = _mm_loadu_pd(table + _mm256_extract_epi64(i, 2)), d = _mm_loadu_pd(table + _mm256_extract_epi64(i, 3));
            __m256d ac = _mm256_insertf128_pd(_mm256_castpd128_pd256(a), c, 1);
            __m256d bd = _mm256_insertf128_pd(_mm256_castpd128_pd256(b), d, 1);
            __m256d error = _mm256_unpacklo_pd(ac, bd);
            __m256i bits = _mm256_castpd_si256(_mm256_unpackhi_pd(ac, bd));
            __m256d scale = _mm256_castsi256_pd(_mm256_add_epi64(bits, _mm256_slli_epi64(ki, 45)));
            whole = _mm256_sub_pd(whole, shift);
            __m256d r = _mm256_fmadd_pd(whole, _mm256_set1_pd(-0x1.62e42fefa0000p-8), x);
            r = _mm256_fmadd_pd(whole, _mm256_set1_pd(-0x1.cf79abc9e3b39p-47), r);
            __m256d r2 = _mm256_mul_pd(r, r);
            __m256d low = _mm256_fmadd_pd(r, _mm256_set1_pd(0x1.555555555543cp-3), _mm256_set1_pd(0x1.ffffffffffdbdp-2));
            __m256d high = _mm256_fmadd_pd(r, _mm256_set1_pd(0x1.1111167a4d017p-7), _mm256_set1_pd(0x1.55555cf172b91p-5));
            __m256d p = _mm256_fmadd_pd(r2, low, _mm256_add_pd(error, r));
            p = _mm256_fmadd_pd(_mm256_mul_pd(r2, r2), high, p);
            _mm256_storeu_pd(numbers + k, _mm256_fmadd_pd(scale, p, scale));
        }
    }

    static int calibeat_take_vectors(void) {
        double x[1000], same[1000];
        if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
        for (int k = 0; k < 1000; k++) x[k] = same[k] = (k - 500) * (k % 2 ? 0.99999 : 0.03);
        // Found by search: one of three million that shows whether the library rounds r2 * low before it adds.
        x[0] = same[0] = 0x1.02b404d7e48a1p+2;
        calibeat_exps_by_library(x, 1000);
        calibeat_exps_by_vectors(same, 1000);
        if (memcmp(x, same, sizeof x) != 0) return 0;
        calibeat_exps = calibeat_exps_by_vectors;
        return 1;
    }
    #else
    static int calibeat_take_vectors(void) { return 0; }
    #endif
    """
    void exps "calibeat_exps"(double* x, Index count) noexcept nogil
    bint calibeat_take_vectors()

EXPS_ARE_VECTORS = calibeat_take_vectors()
