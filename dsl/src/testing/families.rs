//! Random associative operators: known ones, and constructions that keep the laws.

use crate::build::Builder;
use crate::elem::Ty;
use crate::ir::{Binary, Field, Literal, Operator, Value};
use crate::rng::Rng;
use crate::segmented::segmented;

use super::operators;

/// Where the elements of a field should lie, so that long scans stay well conditioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// About [−1, 1].
    Real,
    /// [−½, ½], so that products and small matrix products do not grow.
    Contraction,
    /// Positive, away from 0.
    Positive,
    /// Negative: the logarithm of a decay.
    Decay,
    /// Seldom true.
    Flag,
    /// Whole numbers below a limit.
    Below(u32),
}

/// An associative operator, and where the elements of its fields should lie.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The operator.
    pub operator: Operator,
    /// One domain per field.
    pub domains: Vec<Domain>,
}

/// A random associative operator over floats of a type; differentiable almost everywhere if that is asked for.
pub fn family(rng: &mut Rng, ty: Ty, differentiable: bool) -> Family {
    let known = if differentiable { smooth(ty) } else { [smooth(ty), discrete(ty)].concat() };
    let mut family = rng.pick(&known);
    for _ in 0..rng.below(3) {
        family = match rng.below(4) {
            0 => opposite(&family),
            1 => rescaled(&family, rng),
            2 if family.domains.len() <= 4 => beside(&family, &rng.pick(&known)),
            3 => Family {
                operator: segmented(&family.operator).expect("a valid operator has a segmented form"),
                domains: [vec![Domain::Flag], family.domains].concat(),
            },
            _ => family,
        };
    }
    family
}

/// Known operators that are differentiable almost everywhere.
fn smooth(ty: Ty) -> Vec<Family> {
    use Domain::{Contraction, Decay, Positive, Real};
    let family = |operator, domains: &[Domain]| Family { operator, domains: domains.to_vec() };
    vec![
        family(operators::sum(ty), &[Real]),
        family(operators::product(ty), &[Positive]),
        family(operators::max(ty), &[Real]),
        family(operators::affine(ty), &[Contraction, Real]),
        family(operators::log_decay(ty), &[Decay, Real]),
        family(operators::log_sum_exp(ty), &[Real]),
        family(operators::softmax(ty), &[Real, Positive, Real]),
        family(operators::complex_affine(ty), &[Contraction, Contraction, Real, Real]),
        family(operators::matrix(ty), &[Contraction; 4]),
        family(operators::moments(ty), &[Positive, Real, Positive]),
    ]
}

/// Known operators with integers and bools.
fn discrete(ty: Ty) -> Vec<Family> {
    use Domain::{Below, Flag, Real};
    let family = |operator, domains: &[Domain]| Family { operator, domains: domains.to_vec() };
    vec![
        family(operators::argmax(ty), &[Real, Below(100)]),
        family(operators::automaton(), &[Below(3); 3]),
        family(operators::resetting_sum(ty), &[Flag, Real]),
        family(operators::counts(), &[Below(1000), Below(256)]),
        family(operators::integer_max(), &[Below(1000)]),
        family(operators::product(Ty::U32), &[Below(9)]),
    ]
}

/// The opposite operator: l and r change places, r ⊕ l.
fn opposite(family: &Family) -> Family {
    let name = format!("{}Opposite", family.operator.name);
    rebuilt(family, &name, &family.operator.identity, |body, l, r| inlined(body, &family.operator, r, l))
}

/// A finite field f kept as 2·f: the operator conjugated by an exact change of variable. Domains compare such fields with 0
/// only, so that they stay as they are.
fn rescaled(family: &Family, rng: &mut Rng) -> Family {
    let operator = &family.operator;
    let k = rng.below(operator.fields.len());
    let (Literal::Float(identity), ty) = (operator.identity[k], operator.fields[k].ty) else { return family.clone() };
    if operator.gauge.is_some() || !identity.is_finite() {
        return family.clone();
    }
    let mut identities = operator.identity.clone();
    identities[k] = Literal::Float(2.0 * identity);
    rebuilt(family, &format!("{}Rescaled", operator.name), &identities, |body, l, r| {
        let half = constant(body, ty, 0.5);
        let halved = |body: &mut Builder, state: &[Value]| {
            let mut state = state.to_vec();
            state[k] = body.binary(Binary::Mul, state[k], half).expect("a product of floats");
            state
        };
        let (l, r) = (halved(body, l), halved(body, r));
        let mut combined = inlined(body, operator, &l, &r);
        let two = constant(body, ty, 2.0);
        combined[k] = body.binary(Binary::Mul, combined[k], two).expect("a product of floats");
        combined
    })
}

/// Two operators side by side, their fields under `u.` and `v.`.
fn beside(u: &Family, v: &Family) -> Family {
    let named = |prefix: &str, field: &Field| Field { name: format!("{prefix}.{}", field.name), ty: field.ty };
    let fields = u.operator.fields.iter().map(|f| named("u", f)).chain(v.operator.fields.iter().map(|f| named("v", f)));
    let n = u.domains.len();
    let mut body = Builder::body(fields.collect());
    let (l, r) = body.inputs().expect("a body has inputs");
    let mut combined = inlined(&mut body, &u.operator, &l[..n], &r[..n]);
    combined.extend(inlined(&mut body, &v.operator, &l[n..], &r[n..]));
    let identity = [u.operator.identity.clone(), v.operator.identity.clone()].concat();
    let name = format!("{}Beside{}", u.operator.name, v.operator.name);
    let operator = body.finish_operator(&name, identity, &combined, None).expect("a value per field");
    let domain = u.operator.domain.and(&v.operator.domain.renumbered(|k| k + n as u32));
    let operator = Operator { domain, ..operator };
    Family { operator, domains: [u.domains.clone(), v.domains.clone()].concat() }
}

fn rebuilt(
    family: &Family,
    name: &str,
    identity: &[Literal],
    combine: impl FnOnce(&mut Builder, &[Value], &[Value]) -> Vec<Value>,
) -> Family {
    let mut body = Builder::body(family.operator.fields.clone());
    let (l, r) = body.inputs().expect("a body has inputs");
    let combined = combine(&mut body, &l, &r);
    let gauge = family.operator.gauge;
    let operator = body.finish_operator(name, identity.to_vec(), &combined, gauge).expect("a value per field");
    let operator = Operator { domain: family.operator.domain.clone(), ..operator };
    Family { operator, domains: family.domains.clone() }
}

fn inlined(body: &mut Builder, operator: &Operator, l: &[Value], r: &[Value]) -> Vec<Value> {
    body.inline(operator, l, r).expect("a valid operator can be inlined")
}

fn constant(body: &mut Builder, ty: Ty, x: f64) -> Value {
    body.float(ty, x).expect("a float constant")
}
