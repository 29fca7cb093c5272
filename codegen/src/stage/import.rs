//! Bringing values of the whole program into a stage.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, Op, Program, Value};
use oplus_dsl::typing::TypeError;
use oplus_dsl::walk::WorkList;
use rustc_hash::FxHashMap;

use super::assembly::{Assembly, Built, Running};
use super::family::Family;
use super::needs::{dependent, is_reduction};
use super::reduction::Sum;
use super::{Source, View};

/// Brings values of the whole program into a stage.
pub(super) struct Import<'r> {
    read: &'r BTreeSet<Value>,
    known: FxHashMap<(Value, Place), Value>,
    /// Which values depend on a scan that runs in the stage, once something asks.
    depends: OnceCell<Vec<bool>>,
}

/// The point from which a value is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Whether it is one step earlier in the course of the stage's scan.
    before: bool,
    /// The displacements along other axes.
    views: Vec<View>,
}

impl<'r> Import<'r> {
    /// An import that knows nothing yet; these values are read from memory.
    pub(super) fn new(read: &'r BTreeSet<Value>) -> Import<'r> {
        Import { read, known: FxHashMap::default(), depends: OnceCell::new() }
    }

    /// Whether a value depends on a scan that is not beneath one of the values that are read.
    fn depends(&self, program: &Program, value: Value) -> bool {
        self.depends.get_or_init(|| dependent(program, self.read))[value.0 as usize]
    }
}

impl Place {
    /// The place displaced by a shift.
    fn shifted(&self, axis: Axis, by: i64) -> Place {
        let mut place = self.clone();
        match place.views.iter_mut().find(|v| v.axis == axis) {
            Some(view) => view.by += by,
            None => place.views.push(View { axis, by }),
        }
        place.views.sort();
        place
    }

    /// The distance by which values are displaced along an axis.
    fn by(&self, axis: Axis) -> i64 {
        self.views.iter().find(|v| v.axis == axis).map_or(0, |v| v.by)
    }
}

impl Assembly<'_> {
    pub(super) fn import(&mut self, import: &mut Import<'_>, value: Value, place: &Place) -> Built {
        let key = (value, place.clone());
        let mut work = WorkList::of(key.clone());
        while let Some((value, place)) = work.next(|key| self.waits_for(import, key)) {
            let result = self.translate(import, value, &place)?;
            import.known.insert((value, place), result);
        }
        Ok(import.known[&key])
    }

    /// The values that must be imported before a value, in order; `None` if it is imported already. See [`Assembly::translate`].
    fn waits_for(&self, import: &Import<'_>, (value, place): &(Value, Place)) -> Option<Vec<(Value, Place)>> {
        if import.known.contains_key(&(*value, place.clone())) {
            return None;
        }
        let here = |v: Value| (v, place.clone());
        Some(match &self.cutter.program.node(*value).op {
            _ if place.before && !import.depends(self.cutter.program, *value) => {
                vec![(*value, Place { before: false, ..place.clone() })]
            }
            _ if import.read.contains(value) => vec![],
            Op::Param(_) | Op::Index(_) => vec![],
            Op::Field(tuple, _) => {
                let sum = self.cutter.contraction(*tuple, import.read);
                sum.map(|sum| here(sum.element)).into_iter().collect()
            }
            Op::Shift { value: inner, fill, .. } if import.depends(self.cutter.program, *inner) => {
                vec![(*inner, Place { before: true, views: vec![] }), (*fill, Place::default())]
            }
            Op::Shift { axis, by, value: inner, fill } if !self.is_scanned(*axis) => match self.axis(*axis) {
                Ok(axis) => vec![(*inner, place.shifted(axis, *by)), here(*fill)],
                Err(_) => vec![],
            },
            op => op.operands().into_iter().map(here).collect(),
        })
    }

    fn translate(&mut self, import: &mut Import<'_>, value: Value, place: &Place) -> Built {
        let node = self.cutter.program.node(value);
        let depends = import.depends(self.cutter.program, value);
        match &node.op {
            _ if place.before && !depends => self.earlier(import, value, place),
            _ if import.read.contains(&value) => self.param(self.holder(value), place.views.clone()),
            Op::Param(p) => self.param(Source::Param(*p), place.views.clone()),
            Op::Index(axis) => self.index(self.axis(*axis)?, place),
            Op::Field(tuple, k) => match self.cutter.contraction(*tuple, import.read) {
                Some(sum) => self.contracted(import, &sum, place),
                None => self.state(*tuple, *k, place.before),
            },
            Op::Shift { value: inner, fill, .. } if import.depends(self.cutter.program, *inner) => {
                self.exclusive(import, *inner, *fill)
            }
            Op::Shift { axis, by, value: inner, fill } if !self.is_scanned(*axis) => {
                self.view(import, self.axis(*axis)?, *by, *inner, *fill, place)
            }
            op => {
                let mut operands = op.operands();
                for operand in &mut operands {
                    *operand = self.import(import, *operand, place)?;
                }
                let mut operands = operands.into_iter();
                let op = self.move_axes(op.map_operands(|v| operands.next().unwrap_or(v)))?;
                let axes = if let Op::Broadcast(_) = op { self.axis_set(node.axes)? } else { AxisSet::EMPTY };
                self.builder.append(op, node.ty, axes)
            }
        }
    }

    /// The sum of a map of states over the state axis.
    fn contracted(&mut self, import: &mut Import<'_>, sum: &Sum, place: &Place) -> Built {
        let (axis, elements) = (self.axis(sum.axis)?, vec![self.import(import, sum.element, place)?]);
        let operator = self.builder.operator(self.cutter.program.operator(sum.operator).clone());
        let tuple = self.builder.append(Op::Reduce { axis, operator, elements }, Ty::Tuple, AxisSet::EMPTY)?;
        self.builder.field(tuple, 0)
    }

    /// Whether an axis of the whole program is the stage's scan axis.
    fn is_scanned(&self, axis: Axis) -> bool {
        self.course.is_some_and(|course| course.axis == axis)
    }

    /// The index along an axis, seen from a place.
    fn index(&mut self, axis: Axis, place: &Place) -> Built {
        let index = self.builder.index(axis)?;
        match place.by(axis) {
            0 => Ok(index),
            by => {
                let by = self.builder.constant(Ty::I64, Literal::Int(by))?;
                self.builder.binary(Binary::Sub, index, by)
            }
        }
    }

    /// A point value `by` further on along an axis that is not scanned; `fill` outside it.
    fn view(
        &mut self,
        import: &mut Import<'_>,
        axis: Axis,
        by: i64,
        inner: Value,
        fill: Value,
        place: &Place,
    ) -> Built {
        let there = place.shifted(axis, by);
        let (inner, fill) = (self.import(import, inner, &there)?, self.import(import, fill, place)?);
        let (index, size) = (self.index(axis, &there)?, self.builder.size(axis)?);
        let zero = self.builder.constant(Ty::I64, Literal::Int(0))?;
        let above = self.builder.binary(Binary::Ge, index, zero)?;
        let below = self.builder.binary(Binary::Lt, index, size)?;
        let inside = match by {
            _ if place.by(axis) != 0 => self.builder.binary(Binary::And, above, below)?,
            0.. => above,
            _ => below,
        };
        self.builder.select(inside, inner, fill)
    }

    /// A point value one step earlier in the course of the scan; anything outside the axis.
    fn earlier(&mut self, import: &mut Import<'_>, value: Value, place: &Place) -> Built {
        let here = self.import(import, value, &Place { before: false, ..place.clone() })?;
        let Some(Running { course, axis, .. }) = self.scan else { return Ok(here) };
        let ty = self.builder.ty(here)?;
        let constant = matches!(self.builder.program().node(here).op, Op::Const(_));
        if constant || !self.builder.axes_of(here)?.contains(axis) {
            return Ok(here);
        }
        let fill = self.constant(ty, Literal::zero(ty))?;
        self.builder.shift(axis, if course.reverse { -1 } else { 1 }, here, fill)
    }

    /// A map of states before the element; `fill` at the first one.
    fn exclusive(&mut self, import: &mut Import<'_>, inner: Value, fill: Value) -> Built {
        let before = self.import(import, inner, &Place { before: true, views: vec![] })?;
        let fill = self.import(import, fill, &Place::default())?;
        let Some(Running { course, axis, .. }) = self.scan else { return Ok(before) };
        if self.initial(before)? == Some(fill) {
            return Ok(before);
        }
        let index = self.builder.index(axis)?;
        let first = if course.reverse {
            let (size, one) = (self.builder.size(axis)?, self.builder.constant(Ty::I64, Literal::Int(1))?);
            self.builder.binary(Binary::Sub, size, one)?
        } else {
            self.builder.constant(Ty::I64, Literal::Int(0))?
        };
        let at_first = self.builder.binary(Binary::Eq, index, first)?;
        self.builder.select(at_first, fill, before)
    }

    /// The value of a field of the stage's scan before the first element.
    fn initial(&mut self, field: Value) -> Result<Option<Value>, TypeError> {
        let (Op::Field(_, k), Some(scan)) = (&self.builder.program().node(field).op, &self.scan) else {
            return Ok(None);
        };
        let k = *k as usize;
        if let Some(init) = scan.init.get(k) {
            return Ok(Some(*init));
        }
        let operator = self.builder.program().operator(scan.operator);
        let (ty, identity) = (operator.fields[k].ty, operator.identity[k]);
        self.constant(ty, identity).map(Some)
    }

    /// A field of the stage's scan: the final state of a reduction, else the state here or one step before.
    fn state(&mut self, tuple: Value, k: u32, before: bool) -> Built {
        let own = Family::of(self.cutter, tuple);
        let exclusive = before || matches!(self.cutter.program.node(tuple).op, Op::Scan { exclusive: true, .. });
        let reduction = is_reduction(self.cutter.program, tuple);
        let Some(scan) = &self.scan else { return Err(TypeError::NotATuple) };
        let family = scan.families.iter().position(|f| f.is(&own)).unwrap_or(0);
        let earlier: usize = scan.families[..family].iter().map(|f| f.fields.len()).sum();
        let within = scan.families[family].fields.iter().position(|f| *f == k).unwrap_or(0);
        let (axis, operator, reverse) = (scan.axis, scan.operator, scan.course.reverse);
        let (elements, init) = (scan.elements.clone(), scan.init.clone());
        let op = Op::Scan { axis, operator, elements, init, reverse, exclusive };
        let tuple = self.builder.append(op, Ty::Tuple, AxisSet::EMPTY)?;
        let field = self.builder.field(tuple, (earlier + within) as u32)?;
        if !reduction {
            return Ok(field);
        }
        let operator = self.builder.program().operator(operator);
        let (ty, identity) = (operator.fields[earlier + within].ty, operator.identity[earlier + within]);
        let empty = self.constant(ty, identity)?;
        self.builder.last(axis, field, empty)
    }

    fn axis_set(&self, axes: AxisSet) -> Result<AxisSet, TypeError> {
        axes.iter().map(|a| self.axis(a)).collect()
    }

    fn move_axes(&self, mut op: Op) -> Result<Op, TypeError> {
        match &mut op {
            Op::Index(axis) | Op::Size(axis) => *axis = self.axis(*axis)?,
            Op::Last { axis, .. } | Op::First { axis, .. } | Op::Shift { axis, .. } => *axis = self.axis(*axis)?,
            Op::Starts { axis, list, .. } => (*axis, *list) = (self.axis(*axis)?, self.axis(*list)?),
            Op::Gather { axis, to, .. } => (*axis, *to) = (self.axis(*axis)?, self.axis(*to)?),
            _ => {}
        }
        Ok(op)
    }
}
