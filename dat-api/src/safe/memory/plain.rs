//! Values that are copied as their bytes.

/// A number, or an array of numbers: any bytes are a value, and all its bytes have values. Only this
/// crate implements it.
pub trait Plain: Copy + 'static + sealed::Plain {}

mod sealed {
    /// # Safety
    /// Any bytes are a value, and there is no padding.
    pub unsafe trait Plain {}
}

macro_rules! plain {
    ($($T:ty)*) => {$(
        // SAFETY: a primitive number.
        unsafe impl sealed::Plain for $T {}
        impl Plain for $T {}
    )*};
}

plain! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }

// SAFETY: the elements follow each other without a gap.
unsafe impl<T: Plain, const N: usize> sealed::Plain for [T; N] {}
impl<T: Plain, const N: usize> Plain for [T; N] {}
