//! Tensors of other libraries as tensors of ours, through DLPack and without copying.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cudarc::driver::CudaContext;
use dlpark::DlpackFlags;
use dlpark::ffi::{DLDevice, DLDeviceType, DLTensor};
use dlpark::python::consumer::exchange::ExchangeApi;
use dlpark::python::consumer::stream;
use dlpark::python::{DlpackStream, ImportRequest, ImportedDlpack, StreamArg, from_dlpack};
use dlpark::tensor::TensorRef;
use oplus::{CudaDevice, Device, Elem, Tensor};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use pyo3::{IntoPyObjectExt, intern};
use smallvec::SmallVec;

use crate::allocator;
use crate::elements::elem_of;
use crate::errors::exception;

/// The tensor that a Python object is, seen where it lies. `name` is what messages call it.
///
/// Whoever calls this keeps the object until the tensor has been dropped: taking part in its ownership would cost more than a launch.
pub(crate) fn tensor(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = object.py();
    if object.get_type().is(numpy_array(py)?) {
        return of_numpy(name, object);
    }
    let kind = object.get_type();
    if let Some((_, table)) = TABLE.get(py).filter(|(known, _)| kind.is(known)) {
        return lent(name, object, &table.0);
    }
    if let Some(api) = ExchangeApi::from_object(object.as_borrowed())? {
        let tensor = lent(name, object, &api);
        // Another thread may have been faster.
        let _ = TABLE.set(py, (kind.unbind(), Table(api)));
        return tensor;
    }
    let request = ImportRequest::new(object.as_borrowed()).map_err(|e| not_a_tensor(name, object, e))?;
    let device = request.device().map_err(|e| not_a_tensor(name, object, e))?;
    if device.device_type == DLDeviceType::CUDA {
        let ours = shared_stream(py, device)?;
        let imported = request.import(Some(&Consumer(ours)), None).map_err(|e| refused(name, object, e))?;
        return view(py, name, imported, ours as *mut c_void, None);
    }
    let imported = request.import(None, None).map_err(|e| refused(name, object, e))?;
    view(py, name, imported, std::ptr::null_mut(), None)
}

/// How tensors of a library are lent, found once for the first type that is asked.
static TABLE: PyOnceLock<(Py<PyType>, Table)> = PyOnceLock::new();

struct Table(ExchangeApi);

// SAFETY: the table is the library's and lives unchanged as long as the process; its functions are called with Python's lock held.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// A tensor that its library lends for a call.
fn lent(name: &str, object: &Bound<'_, PyAny>, api: &ExchangeApi) -> PyResult<Tensor> {
    let py = object.py();
    let seen = |raw: &DLTensor, current: *mut c_void| {
        // SAFETY: the producer has just described the tensor, and its shape and strides live as long as this function runs.
        let described = unsafe { TensorRef::from_raw(raw) }.map_err(|e| invalid(name, e))?;
        seen(py, name, &described, Seen { current, stored: None, is_read_only: false }, ())
    };
    api.with_tensor_view_no_sync(object.as_borrowed(), seen)?
}

/// `numpy.ndarray`.
fn numpy_array(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    ARRAY.import(py, "numpy", "ndarray")
}

/// An array of NumPy. It exports neither bfloat16, which is not a type of its own, nor bytes in foreign order.
fn of_numpy(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = array.py();
    let export = |array: &Bound<'_, PyAny>| {
        let capsule = array.call_method(intern!(py, "__dlpack__"), (), Some(max_version(py)?))?;
        from_dlpack(capsule.as_borrowed(), None, None)
    };
    match export(array) {
        Ok(imported) => view(py, name, imported, std::ptr::null_mut(), None),
        Err(error) => {
            let stored = array.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "name"))?;
            if stored.extract::<&str>()? != "bfloat16" {
                return Err(refused(name, array, error));
            }
            let bits = array.call_method1(intern!(py, "view"), (intern!(py, "uint16"),))?;
            let imported = export(&bits).map_err(|e| refused(name, array, e))?;
            view(py, name, imported, std::ptr::null_mut(), Some(Elem::Bf16))
        }
    }
}

/// The arguments with which arrays are asked for the newest form of DLPack, which can say that they are read-only.
fn max_version(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static ARGUMENTS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let arguments = ARGUMENTS.get_or_try_init(py, || {
        let arguments = PyDict::new(py);
        arguments.set_item("max_version", (1, 3).into_bound_py_any(py)?)?;
        Ok::<_, PyErr>(arguments.unbind())
    })?;
    Ok(arguments.bind(py))
}

fn not_a_tensor(name: &str, object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    if error.is_instance_of::<PyAttributeError>(py) || error.is_instance_of::<PyTypeError>(py) {
        let kind = object.get_type().fully_qualified_name().map_or_else(|_| "?".into(), |name| name.to_string());
        return PyTypeError::new_err(format!(
            "`{name}` must be an array that speaks DLPack (NumPy, PyTorch, JAX, …), but it is a {kind}"
        ));
    }
    refused(name, object, error)
}

/// The words of a library that does not give its tensor away, with the tensor's name.
fn refused(name: &str, object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    if !error.is_instance_of::<PyBufferError>(py) {
        return error;
    }
    let stored = object.getattr(intern!(py, "dtype")).map(|dtype| format!(" of {dtype}")).unwrap_or_default();
    let told = PyTypeError::new_err(format!("`{name}`{stored} cannot be read through DLPack: {}", error.value(py)));
    told.set_cause(py, Some(error));
    told
}

/// A view of an exported tensor, as a tensor of ours that keeps it alive. `stored` says how to read its bits where DLPack
/// cannot tell.
fn view(
    py: Python<'_>,
    name: &str,
    imported: ImportedDlpack,
    current: *mut c_void,
    stored: Option<Elem>,
) -> PyResult<Tensor> {
    let is_read_only = imported.flags().contains(DlpackFlags::READ_ONLY);
    let validated = imported.validate().map_err(|e| invalid(name, e))?;
    let described = Described::of(&validated, elem_in(name, &validated, stored)?).map_err(|e| invalid(name, e))?;
    let seen = Seen { current, stored, is_read_only };
    described.tensor(py, name, &seen, imported.into_deleter())
}

/// A view of a described tensor, as a tensor of ours.
fn seen(
    py: Python<'_>,
    name: &str,
    tensor: &TensorRef<'_>,
    seen: Seen,
    owner: impl Any + Send + Sync,
) -> PyResult<Tensor> {
    let described = Described::of(tensor, elem_in(name, tensor, seen.stored)?).map_err(|e| invalid(name, e))?;
    described.tensor(py, name, &seen, owner)
}

fn invalid(name: &str, error: dlpark::tensor::Error) -> PyErr {
    PyValueError::new_err(format!("`{name}` is not a valid tensor: {error}"))
}

fn elem_in(name: &str, tensor: &TensorRef<'_>, stored: Option<Elem>) -> PyResult<Elem> {
    let elem = stored.map_or_else(|| elem_of(tensor.dtype()), Ok);
    elem.map_err(|reason| PyTypeError::new_err(format!("`{name}` {reason}")))
}

/// The facts that DLPack's description of a tensor leaves open.
struct Seen {
    /// The producer's current stream.
    current: *mut c_void,
    /// The type of its bits where DLPack cannot tell.
    stored: Option<Elem>,
    is_read_only: bool,
}

/// Where the elements of an exported tensor are.
struct Described {
    elem: Elem,
    device: DLDevice,
    /// The address of the lowest element.
    address: usize,
    /// From the lowest to the end of the highest element.
    bytes: usize,
    /// The element of index 0, 0, … counted from the lowest.
    offset: usize,
    shape: SmallVec<[usize; MOST_AXES]>,
    strides: SmallVec<[i64; MOST_AXES]>,
}

/// Axes for which a tensor needs no memory of its own here.
const MOST_AXES: usize = 6;

impl Described {
    fn of(tensor: &TensorRef<'_>, elem: Elem) -> Result<Described, dlpark::tensor::Error> {
        let device = tensor.device();
        let shape: SmallVec<[usize; MOST_AXES]> = tensor.shape().iter().map(|&n| n as usize).collect();
        let strides = SmallVec::from_slice(&tensor.strides_or_compact()?);
        let size = elem.bytes().unwrap_or(1);
        if shape.contains(&0) {
            // The address of nothing may be null; an aligned one serves every element type.
            return Ok(Described { elem, device, address: align_of::<u64>(), bytes: 0, offset: 0, shape, strides });
        }
        let reach = |n: usize, stride: i64| i128::from(stride) * (n as i128 - 1);
        let reaches = || shape.iter().zip(&strides).map(|(&n, &stride)| reach(n, stride));
        let below: i128 = reaches().map(|reach| reach.min(0)).sum();
        let above: i128 = reaches().map(|reach| reach.max(0)).sum();
        let (offset, elements) = ((-below) as usize, (above - below + 1) as usize);
        // SAFETY: the producer vouches for the pointer of a tensor that has elements; only its address is taken.
        let start = unsafe { tensor.offset_bytes_ptr()? }.expose_provenance();
        let address = start.wrapping_sub(offset.wrapping_mul(size));
        Ok(Described { elem, device, address, bytes: elements.wrapping_mul(size), offset, shape, strides })
    }

    fn tensor(self, py: Python<'_>, name: &str, seen: &Seen, owner: impl Any + Send + Sync) -> PyResult<Tensor> {
        let made = match self.device.device_type {
            DLDeviceType::CPU | DLDeviceType::CUDAHOST => self.on_host(seen.is_read_only, owner),
            DLDeviceType::CUDA | DLDeviceType::CUDAMANAGED => {
                let device = cuda_device(self.device, seen.current).map_err(|e| exception(py, &e))?;
                self.on_gpu(&device, owner)
            }
            other => {
                return Err(PyTypeError::new_err(format!(
                    "`{name}` is on a device of DLPack type {}; kernels run on the CPU and on CUDA",
                    other.0
                )));
            }
        };
        made.map_err(|e| exception(py, &e))
    }

    fn on_host(self, is_read_only: bool, owner: impl Any + Send + Sync) -> Result<Tensor, oplus::Error> {
        let (address, bytes, elem) = (self.address, self.bytes, self.elem);
        self.seen(|layout| {
            // SAFETY: a DLPack tensor's elements stay where they are until its deleter runs, which `owner` does, or the object is
            // let go, which the caller of `tensor` does after the tensor. Nobody is to write them during a call, as of any array
            // that is given away; a kernel writes only into outputs, which the Python layer allocates for every call.
            unsafe {
                match is_read_only {
                    true => Tensor::from_host_ptr_read_only(address, bytes, elem, layout, owner),
                    false => Tensor::from_host_ptr(address, bytes, elem, layout, owner),
                }
            }
        })
    }

    fn on_gpu(self, device: &CudaDevice, owner: impl Any + Send + Sync) -> Result<Tensor, oplus::Error> {
        let (address, bytes, elem) = (self.address as u64, self.bytes, self.elem);
        // SAFETY: as on the host; the memory is freed in the order of the producer's stream, on which the device queues.
        self.seen(|layout| unsafe { Tensor::from_device_ptr(address, bytes, elem, layout, device, owner) })
    }

    /// The memory under the tensor's shape and strides.
    fn seen(
        &self,
        memory: impl FnOnce((&[usize], &[i64])) -> Result<Tensor, oplus::Error>,
    ) -> Result<Tensor, oplus::Error> {
        if self.offset == 0 {
            return memory((&self.shape, &self.strides));
        }
        // Some strides run backwards.
        let elements = [self.bytes / self.elem.bytes().unwrap_or(1)];
        memory((&elements, &[1]))?.as_strided(&self.shape, &self.strides, self.offset)
    }
}

/// The streams that have been seen, by GPU and handle.
static DEVICES: LazyLock<Mutex<HashMap<(i32, usize), CudaDevice>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The stream that was seen last: all tensors of a call have the same.
    static LAST: RefCell<Option<((i32, usize), CudaDevice)>> = const { RefCell::new(None) };
}

/// A stream of another library, in the context that it shares with us.
fn cuda_device(device: DLDevice, stream: *mut c_void) -> Result<CudaDevice, oplus::Error> {
    let key = (device.device_id, stream.addr());
    let last =
        LAST.with_borrow(|last| last.as_ref().filter(|(known, _)| *known == key).map(|(_, found)| found.clone()));
    if let Some(found) = last {
        return Ok(found);
    }
    let found = known_device(device, stream)?;
    LAST.set(Some((key, found.clone())));
    Ok(found)
}

fn known_device(device: DLDevice, stream: *mut c_void) -> Result<CudaDevice, oplus::Error> {
    let mut known = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = known.get(&(device.device_id, stream.addr())) {
        return Ok(device.clone());
    }
    let Device::Cuda(own) = Device::cuda(device.device_id as usize)? else {
        return Err(oplus::Error::NoCuda { reason: format!("GPU {} is not there", device.device_id), source: None });
    };
    let context: &Arc<CudaContext> = own.context();
    // SAFETY: the stream is the producer's current one. PyTorch's and JAX's streams live as long as the process.
    let borrowed = unsafe { context.wrap_borrowed_stream(stream.cast()) };
    let Device::Cuda(found) = Device::from_stream(borrowed)? else { return Ok(own) };
    allocator::install(&found);
    known.insert((device.device_id, stream.addr()), found.clone());
    Ok(found)
}

/// The handle of the stream on which tensors of libraries without a current stream are used.
fn shared_stream(py: Python<'_>, device: DLDevice) -> PyResult<usize> {
    match Device::cuda(device.device_id as usize).map_err(|e| exception(py, &e))? {
        Device::Cuda(own) => Ok(own.stream().cu_stream() as usize),
        Device::Cpu => Ok(0),
    }
}

/// A stream of ours, for which a producer makes its tensor ready.
struct Consumer(usize);

// SAFETY: the stream is shared by the process and never destroyed; it is encoded as CUDA's convention asks.
unsafe impl DlpackStream for Consumer {
    fn as_python_arg(&self, _: Python<'_>, _: DLDevice) -> PyResult<StreamArg> {
        Ok(stream::cuda(self.0 as *mut c_void))
    }
}

/// Waits until all work is done that calls have queued on the stream of the process on a GPU, for libraries that cannot name
/// a stream of their own.
#[pyfunction]
pub(crate) fn synchronize(py: Python<'_>, ordinal: usize) -> PyResult<()> {
    py.detach(|| Device::cuda(ordinal)?.synchronize()).map_err(|e| exception(py, &e))
}
