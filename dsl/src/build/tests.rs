use super::*;

fn field(name: &str, ty: Ty) -> Field {
    Field { name: name.to_owned(), ty }
}

/// a: l.a·r.a, b: r.a·l.b + r.b.
fn affine(ty: Ty) -> Operator {
    let mut body = Builder::body(vec![field("a", ty), field("b", ty)]);
    let (l, r) = body.inputs().unwrap();
    let a = body.binary(Binary::Mul, l[0], r[0]).unwrap();
    let carried = body.binary(Binary::Mul, r[0], l[1]).unwrap();
    let b = body.binary(Binary::Add, carried, r[1]).unwrap();
    body.finish_operator("Affine", vec![Literal::Float(1.0), Literal::Float(0.0)], &[a, b], None).unwrap()
}

#[test]
fn fields_of_a_scan_keep_their_own_axes() {
    let mut p = Builder::new("decay");
    let (t, k) = (p.axis("T").unwrap(), p.axis("K").unwrap());
    let a = p.param("a", &[t], Elem::Call, None).unwrap();
    let b = p.param("b", &[t, k], Elem::Call, None).unwrap();
    let op = p.operator(affine(Ty::Call));
    let s = p.scan(t, op, &[a, b], &[], Direction::default()).unwrap();
    assert_eq!(p.axes_of(s[0]).unwrap(), AxisSet::of(t));
    assert_eq!(p.axes_of(s[1]).unwrap(), AxisSet::of(t).with(k));
    let total = p.reduce(t, op, &[a, b]).unwrap();
    assert_eq!(p.axes_of(total[1]).unwrap(), AxisSet::of(k));
    assert_eq!(p.operator(affine(Ty::Call)), op);
}

#[test]
fn identical_nodes_are_shared_and_constants_folded() {
    let mut p = Builder::new("fold");
    let x = p.param("x", &[], Elem::Call, None).unwrap();
    let (e, again) = (p.unary(Unary::Exp, x).unwrap(), p.unary(Unary::Exp, x).unwrap());
    assert_eq!(e, again);
    let (two, three) = (p.float(Ty::Call, 2.0).unwrap(), p.float(Ty::Call, 3.0).unwrap());
    let six = p.binary(Binary::Mul, two, three).unwrap();
    assert_eq!(p.node(six).unwrap().op, Op::Const(Literal::Float(6.0)));
    let third = p.binary(Binary::Div, two, three).unwrap();
    assert!(matches!(p.node(third).unwrap().op, Op::Binary(..)), "2/3 depends on the type of the call");
    let one = p.float(Ty::Call, 1.0).unwrap();
    assert_eq!(p.binary(Binary::Mul, one, x).unwrap(), x);
    let zero = p.float(Ty::Call, 0.0).unwrap();
    assert_ne!(p.binary(Binary::Add, x, zero).unwrap(), x, "-0 + 0 is +0");
}

#[test]
fn floats_meet_in_the_wider_type_and_nothing_else_converts() {
    let mut p = Builder::new("meet");
    let x = p.param("x", &[], Elem::Bf16, None).unwrap();
    let y = p.param("y", &[], Elem::F64, None).unwrap();
    let i = p.param("i", &[], Elem::I32, None).unwrap();
    let sum = p.binary(Binary::Add, x, y).unwrap();
    assert_eq!(p.ty(sum).unwrap(), Ty::F64);
    let wrong = p.binary(Binary::Add, x, i).unwrap_err();
    assert_eq!(wrong.to_string(), "the operands of `+` are `f32` and `i32`: convert one of them");
}

#[test]
fn inlining_an_operator_writes_its_combine() {
    let mut p = Builder::new("inline");
    let x = p.param("x", &[], Elem::F32, None).unwrap();
    let one = p.float(Ty::F32, 1.0).unwrap();
    let zero = p.float(Ty::F32, 0.0).unwrap();
    let ab = p.inline(&affine(Ty::F32), &[one, x], &[x, zero]).unwrap();
    assert_eq!(ab[0], x);
    let short = p.inline(&affine(Ty::F32), &[one], &[x, zero]);
    assert!(matches!(short, Err(TypeError::Arity { fields: 2, given: 1, .. })));
}

#[test]
fn bodies_refuse_leaves_of_programs() {
    let mut body = Builder::body(vec![field("s", Ty::F32)]);
    assert!(matches!(body.index(Axis(0)), Err(TypeError::Place { .. })));
    assert!(matches!(body.input(2), Err(TypeError::Unknown { .. })));
    assert!(matches!(Builder::new("p").input(0), Err(TypeError::Place { .. })));
}

#[test]
fn the_axis_after_the_sixty_fourth_is_refused() {
    let mut p = Builder::new("axes");
    let declared = (0..65).map(|i| p.axis(&format!("A{i}"))).collect::<Vec<_>>();
    assert_eq!(declared[63], Ok(Axis(63)));
    assert_eq!(declared[64], Err(TypeError::TooManyAxes));
}
