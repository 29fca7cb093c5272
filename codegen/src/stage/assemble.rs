//! The program of a stage, from the roots that it writes.

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, Op, OperatorId, Value};
use oplus_dsl::typing::TypeError;

use super::cut::{Cutter, Root};
use super::group::Group;
use super::needs::{Context, Course, is_reduction, needs, position_axis};
use super::product::{closure, product};
use super::{Sink, Source, Stage, View};

type Built = Result<Value, TypeError>;

/// A scan or reduction of the whole program, whatever of its states is used.
#[derive(Clone, Debug)]
pub(super) struct Family {
    operator: OperatorId,
    elements: Vec<Value>,
    init: Vec<Value>,
    read: BTreeSet<Value>,
    /// The fields that states need, in order.
    pub fields: Vec<u32>,
}

/// The scans beneath some roots.
pub(super) fn families(cutter: &Cutter<'_>, roots: &[usize]) -> Vec<Family> {
    let mut families: Vec<Family> = vec![];
    for root in roots {
        let root = &cutter.roots[*root];
        let needs = needs(cutter.program, root.value, &root.read, Context::Here);
        for field in needs.states.iter().chain(&needs.ended).chain(&needs.finals) {
            let Op::Field(tuple, k) = cutter.program.node(*field).op else { continue };
            let own = Family::of(cutter, tuple);
            let known = families.iter().position(|f| f.is(&own)).unwrap_or_else(|| {
                families.push(own);
                families.len() - 1
            });
            families[known].fields.push(k);
        }
    }
    for family in &mut families {
        family.fields = closure(cutter.program.operator(family.operator), family.fields.iter().copied());
    }
    families
}

impl Family {
    fn of(cutter: &Cutter<'_>, tuple: Value) -> Family {
        let read = cutter.scans.get(&tuple).map(|s| s.read.clone()).unwrap_or_default();
        let (operator, elements, init) = match &cutter.program.node(tuple).op {
            Op::Scan { operator, elements, init, .. } => (*operator, elements.clone(), init.clone()),
            Op::Reduce { operator, elements, .. } => (*operator, elements.clone(), vec![]),
            _ => (OperatorId(0), vec![], vec![]),
        };
        Family { operator, elements, init, read, fields: vec![] }
    }

    fn is(&self, other: &Family) -> bool {
        (self.operator, &self.elements, &self.init) == (other.operator, &other.elements, &other.init)
    }
}

/// The stage of a group; `of` is its number and how many there are.
pub(super) fn assemble(cutter: &Cutter<'_>, group: &Group, of: (usize, usize)) -> Result<Stage, TypeError> {
    let name = match of {
        (_, 1) => cutter.program.name.clone(),
        (i, _) => format!("{}_{}", cutter.program.name, i + 1),
    };
    let stage = assemble_without(cutter, group, &name, &BTreeSet::new())?;
    match unread(&stage) {
        none if none.is_empty() => Ok(stage),
        unread => assemble_without(cutter, group, &name, &unread),
    }
}

/// The stage without a parameter for these tensors, of which only views are read.
fn assemble_without(
    cutter: &Cutter<'_>,
    group: &Group,
    name: &str,
    unread: &BTreeSet<Source>,
) -> Result<Stage, TypeError> {
    let families = families(cutter, &group.roots);
    let leaves = Leaves::of(cutter, &group.roots, &families);
    let mut assembly = Assembly::new(cutter, group, name, stage_axes(cutter, &group.roots, &leaves))?;
    assembly.declare_tensors(leaves, unread)?;
    assembly.declare_scan(group, families)?;
    for root in &group.roots {
        assembly.output(&cutter.roots[*root])?;
    }
    Ok(assembly.finish(group))
}

/// The tensors whose parameter no value depends on.
fn unread(stage: &Stage) -> BTreeSet<Source> {
    let nodes = &stage.program.nodes;
    let used: BTreeSet<Value> = nodes.iter().flat_map(|n| n.op.operands()).collect();
    let written: BTreeSet<Value> = stage.program.outputs.iter().map(|o| o.value).collect();
    let dead = |(i, node): (usize, &oplus_dsl::ir::Node)| match node.op {
        Op::Param(p) if !used.contains(&Value(i as u32)) && !written.contains(&Value(i as u32)) => Some(p as usize),
        _ => None,
    };
    nodes.iter().enumerate().filter_map(dead).map(|p| stage.sources[p]).collect()
}

/// A stage's program under construction.
struct Assembly<'a> {
    cutter: &'a Cutter<'a>,
    builder: Builder,
    /// The axes of the whole program, in the stage's order.
    axes: Vec<Axis>,
    sources: Vec<Source>,
    views: Vec<Vec<View>>,
    /// The stage's parameters: for a tensor and a view of it, the value.
    params: HashMap<(Source, Vec<View>), Value>,
    course: Option<Course>,
    scan: Option<Running>,
}

/// The stage's scan: the product of those of its families.
struct Running {
    course: Course,
    axis: Axis,
    families: Vec<Family>,
    operator: OperatorId,
    elements: Vec<Value>,
    init: Vec<Value>,
}

/// How values of the whole program are brought into the stage.
struct Import<'r> {
    read: &'r BTreeSet<Value>,
    known: HashMap<(Value, Place), Value>,
}

/// From where a value is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Place {
    /// One step earlier in the course of the stage's scan.
    before: bool,
    /// Displaced along other axes.
    views: Vec<View>,
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

    /// How far values are displaced along an axis.
    fn by(&self, axis: Axis) -> i64 {
        self.views.iter().find(|v| v.axis == axis).map_or(0, |v| v.by)
    }
}

impl<'a> Assembly<'a> {
    fn new(cutter: &'a Cutter<'a>, group: &Group, name: &str, axes: Vec<Axis>) -> Result<Self, TypeError> {
        let mut builder = Builder::new(name);
        for axis in &axes {
            builder.axis(cutter.program.axis_name(*axis))?;
        }
        if axes.is_empty() {
            builder.axis("one")?;
        }
        let (sources, views, params) = (vec![], vec![], HashMap::new());
        Ok(Assembly { cutter, builder, axes, sources, views, params, course: group.home, scan: None })
    }

    /// The stage's axis that stands for one of the whole program.
    fn axis(&self, axis: Axis) -> Result<Axis, TypeError> {
        let place = self.axes.iter().position(|a| *a == axis);
        place.map(|i| Axis(i as u32)).ok_or(TypeError::Unknown { kind: "axis", index: axis.0 })
    }

    fn axis_list(&self, axes: &[Axis]) -> Result<Vec<Axis>, TypeError> {
        axes.iter().map(|a| self.axis(*a)).collect()
    }

    // ---- declarations

    /// Declares a parameter for everything that is read.
    fn declare_tensors(&mut self, leaves: Leaves, unread: &BTreeSet<Source>) -> Result<(), TypeError> {
        let params = leaves.params.into_iter().map(Source::Param);
        let read: Vec<Source> = leaves.read.into_iter().map(|value| self.holder(value)).collect();
        for source in params.chain(read).filter(|source| !unread.contains(source)) {
            self.param(source, vec![])?;
        }
        Ok(())
    }

    /// The tensor that holds a stored value.
    fn holder(&self, value: Value) -> Source {
        match self.cutter.roots[self.cutter.stored[&value]].sink {
            Sink::Output(i) => Source::Output(i),
            Sink::Buffer(i) => Source::Buffer(i),
        }
    }

    /// The value of a tensor, seen through a view.
    fn param(&mut self, source: Source, views: Vec<View>) -> Built {
        let program = self.cutter.program;
        let (mut name, axes, elem) = match source {
            Source::Param(i) => {
                let param = &program.params[i as usize];
                (param.name.clone(), self.axis_list(&param.axes)?, param.elem)
            }
            Source::Output(i) => {
                let output = &program.outputs[i as usize];
                (output.name.clone(), self.axis_list(&output.axes)?, output.elem)
            }
            Source::Buffer(i) => {
                let buffer = &self.cutter.buffers[i as usize];
                (buffer.name.clone(), self.axis_list(&buffer.axes)?, buffer.elem)
            }
        };
        let views: Vec<View> = views.into_iter().filter(|v| v.by != 0 && axes.contains(&v.axis)).collect();
        if let Some(known) = self.params.get(&(source, views.clone())) {
            return Ok(*known);
        }
        for view in &views {
            name = format!("{name}_at_{}{}", self.builder.program().axis_name(view.axis), signed(-view.by));
        }
        let value = self.builder.param(&name, &axes, elem, None)?;
        self.sources.push(source);
        self.views.push(views.clone());
        self.params.insert((source, views), value);
        Ok(value)
    }

    /// Declares the product of the scans, and brings in their elements and initial states.
    fn declare_scan(&mut self, group: &Group, families: Vec<Family>) -> Result<(), TypeError> {
        let Some(course) = group.home else { return Ok(()) };
        let program = self.cutter.program;
        let parts: Vec<_> = families.iter().map(|f| (program.operator(f.operator), &f.fields[..])).collect();
        let operator = self.builder.operator(product(&parts));
        let (mut elements, mut init, mut starts) = (vec![], vec![], false);
        for family in &families {
            let mut import = Import { read: &family.read, known: HashMap::new() };
            let body = program.operator(family.operator);
            for k in family.fields.iter().map(|k| *k as usize) {
                elements.push(self.import(&mut import, family.elements[k], &Place::default())?);
                let identity = self.constant(body.fields[k].ty, body.identity[k])?;
                let own = family.init.get(k).map(|v| self.import(&mut import, *v, &Place::default())).transpose()?;
                starts |= own.is_some_and(|v| v != identity);
                init.push(own.unwrap_or(identity));
            }
        }
        let init = if starts { init } else { vec![] };
        let axis = self.axis(course.axis)?;
        self.scan = Some(Running { course, axis, families, operator, elements, init });
        Ok(())
    }

    fn constant(&mut self, ty: Ty, literal: Literal) -> Built {
        let literal = match literal {
            Literal::Int(i) if ty.is_float() => Literal::Float(i as f64),
            other => other,
        };
        self.builder.constant(ty, literal)
    }

    fn output(&mut self, root: &Root) -> Result<(), TypeError> {
        let mut import = Import { read: &root.read, known: HashMap::new() };
        let value = self.import(&mut import, root.value, &Place::default())?;
        let axes = self.axis_list(&root.axes)?;
        self.builder.output(&tensor_name(self.cutter, root.sink), &axes, root.elem, value)
    }

    fn finish(self, group: &Group) -> Stage {
        let axes = if self.axes.is_empty() { vec![vec![]] } else { self.axes.iter().map(|a| vec![*a]).collect() };
        let sinks = group.roots.iter().map(|r| self.cutter.roots[*r].sink).collect();
        Stage { program: self.builder.finish(), axes, sources: self.sources, views: self.views, sinks }
    }

    // ---- values

    /// Brings a value into the stage, as it is seen from a place.
    fn import(&mut self, import: &mut Import<'_>, value: Value, place: &Place) -> Built {
        if let Some(known) = import.known.get(&(value, place.clone())) {
            return Ok(*known);
        }
        let result = self.translate(import, value, place)?;
        import.known.insert((value, place.clone()), result);
        Ok(result)
    }

    fn translate(&mut self, import: &mut Import<'_>, value: Value, place: &Place) -> Built {
        let node = self.cutter.program.node(value);
        let depends = self.cutter.depends(value, import.read);
        match &node.op {
            _ if place.before && !depends => self.earlier(import, value, place),
            _ if import.read.contains(&value) => self.param(self.holder(value), place.views.clone()),
            Op::Param(p) => self.param(Source::Param(*p), place.views.clone()),
            Op::Index(axis) => self.index(self.axis(*axis)?, place),
            Op::Field(tuple, k) => self.state(*tuple, *k, place.before),
            Op::Shift { value: inner, fill, .. } if self.cutter.depends(*inner, import.read) => {
                self.exclusive(import, *inner, *fill)
            }
            Op::Shift { axis, by, value: inner, fill } if !self.is_scanned(*axis) => {
                self.view(import, (self.axis(*axis)?, *by), (*inner, *fill), place)
            }
            op => {
                let mut operands = HashMap::new();
                for operand in op.operands() {
                    operands.insert(operand, self.import(import, operand, place)?);
                }
                let op = self.move_axes(op.map_operands(|v| operands[&v]))?;
                let axes = if let Op::Broadcast(_) = op { self.axis_set(node.axes)? } else { AxisSet::EMPTY };
                self.builder.append(op, node.ty, axes)
            }
        }
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
        (axis, by): (Axis, i64),
        (inner, fill): (Value, Value),
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

    /// What a field of the stage's scan is before the first element.
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
            _ => {}
        }
        Ok(op)
    }
}

/// A number with its sign.
fn signed(x: i64) -> String {
    if x < 0 { format!("_minus_{}", -x) } else { format!("_plus_{x}") }
}

/// The name of a tensor that a stage writes or an earlier one has written.
fn tensor_name(cutter: &Cutter<'_>, sink: Sink) -> String {
    match sink {
        Sink::Output(i) => cutter.program.outputs[i as usize].name.clone(),
        Sink::Buffer(i) => cutter.buffers[i as usize].name.clone(),
    }
}

/// What a stage's values end in.
#[derive(Default)]
struct Leaves {
    params: BTreeSet<u32>,
    read: BTreeSet<Value>,
    /// Axes of indices, sizes and positions.
    axes: AxisSet,
}

impl Leaves {
    fn of(cutter: &Cutter<'_>, roots: &[usize], families: &[Family]) -> Leaves {
        let mut leaves = Leaves::default();
        for root in roots.iter().map(|r| &cutter.roots[*r]) {
            leaves.visit(cutter, vec![root.value], &root.read);
        }
        for family in families {
            let own =
                |values: &[Value]| family.fields.iter().filter_map(|k| values.get(*k as usize).copied()).collect();
            leaves.visit(cutter, own(&family.elements), &family.read);
            leaves.visit(cutter, own(&family.init), &family.read);
        }
        leaves
    }

    fn visit(&mut self, cutter: &Cutter<'_>, mut stack: Vec<Value>, read: &BTreeSet<Value>) {
        let mut seen = BTreeSet::new();
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            match &cutter.program.node(value).op {
                _ if read.contains(&value) => _ = self.read.insert(value),
                Op::Param(p) => _ = self.params.insert(*p),
                Op::Index(axis) | Op::Size(axis) => self.axes = self.axes.with(*axis),
                Op::Field(..) => {}
                op => {
                    self.axes = position_axis(cutter.program, value).map_or(self.axes, |axis| self.axes.with(axis));
                    stack.extend(op.operands());
                }
            }
        }
    }
}

/// The axes that a stage needs: in the order of the tensor with the most of them, then of declaration.
fn stage_axes(cutter: &Cutter<'_>, roots: &[usize], leaves: &Leaves) -> Vec<Axis> {
    let written = roots.iter().map(|r| &cutter.roots[*r].axes);
    let params = leaves.params.iter().map(|p| &cutter.program.params[*p as usize].axes);
    let read = leaves.read.iter().map(|v| &cutter.roots[cutter.stored[v]].axes);
    let tensors: Vec<&Vec<Axis>> = written.chain(params).chain(read).collect();
    let scanned = roots.iter().filter_map(|r| cutter.roots[*r].home).map(|course| course.axis);
    let all: AxisSet =
        tensors.iter().flat_map(|t| t.iter().copied()).chain(scanned).chain(leaves.axes.iter()).collect();
    let longest = tensors.iter().rev().max_by_key(|t| t.len()).map_or(&[][..], |t| &t[..]);
    let rest = all.iter().filter(|a| !longest.contains(a));
    longest.iter().copied().chain(rest).collect()
}
