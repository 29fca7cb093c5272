//! Launches that begin before the one ahead of them has ended.

use oplus::source::{Code, Embedded, Isa, KernelSource, Launch, register};
use oplus::{Elem, Error, Tensor, kernels, models};

use crate::captures::captured;
use crate::scenario::{Done, early_launches, new_stream};

/// The committed kernels, which wait for the launch ahead of them before they do anything.
struct Waiting(Embedded);

impl KernelSource for Waiting {
    fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        let waits = |code: Code| Code::new(code.ptx().replacen('{', "{\n\tgriddepcontrol.wait;\n", 1));
        Ok(self.0.find(launch, isa)?.map(waits))
    }
}

/// Every launch of a call but the first may begin early, if its kernel waits, also in a graph.
pub(crate) fn early() -> Done {
    let (stream, device) = new_stream()?;
    // SAFETY: the kernels are those of oplus, for the launches that they were made for.
    unsafe { register(Waiting(Embedded::standard())) };
    let attention = models::attention::kernel();
    let q = Tensor::zeros(Elem::Bf16, &[1, 4, 1, 1, 64], &device)?;
    let k = Tensor::zeros(Elem::Bf16, &[1, 4, 1, 64], &device)?;
    drop(kernels::cumsum::kernel().call(&[Some(&Tensor::zeros(Elem::F32, &[2, 64], &device)?)])?);
    assert_eq!(early_launches(), 0, "the only launch of a call");
    let (outputs, call) = attention.call(&[Some(&q), Some(&k), Some(&k)])?;
    let gradient = || attention.backward(&call, &[Some(&outputs[0]), None]).map(drop);
    let before = early_launches();
    gradient()?;
    let of_one = early_launches() - before;
    assert!(of_one > 0);
    let (graph, result) = captured(&stream, gradient)?;
    result?;
    assert_eq!(early_launches(), before + 2 * of_one);
    graph.launch()?;
    drop(graph);
    Ok(device.synchronize()?)
}
