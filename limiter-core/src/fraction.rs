//! Products and quotients that neither wrap nor round on the way.
//!
//! A count times a period passes 2^64 (10^12 × 366 d in µs is 3 × 10^25), so each product that may
//! is made in 128 bits. Most are far smaller, and there a 64-bit division costs a third.

/// ⌊a × b ÷ d⌋ and what is left of it, in 1/d. Quotients past 64 bits saturate; `d` is not 0.
pub(crate) fn mul_div_rem(a: u64, b: u64, d: u64) -> (u64, u64) {
    debug_assert!(d > 0, "division by zero");
    if let Some(product) = a.checked_mul(b) {
        return (product / d, product % d);
    }
    let (product, d) = (u128::from(a) * u128::from(b), u128::from(d));
    (saturate(product / d), saturate(product % d))
}

/// ⌊a × b ÷ d⌋.
pub(crate) fn mul_div_floor(a: u64, b: u64, d: u64) -> u64 {
    mul_div_rem(a, b, d).0
}

/// ⌈a × b ÷ d⌉.
pub(crate) fn mul_div_ceil(a: u64, b: u64, d: u64) -> u64 {
    let (quotient, rest) = mul_div_rem(a, b, d);
    quotient.saturating_add(u64::from(rest > 0))
}

/// ⌈(a × b + c) ÷ d⌉.
pub(crate) fn mul_add_div_ceil(a: u64, b: u64, c: u64, d: u64) -> u64 {
    if let Some(sum) = a.checked_mul(b).and_then(|product| product.checked_add(c)) {
        return sum.div_ceil(d);
    }
    let sum = u128::from(a) * u128::from(b) + u128::from(c);
    saturate(sum.div_ceil(u128::from(d)))
}

fn saturate(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_and_wide_products_agree_with_long_division() {
        let edges = [0, 1, 2, 6, 7, 13, 1_000_003, u64::from(u32::MAX), 1 << 52, 1_000_000_000_000, u64::MAX];
        for a in edges {
            for b in edges {
                for d in [1, 2, 7, 13, 1_000_000_000_000, u64::MAX] {
                    let product = u128::from(a) * u128::from(b);
                    let wide = u128::from(d);
                    assert_eq!(mul_div_floor(a, b, d), saturate(product / wide), "⌊{a}×{b}÷{d}⌋");
                    assert_eq!(mul_div_ceil(a, b, d), saturate(product.div_ceil(wide)), "⌈{a}×{b}÷{d}⌉");
                    assert_eq!(u128::from(mul_div_rem(a, b, d).1), product % wide, "{a}×{b} mod {d}");
                    let sum = (product + 5).div_ceil(wide);
                    assert_eq!(mul_add_div_ceil(a, b, 5, d), saturate(sum), "⌈({a}×{b}+5)÷{d}⌉");
                }
            }
        }
    }
}
