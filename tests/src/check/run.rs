//! One case on a device: every schedule that fits, forward and backward.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use oplus::{Call, Device, Elem, Error, Tensor};
use oplus_codegen::plan;
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::Program;
use oplus_dsl::rng::Rng;

use super::CheckError;
use super::bound::Slack;
use super::case::Case;
use super::data::{Found, Placed};
use super::oracle::{Agreement, Expected, expected};
use super::reach::{self, Planners, Way};
use super::report::{Line, Report};
use super::{inputs, same_bits};

/// Runs cases on a stream of its own.
pub struct Runner<'a> {
    device: Device,
    report: &'a Report,
    runs: Runs,
}

/// Which runs a case gets.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// How often a call runs; all runs must give the same bits.
    pub repeat: usize,
    /// Only those with a committed kernel.
    pub committed: bool,
    /// Only those with the kernels for all devices.
    pub portable: bool,
}

/// A tensor of a call: what it holds and where it lies.
struct Operand {
    array: Array,
    placed: Placed,
}

/// The program of one direction as a call runs it, and what its outputs must be.
struct Pass<'a> {
    name: &'static str,
    program: Program,
    sizes: Vec<usize>,
    operands: &'a HashMap<String, Operand>,
    expected: Vec<Expected>,
}

/// The tensors after a call.
#[derive(Default)]
struct Done {
    /// For the gradient; a gradient itself leaves none.
    call: Option<Call>,
    arrays: Vec<Array>,
    outputs: Vec<Placed>,
}

/// A call of a pass's kernel into these tensors, by the order of the program's outputs.
type Run<'a> = dyn Fn(&[Placed]) -> Result<Option<Call>, Error> + 'a;

impl<'a> Runner<'a> {
    /// A runner on a new stream of a GPU, or on the CPU.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn new(context: Option<&Arc<CudaContext>>, report: &'a Report, runs: Runs) -> Result<Runner<'a>, CheckError> {
        let device = match context {
            Some(context) => Device::from_stream(context.new_stream()?)?,
            None => Device::Cpu,
        };
        Ok(Runner { device, report, runs })
    }

    /// Checks a case; its lines go to the report.
    pub fn check(&self, case: &Case) {
        if let Err(error) = self.try_check(case) {
            self.report.add(&Line { check: case.to_string(), error: Some(error.to_string()), ..Line::default() });
        }
    }

    fn try_check(&self, case: &Case) -> Result<(), CheckError> {
        let (program, mut rng) = (case.kernel.program()?, Rng::new(case.seed));
        let mut operands = self.inputs(case, program, &mut rng)?;
        let given: Vec<bool> = program.params.iter().map(|p| operands.contains_key(&p.name)).collect();
        let outputs: Vec<&str> = program.outputs.iter().map(|o| o.name.as_str()).collect();
        let pass = Pass::new("forward", case, program, &outputs, &operands)?;
        let run = |outputs: &[Placed]| {
            let into: Vec<&Tensor> = outputs.iter().map(|o| &o.tensor).collect();
            case.kernel.call_into(&tensors(program.params.iter().map(|p| &p.name), &operands), &into).map(Some)
        };
        let done = self.pass(case, &pass, &run)?;
        let Some(call) = done.call else { return Ok(()) };
        let gradient = match case.kernel.gradient_program() {
            Err(Error::NoGradient { .. }) => return Ok(()),
            gradient => gradient?,
        };
        for ((output, array), placed) in program.outputs.iter().zip(done.arrays).zip(done.outputs) {
            operands.insert(output.name.clone(), Operand { array, placed });
        }
        self.backward(case, (program, gradient), (&call, &given), operands, &mut rng)
    }

    fn backward(
        &self,
        case: &Case,
        (program, gradient): (&Program, &Program),
        (call, given): (&Call, &[bool]),
        mut operands: HashMap<String, Operand>,
        rng: &mut Rng,
    ) -> Result<(), CheckError> {
        let outputs: Vec<_> = program.outputs.iter().filter(|o| o.elem.is_float()).collect();
        for output in case.cotangents(program) {
            let (shape, elem) = (case.shape(program, &output.axes), case.stored(output.elem));
            let array = inputs::cotangent(&shape, elem, case.fill, rng);
            let placed = Placed::input(&array, elem, case.placement, &self.device)?;
            operands.insert(format!("{}.bar", output.name), Operand { array, placed });
        }
        let floats = program.params.iter().zip(given).filter(|(p, _)| p.elem.is_float());
        let wanted: Vec<Option<String>> = floats.map(|(p, given)| given.then(|| format!("{}.bar", p.name))).collect();
        let names: Vec<&str> = wanted.iter().flatten().map(String::as_str).collect();
        let pass = Pass::new("backward", case, gradient, &names, &operands)?;
        let order: Vec<&str> = pass.program.outputs.iter().map(|o| o.name.as_str()).collect();
        let cotangents = outputs.iter().map(|o| format!("{}.bar", o.name)).collect::<Vec<_>>();
        let run = |placed: &[Placed]| {
            let sink = |name: &Option<String>| {
                let at = order.iter().position(|o| Some(*o) == name.as_deref())?;
                Some(&placed[at].tensor)
            };
            let sinks: Vec<Option<&Tensor>> = wanted.iter().map(sink).collect();
            case.kernel.backward_into(call, &tensors(cotangents.iter(), &operands), &sinks).map(|()| None)
        };
        self.pass(case, &pass, &run).map(drop)
    }

    /// The inputs that a case gives.
    fn inputs(&self, case: &Case, program: &Program, rng: &mut Rng) -> Result<HashMap<String, Operand>, CheckError> {
        let mut operands = HashMap::new();
        let sizes = case.axis_sizes(program);
        for param in program.params.iter().filter(|p| case.gives(p)) {
            let elem = case.stored(param.elem);
            let array = inputs::array(program, param, elem, &sizes, case.fill, rng);
            let placed = Placed::input(&array, elem, case.placement, &self.device)?;
            operands.insert(param.name.clone(), Operand { array, placed });
        }
        Ok(operands)
    }

    /// Runs one direction under every schedule; gives what the best one has left.
    fn pass(&self, case: &Case, pass: &Pass<'_>, run: &Run<'_>) -> Result<Done, CheckError> {
        let mut first = None;
        for way in self.ways(case, pass)? {
            self.take(&way);
            let recording = way.saves.then(oplus::record);
            let result = self.repeated(case, pass, run, way.slack);
            drop(recording);
            let mut line = Line { check: case.to_string(), pass: pass.name.into(), ..Line::default() };
            (line.schedules, line.keys) = (way.schedules, way.keys);
            match result {
                Ok((agreement, done)) => {
                    (line.worst, line.compared) = (agreement.worst, agreement.compared);
                    line.unbounded = agreement.unbounded;
                    first.get_or_insert(done);
                }
                Err(error) => line.error = Some(error.to_string()),
            }
            self.report.add(&line);
        }
        self.take(&Way::on_cpu());
        Ok(first.unwrap_or_default())
    }

    /// Runs a call several times.
    fn repeated(
        &self,
        case: &Case,
        pass: &Pass<'_>,
        run: &Run<'_>,
        slack: Slack,
    ) -> Result<(Agreement, Done), CheckError> {
        let mut first: Option<Done> = None;
        let mut agreement = Agreement::default();
        for round in 0..self.runs.repeat.max(1) {
            let outputs = self.outputs(case, pass)?;
            let call = run(&outputs)?;
            let found = outputs.iter().map(Placed::read).collect::<Result<Vec<Found>, _>>()?;
            pass.check_trespass(&found)?;
            let arrays: Vec<Array> = found.into_iter().map(|f| f.array).collect();
            match &first {
                None => {
                    agreement = pass.compare(&arrays, slack)?;
                    first = Some(Done { call, arrays, outputs });
                }
                Some(before) => pass.check_bits(round, &before.arrays, &arrays)?,
            }
        }
        Ok((agreement, first.unwrap_or_default()))
    }

    fn outputs(&self, case: &Case, pass: &Pass<'_>) -> Result<Vec<Placed>, CheckError> {
        let room = |output: &oplus_dsl::ir::Output| {
            let shape: Vec<usize> = output.axes.iter().map(|a| pass.sizes[a.0 as usize]).collect();
            Placed::output(&shape, output.elem, case.placement, &self.device)
        };
        Ok(pass.program.outputs.iter().map(room).collect::<Result<_, _>>()?)
    }

    /// Calls from here on take this way.
    fn take(&self, way: &Way) {
        if let Device::Cuda(device) = &self.device {
            device.set_schedule_rank(way.rank);
            device.set_portable(way.portable);
            device.set_kernels(way.alone.then(|| way.keys.iter().cloned().collect()));
        }
    }

    /// Every way to run a call of this pass.
    fn ways(&self, case: &Case, pass: &Pass<'_>) -> Result<Vec<Way>, CheckError> {
        let Device::Cuda(device) = &self.device else { return Ok(vec![Way::on_cpu()]) };
        let outputs = self.outputs(case, pass)?;
        let params = pass.program.params.iter().map(|p| pass.operands.get(&p.name).map(|o| layout(&o.placed.tensor)));
        let call = plan::Call {
            sizes: pass.sizes.iter().map(|n| *n as i64).collect(),
            params: params.collect(),
            outputs: outputs.iter().map(|o| layout(&o.tensor)).collect(),
        };
        let planners = Planners::new(&pass.program, &device.target())?;
        if self.runs.portable {
            return planners.portable_ways(case, &call);
        }
        if self.runs.committed && !case.is_standard() {
            return planners.committed_ways(case, &call);
        }
        let mut ways = planners.ways(case, &call)?;
        ways.retain(|way| !self.runs.committed || way.is_committed());
        Ok(ways)
    }
}

impl<'a> Pass<'a> {
    fn new(
        name: &'static str,
        case: &Case,
        program: &Program,
        wanted: &[&str],
        operands: &'a HashMap<String, Operand>,
    ) -> Result<Pass<'a>, CheckError> {
        let program = reach::called(program, case.elem, wanted, |name| operands.contains_key(name));
        let operand = |p: &oplus_dsl::ir::Param| operands.get(&p.name).map(|o| o.array.clone());
        let given: Option<Vec<Array>> = program.params.iter().map(operand).collect();
        let given = given.ok_or_else(|| CheckError::Unexpected(format!("`{}` lacks a parameter", program.name)))?;
        let sizes = case.axis_sizes(&program);
        let expected = expected(&program, &given, &sizes)?;
        Ok(Pass { name, program, sizes, operands, expected })
    }

    fn compare(&self, found: &[Array], slack: Slack) -> Result<Agreement, CheckError> {
        let mut all = Agreement::default();
        for (output, (expected, found)) in self.expected.iter().zip(found).enumerate() {
            let one = expected.compare(found, slack.factor, slack.cancels(output))?;
            all.worst = all.worst.max(one.worst);
            all.compared += one.compared;
            all.unbounded += one.unbounded;
        }
        Ok(all)
    }

    fn check_trespass(&self, found: &[Found]) -> Result<(), CheckError> {
        let trespass = found.iter().zip(&self.program.outputs).find_map(|(f, o)| Some((f.trespass?, o)));
        trespass.map_or(Ok(()), |(at, o)| Err(CheckError::Trespass { output: o.name.clone(), at }))
    }

    fn check_bits(&self, run: usize, before: &[Array], now: &[Array]) -> Result<(), CheckError> {
        let names = self.program.outputs.iter().map(|o| &o.name);
        names.zip(before.iter().zip(now)).try_for_each(|(name, (before, now))| same_bits(run, name, before, now))
    }
}

impl Case {
    fn shape(&self, program: &Program, axes: &[oplus_dsl::ir::Axis]) -> Vec<usize> {
        let sizes = self.axis_sizes(program);
        axes.iter().map(|a| sizes[a.0 as usize]).collect()
    }

    /// The element type that a tensor of the call stores.
    fn stored(&self, elem: Elem) -> Elem {
        elem.in_call(self.elem)
    }
}

fn tensors<'t>(
    names: impl Iterator<Item = &'t String>,
    operands: &'t HashMap<String, Operand>,
) -> Vec<Option<&'t Tensor>> {
    names.map(|name| operands.get(name).map(|o| &o.placed.tensor)).collect()
}

/// How the planner sees a tensor.
fn layout(tensor: &Tensor) -> plan::Layout {
    let align = 1 << tensor.device_ptr().unwrap_or(0).trailing_zeros().min(4);
    plan::Layout { strides: tensor.strides().to_vec(), align }
}
