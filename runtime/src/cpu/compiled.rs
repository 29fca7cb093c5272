//! Calling a program: checks, plan, stages.

use std::sync::{Arc, Mutex, PoisonError};

use oplus_codegen::stage::sums_outward;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::packed::without_inverses;
use oplus_dsl::verify::verify;

use crate::element::HostBytes;
use crate::pages::zeroed;

use super::matrix::Parts;
use super::plan::{Layout, Plan, Request, Source, Stage, Store, Target};
use super::run::run_stage;
use super::{CpuError, Data, DataMut, View, ViewMut};

/// A program ready to be called.
#[derive(Debug)]
pub(crate) struct Compiled {
    program: Program,
    /// The parts of a program with recurrences of matrices.
    parts: Option<Parts>,
    /// Whether everything combines from one end to the other, step by step.
    ordered: bool,
    /// The most threads that a call runs on.
    workers: usize,
    /// Whether tiles are swept by instructions alone, also where machine code could.
    #[cfg(test)]
    interpreted: bool,
    /// The plan of the latest call: sizes and strides seldom change from one to the next.
    latest: Mutex<Option<(Request, Arc<Plan>)>>,
}

/// No axis is longer, so that products with strides stay far from overflow.
const MOST: usize = 1 << 48;

/// Memory of a tensor that stages pass on, while there is one.
type Buffer = Option<Box<dyn HostBytes>>;

impl Compiled {
    /// Takes a program whose element types are known. Its calls combine in the order that is fastest, or, `ordered`, from
    /// one end to the other, with the operations of the program and no others.
    ///
    /// # Errors
    /// [`CpuError::Invalid`] if it does not verify or an element type is open.
    pub(crate) fn new(program: &Program, ordered: bool) -> Result<Compiled, CpuError> {
        let invalid = |reason: String| Err(CpuError::Invalid { reason });
        if let Err(errors) = verify(program) {
            return invalid(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        }
        if program.is_generic() {
            return invalid("the element type of the call is not known".to_owned());
        }
        let program = without_inverses(program);
        let program = if ordered { program } else { sums_outward(&program) };
        let parts = if program.has_matrix_scans() { Some(Parts::new(&program, ordered)?) } else { None };
        Ok(Compiled {
            program,
            parts,
            ordered,
            workers: usize::MAX,
            #[cfg(test)]
            interpreted: false,
            latest: Mutex::new(None),
        })
    }

    /// Bounds the number of threads.
    #[cfg(test)]
    pub(super) fn with_workers(self, workers: usize) -> Compiled {
        Compiled { workers, ..self }
    }

    /// Sweeps tiles by instructions alone.
    #[cfg(all(test, feature = "jit"))]
    pub(super) fn interpreted(self) -> Compiled {
        Compiled { interpreted: true, ..self }
    }

    /// How many stages of the latest call have machine code.
    #[cfg(all(test, feature = "jit"))]
    pub(super) fn native_stages(&self) -> usize {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.iter().flat_map(|(_, plan)| &plan.stages).filter(|stage| stage.native.is_some()).count()
    }

    /// How many stages of the latest call have machine code for maps and stores alone.
    #[cfg(all(test, feature = "jit"))]
    pub(super) fn mapped_stages(&self) -> usize {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.iter().flat_map(|(_, plan)| &plan.stages).filter(|stage| stage.maps.is_some()).count()
    }

    /// Computes all outputs. Sizes are those of the program's axes, in order; inputs and outputs are those of its
    /// parameters and outputs. Large calls run on several threads.
    ///
    /// # Errors
    /// Any [`CpuError`] but `Invalid`; outputs are untouched then, but for `OutOfMemory`: what earlier stages have
    /// written stays.
    pub(crate) fn run(
        &self,
        sizes: &[usize],
        inputs: &[Option<View<'_>>],
        outputs: &mut [ViewMut<'_>],
    ) -> Result<(), CpuError> {
        let request = self.request(sizes, inputs, outputs)?;
        if let Some(parts) = &self.parts {
            return parts.run(sizes, inputs, outputs, self.workers);
        }
        let plan = self.plan(request)?;
        let mut buffers: Vec<Buffer> = plan.temporaries.iter().map(|_| None).collect();
        for (number, stage) in plan.stages.iter().enumerate() {
            self.run_one(&plan, stage, inputs, outputs, &mut buffers)?;
            for (buffer, temporary) in buffers.iter_mut().zip(&plan.temporaries) {
                if temporary.last_use == number {
                    *buffer = None;
                }
            }
        }
        Ok(())
    }

    /// The parts of a program with recurrences of matrices.
    pub(super) fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    /// The program.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// Whether everything combines from one end to the other, step by step.
    pub(super) fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Refuses axes that are too long.
    pub(super) fn check_sizes(&self, sizes: &[usize]) -> Result<(), CpuError> {
        match self.program.axes.iter().zip(sizes).find(|(_, size)| **size >= MOST) {
            Some((axis, size)) => Err(CpuError::Size { axis: axis.clone(), size: *size }),
            None => Ok(()),
        }
    }

    fn plan(&self, request: Request) -> Result<Arc<Plan>, CpuError> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, plan)) = &*latest
            && *known == request
        {
            return Ok(Arc::clone(plan));
        }
        let plan = Plan::new(&self.program, &request, self.ordered)?;
        #[cfg(test)]
        let plan = if self.interpreted { plan.without_native() } else { plan };
        let plan = Arc::new(plan);
        *latest = Some((request, Arc::clone(&plan)));
        Ok(plan)
    }

    /// Runs a stage between the tensors of a call and the buffers.
    fn run_one(
        &self,
        plan: &Plan,
        stage: &Stage,
        inputs: &[Option<View<'_>>],
        outputs: &mut [ViewMut<'_>],
        buffers: &mut [Buffer],
    ) -> Result<(), CpuError> {
        let mut written: Vec<Box<dyn HostBytes>> = vec![];
        for store in &stage.stores {
            if let Target::Temporary(k) = store.target {
                let bytes = plan.temporaries[k].elem.bytes().unwrap_or(8) * plan.temporaries[k].len;
                written.push(zeroed(bytes)?);
            }
        }
        let source = |source: &Source| match source {
            Source::Param(k) => inputs[*k].as_ref().map(|view| view.data),
            Source::Temporary(k) => Data::cast(plan.temporaries[*k].elem, buffers[*k].as_ref()?.bytes()),
        };
        let sources: Vec<Data<'_>> = stage.sources.iter().map(|s| source(s).unwrap_or(Data::Bool(&[]))).collect();
        let mut outputs: Vec<Option<DataMut<'_>>> = outputs.iter_mut().map(|view| Some(view.data.borrow())).collect();
        let mut memory = written.iter_mut();
        let target = |store: &Store| match store.target {
            Target::Output(k) => outputs[k].take(),
            Target::Temporary(k) => DataMut::cast(plan.temporaries[k].elem, memory.next()?.bytes_mut()),
        };
        let targets: Vec<DataMut<'_>> = stage.stores.iter().filter_map(target).collect();
        run_stage(stage, &sources, targets, self.workers)?;
        let stored = stage.stores.iter().filter_map(|store| match store.target {
            Target::Temporary(k) => Some(k),
            Target::Output(_) => None,
        });
        stored.zip(written).for_each(|(k, bytes)| buffers[k] = Some(bytes));
        Ok(())
    }

    fn request(
        &self,
        sizes: &[usize],
        inputs: &[Option<View<'_>>],
        outputs: &[ViewMut<'_>],
    ) -> Result<Request, CpuError> {
        let Program { axes, params, outputs: results, .. } = &self.program;
        count("axes", axes.len(), sizes.len())?;
        count("parameters", params.len(), inputs.len())?;
        count("outputs", results.len(), outputs.len())?;
        self.check_sizes(sizes)?;
        let mut layouts = vec![];
        for (param, input) in params.iter().zip(inputs) {
            layouts.push(match input {
                Some(View { data, offset, strides }) => {
                    let tensor = Tensor { name: &param.name, axes: &param.axes, elem: param.elem };
                    Some(tensor.check(sizes, data.elem(), data.len(), *offset, strides)?)
                }
                None if param.default.is_some() => None,
                None => return Err(CpuError::Missing { tensor: param.name.clone() }),
            });
        }
        let check = |(result, ViewMut { data, offset, strides }): (&oplus_dsl::ir::Output, &ViewMut<'_>)| {
            let tensor = Tensor { name: &result.name, axes: &result.axes, elem: result.elem };
            tensor.check(sizes, data.elem(), data.len(), *offset, strides)
        };
        let outputs = results.iter().zip(outputs).map(check).collect::<Result<_, _>>()?;
        Ok(Request { sizes: sizes.to_vec(), inputs: layouts, outputs })
    }
}

fn count(what: &'static str, expected: usize, given: usize) -> Result<(), CpuError> {
    if expected == given { Ok(()) } else { Err(CpuError::Count { what, expected, given }) }
}

/// A tensor as the program declares it.
struct Tensor<'a> {
    name: &'a str,
    axes: &'a [Axis],
    elem: Elem,
}

impl Tensor<'_> {
    fn check(
        &self,
        sizes: &[usize],
        elem: Elem,
        len: usize,
        offset: usize,
        strides: &[i64],
    ) -> Result<Layout, CpuError> {
        let tensor = self.name.to_owned();
        if elem != self.elem {
            return Err(CpuError::WrongElem { tensor, expected: self.elem, found: elem });
        }
        if strides.len() != self.axes.len() {
            return Err(CpuError::Rank { tensor, expected: self.axes.len(), given: strides.len() });
        }
        let reach = |(axis, stride): (&Axis, &i64)| i128::from(*stride) * (sizes[axis.0 as usize] as i128 - 1).max(0);
        let is_empty = self.axes.iter().any(|axis| sizes[axis.0 as usize] == 0);
        let (mut low, mut high) = (offset as i128, offset as i128);
        for reach in self.axes.iter().zip(strides).map(reach) {
            (low, high) = (low + reach.min(0), high + reach.max(0));
        }
        if !is_empty && (low < 0 || high >= len as i128) {
            return Err(CpuError::Bounds { tensor, len, low, high });
        }
        if is_empty {
            return Ok(Layout { offset: 0, strides: vec![0; strides.len()] });
        }
        Ok(Layout { offset, strides: strides.to_vec() })
    }
}
