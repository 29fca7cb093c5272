//! The shapes of a call that is to be explained.

use oplus_codegen::target::Target;
use oplus_dsl::Elem;

use crate::Device;

/// Axis sizes, element type and device of a call, without tensors.
///
/// ```
/// use oplus::{Elem, Shapes, Target};
///
/// let shapes = Shapes::new().axis("B", 8).axis("L", 4096).elem(Elem::Bf16).target(Target::H200).without("h0");
/// ```
#[derive(Clone, Debug)]
pub struct Shapes {
    pub(crate) axes: Vec<(String, usize)>,
    pub(crate) elem: Elem,
    pub(crate) target: Option<Target>,
    pub(crate) device: Option<Device>,
    pub(crate) without: Vec<String>,
    pub(crate) strides: Vec<(String, Vec<i64>)>,
    /// The axis along which the call is divided, and over how many ranks.
    pub(crate) sharded: Option<(String, usize)>,
}

impl Default for Shapes {
    fn default() -> Shapes {
        let elem = Elem::F32;
        Shapes { axes: vec![], elem, target: None, device: None, without: vec![], strides: vec![], sharded: None }
    }
}

impl Shapes {
    /// No sizes yet, f32, every parameter given and contiguous. The call is explained for the CPU and for a GPU: the one
    /// that is here, else an H200.
    pub fn new() -> Shapes {
        Shapes::default()
    }

    /// The size of an axis.
    #[must_use]
    pub fn axis(mut self, name: &str, size: usize) -> Shapes {
        self.axes.retain(|(axis, _)| axis != name);
        self.axes.push((name.into(), size));
        self
    }

    /// The element type of the call.
    #[must_use]
    pub fn elem(mut self, elem: Elem) -> Shapes {
        self.elem = elem;
        self
    }

    /// Where the call runs, so that it is explained for this device only. With a GPU that is there, the kernels are loaded and its driver's facts of them are told.
    #[must_use]
    pub fn device(mut self, device: &Device) -> Shapes {
        self.device = Some(device.clone());
        self.target = match device {
            Device::Cpu => None,
            Device::Cuda(device) => Some(device.target()),
        };
        self
    }

    /// A GPU that need not be there; the call is explained for it only.
    #[must_use]
    pub fn target(mut self, target: Target) -> Shapes {
        (self.target, self.device) = (Some(target), None);
        self
    }

    /// A parameter that is left to its default.
    #[must_use]
    pub fn without(mut self, param: &str) -> Shapes {
        self.without.push(param.into());
        self
    }

    /// The strides of a parameter or an output, in elements, one per axis; contiguous when not given.
    #[must_use]
    pub fn strides(mut self, tensor: &str, strides: &[i64]) -> Shapes {
        self.strides.push((tensor.into(), strides.to_vec()));
        self
    }
    /// The call is one rank's of several, divided along an axis: see [`dist`](crate::dist). Sizes are those of the rank's part.
    #[must_use]
    pub fn sharded(mut self, axis: &str, ranks: usize) -> Shapes {
        self.sharded = Some((axis.into(), ranks));
        self
    }
}
