// The limit of memory: an addition that does nothing but move memory. Streaming stores write a line without reading it
// first, so it moves 12 bytes per number. Compile it for the CPU that it runs on.
#include <stddef.h>

#if defined(__AVX512F__) || defined(__AVX__) || defined(__SSE__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define OF(operation) _mm512_##operation##_ps
#elif defined(__AVX__)
#define OF(operation) _mm256_##operation##_ps
#elif defined(__SSE__)
#define OF(operation) _mm_##operation##_ps
#endif

// Set to[i] to a[i] + b[i].
void streaming_add(const float* a, const float* b, float* to, ptrdiff_t count) {
    ptrdiff_t i = 0;
#if defined(OF)
    enum { width = sizeof(OF(setzero)()) / sizeof(float) };
    for (; i < count && (size_t)(to + i) % sizeof(OF(setzero)()); ++i) to[i] = a[i] + b[i];
    for (; i + width <= count; i += width) OF(stream)(to + i, OF(add)(OF(loadu)(a + i), OF(loadu)(b + i)));
    _mm_sfence();
#endif
    for (; i < count; ++i) to[i] = a[i] + b[i];
}
