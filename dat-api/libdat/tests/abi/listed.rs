//! The items of the generated `abi` with their names, which Rust cannot list by itself:
//! macros for the lists in `here.rs`.

use core::any::TypeId;
use std::collections::BTreeMap;

/// The parameters and the result of each function type, by its name.
pub(crate) type Signatures = BTreeMap<&'static str, (Vec<TypeId>, TypeId)>;

/// The parts of a function pointer's type.
pub(crate) trait Signature {
    fn parameters() -> Vec<TypeId>;
    fn result() -> TypeId;
}

macro_rules! signature {
    ($($parameter:ident)+) => {
        signature! { "C" $($parameter)+ }
        // For a call in which a thread may end.
        signature! { "C-unwind" $($parameter)+ }
    };
    ($abi:literal $($parameter:ident)+) => {
        impl<R: 'static, $($parameter: 'static),+> Signature
            for Option<unsafe extern $abi fn($($parameter),+) -> R>
        {
            fn parameters() -> Vec<TypeId> {
                vec![$(TypeId::of::<$parameter>()),+]
            }
            fn result() -> TypeId {
                TypeId::of::<R>()
            }
        }
    };
}

signature! { A }
signature! { A B }
signature! { A B C }
signature! { A B C D }
signature! { A B C D E }
signature! { A B C D E F }
signature! { A B C D E F G }
signature! { A B C D E F G H }
signature! { A B C D E F G H I }
signature! { A B C D E F G H I J }
signature! { A B C D E F G H I J K }
signature! { A B C D E F G H I J K L }

macro_rules! pointers {
    ($($name:ident)*) => {
        [$((
            stringify!($name),
            (
                <$name as $crate::abi::listed::Signature>::parameters(),
                <$name as $crate::abi::listed::Signature>::result(),
            ),
        )),*]
        .into()
    };
}

/// A type, and the pointers to it.
pub(crate) struct Type {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) id: TypeId,
    pub(crate) mutable: TypeId,
    pub(crate) constant: TypeId,
}

macro_rules! types {
    ($($name:ident)*) => {
        vec![$($crate::abi::listed::Type {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            id: core::any::TypeId::of::<$name>(),
            mutable: core::any::TypeId::of::<*mut $name>(),
            constant: core::any::TypeId::of::<*const $name>(),
        }),*]
    };
}

/// A member: name, offset, size. The generator adds `_` to a name that is a keyword.
pub(crate) fn member<T>(
    name: &'static str,
    offset: usize,
    _: *const T,
) -> (&'static str, usize, usize) {
    (name.trim_end_matches('_'), offset, size_of::<T>())
}

macro_rules! layouts {
    ($($name:ident { $($member:ident)* })*) => {
        vec![$({
            let value = core::mem::MaybeUninit::<$name>::uninit();
            let value = value.as_ptr();
            $crate::abi::facts::Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                members: vec![$({
                    // SAFETY: the place is within `value`, and nothing is read.
                    let place = unsafe { &raw const (*value).$member };
                    $crate::abi::listed::member(
                        stringify!($member),
                        core::mem::offset_of!($name, $member),
                        place,
                    )
                }),*],
            }
        }),*]
    };
}

macro_rules! values {
    ($($name:ident)*) => {
        vec![$((stringify!($name), i128::from($name))),*]
    };
}

pub(crate) use {layouts, pointers, types, values};
