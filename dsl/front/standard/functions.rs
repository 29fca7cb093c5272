// The standard functions that are made of those of the program IR: helper functions that every block sees.
//
// Branches that are not taken are given arguments at which they are finite, so that they add nothing to a gradient. Where NaN
// would be lost by `min` and `max`, it is given back by itself.

// eˣ − 1. Near 0 by tanh: with t = tanh(x/2) it is 2·t/(1 − t).
fn expm1(x) {
    let t = tanh(0.5 * min(max(x, -1), 1));
    if abs(x) < 1 { 2 * t / (1 - t) } else { exp(x) - 1 }
}

// The logarithm to the base 2.
fn log2(x) {
    ln(x) * 1.4426950408889634
}

// The nearest whole number; of two that are as near, the even one.
fn round(x) {
    let below = floor(x);
    let part = x - below;
    let odd = below - 2 * floor(0.5 * below) != 0;
    if part > 0.5 || part == 0.5 && odd { below + 1 } else { below }
}

// (erf(x) − x)/x for z = x², |x| ≤ 0.84375. Coefficients of erf: Sun Microsystems, FDLIBM, 1993.
fn erf_near(z) {
    let p = 1.28379167095512558561e-01 + z * (-3.25042107247001499370e-01 + z * (-2.84817495755985104766e-02
        + z * (-5.77027029648944159157e-03 + z * -2.37630166566501626084e-05)));
    let q = 1 + z * (3.97917223959155352819e-01 + z * (6.50222499887672944485e-02 + z * (5.08130628187576562776e-03
        + z * (1.32494738004321644526e-04 + z * -3.96022827877536812320e-06))));
    p / q
}

// erf(1 + s) − 0.8450629…, for 0.84375 ≤ 1 + s ≤ 1.25.
fn erf_middle(s) {
    let p = -2.36211856075265944077e-03 + s * (4.14856118683748331666e-01 + s * (-3.72207876035701323847e-01
        + s * (3.18346619901161753674e-01 + s * (-1.10894694282396677476e-01 + s * (3.54783043256182359371e-02
        + s * -2.16637559486879084300e-03)))));
    let q = 1 + s * (1.06420880400844228286e-01 + s * (5.40397917702171048937e-01 + s * (7.18286544141962662868e-02
        + s * (1.26171219808761642112e-01 + s * (1.36370839120290507362e-02 + s * 1.19844998467991074170e-02)))));
    p / q
}

// ln(x·erfc(x)) + x² + 0.5625 for s = 1/x², 1.25 ≤ x ≤ 1/0.35.
fn erfc_far(s) {
    let p = -9.86494403484714822705e-03 + s * (-6.93858572707181764372e-01 + s * (-1.05586262253232909814e+01
        + s * (-6.23753324503260060396e+01 + s * (-1.62396669462573470355e+02 + s * (-1.84605092906711035994e+02
        + s * (-8.12874355063065934246e+01 + s * -9.81432934416914548592e+00))))));
    let q = 1 + s * (1.96512716674392571292e+01 + s * (1.37657754143519042600e+02 + s * (4.34565877475229228821e+02
        + s * (6.45387271733267880336e+02 + s * (4.29008140027567833386e+02 + s * (1.08635005541779435134e+02
        + s * (6.57024977031928170135e+00 + s * -6.04244152148580987438e-02)))))));
    p / q
}

// ln(x·erfc(x)) + x² + 0.5625 for s = 1/x², 1/0.35 ≤ x ≤ 6.
fn erfc_farther(s) {
    let p = -9.86494292470009928597e-03 + s * (-7.99283237680523006574e-01 + s * (-1.77579549177547519889e+01
        + s * (-1.60636384855821916062e+02 + s * (-6.37566443368389627722e+02 + s * (-1.02509513161107724954e+03
        + s * -4.83519191608651397019e+02)))));
    let q = 1 + s * (3.03380607434824582924e+01 + s * (3.25792512996573918826e+02 + s * (1.53672958608443695994e+03
        + s * (3.19985821950859553908e+03 + s * (2.55305040643316442583e+03 + s * (4.74528541206955367215e+02
        + s * -2.24409524465858183362e+01))))));
    p / q
}

// The error function, 2/√π times the integral of exp(−t²) from 0 to x.
fn erf(x) {
    let size = abs(x);
    let (low, middle, high) = (min(size, 0.84375), min(max(size, 0.84375), 1.25), min(max(size, 1.25), 6));
    let s = 1 / (high * high);
    let exponent = if high < 2.857142857142857 { erfc_far(s) } else { erfc_farther(max(s, 0.0277)) };
    let far = 1 - exp(-high * high - 0.5625) * exp(exponent) / high;
    let near = low + low * erf_near(low * low);
    let between = 8.45062911510467529297e-01 + erf_middle(middle - 1);
    let positive = if size < 0.84375 { near } else { if size < 1.25 { between } else { far } };
    if x != x { x } else { if x < 0 { -positive } else { positive } }
}

// The Gaussian error linear unit, x times the share of a normal distribution that is below x.
fn gelu(x) {
    let bounded = max(x, -40);
    if x != x { x } else { 0.5 * bounded * (1 + erf(0.7071067811865476 * bounded)) }
}

// x to the power y: for x < 0 of whole y only.
fn pow(x, y) {
    let size = if x == 0 { 1 } else { abs(x) };
    let power = exp(y * ln(size));
    let whole = floor(y) == y;
    let odd = floor(0.5 * y) != 0.5 * y;
    let signed = if whole { if odd { -power } else { power } } else { inf - inf };
    let of_zero = if y > 0 { 0 } else { if y == 0 { 1 } else { if y < 0 { inf } else { y } } };
    if x == 0 { of_zero } else { if x < 0 { signed } else { power } }
}

// The angle of the point (x, y), in −π … π. Coefficients of the arctangent: Sun Microsystems, FDLIBM, 1993.
fn atan2(y, x) {
    let (across, up) = (abs(x), abs(y));
    let larger = max(across, up);
    let t = min(across, up) / (if larger == 0 { 1 } else { larger });
    let far = t > 0.4375;
    let u = if far { (t - 1) / (t + 1) } else { t };
    let z = u * u;
    let series = 3.33333333333329318027e-01 + z * (-1.99999999998764832476e-01 + z * (1.42857142725034663711e-01
        + z * (-1.11111104054623557880e-01 + z * (9.09088713343650656196e-02 + z * (-7.69187620504482999495e-02
        + z * (6.66107313738753120669e-02 + z * (-5.83357013379057348645e-02 + z * (4.97687799461593236017e-02
        + z * (-3.65315727442169155270e-02 + z * 1.62858201153657823623e-02)))))))));
    let near = u - u * (z * series);
    let angle = if far { near + 0.7853981633974483 } else { near };
    let turned = if up > across { 1.5707963267948966 - angle } else { angle };
    let half = if x < 0 { 3.141592653589793 - turned } else { turned };
    let defined = x == x && y == y;
    if defined { if y < 0 { -half } else { half } } else { x + y }
}
