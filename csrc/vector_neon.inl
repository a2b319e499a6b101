// Vectors of the baseline target on AArch64, which always has NEON.

// A vector with operators. MSVC's vectors have none, and there a vector of floats has the type of a vector of doubles.
struct Floats {
    float32x4_t x;
    friend FASTGAE_INLINE Floats operator+(Floats a, Floats b) { return {vaddq_f32(a.x, b.x)}; }
    friend FASTGAE_INLINE Floats operator-(Floats a, Floats b) { return {vsubq_f32(a.x, b.x)}; }
    friend FASTGAE_INLINE Floats operator*(Floats a, Floats b) { return {vmulq_f32(a.x, b.x)}; }
    friend FASTGAE_INLINE Floats operator/(Floats a, Floats b) { return {vdivq_f32(a.x, b.x)}; }
};

struct Doubles {
    float64x2_t x;
    friend FASTGAE_INLINE Doubles operator+(Doubles a, Doubles b) { return {vaddq_f64(a.x, b.x)}; }
    friend FASTGAE_INLINE Doubles operator-(Doubles a, Doubles b) { return {vsubq_f64(a.x, b.x)}; }
    friend FASTGAE_INLINE Doubles operator*(Doubles a, Doubles b) { return {vmulq_f64(a.x, b.x)}; }
    friend FASTGAE_INLINE Doubles operator/(Doubles a, Doubles b) { return {vdivq_f64(a.x, b.x)}; }
};

// Which byte of the flags goes to each byte of a vector. A table lookup gives 0 for kNone.
constexpr std::uint8_t kNone = 255;
alignas(16) constexpr std::uint8_t kFlagsOfFloats[16] = {0, kNone, kNone, kNone, 1, kNone, kNone, kNone,
                                                         2, kNone, kNone, kNone, 3, kNone, kNone, kNone};
alignas(16) constexpr std::uint8_t kFlagsOfDoubles[16] = {0, kNone, kNone, kNone, kNone, kNone, kNone, kNone,
                                                          1, kNone, kNone, kNone, kNone, kNone, kNone, kNone};
constexpr std::uint32_t kBitsOfFloats[4] = {1, 2, 4, 8};
constexpr std::uint64_t kBitsOfDoubles[2] = {1, 2};

template <>
struct Vector<float> : VectorOf<float, 4> {
    using Type = Floats;
    using Mask = uint32x4_t;  // all bits of a lane are set, or none

    static Type load(const float* from) { return {vld1q_f32(from)}; }
    static void store(float* to, Type a) { vst1q_f32(to, a.x); }
    // NEON's intrinsics have no streaming store.
    static void stream(float* to, Type a) { store(to, a); }
    static Type all(float x) { return {vdupq_n_f32(x)}; }
    static Type smaller(Type a, Type b) { return select(vcltq_f32(a.x, b.x), a, b); }  // returns b if either is NaN
    static Mask at_least(Type a, Type b) { return vcgeq_f32(a.x, b.x); }

    static Mask zero_flags(const std::uint8_t* flags) {
        std::uint32_t four;
        std::memcpy(&four, flags, sizeof four);
        const uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(four));
        const uint8x16_t spread = vqtbl1q_u8(bytes, vld1q_u8(kFlagsOfFloats));
        return vceqq_u32(vreinterpretq_u32_u8(spread), vdupq_n_u32(0));
    }
    static Mask both(Mask a, Mask b) { return vandq_u32(a, b); }
    static Bits bits(Mask mask) { return static_cast<Bits>(vaddvq_u32(vandq_u32(mask, vld1q_u32(kBitsOfFloats)))); }
    static Type select(Mask mask, Type a, Type otherwise) { return {vbslq_f32(mask, a.x, otherwise.x)}; }
    static int32x4_t load_bits(const Bits* from) { return vld1q_s32(from); }
    static Mask bit(int32x4_t bits, int k) { return vtstq_s32(bits, vdupq_n_s32(1 << k)); }

    static FASTGAE_INLINE void transpose(Type (&a)[4]) {
        const auto pairs = [](float32x4_t x) { return vreinterpretq_f64_f32(x); };
        const float64x2_t even01 = pairs(vtrn1q_f32(a[0].x, a[1].x)), odd01 = pairs(vtrn2q_f32(a[0].x, a[1].x));
        const float64x2_t even23 = pairs(vtrn1q_f32(a[2].x, a[3].x)), odd23 = pairs(vtrn2q_f32(a[2].x, a[3].x));
        a[0].x = vreinterpretq_f32_f64(vtrn1q_f64(even01, even23));
        a[1].x = vreinterpretq_f32_f64(vtrn1q_f64(odd01, odd23));
        a[2].x = vreinterpretq_f32_f64(vtrn2q_f64(even01, even23));
        a[3].x = vreinterpretq_f32_f64(vtrn2q_f64(odd01, odd23));
    }
};

template <>
struct Vector<double> : VectorOf<double, 2> {
    using Type = Doubles;
    using Mask = uint64x2_t;

    static Type load(const double* from) { return {vld1q_f64(from)}; }
    static Type load(const float* from) { return {vcvt_f64_f32(vld1_f32(from))}; }
    static void store(double* to, Type a) { vst1q_f64(to, a.x); }
    static void store(float* to, Type a) { vst1_f32(to, vcvt_f32_f64(a.x)); }
    static void stream(double* to, Type a) { store(to, a); }
    static Type all(double x) { return {vdupq_n_f64(x)}; }
    static Type smaller(Type a, Type b) { return select(vcltq_f64(a.x, b.x), a, b); }
    static Mask at_least(Type a, Type b) { return vcgeq_f64(a.x, b.x); }

    static Mask zero_flags(const std::uint8_t* flags) {
        std::uint16_t two;
        std::memcpy(&two, flags, sizeof two);
        const uint8x16_t bytes = vreinterpretq_u8_u16(vdupq_n_u16(two));
        const uint8x16_t spread = vqtbl1q_u8(bytes, vld1q_u8(kFlagsOfDoubles));
        return vceqq_u64(vreinterpretq_u64_u8(spread), vdupq_n_u64(0));
    }
    static Mask both(Mask a, Mask b) { return vandq_u64(a, b); }
    static Bits bits(Mask mask) { return static_cast<Bits>(vaddvq_u64(vandq_u64(mask, vld1q_u64(kBitsOfDoubles)))); }
    static Type select(Mask mask, Type a, Type otherwise) { return {vbslq_f64(mask, a.x, otherwise.x)}; }
    static int64x2_t load_bits(const Bits* from) { return vld1q_s64(from); }
    static Mask bit(int64x2_t bits, int k) { return vtstq_s64(bits, vdupq_n_s64(1 << k)); }

    static FASTGAE_INLINE void transpose(Type (&a)[2]) {
        const float64x2_t even = vtrn1q_f64(a[0].x, a[1].x);
        a[1].x = vtrn2q_f64(a[0].x, a[1].x);
        a[0].x = even;
    }
};
