//! Binding: from the tensors of a call to the size of every axis, the element type and the device.

use std::ops::Range;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Output, Param, Program};

use crate::tensor::{Storage, meet};
use crate::{Device, Error, Tensor};

/// The sizes, type and place that the tensors of a call agree on.
pub(crate) struct Binding<'a> {
    /// The size of every axis of the program.
    pub(crate) sizes: Vec<usize>,
    /// The call's element type; any other float when the program does not ask for it.
    pub(crate) elem: Elem,
    /// Memory of the tensor that was seen first; `None` when there was no tensor.
    pub(crate) home: Option<&'a Storage>,
}

impl Binding<'_> {
    /// A new tensor for an output, whose elements nobody has written.
    pub(crate) fn allocate(&self, output: &Output, device: &Device) -> Result<Tensor, Error> {
        let shape: Vec<usize> = output.axes.iter().map(|axis| self.sizes[axis.0 as usize]).collect();
        Tensor::uninitialised(output.elem.in_call(self.elem), &shape, device)
    }
}

/// The sizes, type and place that are known before a tensor is looked at: those of a gradient are those of its call.
#[derive(Clone, Default)]
pub(crate) struct Known<'a> {
    /// The size of every axis of the program, where it is known; empty when none is.
    pub(crate) sizes: Vec<Option<usize>>,
    /// The call's element type.
    pub(crate) elem: Option<Elem>,
    /// Where the call ran.
    pub(crate) home: Option<&'a Storage>,
}

/// Where something is known from when no tensor of this call has said it.
const FORWARD: &str = "the forward call";

/// The facts that have been seen so far, each with the name of the tensor that said it.
struct Seen<'p, 't> {
    program: &'p Program,
    sizes: Vec<Option<(usize, &'p str)>>,
    elem: Option<(Elem, &'p str)>,
    /// The declared and the stored types of tensors whose type follows from the call's.
    states: Vec<(Elem, Elem, &'p str)>,
    home: Option<(&'t Storage, &'p str)>,
}

/// Checks the tensors of a call against each other and against the program. A tensor that is `None` takes part in
/// nothing; outputs are `None` where the kernel allocates them.
pub(crate) fn bind<'t>(
    program: &Program,
    known: &Known<'t>,
    inputs: &[Option<&'t Tensor>],
    outputs: &[Option<&'t Tensor>],
) -> Result<Binding<'t>, Error> {
    let mut sizes: Vec<_> = known.sizes.iter().map(|size| size.map(|n| (n, FORWARD))).collect();
    sizes.resize(program.axes.len(), None);
    let (elem, home) = (known.elem.map(|e| (e, FORWARD)), known.home.map(|h| (h, FORWARD)));
    let mut seen = Seen { program, sizes, elem, states: vec![], home };
    for (param, input) in program.params.iter().zip(inputs) {
        match input {
            Some(tensor) => seen.take(tensor, &param.name, &param.axes, (param.elem, param.or))?,
            None if param.default.is_some() => (),
            None => return Err(Error::MissingTensor { tensor: param.name.clone() }),
        }
    }
    for (output, tensor) in program.outputs.iter().zip(outputs) {
        if let Some(tensor) = tensor {
            seen.take(tensor, &output.name, &output.axes, (output.elem, None))?;
        }
    }
    seen.finish()
}

impl<'p, 't> Seen<'p, 't> {
    fn take(
        &mut self,
        tensor: &'t Tensor,
        name: &'p str,
        axes: &[Axis],
        elem: (Elem, Option<Elem>),
    ) -> Result<(), Error> {
        self.take_elem(tensor.elem(), name, elem)?;
        self.take_shape(tensor.shape(), name, axes)?;
        self.take_device(&tensor.storage, name)
    }

    fn take_elem(&mut self, found: Elem, name: &'p str, (declared, or): (Elem, Option<Elem>)) -> Result<(), Error> {
        if matches!(declared, Elem::State | Elem::Wide) {
            self.states.push((declared, found, name));
            return Ok(());
        }
        if declared != Elem::Call {
            return expect(declared, or, found, name);
        }
        if !found.is_float() {
            let expected = "a floating-point type (f64, f32, bf16 or f16)".into();
            return Err(Error::WrongElem { tensor: name.into(), expected, found });
        }
        match self.elem {
            Some((elem, first)) if elem != found => Err(Error::ElemMismatch {
                first: first.into(),
                first_elem: elem,
                second: name.into(),
                second_elem: found,
            }),
            _ => {
                self.elem.get_or_insert((found, name));
                Ok(())
            }
        }
    }

    fn take_shape(&mut self, shape: &[usize], name: &'p str, axes: &[Axis]) -> Result<(), Error> {
        if shape.len() != axes.len() {
            let names: Vec<String> = axes.iter().map(|&a| self.program.axis_in_words(a)).collect();
            let (expected, found) = (axes.len(), shape.len());
            return Err(Error::Rank { tensor: name.into(), axes: names.join(", "), expected, found });
        }
        for (&axis, &size) in axes.iter().zip(shape) {
            let (known, first) = *self.sizes[axis.0 as usize].get_or_insert((size, name));
            if known != size {
                return Err(Error::ShapeMismatch {
                    axis: self.program.axis_in_words(axis),
                    first: first.into(),
                    first_size: known,
                    second: name.into(),
                    second_size: size,
                });
            }
        }
        Ok(())
    }

    fn take_device(&mut self, storage: &'t Storage, name: &'p str) -> Result<(), Error> {
        let (home, first) = *self.home.get_or_insert((storage, name));
        let same = match (home, storage) {
            (Storage::Host(_), Storage::Host(_)) => true,
            (Storage::Cuda(_, a), Storage::Cuda(_, b)) => a == b,
            _ => false,
        };
        let mismatch = || Error::DeviceMismatch {
            first: first.into(),
            first_device: home.device().to_string(),
            second: name.into(),
            second_device: storage.device().to_string(),
        };
        if same { Ok(()) } else { Err(mismatch()) }
    }

    fn finish(self) -> Result<Binding<'t>, Error> {
        let unknown = |axis: usize| Error::UnknownSize { axis: self.program.axis_in_words(Axis(axis as u32)) };
        let mut sizes: Vec<Option<usize>> = self.sizes.iter().map(|seen| seen.map(|seen| seen.0)).collect();
        self.program.complete(&mut sizes)?;
        let sizes = sizes.into_iter().enumerate().map(|(axis, size)| size.ok_or_else(|| unknown(axis)));
        let sizes = sizes.collect::<Result<Vec<usize>, _>>()?;
        check_counts(self.program, &sizes)?;
        let elem = match self.elem {
            Some((elem, _)) => elem,
            None if takes_call_elem(self.program) => return Err(Error::UnknownElem),
            None => Elem::F32,
        };
        self.states
            .iter()
            .try_for_each(|(declared, found, name)| expect(declared.in_call(elem), None, *found, name))?;
        Ok(Binding { sizes, elem, home: self.home.map(|h| h.0) })
    }
}

/// Points that a value of a program may have: 64-bit indices count them, rounded up to whole tiles.
const MOST_POINTS: usize = 1 << 60;

/// Checks that indices count the elements of every value. Tensors that repeat their elements take little memory, but values
/// of the axes of several tensors have as many elements as these together.
fn check_counts(program: &Program, sizes: &[usize]) -> Result<(), Error> {
    let is_counted = |axes: &mut dyn Iterator<Item = usize>| {
        let points = axes.map(|axis| sizes[axis].max(1)).try_fold(1, usize::checked_mul);
        points.is_some_and(|points| points <= MOST_POINTS)
    };
    if is_counted(&mut (0..sizes.len())) {
        return Ok(());
    }
    let of_node = |axes: AxisSet| axes.iter().map(|axis| axis.0 as usize);
    match program.nodes.iter().find(|node| !is_counted(&mut of_node(node.axes))) {
        None => Ok(()),
        Some(node) => {
            let size = |axis: usize| format!("{}={}", program.axes[axis], sizes[axis]);
            let axes = of_node(node.axes).map(size).collect::<Vec<_>>().join(", ");
            Err(Error::TooManyElements { kernel: program.name.clone(), axes })
        }
    }
}

/// A tensor must store what it is declared to; what it may store instead is named beside it.
fn expect(declared: Elem, or: Option<Elem>, found: Elem, name: &str) -> Result<(), Error> {
    let expected = || or.map_or_else(|| declared.to_string(), |or| format!("{declared} or {or}"));
    let wrong = || Error::WrongElem { tensor: name.into(), expected: expected(), found };
    if found == declared { Ok(()) } else { Err(wrong()) }
}

/// The parameters whose tensors store what they may store instead of what they are declared to, see
/// [`oplus_dsl::alternative`].
pub(crate) fn others(program: &Program, inputs: &[Option<&Tensor>]) -> Vec<usize> {
    let given = || program.params.iter().zip(inputs).enumerate().filter_map(|(k, (p, t))| Some((k, p, (*t)?.elem())));
    let call = given().find(|(_, param, _)| param.elem == Elem::Call && param.or.is_none()).map(|(_, _, found)| found);
    let stores = |found: Elem, declared: Elem| call.map_or(declared, |call| declared.in_call(call)) == found;
    let other = |(k, param, found): (usize, &Param, Elem)| {
        let is_other = !stores(found, param.elem) && stores(found, param.or?);
        is_other.then_some(k)
    };
    given().filter_map(other).collect()
}

/// Whether a tensor of the program takes the call's element type.
fn takes_call_elem(program: &Program) -> bool {
    let params = program.params.iter().map(|p| p.elem);
    params.chain(program.outputs.iter().map(|o| o.elem)).any(|elem| elem == Elem::Call)
}

/// Checks that every output may be written, and has memory of its own.
pub(crate) fn check_outputs(
    program: &Program,
    inputs: &[Option<&Tensor>],
    outputs: &[Option<&Tensor>],
) -> Result<(), Error> {
    let named = program.outputs.iter().map(|o| &*o.name).zip(outputs);
    let named = named.chain(program.params.iter().map(|p| &*p.name).zip(inputs));
    // All are where the call runs, so that their places are comparable.
    let all: Vec<(&str, &Tensor, Range<u128>)> =
        named.filter_map(|(name, t)| t.map(|t| (name, t, t.place()))).collect();
    let (outputs, inputs) = all.split_at(outputs.iter().flatten().count());
    for (k, (name, output, place)) in outputs.iter().enumerate() {
        if !output.is_writable() {
            return Err(Error::ReadOnly { tensor: (*name).into() });
        }
        if output.layout.overlaps_itself() {
            let (shape, strides) = (output.shape().to_vec(), output.strides().to_vec());
            return Err(Error::SelfOverlap { tensor: (*name).into(), shape, strides });
        }
        let mut others = inputs.iter().chain(&outputs[k + 1..]);
        if let Some((other, ..)) = others.find(|(_, _, other)| meet(place, other)) {
            return Err(Error::Overlap { first: (*name).into(), second: (*other).into() });
        }
    }
    Ok(())
}

/// Checks that saved states have a place of their own, where the call runs.
pub(crate) fn check_place_of_states(
    program: &Program,
    states: &Tensor,
    device: &Device,
    (inputs, outputs): (&[Option<&Tensor>], &[Option<&Tensor>]),
) -> Result<(), Error> {
    if states.device() != *device {
        let (first, second) = ("the call".into(), "residual".into());
        let (first_device, second_device) = (device.to_string(), states.device().to_string());
        return Err(Error::DeviceMismatch { first, first_device, second, second_device });
    }
    if !states.is_writable() {
        return Err(Error::ReadOnly { tensor: "residual".into() });
    }
    let params = program.params.iter().map(|p| &p.name).zip(inputs);
    let mut tensors = params.chain(program.outputs.iter().map(|o| &o.name).zip(outputs));
    match tensors.find(|(_, tensor)| tensor.is_some_and(|tensor| states.overlaps(tensor))) {
        Some((name, _)) => Err(Error::Overlap { first: "residual".into(), second: name.clone() }),
        None => Ok(()),
    }
}

/// Checks that a list of tensors has the length that the program asks for.
pub(crate) fn check_count(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Count { what, expected, found }) }
}
