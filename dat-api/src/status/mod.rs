//! `DAT_RETURN`: class, type and subtype in 32 bits (uDAPL 1.2, `dat/dat_error.h`).

mod codes;

pub use codes::{ReturnType, Subtype};

use core::fmt;

use crate::handle::Handle;
use crate::refusal::Refusal;

const CLASS_MASK: u32 = 0xc000_0000;
const CLASS_ERROR: u32 = 0x8000_0000;
const TYPE_MASK: u32 = 0x3fff_0000;
const SUBTYPE_MASK: u32 = 0x0000_ffff;

/// What a refused post returns. A post ends by a jump to the code of its path, so its caller cannot
/// convert what is returned: the slow path does, for a refusal.
pub trait ReturnCodes {
    /// Returns the code of a refusal by the interface's numbers. `call` is the name of the call in
    /// C, and `on` the object that was posted to.
    fn refuse(call: &'static str, on: Handle, refusal: Refusal) -> DatReturn;
}

/// The numbers of [`DatReturn`], which are those of uDAPL 1.2. The types of [`crate::safe`] get the
/// cause too.
#[derive(Debug)]
pub struct OwnCodes;

/// The result of a uDAPL call: 0 for success, otherwise the error class bit, a [`ReturnType`] and a
/// [`Subtype`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct DatReturn(u32);

impl DatReturn {
    /// `DAT_SUCCESS`, exactly 0.
    pub const SUCCESS: Self = Self(0);

    /// Returns an error. (`ReturnType::Success` gives [`Self::SUCCESS`].)
    pub const fn error(kind: ReturnType, subtype: Subtype) -> Self {
        match kind {
            ReturnType::Success => Self::SUCCESS,
            _ => Self(CLASS_ERROR | kind as u32 | subtype as u32),
        }
    }

    /// Returns the type and the subtype alone. It is an error, too: see [`Self::is_success`].
    #[must_use]
    pub const fn without_class(self) -> Self {
        Self(self.0 & !CLASS_MASK)
    }

    /// Wraps a value of the C interface, whatever it is.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the 32 bits of the C interface.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether the call succeeded.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// Converts to a `Result`.
    ///
    /// # Errors
    /// The value, unless it is [`Self::SUCCESS`].
    #[inline(always)]
    pub const fn into_result(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }

    /// Returns whether the class bits mean an error. Some providers return a type without them, so
    /// use [`Self::is_success`] to test for errors.
    pub const fn is_error_class(self) -> bool {
        self.0 & CLASS_MASK == CLASS_ERROR
    }

    /// Returns the type; `None` if the header has none with that number.
    pub fn kind(self) -> Option<ReturnType> {
        ReturnType::ALL
            .into_iter()
            .find(|kind| *kind as u32 == self.0 & TYPE_MASK)
    }

    /// Returns whether it is of this type, by one comparison, for polling loops.
    #[inline]
    #[must_use]
    pub const fn is(self, kind: ReturnType) -> bool {
        self.0 & TYPE_MASK == kind as u32
    }

    /// Returns the subtype; `None` if the header has none with that number.
    pub fn subtype(self) -> Option<Subtype> {
        Subtype::ALL
            .into_iter()
            .find(|subtype| *subtype as u32 == self.0 & SUBTYPE_MASK)
    }
}

impl From<Result<(), DatReturn>> for DatReturn {
    #[inline(always)]
    fn from(result: Result<(), Self>) -> Self {
        match result {
            Ok(()) => Self::SUCCESS,
            Err(code) => code,
        }
    }
}

impl fmt::Display for DatReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind(), self.subtype()) {
            (Some(kind), Some(Subtype::NoSubtype)) => f.write_str(kind.name()),
            (Some(kind), Some(subtype)) => write!(f, "{} ({})", kind.name(), subtype.name()),
            _ => write!(f, "unknown DAT_RETURN {:#010x}", self.0),
        }
    }
}

impl core::error::Error for DatReturn {}

impl fmt::Debug for DatReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} {self}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_header() {
        let bad_ep = DatReturn::error(ReturnType::InvalidHandle, Subtype::InvalidHandleEp);
        assert_eq!(bad_ep.bits(), 0x8005_000c);
        let bad_arg = DatReturn::error(ReturnType::InvalidParameter, Subtype::InvalidArg1);
        assert_eq!(bad_arg.bits(), 0x8006_0024);
        assert_eq!(
            DatReturn::error(ReturnType::Success, Subtype::InvalidArg1),
            DatReturn::SUCCESS
        );
    }

    #[test]
    fn every_pair_survives_the_32_bits() {
        for kind in ReturnType::ALL {
            for subtype in Subtype::ALL {
                let value = DatReturn::error(kind, subtype);
                if kind == ReturnType::Success {
                    assert!(value.is_success());
                    continue;
                }
                assert!(value.is_error_class(), "{value:?}");
                assert_eq!((value.kind(), value.subtype()), (Some(kind), Some(subtype)));
            }
        }
    }

    #[test]
    fn numbers_within_an_enumeration_are_distinct_and_fit_their_bits() {
        for (i, kind) in ReturnType::ALL.into_iter().enumerate() {
            assert_eq!(kind as u32 & !TYPE_MASK, 0, "{kind:?}");
            assert!(
                ReturnType::ALL[..i]
                    .iter()
                    .all(|other| *other as u32 != kind as u32)
            );
        }
        for (i, subtype) in Subtype::ALL.into_iter().enumerate() {
            assert_eq!(subtype as usize, i, "subtypes count from 0 without gaps");
        }
    }

    #[test]
    fn both_forms_of_a_name_agree() {
        let names = ReturnType::ALL.map(|kind| (kind.name(), kind.c_name()));
        let details = Subtype::ALL.map(|subtype| (subtype.name(), subtype.c_name()));
        for (name, c_name) in names.into_iter().chain(details) {
            assert_eq!(c_name.to_str(), Ok(name));
        }
    }

    #[test]
    fn foreign_values_are_named_or_called_unknown() {
        assert_eq!(
            DatReturn::from_bits(0x000f_0000).to_string(),
            "DAT_TIMEOUT_EXPIRED"
        );
        assert_eq!(
            DatReturn::from_bits(0x8005_000c).to_string(),
            "DAT_INVALID_HANDLE (DAT_INVALID_HANDLE_EP)"
        );
        assert_eq!(
            DatReturn::from_bits(0x8005_ffff).to_string(),
            "unknown DAT_RETURN 0x8005ffff"
        );
        assert_eq!(DatReturn::from_bits(0x9234_0000).kind(), None);
    }
}
