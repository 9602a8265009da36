//! The definition of exported calls.

use core::marker::PhantomData;

use dat_api::handle::{Handle, Object, Pinned};
use dat_api::{DatError, Kind, Result, Subtype};

use super::handles::{names, ours, pin, refused_any};
use super::output::Out;
use crate::abi::{DAT_CONTEXT, DAT_HANDLE, DAT_OS_WAIT_PROXY_AGENT, DAT_REGION_DESCRIPTION};

/// Defines a call: `call!(NAME, |HANDLE: FOUND, ARGUMENT: TYPE, …| BODY)`.
///
/// If the handle belongs to another provider, the call goes to the function of this name in
/// that provider's table. Otherwise the body runs in [`control`](super::frame::control), or in
/// the frame that stands behind the name. The first argument is found as its type says
/// ([`First`]); the types of the others say how they are converted ([`Argument`]).
macro_rules! call {
    ($name:ident, |$($argument:ident: $type:ty),* $(,)?| $body:expr) => {
        $crate::face::call::call!($name, control, |$($argument: $type),*| $body);
    };
    ($name:ident, $frame:ident, |$($argument:ident: $type:ty),* $(,)?| $body:expr) => {
        $crate::face::call::own_call!($name, $frame, |$($argument: $type),*| $body, {
            $crate::providers::dispatch::foreign!($name($($argument),*));
        });
    };
}

/// As [`call`], for a call that the tables of providers do not have.
macro_rules! own_call {
    (
        $name:ident, $frame:ident,
        |$handle:ident: $found:ty $(, $argument:ident: $type:ty)* $(,)?| $body:expr $(, $before:block)?
    ) => {
        #[unsafe(export_name = symbol!($name))]
        #[allow(
            missing_docs,
            clippy::missing_safety_doc,
            clippy::too_many_arguments,
            reason = "the headers and the documentation of `exports` explain each call"
        )]
        pub unsafe extern "C" fn $name(
            $handle: $crate::abi::DAT_HANDLE
            $(, $argument: <$type as $crate::face::call::Argument>::C)*
        ) -> $crate::abi::DAT_RETURN {
            use $crate::face::call::First;
            $($before)?
            let subject = $crate::face::subject::on(<$found>::LABEL, $handle);
            $crate::face::frame::$frame(stringify!($name), subject, || {
                let $handle = <$found>::find($handle)?;
                // SAFETY: the contract of `exports`.
                $(let $argument: $type = unsafe {
                    $crate::face::call::Argument::from_c($argument)
                };)*
                $body
            })
        }
    };
}

pub(crate) use {call, own_call};

/// What a call finds by its first handle.
pub(crate) trait First: Sized {
    /// What messages call the handle.
    const LABEL: &'static str;

    /// Finds it.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    fn find(handle: DAT_HANDLE) -> Result<Self>;
}

/// An object that the call uses.
impl<T: Object> First for Pinned<T> {
    const LABEL: &'static str = names(T::KIND).label;

    #[inline(always)]
    fn find(handle: DAT_HANDLE) -> Result<Self> {
        pin(handle)
    }
}

/// The handle of a live object that the call frees: the call does not hold it.
pub(crate) struct Named<T>(pub(crate) Handle, PhantomData<T>);

impl<T: Object> First for Named<T> {
    const LABEL: &'static str = names(T::KIND).label;

    fn find(handle: DAT_HANDLE) -> Result<Self> {
        let found = super::handles::named(handle, T::KIND)?;
        Ok(Self(found, PhantomData))
    }
}

/// The handle of a live object of any kind.
pub(crate) struct Any {
    pub(crate) given: DAT_HANDLE,
    pub(crate) handle: Handle,
    pub(crate) kind: Kind,
}

impl Any {
    /// Returns the error for an object that was freed meanwhile.
    pub(crate) fn gone(&self) -> DatError {
        refused_any(self.given, "an object", Subtype::InvalidHandle1)
    }
}

impl First for Any {
    const LABEL: &'static str = "handle";

    fn find(given: DAT_HANDLE) -> Result<Self> {
        let live = |handle: Handle| Some((handle, handle.kind()?));
        match ours(given).and_then(live) {
            Some((handle, kind)) => Ok(Self {
                given,
                handle,
                kind,
            }),
            None => Err(refused_any(given, "an object", Subtype::InvalidHandle1)),
        }
    }
}

/// An argument of a call.
pub trait Argument {
    /// Its type in C.
    type C;

    /// Converts it.
    ///
    /// # Safety
    /// It meets the contract of `exports`.
    unsafe fn from_c(given: Self::C) -> Self;
}

impl<T> Argument for Out<T> {
    type C = *mut T;

    #[inline(always)]
    unsafe fn from_c(given: *mut T) -> Self {
        // SAFETY: `given` is null or writable.
        unsafe { Self::new(given) }
    }
}

/// Arguments that a call gets as C passes them.
macro_rules! unchanged {
    ($(<$($of:ident)?> $type:ty;)*) => {
        $(impl$(<$of>)? Argument for $type {
            type C = Self;

            #[inline(always)]
            unsafe fn from_c(given: Self) -> Self {
                given
            }
        })*
    };
}

unchanged! {
    <> i32;
    <> u32;
    <> u64;
    <T> *const T;
    <T> *mut T;
    <> DAT_CONTEXT;
    <> DAT_OS_WAIT_PROXY_AGENT;
    <> DAT_REGION_DESCRIPTION;
}
