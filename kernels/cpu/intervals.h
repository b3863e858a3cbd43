// Activations of one register under AVX-512: the digits of math.h's formulas in fewer instructions.
// erf, tanh and GELU: the range is cut into 16 intervals around the multiples of a width. In each the
// function is a polynomial in the distance t from its centre (Chebyshev interpolation; the rows are the
// coefficients of t^0, t^1, ..), and a permutation of lanes, which costs as much as a multiplication, picks
// the coefficients from registers.
#pragma once

#include "kernels/cpu/kernel.h"

#if defined(__AVX512F__)

namespace gradloom::kernels::GRADLOOM_ISA {

// erf: width 547 / 2048.
alignas(64) constexpr float kErf[7][16] = {
    {0.0f, 0.294362932f, 0.550017476f, 0.742855549f, 0.869183064f, 0.941055954f, 0.976568937f, 0.991808057f,
     0.997487068f, 0.999324918f, 0.999841392f, 0.999967456f, 0.999994159f, 0.999999106f, 0.999999881f, 1.0f},
    {0.128379166f, 1.05068803f, 0.848262012f, 0.593777478f, 0.360375226f, 0.189637229f, 0.0865226313f,
     0.0342273563f, 0.0117396312f, 0.003491187f, 0.000900180079f, 0.000201244198f, 3.90081368e-05f,
     6.55579061e-06f, 9.55285714e-07f, 1.20692448e-07f},
    {-3.93463289e-08f, -0.280628115f, -0.453124344f, -0.475775808f, -0.385010242f, -0.253250897f,
     -0.138655901f, -0.0639924556f, -0.0250842925f, -0.00839214493f, -0.00240428839f, -0.000591252348f,
     -0.000125023784f, -2.27626861e-05f, -3.57202612e-06f, -4.83528481e-07f},
    {-0.376122952f, -0.30025664f, -0.12138968f, 0.0562186837f, 0.15409106f, 0.162256703f, 0.119295128f,
     0.0683536977f, 0.0318193287f, 0.0122849438f, 0.00398082426f, 0.00109085243f, 0.000254081649f,
     5.04866985e-05f, 8.5811871e-06f, 1.25019028e-06f},
    {-0.000110067951f, 0.133638218f, 0.183460221f, 0.136066526f, 0.0460241847f, -0.0239245128f, -0.049367331f,
     -0.0425662994f, -0.025632903f, -0.0119681684f, -0.00451500621f, -0.00140552071f, -0.000365565589f,
     -8.00831549e-05f, -1.48587515e-05f, -2.34444406e-06f},
    {0.114431627f, 0.075339824f, -0.0025350838f, -0.0598869957f, -0.065513514f, -0.0358948521f,
     -0.00433057873f, 0.0111718355f, 0.012307601f, 0.00782962237f, 0.0036505796f, 0.00133883464f,
     0.00039875714f, 9.81676931e-05f, 2.01964467e-05f, 3.49814422e-06f},
    {-0.0106582744f, -0.0420731045f, -0.048138231f, -0.0201153327f, 0.0110177947f, 0.0222100932f,
     0.0153502449f, 0.00433544349f, -0.00192735041f, -0.00306016183f, -0.00202783197f, -0.000926652283f,
     -0.000324676017f, -9.10504896e-05f, -2.09011941e-05f, -3.98110888e-06f},
};
// tanh: width 625 / 1024.
alignas(64) constexpr float kTanh[8][16] = {
    {0.0f, 0.544374526f, 0.839861453f, 0.949929178f, 0.984962583f, 0.995539963f, 0.998682141f, 0.99961102f,
     0.999885201f, 0.999966145f, 0.999989986f, 0.999997079f, 0.999999106f, 0.999999762f, 0.99999994f, 1.0f},
    {6.14973905e-10f, 0.703656375f, 0.294632733f, 0.0976346061f, 0.029848747f, 0.00890015811f, 0.00263402355f,
     0.000777819136f, 0.000229537211f, 6.77241551e-05f, 1.99806382e-05f, 5.89478213e-06f, 1.73909791e-06f,
     5.13073587e-07f, 1.51368369e-07f, 4.46570994e-08f},
    {-1.96994975e-07f, -0.383053124f, -0.247450978f, -0.0927458107f, -0.0293998867f, -0.00886046514f,
     -0.00263055367f, -0.000777517038f, -0.000229511003f, -6.77219068e-05f, -1.99804508e-05f,
     -5.89476849e-06f, -1.73909757e-06f, -5.13073815e-07f, -1.51368454e-07f, -4.46571278e-08f},
    {-0.333323151f, -0.0260298532f, 0.109613769f, 0.0555571802f, 0.0190082099f, 0.00585422572f,
     0.00174907793f, 0.000517941196f, 0.000152972148f, 4.51448614e-05f, 1.33200283e-05f, 3.9298211e-06f,
     1.15939588e-06f, 3.42048878e-07f, 1.00912246e-07f, 2.97714049e-08f},
    {-0.000195245928f, 0.14188239f, -0.00956026651f, -0.0218679048f, -0.00892306119f, -0.00287448894f,
     -0.000869845913f, -0.000258541811f, -7.64430952e-05f, -2.25670301e-05f, -6.65905463e-06f,
     -1.9646825e-06f, -5.79635469e-07f, -1.71006434e-07f, -5.04508471e-08f, -1.4884149e-08f},
    {0.135073036f, -0.0528112203f, -0.0219686907f, 0.00441832282f, 0.00311591779f, 0.00110818446f,
     0.000344269851f, 0.000103099301f, 3.0550571e-05f, 9.02478496e-06f, 2.66353231e-06f, 7.85890904e-07f,
     2.31863325e-07f, 6.84056047e-08f, 2.01812611e-08f, 5.95393423e-09f},
    {-0.00756361475f, -0.0275315922f, 0.0158534702f, 0.00116466405f, -0.000736860267f, -0.000344327535f,
     -0.000113616217f, -3.45930057e-05f, -1.02998565e-05f, -3.04690229e-06f, -8.99620318e-07f,
     -2.65470646e-07f, -7.83252716e-08f, -2.31082016e-08f, -6.81748391e-09f, -2.01131578e-09f},
    {-0.0401343144f, 0.0285853166f, -0.00405115122f, -0.00146096689f, 4.98117406e-05f, 8.21939393e-05f,
     3.0929059e-05f, 9.72812359e-06f, 2.9231046e-06f, 8.67017604e-07f, 2.56193687e-07f, 7.56180967e-08f,
     2.2312113e-08f, 6.58284494e-09f, 1.94211158e-09f, 5.7296895e-10f},
};
// 16 log2 Phi(-x), Phi the distribution function of the normal distribution: width 1/2, the last up to 12.95.
alignas(64) constexpr float kNormalTail[6][16] = {
    {-16.0f, -27.143713f, -42.4965248f, -62.4616394f, -87.3276978f, -117.300301f, -152.526947f, -193.114899f,
     -239.143478f, -290.672333f, -347.747162f, -410.403503f, -478.669342f, -552.5672f, -632.115295f,
     -717.328491f},
    {-18.4176655f, -26.3396358f, -35.2048798f, -44.7507172f, -54.7812195f, -65.1577606f, -75.7841644f,
     -86.5938187f, -97.5401993f, -108.590385f, -119.720695f, -130.913849f, -142.156998f, -153.44046f,
     -164.756821f, -176.100189f},
    {-7.347579f, -8.44287491f, -9.24366283f, -9.81556129f, -10.2226028f, -10.5146646f, -10.7271976f,
     -10.8844652f, -11.002883f, -11.093585f, -11.1641922f, -11.2199917f, -11.2647057f, -11.3009939f,
     -11.3307896f, -11.3562813f},
    {-0.838850677f, -0.625569284f, -0.449856728f, -0.319901049f, -0.228352994f, -0.164961994f, -0.12107347f,
     -0.0904120132f, -0.068696633f, -0.053073518f, -0.0416487232f, -0.0331586748f, -0.0267515499f,
     -0.0218455624f, -0.0180376843f, -0.0142314536f},
    {0.111264102f, 0.0989456251f, 0.076175347f, 0.0545840375f, 0.0379777849f, 0.0262463801f, 0.0182394255f,
     0.0128273843f, 0.00915762596f, 0.00664431928f, 0.00489981053f, 0.00367073365f, 0.00279141404f,
     0.00215272419f, 0.00168199267f, 0.000959190133f},
    {-0.00240133447f, -0.00806665514f, -0.00935900956f, -0.00770872319f, -0.00560125941f, -0.00386329601f,
     -0.00261556986f, -0.00176823325f, -0.00120445096f, -0.000830498117f, -0.000580969441f, -0.000412661087f,
     -0.000297627965f, -0.000217878318f, -0.000161782082f, -3.58178331e-05f},
};
// (Phi(-x) - x Phi'(x)) exp(x^2 / 2): width 1/2, the last up to 13.2.
alignas(64) constexpr float kNormalSlope[6][16] = {
    {0.5f, 0.150147721f, -0.137363985f, -0.392632753f, -0.629782557f, -0.856024384f, -1.07531285f,
     -1.28995287f, -1.50135851f, -1.71043682f, -1.91779208f, -2.12383986f, -2.32887435f, -2.53310919f,
     -2.73670244f, -2.93977332f},
    {-0.797884285f, -0.623075128f, -0.536306262f, -0.489213556f, -0.461680561f, -0.444556236f, -0.433342725f,
     -0.425676525f, -0.420241982f, -0.416269302f, -0.413288027f, -0.410999745f, -0.409208685f, -0.407782674f,
     -0.406630188f, -0.405683756f},
    {0.249987125f, 0.11876937f, 0.0621049032f, 0.0351860598f, 0.0213124007f, 0.0136480881f, 0.00915625785f,
     0.00638762163f, 0.00460587442f, 0.00341590191f, 0.00259525888f, 0.00201332034f, 0.00159047218f,
     0.001276567f, 0.00103907892f, 0.000844962487f},
    {-0.132757947f, -0.0549126528f, -0.0250849314f, -0.0124967648f, -0.00670419587f, -0.00383109716f,
     -0.0023104772f, -0.00145914732f, -0.000958715158f, -0.000651805196f, -0.000456478301f, -0.000328061782f,
     -0.000241183661f, -0.000180899442f, -0.000138115269f, -9.54608258e-05f},
    {0.0607354976f, 0.0231205579f, 0.00935111661f, 0.00414507091f, 0.0019897758f, 0.00102346658f,
     0.000558894186f, 0.000321456086f, 0.000193421612f, 0.000121053417f, 7.84178192e-05f, 5.2362011e-05f,
     3.59128499e-05f, 2.52237296e-05f, 1.80957722e-05f, 7.92147421e-06f},
    {-0.0199635476f, -0.00879654381f, -0.00319501664f, -0.00127589575f, -0.000553917664f, -0.000258790562f,
     -0.000128945903f, -6.79812947e-05f, -3.76627249e-05f, -2.17970646e-05f, -1.311081e-05f, -8.16014017e-06f,
     -5.23552035e-06f, -3.45144235e-06f, -2.33129413e-06f, -3.24351134e-07f},
};

GRADLOOM_INLINE Vec<float> size_of(const Vec<float>& x) {
  return __builtin_bit_cast(Vec<float>, __builtin_bit_cast(Vec<unsigned>, x) & 0x7fffffffu);
}
// NaN stays NaN.
GRADLOOM_INLINE Vec<float> at_most(float limit, const Vec<float>& x) {
  return _mm512_maskz_min_ps(kEveryLane, _mm512_set1_ps(limit), x);
}

struct Interval {
  Vec<unsigned> number;  // its lowest four bits
  Vec<float> t;          // from its centre
};
// The interval of `place`, from 0 to 15.499 widths, and x there. By adding 1.5 * 2^23 the nearest multiple's
// number comes into the lowest bits.
GRADLOOM_INLINE Interval interval_of(const Vec<float>& place, const Vec<float>& x, float width) {
  constexpr float round = 12582912.0f;
  const Vec<float> shifted = place * (1.0f / width) + round;
  return {__builtin_bit_cast(Vec<unsigned>, shifted), x - (shifted - round) * width};
}

// The polynomial of the interval but for its last product and sum, and as a whole.
template <int n>
GRADLOOM_INLINE Vec<float> rise(const float (&coefficients)[n][16], const Interval& at) {
  Vec<float> p = pick(coefficients[n - 1], at.number);
  for (int k = n - 2; k > 0; --k) p = p * at.t + pick(coefficients[k], at.number);
  return p;
}
template <int n>
GRADLOOM_INLINE Vec<float> polynomial(const float (&coefficients)[n][16], const Interval& at) {
  return rise(coefficients, at) * at.t + pick(coefficients[0], at.number);
}

// An odd function that is 1 from 15.499 widths on. In the first interval the polynomial is of f(t) - t and t
// takes the place of its constant, which keeps the digits of small numbers.
template <int n>
GRADLOOM_INLINE Vec<float> odd(const float (&coefficients)[n][16], float width, const Vec<float>& x) {
  const Vec<float> a = at_most(15.499f * width, size_of(x));
  const Interval at = interval_of(a, a, width);
  const Vec<float> base = a == at.t ? a : pick(coefficients[0], at.number);
  const Vec<float> y = rise(coefficients, at) * at.t + base;
  const auto sign = __builtin_bit_cast(Vec<unsigned>, x) & 0x80000000u;
  return __builtin_bit_cast(Vec<float>, __builtin_bit_cast(Vec<unsigned>, y) | sign);
}
// Errors below 1.1 and 1 ulp.
GRADLOOM_INLINE Vec<float> erf(const Vec<float>& x) { return odd(kErf, 547.0f / 2048, x); }
GRADLOOM_INLINE Vec<float> tanh(const Vec<float>& x) { return odd(kTanh, 625.0f / 1024, x); }

GRADLOOM_INLINE Interval normal_interval(const Vec<float>& a) {
  return interval_of(at_most(7.5f, a), a, 0.5f);
}
// x Phi(x) and its slope. What they are below 0 is computed and keeps its digits: 1 - Phi(-x) above.
GRADLOOM_INLINE Vec<float> gelu(const Vec<float>& x) {
  const Vec<float> a = size_of(x);
  const Vec<float> sixteenths = polynomial(kNormalTail, normal_interval(a));
  const Vec<float> shifted = sixteenths + kSixteenths, r = sixteenths - (shifted - kSixteenths);
  const Vec<float> rest = ((1.35508072e-05f * r + 9.38384667e-04f) * r + 4.33216988e-02f) * r;
  const Vec<float> tail = a > 12.9f ? Vec<float>{} : scale_up(shifted, rest);
  return x * (x < 0.0f ? tail : 1.0f - tail);
}
GRADLOOM_INLINE Vec<float> gelu_slope(const Vec<float>& x) {
  const Vec<float> a = at_most(13.25f, size_of(x));  // where exp(-a^2 / 2) is 0
  const Vec<float> tail = exp_down(-0.5f * a * a) * polynomial(kNormalSlope, normal_interval(a));
  return x < 0.0f ? tail : 1.0f - tail;
}

// 1 / (1 + exp(-x)), from the side where the exponential is below 1.
GRADLOOM_INLINE Vec<float> sigmoid(const Vec<float>& x) {
  const Vec<float> e = exp_down(-size_of(x)), one = Vec<float>{} + 1.0f;
  return (x < 0.0f ? e : one) / (1.0f + e);
}

// See math_activations.h.
GRADLOOM_INLINE Vec<float> gelu_tanh(const Vec<float>& x) {
  return x * sigmoid(x * (1.59576912160573071176f + 0.07135481627260025f * x * x));
}
GRADLOOM_INLINE Vec<float> gelu_tanh_slope(const Vec<float>& x) {
  constexpr float c = 1.59576912160573071176f, k = 0.07135481627260025f;
  const Vec<float> a = at_most(10.0f, size_of(x)), x2 = a * a;
  const Vec<float> e = exp_down(-a * (c + k * x2)), s = 1.0f / (1.0f + e);
  const Vec<float> bend = a * (e * s * s) * (c + 3.0f * k * x2);
  return x < 0.0f ? e * s - bend : s + bend;
}

}  // namespace gradloom::kernels::GRADLOOM_ISA

#endif  // AVX-512
