// CUDA C on the CPU, for tests: threads are fibers, taken in turn; a warp or a block meets at each shuffle or barrier.
//
// What it sees: wrong indices, reads and writes outside the buffers given, a barrier that some threads do not reach.
// What it cannot see: races within a warp's step, the memory model, alignment faults, and anything about speed.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct lt_dim { unsigned x, y, z; };
static lt_dim blockIdx, gridDim, blockDim, threadIdx;

static inline unsigned __float_as_uint(float x) { unsigned r; memcpy(&r, &x, 4); return r; }
static inline float __uint_as_float(unsigned x) { float r; memcpy(&r, &x, 4); return r; }
static inline long long __double_as_longlong(double x) { long long r; memcpy(&r, &x, 8); return r; }
static inline double __longlong_as_double(long long x) { double r; memcpy(&r, &x, 8); return r; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned long long atomicCAS(unsigned long long *p, unsigned long long a, unsigned long long b) {
    const unsigned long long old = *p;
    if (old == a) *p = b;
    return old;
}
static inline float lt_half_to_float(unsigned short x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }
static inline unsigned short lt_float_to_half(float x) {
    const _Float16 h = (_Float16)x;
    unsigned short r;
    memcpy(&r, &h, 2);
    return r;
}

static inline float lt_exp2(float x) { return x < -126 ? 0 : exp2f(x); }
static inline float lt_reciprocal(float x) { return 1.0f / x; }
static inline float lt_saturated(float x) { return x > 1 ? 1 : x > 0 ? x : 0; }
static inline float lt_fma_down(float x, float y, float z) {
    // Exact in double where it is used; to float towards minus infinity.
    const double exact = (double)x * y + z;
    const float near = (float)exact;
    return near > exact ? nextafterf(near, -INFINITY) : near;
}

// --- fibers ---------------------------------------------------------------------------------------------------------

enum { LT_MAX_THREADS = 1024, LT_STACK = 64 << 10 };
struct lt_fiber { ucontext_t context; int state; int waits; unsigned char value[24]; };
enum { LT_RUNS, LT_WARP_WAITS, LT_BLOCK_WAITS, LT_DONE, LT_FAILED };
static lt_fiber lt_fibers[LT_MAX_THREADS];
static char *lt_stacks;
static ucontext_t lt_scheduler;
static int lt_current, lt_threads;
static char lt_failure[256];
static void (*lt_entry)(void);

// Where each thread stands at a meeting: the same call site for all, else they have diverged.
static inline void lt_meet(int state, int site) {
    lt_fibers[lt_current].state = state;
    lt_fibers[lt_current].waits = site;
    swapcontext(&lt_fibers[lt_current].context, &lt_scheduler);
}
#define __syncthreads() lt_meet(LT_BLOCK_WAITS, __LINE__)
#define __syncwarp() lt_meet(LT_WARP_WAITS, __LINE__)

// Two meetings: nobody may overwrite its value before all have read.
template <typename T> static inline T lt_exchange(T x, int from) {
    const int own = lt_current, base = own & ~31;
    memcpy(lt_fibers[own].value, &x, sizeof x);
    lt_meet(LT_WARP_WAITS, -1);
    T r = x;
    if (from >= 0 && from < 32) memcpy(&r, lt_fibers[base + from].value, sizeof r);
    lt_meet(LT_WARP_WAITS, -2);
    return r;
}
template <typename T> static inline T __shfl_sync(unsigned, T x, int from) { return lt_exchange(x, from & 31); }
template <typename T> static inline T __shfl_xor_sync(unsigned, T x, int d) { return lt_exchange(x, (lt_current & 31) ^ d); }
template <typename T> static inline T __shfl_down_sync(unsigned, T x, int d) {
    return lt_exchange(x, (lt_current & 31) + d < 32 ? (lt_current & 31) + d : -1);
}

[[noreturn]] static void lt_fail_here();

// mma: 16 rows of 8 columns, over 16 halves or 8 floats; a thread gives four words of one operand and two of the other.
template <typename M, typename F> static void lt_warp_product(float *const (&c)[4], const unsigned (&own)[6], F wide) {
    const int per = 4 / sizeof(M), half = 4 * per, lane = lt_current & 31, base = lt_current & ~31;
    memcpy(lt_fibers[lt_current].value, own, sizeof own);
    lt_meet(LT_WARP_WAITS, -3);
    auto element = [&](int of, int word, int part) {
        M x;
        memcpy(&x, lt_fibers[base + of].value + 4 * word + sizeof(M) * part, sizeof x);
        return wide(x);
    };
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float sum = *c[i];
        for (int k = 0; k < 2 * half; k++) {
            const int team = k % half / per, part = k % per, second = k / half;
            sum += element(row % 8 * 4 + team, row / 8 + 2 * second, part) * element(column * 4 + team, 4 + second, part);
        }
        *c[i] = sum;
    }
    lt_meet(LT_WARP_WAITS, -4);
}
// ldmatrix: four matrices of 8 rows of 16 bytes, whose addresses the lanes give.
template <bool TURNED> static void lt_matrices(unsigned (&r)[4], const void *at) {
    const int lane = lt_current & 31, base = lt_current & ~31;
    if ((size_t)at % 16) {
        snprintf(lt_failure, sizeof lt_failure, "thread %d: a row of a matrix is not aligned to 16 bytes", lt_current);
        lt_fail_here();
    }
    memcpy(lt_fibers[lt_current].value, &at, sizeof at);
    lt_meet(LT_WARP_WAITS, -5);
    for (int m = 0; m < 4; m++) {
        unsigned short pair[2];
        for (int i = 0; i < 2; i++) {
            const int row = TURNED ? lane % 4 * 2 + i : lane / 4, column = TURNED ? lane / 4 : lane % 4 * 2 + i;
            const char *from;
            memcpy(&from, lt_fibers[base + 8 * m + row].value, sizeof from);
            memcpy(pair + i, from + 2 * column, 2);
        }
        memcpy(r + m, pair, 4);
    }
    lt_meet(LT_WARP_WAITS, -6);
}

static void lt_run_fiber() {
    lt_entry();
    lt_fibers[lt_current].state = LT_DONE;
}

// Whether fibers [first, last) all stand at one meeting (those that are done apart).
static bool lt_all_meet(int first, int last, int state) {
    int site = 0, found = 0;
    for (int t = first; t < last; t++) {
        if (lt_fibers[t].state != state) return false;
        if (found++ && lt_fibers[t].waits != site) return false;
        site = lt_fibers[t].waits;
    }
    return true;
}

// Give up: this thread goes no further, nor does anything else.
[[noreturn]] static void lt_fail_here() {
    lt_fibers[lt_current].state = LT_FAILED;
    swapcontext(&lt_fibers[lt_current].context, &lt_scheduler);
    abort();
}

static bool lt_block() {
    for (int t = 0; t < lt_threads; t++) {
        getcontext(&lt_fibers[t].context);
        lt_fibers[t].context.uc_stack.ss_sp = lt_stacks + (size_t)t * LT_STACK;
        lt_fibers[t].context.uc_stack.ss_size = LT_STACK;
        lt_fibers[t].context.uc_link = &lt_scheduler;
        makecontext(&lt_fibers[t].context, lt_run_fiber, 0);
        lt_fibers[t].state = LT_RUNS;
    }
    for (;;) {
        bool moved = false, done = true;
        for (int t = 0; t < lt_threads; t++) {
            if (lt_fibers[t].state == LT_RUNS) {
                lt_current = t;
                threadIdx.x = t;
                swapcontext(&lt_scheduler, &lt_fibers[t].context);
                moved = true;
                if (lt_fibers[t].state == LT_FAILED) return false;
            }
            done &= lt_fibers[t].state == LT_DONE;
        }
        if (done) return true;
        for (int w = 0; w < lt_threads; w += 32)
            if (lt_all_meet(w, w + 32, LT_WARP_WAITS)) {
                for (int t = w; t < w + 32; t++) lt_fibers[t].state = LT_RUNS;
                moved = true;
            }
        if (lt_all_meet(0, lt_threads, LT_BLOCK_WAITS)) {
            for (int t = 0; t < lt_threads; t++) lt_fibers[t].state = LT_RUNS;
            moved = true;
        }
        if (!moved) {
            for (int t = 0; t < lt_threads; t++)
                if (lt_fibers[t].state != LT_DONE) {
                    snprintf(lt_failure, sizeof lt_failure, "deadlock: block %u, thread %d waits for %s that others do not reach (line %d)",
                             blockIdx.x, t, lt_fibers[t].state == LT_WARP_WAITS ? "its warp" : "its block", lt_fibers[t].waits);
                    return false;
                }
        }
    }
}

static const char *lt_launch(void (*entry)(void), unsigned blocks, unsigned threads) {
    if (!lt_stacks) lt_stacks = (char *)malloc((size_t)LT_MAX_THREADS * LT_STACK);
    lt_entry = entry;
    lt_threads = (int)threads;
    blockDim = {threads, 1, 1};
    gridDim = {blocks, 1, 1};
    lt_failure[0] = 0;
    for (unsigned b = 0; b < blocks; b++) {
        blockIdx = {b, 0, 0};
        if (!lt_block()) return lt_failure;
    }
    return 0;
}

// --- buffers --------------------------------------------------------------------------------------------------------

// The bytes that each access may touch, set before a launch.
static const unsigned char *lt_low[64], *lt_high[64];

static inline void lt_touch(int access, const void *at, size_t bytes, size_t alignment) {
    const unsigned char *p = (const unsigned char *)at;
    if (p < lt_low[access] || p + bytes > lt_high[access])
        snprintf(lt_failure, sizeof lt_failure, "block %u, thread %u: access @%d touches byte %lld of %lld", blockIdx.x,
                 threadIdx.x, access, (long long)(p - lt_low[access]), (long long)(lt_high[access] - lt_low[access]));
    else if ((size_t)p % alignment)
        snprintf(lt_failure, sizeof lt_failure, "block %u, thread %u: access @%d is not aligned to %zu bytes", blockIdx.x,
                 threadIdx.x, access, alignment);
    else
        return;
    lt_fail_here();
}

template <typename T> struct lt_checked {
    T *at;
    int access;
    template <typename I> lt_checked operator+(I n) const { return {at + n, access}; }
    T &operator*() const { return (*this)[0]; }
    template <typename I> T &operator[](I n) const {
        lt_touch(access, at + n, sizeof(T), sizeof(T));
        return at[n];
    }
};
