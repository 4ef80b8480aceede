"""The beginning of every program: types, and the few functions that C lacks or leaves undefined.

No header is included: they take longer to read than a kernel takes to compile, and are not always where NVRTC looks.
"""

PREAMBLE = r"""
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

#define LT_FUNCTION static __device__ __forceinline__
#define LT_WARP 0xffffffffu

// A launch's arguments, in the order of the kernel IR's layout: one parameter, which lies in constant memory.
template <int N> struct lt_args { s64 at[N]; };

LT_FUNCTION u32 lt_bits_i32(float x) { return __float_as_uint(x); }
LT_FUNCTION u64 lt_bits_i64(double x) { return (u64)__double_as_longlong(x); }
LT_FUNCTION float lt_bits_float(u32 x) { return __uint_as_float(x); }
LT_FUNCTION double lt_bits_double(u64 x) { return __longlong_as_double((s64)x); }
LT_FUNCTION float lt_inff() { return lt_bits_float(0x7f800000u); }
LT_FUNCTION float lt_nanf() { return lt_bits_float(0x7fc00000u); }
LT_FUNCTION double lt_inf() { return lt_bits_double(0x7ff0000000000000ull); }
LT_FUNCTION double lt_nan() { return lt_bits_double(0x7ff8000000000000ull); }
template <typename T> LT_FUNCTION bool lt_isnan(T x) { return x != x; }

// Shifts by the width or more are defined: everything is shifted out.
template <typename T> LT_FUNCTION T lt_shl(T x, T n) { return n < 8 * sizeof(T) ? (T)((u64)x << n) : (T)0; }
template <typename T> LT_FUNCTION T lt_lshr(T x, T n) { return n < 8 * sizeof(T) ? (T)(x >> n) : (T)0; }
LT_FUNCTION u8 lt_ashr(u8 x, u8 n) { return (u8)((s8)x >> (n < 7 ? n : 7)); }
LT_FUNCTION u16 lt_ashr(u16 x, u16 n) { return (u16)((s16)x >> (n < 15 ? n : 15)); }
LT_FUNCTION u32 lt_ashr(u32 x, u32 n) { return (u32)((s32)x >> (n < 31 ? n : 31)); }
LT_FUNCTION u64 lt_ashr(u64 x, u64 n) { return (u64)((s64)x >> (n < 63 ? n : 63)); }
LT_FUNCTION u64 lt_fshl(u64 high, u64 low, u64 n) { n &= 63; return n ? high << n | low >> (64 - n) : high; }

// NaN if either is; -0 lies below +0.
LT_FUNCTION double lt_maximum(double x, double y) {
    if (lt_isnan(x) || lt_isnan(y)) return lt_nan();
    return x == y ? ((s64)lt_bits_i64(x) < 0 ? y : x) : x > y ? x : y;
}
LT_FUNCTION double lt_minimum(double x, double y) {
    if (lt_isnan(x) || lt_isnan(y)) return lt_nan();
    return x == y ? ((s64)lt_bits_i64(x) < 0 ? x : y) : x < y ? x : y;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
LT_FUNCTION float lt_maximum(float x, float y) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
LT_FUNCTION float lt_minimum(float x, float y) {
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
#else
LT_FUNCTION float lt_maximum(float x, float y) {
    if (lt_isnan(x) || lt_isnan(y)) return lt_nanf();
    return x == y ? ((s32)lt_bits_i32(x) < 0 ? y : x) : x > y ? x : y;
}
LT_FUNCTION float lt_minimum(float x, float y) {
    if (lt_isnan(x) || lt_isnan(y)) return lt_nanf();
    return x == y ? ((s32)lt_bits_i32(x) < 0 ? x : y) : x < y ? x : y;
}
#endif

// Float to integer: truncated, at the ends of the range where it is outside, 0 for NaN.
template <typename T> struct lt_limits;
template <> struct lt_limits<s8> { static const s8 low = -128, high = 127; };
template <> struct lt_limits<s16> { static const s16 low = -32768, high = 32767; };
template <> struct lt_limits<s32> { static const s32 low = -2147483647 - 1, high = 2147483647; };
template <> struct lt_limits<s64> { static const s64 low = -9223372036854775807ll - 1, high = 9223372036854775807ll; };
template <> struct lt_limits<u8> { static const u8 low = 0, high = 255; };
template <> struct lt_limits<u16> { static const u16 low = 0, high = 65535; };
template <> struct lt_limits<u32> { static const u32 low = 0, high = 4294967295u; };
template <> struct lt_limits<u64> { static const u64 low = 0, high = 18446744073709551615ull; };
template <typename T, typename F> LT_FUNCTION T lt_saturate(F x) {
    if (lt_isnan(x)) return 0;
    // The highest one may round up to the first float that is too large: >= catches it either way.
    if (x >= (F)lt_limits<T>::high) return lt_limits<T>::high;
    return x <= (F)lt_limits<T>::low ? lt_limits<T>::low : (T)x;
}

#ifdef __CUDA_ARCH__
LT_FUNCTION float lt_half_to_float(u16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
LT_FUNCTION u16 lt_float_to_half(float x) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
LT_FUNCTION u16 lt_float_to_bfloat(float x) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
#else
LT_FUNCTION u16 lt_float_to_bfloat(float x) {
    const u32 bits = lt_bits_i32(x);
    return lt_isnan(x) ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif

LT_FUNCTION s64 lt_min_index(s64 a, s64 b) { return a < b ? a : b; }
LT_FUNCTION s32 lt_min_index(s32 a, s32 b) { return a < b ? a : b; }

// n / d for 0 <= n < 2**31, by the multiplier and the shift that stand for d (see mapping.magic).
LT_FUNCTION s32 lt_divided(s32 n, u64 d) { return (s32)((u64)(u32)n * (u32)d >> (d >> 32)); }

// What the machine has instructions for: 2**x to 2**-22.5, results below 2**-126 as 0; 1/x, here to the last bit, of a
// normal x with a normal result.
#ifdef __CUDA_ARCH__
LT_FUNCTION float lt_exp2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
LT_FUNCTION float lt_reciprocal(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return fmaf(fmaf(-x, r, 1.0f), r, r);
}
LT_FUNCTION float lt_saturated(float x) { return __saturatef(x); }
LT_FUNCTION float lt_fma_down(float x, float y, float z) { return __fmaf_rd(x, y, z); }
#endif

// Several neighbours, as wide as the machine loads: what `wide` accesses are aligned to.
template <typename T, int N> struct __align__(sizeof(T) * N < 16 ? sizeof(T) * N : 16) lt_pack { T at[N]; };
template <typename T, int N> LT_FUNCTION void lt_load(T (&to)[N], const T *from) {
    const lt_pack<T, N> pack = *(const lt_pack<T, N> *)from;
#pragma unroll
    for (int k = 0; k < N; k++) to[k] = pack.at[k];
}
template <typename T, int N> LT_FUNCTION void lt_load(T (&to)[N], const T *from, int live) {
    if (live == N) {
        lt_load(to, from);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) to[k] = k < live ? from[k] : (T)0;
    }
}
template <typename T, int N> LT_FUNCTION void lt_store(T *to, const T (&from)[N]) {
    lt_pack<T, N> pack;
#pragma unroll
    for (int k = 0; k < N; k++) pack.at[k] = from[k];
    *(lt_pack<T, N> *)to = pack;
}
template <typename T, int N> LT_FUNCTION void lt_store(T *to, const T (&from)[N], int live) {
    if (live == N) {
        lt_store(to, from);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            if (k < live) to[k] = from[k];
    }
}

// Folding lanes. How two become one is a type, so that a tree is written once.
struct lt_add { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a + b; } };
struct lt_mul { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a * b; } };
struct lt_or { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a | b; } };
struct lt_and { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a & b; } };
struct lt_max {
    template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a > b ? a : b; }
    static __device__ __forceinline__ float of(float a, float b) { return lt_maximum(a, b); }
    static __device__ __forceinline__ double of(double a, double b) { return lt_maximum(a, b); }
};
struct lt_min {
    template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a < b ? a : b; }
    static __device__ __forceinline__ float of(float a, float b) { return lt_minimum(a, b); }
    static __device__ __forceinline__ double of(double a, double b) { return lt_minimum(a, b); }
};

// The extreme of halves, two at a time where the machine has that, and widened at the end.
template <bool bfloat> LT_FUNCTION float lt_widened(u16 x) {
    return bfloat ? lt_bits_float((u32)x << 16) : lt_half_to_float(x);
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <typename Op, bool bfloat> struct lt_pairs;
#define LT_PAIRS(op, bfloat, instruction)                                                        \
    template <> struct lt_pairs<op, bfloat> {                                                    \
        static __device__ __forceinline__ u32 of(u32 a, u32 b) {                                 \
            u32 r;                                                                               \
            asm(instruction " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));                          \
            return r;                                                                            \
        }                                                                                        \
    }
LT_PAIRS(lt_max, true, "max.NaN.bf16x2");
LT_PAIRS(lt_min, true, "min.NaN.bf16x2");
LT_PAIRS(lt_max, false, "max.NaN.f16x2");
LT_PAIRS(lt_min, false, "min.NaN.f16x2");
template <typename Op, bool bfloat, int N> LT_FUNCTION float lt_extreme(const u16 (&x)[N]) {
    u32 best = (u32)x[0] | (u32)x[1] << 16;
#pragma unroll
    for (int k = 2; k < N; k += 2) best = lt_pairs<Op, bfloat>::of(best, (u32)x[k] | (u32)x[k + 1] << 16);
    return Op::of(lt_widened<bfloat>((u16)best), lt_widened<bfloat>((u16)(best >> 16)));
}
#else
template <typename Op, bool bfloat, int N> LT_FUNCTION float lt_extreme(const u16 (&x)[N]) {
    float best = lt_widened<bfloat>(x[0]);
#pragma unroll
    for (int k = 1; k < N; k++) best = Op::of(best, lt_widened<bfloat>(x[k]));
    return best;
}
#endif

// All 32 lanes folded, in any order; the result is in every lane.
template <typename Op, typename T> LT_FUNCTION T lt_fold(T x) {
#pragma unroll
    for (int d = 16; d; d >>= 1) x = Op::of(x, __shfl_xor_sync(LT_WARP, x, d));
    return x;
}
// The first 16 lanes folded by halves: lane j with lane j + 8, and so on; the result is in every lane.
template <typename Op> LT_FUNCTION double lt_tree(double x) {
    x = __shfl_sync(LT_WARP, x, threadIdx.x & 15);
#pragma unroll
    for (int d = 8; d; d >>= 1) x = Op::of(x, __shfl_xor_sync(LT_WARP, x, d));
    return x;
}
// One step of a blocked sum: 32 neighbours are two elements of each of its 16 chains, which the first 16 lanes hold.
template <typename Op, typename T> LT_FUNCTION T lt_step(T part, T x) {
    return Op::of(Op::of(part, x), __shfl_down_sync(LT_WARP, x, 16));
}

// Extremes with their places: the first of equals, NaN before all. A float's key is an integer in its order.
LT_FUNCTION s32 lt_key(float x, bool highest) {
    const s32 bits = (s32)lt_bits_i32(x + 0.0f);
    if (lt_isnan(x)) return highest ? 0x7fc00000 : ~0x7fc00000;
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}
LT_FUNCTION s64 lt_key(double x, bool highest) {
    const s64 bits = (s64)lt_bits_i64(x + 0.0);
    if (lt_isnan(x)) return highest ? 0x7ff8000000000000ll : ~0x7ff8000000000000ll;
    return bits < 0 ? bits ^ 0x7fffffffffffffffll : bits;
}
template <typename Op, typename T> LT_FUNCTION void lt_first(T &best, s64 &at, T x, s64 i) {
    if (x == best ? i < at : Op::of(x, best) == x) {
        best = x;
        at = i;
    }
}
template <typename Op, typename T> LT_FUNCTION void lt_fold_first(T &best, s64 &at) {
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        const T x = __shfl_xor_sync(LT_WARP, best, d);
        const s64 i = __shfl_xor_sync(LT_WARP, at, d);
        lt_first<Op>(best, at, x, i);
    }
}

// Many results of chunks, folded one after the other; in shared memory they are read at the pace of the additions.
template <typename Op> LT_FUNCTION double lt_in_order(double total, const u64 *from, s64 count) {
    __shared__ double staged[1024];
    for (s64 start = 0; start < count; start += 1024) {
        const int some = (int)lt_min_index(count - start, (s64)1024);
        for (int i = threadIdx.x; i < some; i += blockDim.x) staged[i] = lt_bits_double(from[start + i]);
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < some; i++) total = Op::of(total, staged[i]);
        __syncthreads();
    }
    return total;
}

// The index clamped into [0, bound); the first thread to meet one outside writes the status: a code and the index.
LT_FUNCTION u64 lt_check(u64 index, u64 bound, s64 code, s64 *status, bool active) {
    if (active && index >= bound && atomicCAS((u64 *)status, 0ull, (u64)code) == 0) status[1] = (s64)index;
    const s64 top = (s64)bound - 1, low = (s64)index < top ? (s64)index : top;
    return (u64)(low > 0 ? low : 0);
}
"""
