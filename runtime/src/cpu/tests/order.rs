//! Reductions whose elements come from a scan that runs the other way.

use oplus_dsl::parse::parse;
use oplus_dsl::testing::inputs;

use super::harness::{Strides, check};

/// A reduction by an operator that does not commute, and one by an operator that does, over the results of a scan.
fn reductions_of_a_scan(direction: &str) -> String {
    format!(
        "program p {{
            axes B, L;
            param x: f64[B, L];
            operator Affine(a: f64, b: f64) {{
                identity (1.0, 0.0);
                %0: f64 = input l.a;
                %1: f64 = input l.b;
                %2: f64 = input r.a;
                %3: f64 = input r.b;
                %4: f64 = %0 * %2;
                %5: f64 = %2 * %1;
                %6: f64 = %5 + %3;
                combine (%4, %6);
            }}
            operator Max(m: f64) {{
                identity (-inf);
                %0: f64 = input l.m;
                %1: f64 = input r.m;
                %2: f64 = max(%0, %1);
                combine (%2);
            }}
            %0: f64[B, L] = param x;
            %1: f64 = const 0.75;
            %2: tuple[B, L] = scan(L, Affine, (%1, %0){direction});
            %3: f64[B, L] = %2.b;
            %4: tuple[B] = reduce(L, Affine, (%1, %3));
            %5: f64[B] = %4.b;
            %6: tuple[B] = reduce(L, Max, (%3));
            %7: f64[B] = %6.m;
            output folded: f64[B] = %5;
            output largest: f64[B] = %7;
            output h: f64[B, L] = %3;
        }}"
    )
}

#[test]
fn a_reduction_keeps_its_order_beside_a_reverse_scan() {
    for direction in ["", ", reverse", ", exclusive", ", reverse, exclusive"] {
        let program = parse(&reductions_of_a_scan(direction)).unwrap();
        // Rows that are held whole, rows that stream, rows whose chunks are shared.
        for sizes in [[0, 3], [3, 0], [1, 1], [3, 127], [40, 17_000], [2, 70_001]] {
            let inputs = inputs(&program, &sizes, 7);
            for strides in [Strides::Dense, Strides::Scattered] {
                check(&program, &sizes, &inputs, strides);
            }
        }
    }
}
