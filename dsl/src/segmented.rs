//! Segmented scans: any operator, made to start again where a flag is set.
//!
//! ```text
//! reset: l.reset | r.reset
//! f:     if r.reset { r.f } else { (l ⊕ r).f }
//! ```
//!
//! Associative and with the identity (false, identity of ⊕) whenever ⊕ is (Blelloch, "Prefix sums and their
//! applications", 1990, §1.5). The flag of an element says that a segment begins there; in a reverse scan, where
//! elements are visited from the last, that it ends there.

use crate::build::Builder;
use crate::elem::Ty;
use crate::ir::{Binary, Field, Literal, Operator, Value};
use crate::typing::TypeError;

/// The segmented form of an operator. Its first field is the flag, `reset` (with underscores if that name is taken);
/// the operator's own fields, gauge and domain follow. Fails on an operator that does not verify.
pub fn segmented(operator: &Operator) -> Result<Operator, TypeError> {
    let reset = Field { name: flag_name(operator), ty: Ty::Bool };
    let mut body = Builder::body([vec![reset], operator.fields.clone()].concat());
    let (l, r) = body.inputs()?;
    let combined = body.inline(operator, &l[1..], &r[1..])?;
    let any = body.binary(Binary::Or, l[0], r[0])?;
    let selected = combined.iter().zip(&r[1..]).map(|(both, alone)| body.select(r[0], *alone, *both));
    let selected = selected.collect::<Result<Vec<Value>, _>>()?;
    let identity = [vec![Literal::Bool(false)], operator.identity.clone()].concat();
    let name = format!("Segmented{}", operator.name);
    let combine = [vec![any], selected].concat();
    let segmented = body.finish_operator(&name, identity, &combine, operator.gauge.map(|k| k + 1))?;
    Ok(Operator { domain: operator.domain.renumbered(|k| k + 1), ..segmented })
}

fn flag_name(operator: &Operator) -> String {
    let mut name = "reset".to_owned();
    while operator.field(&name).is_some() {
        name.push('_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::{Array, Mode, interpret};
    use crate::laws;
    use crate::parse::parse;
    use crate::testing::operators;

    #[test]
    fn every_operator_has_a_lawful_segmented_form() {
        for operator in operators::all(Ty::Call) {
            let once = segmented(&operator).unwrap();
            assert_eq!(laws::check(&once).err(), None, "{once}");
            let twice = segmented(&once).unwrap();
            assert_eq!(laws::check(&twice).err(), None, "{twice}");
        }
    }

    #[test]
    fn a_segmented_sum_starts_again() {
        let operator = segmented(&operators::sum(Ty::F64)).unwrap();
        assert_eq!((operator.name.as_str(), operator.fields[0].name.as_str()), ("SegmentedSum", "reset"));
        let text = format!(
            "program p {{ axes L; param reset: bool[L]; param x: f64[L]; {operator} %0: bool[L] = param reset;
            %1: f64[L] = param x; %2: tuple[L] = scan(L, SegmentedSum, (%0, %1)); %3: f64[L] = %2.s;
            output y: f64[L] = %3; }}"
        );
        let reset = Array::bools(&[6], [false, false, true, true, false, false]);
        let x = Array::floats(&[6], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let outputs = interpret(&parse(&text).unwrap(), &[Some(reset), Some(x)], Mode::default()).unwrap();
        assert_eq!(outputs[0].as_floats().unwrap(), [1.0, 3.0, 3.0, 4.0, 9.0, 15.0]);
    }

    #[test]
    fn flags_of_segments_within_segments_have_names_of_their_own() {
        let twice = segmented(&segmented(&operators::softmax(Ty::F32)).unwrap()).unwrap();
        let names: Vec<&str> = twice.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["reset_", "reset", "m", "d", "o"]);
        assert_eq!(twice.gauge, Some(2));
    }
}
