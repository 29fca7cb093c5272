//! Whether the program was built for GPUs: the feature `gpu`.

use crate::Error;

/// A part of every device. Without the feature it has no values: no device can exist, and the compiler leaves out of the program
/// whatever needs one, which is planner, schedules and driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked {
    /// The program was built for GPUs.
    #[cfg(feature = "gpu")]
    Yes,
}

/// Says that the program was built for GPUs: every new device asks first.
///
/// # Errors
/// [`Error::NoCuda`] without the feature.
#[inline]
pub(super) fn linked() -> Result<Linked, Error> {
    #[cfg(feature = "gpu")]
    return Ok(Linked::Yes);
    #[cfg(not(feature = "gpu"))]
    Err(Error::NoCuda { reason: "the program was built without the feature `gpu` of oplus".into(), source: None })
}

impl Linked {
    /// Says that a device exists, where the compiler does not see it: nothing after this is in a program without the feature.
    #[inline]
    pub(super) fn exists(self) {
        match self {
            #[cfg(feature = "gpu")]
            Linked::Yes => {}
        }
    }
}
